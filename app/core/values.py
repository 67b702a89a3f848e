"""Values that never change, at less than what Python's own frozen dataclasses take to make."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[_T]) -> type[_T]:
    """Make the class a dataclass with slots, compared and hashed by its fields, to which nobody may assign.

    The type checker refuses an assignment; at run time it is not refused. `dataclass(frozen=True)` refuses both, and
    takes three times as long to make one, as it sets each field through `object.__setattr__` (ADR 0248). So this is
    for what each command makes anew.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
