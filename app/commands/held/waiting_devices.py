"""The devices that wait for held commands, as this node knows them, and when each is looked at next."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Final
from zlib import crc32

from app.callbacks.observer import Observer
from app.core.clock import Clock
from app.core.commands.routing import Follower
from app.core.events.presence import Whereabouts
from app.core.identifiers import partition_of
from app.runtime.listeners import Listeners
from app.runtime.telemetry import Fill
from app.store.holds import HeldEntry

SOON: Final = 0.02
"""A device that was heard is looked at so many seconds later: what it said may be on its way into the event log."""
SHORTEST_PAUSE: Final = 0.1
"""The time between two looks at a device of which it is known when something that it waits for comes."""
LEAST_PAUSE: Final = 1.0
"""The time between two looks at a device that goes on speaking."""
FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 300.0
"""Looks at a device that is not heard: so many seconds after the first one, then twice as many, up to the longest."""
A_SECOND: Final = 500
"""The number of devices heard at once that are looked at in a second, if nobody says otherwise."""
LONGEST_SPREAD: Final = 30.0
UNHEARD_A_SECOND: Final = 200
"""The number of devices that are looked at in a second at most, by all nodes, though they were not heard."""
LATELY: Final = 30.0
"""A device that was heard within so many seconds is taken to be there."""
MOST_DEVICES: Final = 100_000


def rest_of(claims: int, *, heard: bool) -> float:
    """The seconds that a command rests after so many claims that were given back; fewer where its device speaks."""
    if heard:
        return min(60.0, LEAST_PAUSE * 1.3 ** min(claims - 1, 99))
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(claims - 1, 99))


@dataclass(slots=True)
class WaitingDevice:
    """A device, the ids of its held commands, and when it is looked at; instants are on the monotonic clock."""

    device_id: str
    ids: dict[str, None] = field(default_factory=dict)
    due: float = inf
    not_before: float = 0.0
    looks: int = 0
    """The number of fruitless looks since it was heard last."""
    heard_at: float = -inf
    back_at: float = -inf
    """The instant at which it was heard after it had said nothing for `LATELY`."""
    there_since: int | None = None
    """The instant since which it is there (µs), as its presence has said."""
    known_at: float = -inf
    """The instant since which this node knows that."""
    unheeded: bool = False
    """It was heard since the last look began."""
    busy: bool = False
    """It is looked at now."""
    partition: int = field(init=False)

    def __post_init__(self) -> None:
        self.partition = partition_of(self.device_id)


class WaitingDevices(Observer):
    """Holds at most `MOST_DEVICES`; further ones are found again by reading once there is room."""

    def __init__(self, clock: Clock, a_second: int = A_SECOND) -> None:
        """`a_second` is the number of devices that are looked at in a second, where thousands come at once."""
        self._a_second: Final = a_second
        self.changed: Final[Listeners[[]]] = Listeners()
        """Called when a device is to be looked at earlier than it was known before."""
        self._now = clock.monotonic
        self._devices: dict[str, WaitingDevice] = {}
        self._due: list[tuple[float, str]] = []
        self._turns: dict[str, None] = {}
        """Devices of which it is known that something may be sent now."""
        self._fresh: set[str] = set()
        """Ids that were noted after the last reading had begun, which may not have found them."""

    def __len__(self) -> int:
        return len(self._devices)

    def __contains__(self, device_id: object) -> bool:
        return device_id in self._devices

    def fills(self) -> dict[str, Fill]:
        """The fill of it."""
        return {"held_devices": Fill(len(self._devices), MOST_DEVICES)}

    def heard(self, device_id: str, profile: str = "", topic: str = "") -> None:
        """Look at a device that has said something, soon."""
        del profile, topic
        if (device := self._devices.get(device_id)) is not None:
            if not self.lately_heard(device):
                device.back_at = self._now()
            device.heard_at, device.looks, device.unheeded = self._now(), 0, True
            self._look_at(device, max(self._now() + SOON + self._spread(device_id), device.not_before))

    def next_in_lane(self, follower: Follower) -> None:
        """Look at the device at once: a command of it may have a place in its lane now."""
        device = self.add(follower.device_id, follower.command_id)
        if device is not None:
            self.take_turn(device)

    def add(self, device_id: str, command_id: str) -> WaitingDevice | None:
        """Note a command that was held just now, or again; the device of it, None without room."""
        device = self._devices.get(device_id)
        if device is None:
            if len(self._devices) >= MOST_DEVICES:
                return None
            device = self._devices[device_id] = WaitingDevice(device_id)
        device.ids[command_id] = None
        self._fresh.add(command_id)
        return device

    def drop(self, device_id: str, command_id: str) -> None:
        """Forget a command that is not held any more."""
        device = self._devices.get(device_id)
        if device is not None:
            device.ids.pop(command_id, None)
            if not device.ids and not device.busy:
                del self._devices[device_id]

    def begin_reading(self) -> None:
        """Note that the store is read from now on."""
        self._fresh.clear()

    def read(self, entries: Iterable[HeldEntry], unread: Container[int] = ()) -> list[WaitingDevice]:
        """Take over what the store has, and leave devices of `unread` partitions alone; those that are waited for."""
        found: dict[str, dict[str, None]] = {}
        for one in entries:
            found.setdefault(one.device_id, {})[one.command_id] = None
        for device_id, device in [*self._devices.items()]:
            if device.partition in unread:
                continue
            ids = found.pop(device_id, {})
            if self._fresh:  # else as for most of thousands, in a step that keeps others waiting
                ids |= dict.fromkeys(one for one in device.ids if one in self._fresh)
            device.ids = ids
            if not device.ids and not device.busy:
                del self._devices[device_id]
        for device_id, ids in found.items():
            if len(self._devices) < MOST_DEVICES:
                self._devices[device_id] = WaitingDevice(device_id, ids)
        return self.known()

    def known(self) -> list[WaitingDevice]:
        """Return the devices that are waited for, as far as this node knows."""
        return [*self._devices.values()]

    def take_turn(self, device: WaitingDevice) -> None:
        """Look at the device now, and before all those that are heard or looked for."""
        device.due = min(device.due, self._now())
        self._turns[device.device_id] = None
        self.changed()

    def keep_looking(self, device: WaitingDevice) -> None:
        """Look at the device now and then, as far as nobody looks at it already."""
        if device.due == inf and not device.busy:
            self._look_at(device, max(self._now() + self._spread(device.device_id), device.not_before))

    def turn_taken(self) -> WaitingDevice | None:
        """Return a device that has its turn; its next look is not before the end of this one."""
        while self._turns:
            device_id = next(iter(self._turns))
            del self._turns[device_id]
            device = self._devices.get(device_id)
            if device is not None and not device.busy:
                device.due, device.busy = inf, True
                return device
        return None

    def taken(self) -> WaitingDevice | None:
        """A device that is due, besides those that have their turn; its next look is not before the end of this one."""
        while self._due and self._due[0][0] <= self._now():
            at, device_id = heapq.heappop(self._due)
            device = self._devices.get(device_id)
            if device is not None and device.due == at and not device.busy:
                device.due, device.busy = inf, True
                return device
        return None

    def looked(self, device: WaitingDevice, *, fruitless: bool, failed: bool = False, again_in: float = inf) -> None:
        """Note the end of a look. After a fruitless one the next is a while later, and earlier if it is heard.

        One that `failed`, as the store did not answer or this node had no room, says nothing of the device: the next
        comes soon. It is no later than in `again_in` seconds, when something that was waited for is known to come.
        """
        now, wanted = self._now(), device.due
        device.busy, device.due = False, inf
        if not device.ids:
            self._devices.pop(device.device_id, None)
            return
        device.not_before = now + LEAST_PAUSE
        if wanted <= now:  # it got its turn meanwhile
            self.take_turn(device)
            return
        pause = 0.0  # what waits now came while it was looked at
        if failed:
            pause = min(max(LEAST_PAUSE, len(self._devices) / UNHEARD_A_SECOND), max(again_in, SHORTEST_PAUSE))
        elif fruitless:
            # What a device has said may not have been where it was looked for yet.
            unheard = max(FIRST_PAUSE, len(self._devices) / UNHEARD_A_SECOND)
            first = LEAST_PAUSE if self.lately_heard(device) else unheard
            pause = min(LONGEST_PAUSE, first * 2.0**device.looks, max(again_in, SHORTEST_PAUSE))
            device.looks += 1
        self._look_at(device, max(now, min(wanted, now + pause)))

    def heed(self, device: WaitingDevice) -> bool:
        """Return whether a look that begins now takes the device to be there.

        A device that spoke once, and whose look had to wait for others, is not taken to be away for that.
        """
        heard, device.unheeded = device.unheeded or self.lately_heard(device), False
        return heard

    def lately_heard(self, device: WaitingDevice) -> bool:
        """Return whether it has said something within `LATELY`."""
        return self._now() - device.heard_at <= LATELY

    def known_for(self, device: WaitingDevice, place: Whereabouts) -> float:
        """Return for how many seconds this node has known that the device is back; inf where it never was away."""
        if not place.online:
            return self._now() - device.back_at
        if place.since != device.there_since:
            device.there_since, device.known_at = place.since, self._now()
        return self._now() - device.known_at

    def seconds_to_next(self) -> float | None:
        """The time until a device is due; None while none will be."""
        if self._turns:
            return 0.0
        return max(0.0, self._due[0][0] - self._now()) if self._due else None

    @property
    def overdue(self) -> float:
        """The seconds for which the device that is due first has been so."""
        first = self._devices.get(next(iter(self._turns), ""))
        due = [self._due[0][0]] if self._due else []
        return max(0.0, self._now() - min([*due, *(() if first is None else (first.due,))], default=inf))

    def _look_at(self, device: WaitingDevice, at: float) -> None:
        if at < device.due:
            device.due = at
            heapq.heappush(self._due, (at, device.device_id))
            if self._due[0][1] == device.device_id:
                self.changed()

    def _spread(self, device_id: str) -> float:
        """Thousands that are heard at once are not looked at at once: each has its own place in that time."""
        over = len(self._devices) / self._a_second
        return 0.0 if over < 1 else min(LONGEST_SPREAD, over) * (crc32(device_id.encode()) % 1000) / 1000
