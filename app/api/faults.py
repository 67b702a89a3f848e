"""The faults that pydantic finds in what a caller sends, in the words of the API: a field by its own name, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

_NO_VALUE: Final = "none_required"
"""The kind of fault that a value has because it is not null, as it may be: the fault beside it says what is wrong."""
_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys(("model_type", "model_attributes_type", "dict_type"), "Input should be a JSON object")
    | {"list_type": "Input should be a JSON array"}
)


class FieldFault(NamedTuple):
    """The fault of one field."""

    field: str
    reason: str


def faults_of(errors: Iterable[Mapping[str, Any]]) -> list[FieldFault]:
    """The faults of `ValidationError.errors()`, without the alternatives that pydantic has tried for a field."""
    found = tuple(errors)
    tried = {tuple(one["loc"][:-1]) for one in found if one["type"] == _NO_VALUE}
    return [
        FieldFault(_field(one["loc"], tried), _REASONS.get(one["type"]) or one["msg"].removeprefix("Value error, "))
        for one in found
        if one["type"] != _NO_VALUE
    ]


def _field(place: Sequence[int | str], tried: set[tuple[int | str, ...]]) -> str:
    """The way to the field. Behind one that may be null pydantic names the alternative that the fault is of."""
    return ".".join(str(part) for at, part in enumerate(place) if tuple(place[:at]) not in tried)
