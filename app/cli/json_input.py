"""JSON that people type, or hand over in a file: the node takes no other."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn


def parse_json(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """The value; ValueError for what is no JSON, and for what none can be made of again (RFC 8259, section 6)."""
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is too deep") from None


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:32]} is too large a number")
    return value


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
