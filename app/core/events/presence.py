"""Presence of devices: decided from their signs of life, what they say of themselves, and silence."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import timedelta
from heapq import heappop, heappush
from typing import Final, NamedTuple

from app.core.events.event import Entry, Position

MOST_DEVICES: Final = 200_000
"""Devices that are looked after; of further ones nothing is known."""
PREFIX: Final = "$homing/devices/"
SUFFIX: Final = "/presence"
FILTER: Final = f"{PREFIX}+{SUFFIX}"
"""The filter of the topics on which changes are told. `#` does not match them."""
KIND: Final = "homing:presence"
_TOPIC: Final = re.compile(re.escape(PREFIX) + "([^/]+)" + re.escape(SUFFIX))


@dataclass(frozen=True, slots=True)
class Change:
    """A device has come or gone. `offline_after` is the silence after which it counts as gone; None: never."""

    device_id: str
    online: bool
    offline_after: timedelta | None = None
    said: bool = True
    """True if a message says so, of the device or its will; else its silence does."""


class Whereabouts(NamedTuple):
    """A device is there or not, or None if nobody knows, since an instant in microseconds since 1970."""

    online: bool | None
    since: Position | None = None


@dataclass(slots=True)
class _KnownPresence:
    online: bool
    patience: timedelta | None = None
    until: float | None = None
    queued: bool = False


def topic_of(device_id: str) -> str:
    """The topic where the changes of a device are told."""
    return f"{PREFIX}{device_id}{SUFFIX}"


def entry_of(change: Change, at: Position) -> Entry:
    """The change as an event. `at` is when it was noticed, in microseconds since 1970."""
    after = None if change.offline_after is None else change.offline_after / timedelta(seconds=1)
    value = {"online": change.online, "since": at, "offline_after_s": after, "said": change.said}
    return Entry(topic_of(change.device_id), json.dumps(value).encode(), change.device_id, KIND)


def change_of(entry: Entry) -> tuple[Change, Position] | None:
    """The change that an event tells, and since when; None when it tells none."""
    found = _TOPIC.fullmatch(entry.topic)
    try:
        value = json.loads(entry.value)
        after = value["offline_after_s"]
        patience = None if after is None else timedelta(seconds=after)
        # Of nodes before there was this, nobody knows.
        said = value.get("said") is True
        change = Change(found[1] if found else "", bool(value["online"]), patience, said)
        return (change, int(value["since"])) if found else None
    except (ValueError, KeyError, TypeError):
        return None


class Presences:
    """The devices that have ever been heard of, `most` of them. `now` is in monotonic seconds everywhere."""

    def __init__(self, most: int = MOST_DEVICES) -> None:
        self._most = most
        self._known: dict[str, _KnownPresence] = {}
        self._due: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._known)

    def load(self, change: Change, now: float) -> None:
        """Know what was noticed before. Silence counts from now on: nobody has listened meanwhile."""
        known = self._known[change.device_id] = _KnownPresence(change.online)
        self._patient(change.device_id, known, change.offline_after, now)

    def heard(self, device_id: str, now: float, offline_after: timedelta | None, *, online: bool) -> Change | None:
        """A device has given a sign, or says that it goes; the change, if it is one."""
        known = self._known.get(device_id)
        if known is None:
            if len(self._known) >= self._most:
                return None
            known = self._known[device_id] = _KnownPresence(not online)
        changed = known.online is not online
        known.online = online
        self._patient(device_id, known, offline_after, now)
        return Change(device_id, online, known.patience) if changed else None

    def undo(self, device_id: str, *, online: bool) -> None:
        """A change could not be told: the next sign of the device is one again, or the next look at its silence."""
        known = self._known.get(device_id)
        if known is None or known.online is not online:
            return
        known.online = not online
        if known.online and known.until is not None and not known.queued:
            self._queue(device_id, known, known.until)

    def again(self, now: float) -> None:
        """Silence counts from now on: nobody could be heard before."""
        for device_id, known in self._known.items():
            if known.online:
                self._patient(device_id, known, None, now)

    def silent(self, now: float) -> list[Change]:
        """Devices that have been silent for too long: they have gone."""
        gone = []
        while self._due and self._due[0][0] <= now:
            _, device_id = heappop(self._due)
            known = self._known[device_id]
            known.queued = False
            if not known.online or known.until is None:
                continue
            if known.until > now:
                self._queue(device_id, known, known.until)
            else:
                known.online = False
                gone.append(Change(device_id, online=False, offline_after=known.patience, said=False))
        return gone

    def _patient(self, device_id: str, known: _KnownPresence, offline_after: timedelta | None, now: float) -> None:
        if offline_after is not None:
            known.patience = offline_after
        if known.patience is None:
            return
        known.until = now + known.patience.total_seconds()
        if known.online and not known.queued:
            self._queue(device_id, known, known.until)

    def _queue(self, device_id: str, known: _KnownPresence, until: float) -> None:
        """One place for each device, which is looked at when its first silence would be over."""
        known.queued = True
        heappush(self._due, (until, device_id))
