"""Judges whether a held command may be sent now: its device is there, its caller may, and its interlocks hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum, auto
from math import inf
from typing import Final

import orjson

from app.commands.held.run_standings import RunStanding
from app.commands.held.store_time import StoreTime
from app.commands.held.waiting_devices import rest_of
from app.commands.send.admission import CommandAdmission
from app.commands.send.publisher import Publisher
from app.commands.send.registrar import CommandRequest
from app.core.commands.command import Command, IfOffline, WaitReason
from app.core.errors import (
    AccessError,
    HomingError,
    InterlockBlindError,
    InterlockError,
    InvalidInputError,
    UnavailableError,
)
from app.core.events.presence import Whereabouts
from app.core.profiles.lanes import CommandLane, LaneOrder
from app.store.holds import HoldStore, Waits

BLIND_US: Final = 1_000_000
"""Commands with interlocks wait for so long without asking an event log that has told nothing.

Each would wait for its answer for a second, and a device may have a hundred, behind which other devices stand.
"""


class Readiness(StrEnum):
    """The fate of a held command at this moment."""

    WAITS = auto()
    UNAPPROVED = auto()
    """It waits for a second person."""
    EARLY = auto()
    """It waits for its instant, which is known."""
    COMING = auto()
    """Its device is back, and does not listen yet."""
    READY = auto()
    RUN_STANDS = auto()
    """Its fleet run is paused, or is being aborted."""
    RUN_OVER = auto()
    """Its fleet run has ended."""
    REFUSED = auto()
    """The caller who had it held may not send it any more."""


_OF_RUN: Final[Mapping[RunStanding, Readiness]] = {
    RunStanding.STANDS: Readiness.RUN_STANDS,
    RunStanding.OVER: Readiness.RUN_OVER,
}


@dataclass(frozen=True, slots=True)
class DeviceSigns:
    """The signs by which a device is taken to be there. `heard` tells that it has said something lately."""

    online: bool | None
    """None where nobody knows."""
    heard: bool = False
    back_for: float = inf
    """The seconds since it came back."""


class HeldJudge:
    """`may` judges the right of the caller of a held command, as it is now; `renew` reads the rules anew for that.

    `whereabouts` says where a device is.

    `run_stands` tells how a fleet run stands. `time` is that of the store, whose instants are compared with
    nothing else. `now_us` is this node's time, in microseconds since 1970.
    """

    def __init__(
        self,
        *,
        store: HoldStore,
        publisher: Publisher,
        admission: CommandAdmission,
        may: Callable[[Command], None],
        whereabouts: Callable[[str], Awaitable[Whereabouts]],
        run_stands: Callable[[str], Awaitable[RunStanding]],
        time: StoreTime,
        renew: Callable[[], Awaitable[None]],
        now_us: Callable[[], int],
    ) -> None:
        self._store = store
        self._publisher = publisher
        self._admission = admission
        self._may = may
        self._renew = renew
        self.whereabouts = whereabouts
        self._run_stands = run_stands
        self._time = time
        self._now_us = now_us
        self._blind_at = 0

    async def judge(self, command: Command, signs: DeviceSigns) -> Readiness:
        """Judge it by the signs of its device.

        Where nobody knows whether the device is there, the broker may: it says so when nobody is subscribed.
        """
        if command.awaits_approval:
            return Readiness.UNAPPROVED
        if self._too_early(command):
            return Readiness.EARLY
        waits_for_device = command.if_offline is IfOffline.HOLD  # else for its lane alone
        there = not waits_for_device or self.is_there(command.profile, command.method, signs)
        if not there or not self._publisher.connected or self._rests(command, signs) or self._is_blind(command):
            return Readiness.WAITS
        if waits_for_device and self.seconds_to_ready(command.profile, signs) > 0:
            return Readiness.COMING
        return await self._allowed(command)

    async def _allowed(self, command: Command) -> Readiness:
        """Judge a command whose device is there."""
        try:
            if (of_run := _OF_RUN.get(await self._standing(command))) is not None:
                return of_run
            try:
                await self._check(command)
            except AccessError:
                await self._renew()
                await self._check(command)
        except AccessError:
            return Readiness.REFUSED
        except InterlockBlindError:
            self._blind_at = self._now_us()
            return Readiness.WAITS
        except (InterlockError, InvalidInputError, UnavailableError):
            return Readiness.WAITS
        return Readiness.READY

    def signs(self, place: Whereabouts, *, heard: bool = False, known_for: float = 0.0) -> DeviceSigns:
        """Return the signs of a device. `known_for` are the seconds for which this node has known that it is back.

        These count where it told of its return by a clock that is ahead of this node's.
        """
        if not place.online:
            return DeviceSigns(place.online, heard, known_for if heard else inf)
        since = inf if place.since is None else (self._now_us() - place.since) / 1_000_000
        return DeviceSigns(place.online, heard, max(since, known_for))

    def is_there(self, profile: str, method: str, signs: DeviceSigns) -> bool:
        """Return whether a device is there for commands that wait for it, or the broker would tell if it is not."""
        if signs.online is not None or signs.heard:
            return signs.online is not False
        return self._publisher.absence.tells(profile) and self._admission.has_puback(profile, method)

    def seconds_to_ready(self, profile: str, signs: DeviceSigns) -> float:
        """Return how long it is until a device that came back listens, by its profile; none where it was not away."""
        return max(0.0, self._admission.ready_after(profile).total_seconds() - signs.back_for)

    async def why(self, command: Command) -> Sequence[str]:
        """Say what a held command waits for at this moment, as far as this node knows."""
        reasons = []
        if command.approval is not None and command.awaits_approval:
            left = self.seconds_to(command.approval.until)
            reasons.append(f"a second person has to approve it within {max(0.0, left):.0f} s")
        if self._too_early(command) and command.hold is not None:
            reasons.append(f"its not_before comes in {self.seconds_to_date(command.hold.not_before or 0):.0f} s")
        if not self._publisher.connected:
            reasons.append("this node has no connection to the MQTT broker")
        if command.lane is not None:
            reasons.append(await self._why_in_lane(command, command.lane))
        if command.if_offline is IfOffline.HOLD:
            reasons += self._why_away(command, await self.whereabouts(command.device_id))
        hold = command.hold
        if hold is not None and hold.given_back_at is not None:
            undone = (
                "nobody was subscribed to its topic, or the node that had claimed it could not hand it over in time"
            )
            reasons.append(f"claims: {hold.claims}; the last one was undone: {undone}")
        try:
            if hold is not None and await self._standing(command) is not RunStanding.GOES_ON:
                reasons.append(f"fleet run {hold.run} is paused, or was aborted")
            await self._check(command)
        except HomingError as error:
            reasons.append(str(error))
        if not reasons:
            reasons.append(f"{command.device_id} was not heard since it was held, or it is about to be sent")
        return reasons

    def _why_away(self, command: Command, place: Whereabouts) -> Sequence[str]:
        """Say that a device is away, or does not listen yet; nothing where it may be sent to."""
        if place.online is False:
            return [f"{command.device_id} has said that it is offline, or its will has"]
        if left := self.seconds_to_ready(command.profile, self.signs(place)):
            return [f"{command.device_id} is back, and listens in {left:.1f} s (ready_after of its profile)"]
        return []

    async def _why_in_lane(self, command: Command, lane: CommandLane) -> str:
        """Say how its lane stands: that it waits for a person, or what else keeps it back."""
        name = f"lane {lane.name} ({lane.order}) of {command.device_id}"
        now = await self._store.lane_now(command.device_id, lane)
        if now.stop is not None:
            return (
                f"{name} stands since command {now.stop.command_id} ended without success, "
                f"{-self.seconds_to(now.stop.at):.0f} s ago: homing held resume {command.device_id} {lane.name}"
            )
        if now.until and now.in_flight < lane.width:
            excluded = f", or until {' and '.join(lane.excludes)} of it have nothing in flight" if lane.excludes else ""
            paced = f" at a pace of one in {lane.pace.total_seconds():g} s" if lane.pace else ""
            return f"{name} lets nothing go for {max(0.0, self.seconds_to(now.until)):.1f} s{paced}{excluded}"
        line = now.waiting[::-1] if lane.order is LaneOrder.LIFO else now.waiting
        if lane.order.has_a_first and command.id in line[1:]:
            place = line.index(command.id)
            return f"it goes through {name} as number {place + 1} in line, after command {line[place - 1]}"
        return f"it goes through {name}, after what is in flight there or came before it"

    def seconds_to(self, instant: int) -> float:
        """Return how long it is to an instant at which something happens in the store."""
        return (instant - self._time.now()) / 1_000_000

    def seconds_to_date(self, instant: int) -> float:
        """Return how long it is to an instant that somebody has named."""
        return (instant - self._time.date()) / 1_000_000

    def seconds_left(self, waits: Waits) -> float:
        """Return how long a command has to wait for what the store told."""
        to = self.seconds_to_date if waits.reason is WaitReason.TIME else self.seconds_to
        return to(waits.until)

    def _too_early(self, command: Command) -> bool:
        hold = command.hold
        return hold is not None and hold.not_before is not None and self._time.date() < hold.not_before

    async def _standing(self, command: Command) -> RunStanding:
        if command.hold is None or not command.hold.run:
            return RunStanding.GOES_ON
        return await self._run_stands(command.hold.run)

    async def _check(self, command: Command) -> None:
        """Raise what stands against sending it now: an interlock, or the rights of its caller."""
        (await self._admission.admit(request_of(command))).check()
        self._may(command)

    def _is_blind(self, command: Command) -> bool:
        """Return whether its interlocks have nothing to judge by, as it was for another command just now."""
        since = self._now_us() - self._blind_at
        return 0 <= since < BLIND_US and self._admission.binds(command.profile, command.method)

    def _rests(self, command: Command, signs: DeviceSigns) -> bool:
        """Return whether nobody was subscribed to its topic a short while ago."""
        hold = command.hold
        if hold is None or hold.given_back_at is None:
            return False
        passed = self._time.now() - hold.given_back_at  # far below zero: the store's clock was set back since
        return abs(passed) < rest_of(hold.claims, heard=signs.heard) * 1_000_000


def request_of(command: Command) -> CommandRequest:
    """The request of a held command, to be judged again."""
    return CommandRequest(
        device_id=command.device_id,
        method=command.method,
        params=orjson.loads(command.params),
        timeout=timedelta() if command.hold is None else command.hold.timeout,
        profile=command.profile,
        one_way=command.one_way,
        approval=None if command.approval is None else timedelta(),
    )
