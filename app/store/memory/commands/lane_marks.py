"""Two marks that lanes in memory leave at a device: when something was sent through one last, and that it stands."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from app.core.profiles.lanes import SLOWEST_PACE
from app.store.holds import LaneStop
from app.store.rules import micros

LANE_ROW: Final = "l"


@dataclass(slots=True)
class LaneMembers:
    """The commands in a lane of a device."""

    waiting: dict[str, None] = field(default_factory=dict)
    in_flight: dict[str, None] = field(default_factory=dict)


class LaneMarks:
    """A lane is named by the topic that stands for its place at a device."""

    def __init__(self, changed: Callable[[tuple[str, ...]], None]) -> None:
        self._changed = changed
        self._sent_at: dict[str, int] = {}
        """The longest ago first, so that what nobody asks for any more goes."""
        self._stops: dict[str, LaneStop] = {}

    def __len__(self) -> int:
        return len(self._sent_at.keys() | self._stops.keys())

    def sent_at(self, topic: str) -> int | None:
        """Return when a command left through the lane last (µs), as far as a pace may ask for it."""
        return self._sent_at.get(topic)

    def stop_of(self, topic: str) -> LaneStop | None:
        """Return why those that wait in the lane do not go on; None where they do."""
        return self._stops.get(topic)

    def sent(self, topic: str, now: int) -> None:
        """Note that a command leaves."""
        self._sent_at.pop(topic, None)
        self._sent_at[topic] = now
        self._changed((LANE_ROW, topic))

    def stop(self, topic: str, stop: LaneStop) -> None:
        """Note that a command has ended after which the others wait for a person; the first one counts."""
        if self._stops.setdefault(topic, stop) is stop:
            self._changed((LANE_ROW, topic))

    def resume(self, topic: str, stopped_by: str) -> LaneStop | None:
        """Let those go on that wait since the end of this command, and return why they did not."""
        stop = self._stops.get(topic)
        if stop is None or stop.command_id != stopped_by:
            return None
        del self._stops[topic]
        self._changed((LANE_ROW, topic))
        return stop

    def forget(self, now: int) -> None:
        """Forget what is longer ago than any pace."""
        before = now - micros(SLOWEST_PACE)
        while self._sent_at and self._sent_at[topic := next(iter(self._sent_at))] <= before:
            del self._sent_at[topic]
            self._changed((LANE_ROW, topic))

    def kept(self, topic: str) -> bytes | None:
        """Return the marks of a lane as a row; None where it has none."""
        sent_at, stop = self._sent_at.get(topic), self._stops.get(topic)
        if sent_at is None and stop is None:
            return None
        return json.dumps([sent_at, None if stop is None else [stop.at, stop.command_id]]).encode()

    def restore(self, topic: str, row: bytes) -> None:
        """Put the marks of a row in place; ValueError or TypeError where it is damaged."""
        sent_at, stop = json.loads(row)
        if sent_at is not None:
            self._sent_at[topic] = int(sent_at)
        if stop is not None:
            at, command_id = stop
            self._stops[topic] = LaneStop(int(at), str(command_id))

    def restored(self) -> None:
        """Have the longest ago first again, once all rows are in place."""
        self._sent_at = dict(sorted(self._sent_at.items(), key=lambda one: one[1]))
