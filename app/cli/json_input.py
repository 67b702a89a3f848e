"""JSON that people type, or hand over in a file: the node takes no other."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, NoReturn


class RepeatedKeyError(ValueError):
    """An object has a key twice: nobody can tell which of its values was meant (RFC 8259, section 4)."""


def parse_json(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """The value; ValueError for what is no JSON, and for what none can be made of again (RFC 8259, section 6).

    RepeatedKeyError.
    """
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("it is too deep") from None


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:32]} is too large a number")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise RepeatedKeyError(f"the key {twice[:32]!a} is there twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
