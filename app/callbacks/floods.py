"""Devices that answer what nobody has asked, and so often that looking each of it up would hold up all others."""

from __future__ import annotations

from collections import Counter
from typing import Final

from app.core.clock import Clock

MOST_A_SECOND: Final = 200
"""The unknown responses of one device that are looked up within a second; a restarted device repeats a few."""
MOST_DEVICES: Final = 10_000
"""The devices that are counted at a time."""


class Floods:
    """Counts by device, in windows of a second. Who goes over the limit waits for the next one."""

    def __init__(self, clock: Clock, most: int = MOST_A_SECOND, devices: int = MOST_DEVICES) -> None:
        """`most` of a device pass within a second; `devices` are counted at a time."""
        self._clock = clock
        self._most = most
        self._devices = devices
        self._counted: Counter[str] = Counter()
        self._ends_at = 0.0
        self._flooding = False

    def count(self, device_id: str) -> None:
        """Note one more of this device."""
        now = self._clock.monotonic()
        if now >= self._ends_at:
            self._counted.clear()
            self._flooding = False
            self._ends_at = now + 1.0
        if device_id in self._counted or len(self._counted) < self._devices:
            self._counted[device_id] += 1
            self._flooding = self._flooding or self._counted[device_id] >= self._most

    def holds_back(self, device_id: str) -> bool:
        """True if what this device says now is dropped unread. Costs next to nothing while nobody floods."""
        return self._flooding and self._counted[device_id] >= self._most and self._clock.monotonic() < self._ends_at
