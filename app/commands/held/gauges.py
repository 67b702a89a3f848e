"""Counts of held commands, by what they wait for, for `/metrics`: as this node found them at their devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from app.core.commands.command import WaitReason
from app.runtime.families import Family, Labels

HELD: Final = Family(
    "homing_held",
    "gauge",
    "Held commands of devices that this node has looked at, by what they waited for",
    ("waits_for",),
)
OLDEST: Final = Family(
    "homing_held_oldest_seconds", "gauge", "The age of the oldest of them, by what they waited for", ("waits_for",)
)
STOPPED: Final = Family(
    "homing_lanes_stopped", "gauge", "Lanes of those devices in which commands wait until a person has them go on"
)
OVERDUE: Final = Family(
    "homing_held_overdue_seconds", "gauge", "How long the device that this node is to look at next has been due"
)
FAMILIES: Final = (HELD, OLDEST, STOPPED, OVERDUE)
OTHER: Final = "other"
"""The device is there: an interlock or the broker is waited for, or a topic that another command occupies."""
_WORDS: Final = (*WaitReason, OTHER)


class HeldSighting(NamedTuple):
    """A held command as it was found. `created_at` is in microseconds on the store's clock."""

    waits_for: str
    created_at: int
    stopped: str | None = None
    """The lane in which it waits for a person."""


class WaitingPlace(Protocol):
    """The devices that wait."""

    def __contains__(self, device_id: object) -> bool:
        """True if something waits for the device."""

    @property
    def overdue(self) -> float:
        """The seconds for which the one that is due first has been so."""


class HeldGauges:
    """`waiting` has the devices that wait; `seconds_to` says how long it is to an instant on the store's clock."""

    def __init__(self, waiting: WaitingPlace, seconds_to: Callable[[int], float]) -> None:
        self._waiting = waiting
        self._seconds_to = seconds_to
        self._seen: dict[str, Sequence[HeldSighting]] = {}

    def saw(self, device_id: str, found: Sequence[HeldSighting]) -> None:
        """Note what waits for a device, in place of what was noted before."""
        self._seen.pop(device_id, None)
        if found:
            self._seen[device_id] = found

    def shown(self) -> list[tuple[Family, Mapping[Labels, float]]]:
        """Return what is known now."""
        for device_id in [one for one in self._seen if one not in self._waiting]:
            del self._seen[device_id]
        counts, oldest, stopped = Counter[str](), dict[str, int](), set[tuple[str, str]]()
        for device_id, found in self._seen.items():
            for one in found:
                if one.stopped is not None:
                    stopped.add((device_id, one.stopped))
                counts[one.waits_for] += 1
                oldest[one.waits_for] = min(one.created_at, oldest.get(one.waits_for, one.created_at))
        ages: dict[Labels, float] = {
            (word,): max(0.0, -self._seconds_to(oldest[word])) if word in oldest else 0.0 for word in _WORDS
        }
        return [
            (HELD, {(word,): counts[word] for word in _WORDS}),
            (OLDEST, ages),
            (STOPPED, {(): len(stopped)}),
            (OVERDUE, {(): self._waiting.overdue}),
        ]
