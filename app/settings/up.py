"""The settings of `homing up`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, field_validator

from app.core.memory import DEFAULT_MEMORY, MemoryShares
from app.core.sizes import parse_size
from app.settings.fields import SettingsGroup


def read_size(value: object) -> object:
    """Sizes are written as `256MiB`; other values pass."""
    return parse_size(value) if isinstance(value, str) else value


class UpSettings(SettingsGroup):
    """A node that is everything in one process."""

    memory: Annotated[int, BeforeValidator(read_size), Field(le=2**40)] = DEFAULT_MEMORY
    """The memory that the process may take, as `256MiB` or `2GiB`. Bounds that are not set follow from it."""

    @field_validator("memory")
    @classmethod
    def _large_enough(cls, value: int) -> int:
        MemoryShares.of(value)
        return value
