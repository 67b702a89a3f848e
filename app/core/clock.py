"""Ports for time and ids, so that nothing in Homing reads a clock or makes an id on its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Two clocks that never mix: one to measure with, one to show to people."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary point; only differences mean anything."""

    def wall(self) -> float:
        """Seconds since the Unix epoch, as this machine believes."""


IdFactory = Callable[[], str]
"""Makes a new ULID (26 characters, 80 random bits): https://github.com/ulid/spec."""


def wall_us(clock: Clock) -> int:
    """Microseconds since the Unix epoch, as this machine believes: the unit of everything that is stored."""
    return round(clock.wall() * 1_000_000)
