"""Looks at devices that held commands wait for, and has those claimed that may be sent. Every node does so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Final, Protocol

import structlog

from app.cluster.directory import NodeInfo
from app.cluster.shares import share_of
from app.commands.held.claim_keeper import ClaimKeeper
from app.commands.held.claimant import Claimant
from app.commands.held.gauges import OTHER, HeldGauges, HeldSighting
from app.commands.held.held_judge import DeviceSigns, HeldJudge, Readiness
from app.commands.held.look_pace import TICK_SECONDS, LookPace
from app.commands.held.store_time import StoreTime
from app.commands.held.waiting_devices import WaitingDevice, WaitingDevices
from app.core.commands.command import Command, CommandState, WaitReason
from app.core.commands.faults import fault
from app.core.errors import CapacityError, DeviceBusyError, UnavailableError
from app.core.profiles.lanes import CommandLane, LaneOrder
from app.store.commands import CommandReader
from app.store.holds import HoldStore, Waits

READ_ANYWAY: Final = 60
"""One of so many readings in a row reads who waits whatever the store's note says, as a note may be lost."""
AT_EACH_READING: Final = 500
"""While fewer devices wait, each reading reads who waits; from so many on every second one does, from twice as many
every third one, and so on."""
AT_EACH_CHANGE: Final = 1_000
"""The same for readings that find that something was held."""
AT_A_TIME: Final = 16
"""The number of devices that are looked at at once: other commands wait behind few of them."""
TICK: Final = 0.001
"""Rests are no shorter: one that ends just before a device is due would only be followed by the next one."""
STANDING_US: Final = 5_000_000
"""A command of a fleet run that stands is looked at again after so long: the run may go on."""
NOBODY_KNOWS: Final = 2**62
"""The instant (µs) at which something comes that may come at any time: far away."""
NOT_ALLOWED: Final = fault("not_allowed_any_more", "its caller may not send it any more; it was not sent")
ONE_NOT_ALLOWED: Final = fault(
    "not_allowed_any_more",
    "its caller may not send it any more, or who has approved it may not approve it any more; it was not sent",
)
"""The same of a command that a second person has approved."""
RUN_OVER: Final = fault("run_over", "its fleet run had ended before it had its turn; it was not sent")


class HeldReader(CommandReader, HoldStore, Protocol):
    """Commands on record, and which of them are held."""


class Drainer:
    """`nodes` are the live ones: each looks by itself at the devices of its share, and at those that it has heard."""

    def __init__(
        self,
        *,
        store: HeldReader,
        waiting: WaitingDevices,
        judge: HeldJudge,
        time: StoreTime,
        claimant: Claimant,
        claims: ClaimKeeper,
        nodes: Callable[[], Awaitable[Sequence[NodeInfo]]],
        node_id: str,
        interval: float,
        pace: LookPace,
    ) -> None:
        self._store = store
        self._waiting = waiting
        self._judge = judge
        self._time = time
        self._claimant = claimant
        self._claims = claims
        self._nodes = nodes
        self._node_id = node_id
        self._interval = interval
        self._pace = pace
        self._looks: set[asyncio.Task[None]] = set()
        self.gauges: Final = HeldGauges(waiting, judge.seconds_to)
        self._closing = False
        self._note: str | None = None
        self._skipped = 0
        self._share = share_of(node_id, ())
        self._changed = asyncio.Event()
        self._log = structlog.get_logger()
        claimant.held_again.add(self._wait_again)
        waiting.changed.add(self._changed.set)
        claims.settled.add(self._changed.set)

    def begin(self, device_id: str, command_id: str) -> None:
        """Try a command that was held just now."""
        device = self._waiting.add(device_id, command_id)
        if device is not None:
            self._waiting.take_turn(device)

    def heard(self, device_id: str) -> None:
        """Look at a device that has given a sign of life."""
        self._waiting.heard(device_id)

    async def drained(self) -> None:
        """Begin nothing any more, and return when all that was begun is done."""
        self._closing = True
        while self._looks:
            await asyncio.wait(tuple(self._looks))
        await self._claimant.drained()

    async def run(self) -> None:
        """Know who waits, and look at those who are due, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read())
            group.create_task(self._look())
            group.create_task(self._tend())
            group.create_task(self._claims.run())

    async def read(self) -> None:
        """Learn who waits. While nobody does and nothing was held since, this costs the store one small step.

        Where thousands wait, they are read now and then, more often while something is held: it takes both sides long,
        and what is not held any more is found out by the look at its device.
        """
        note = await self._last_note()  # before those who wait are read: what comes between changes it again
        if self._skipped < self._most_skipped(changed=note is None or note != self._note):
            self._skipped += 1
            devices = self._waiting.known()
        else:
            self._waiting.begin_reading()
            held = await self._store.held()
            devices = self._waiting.read(held, held.unread)
            self._note, self._skipped = None if held.unread else note, 0
        if devices or not self._time.known:
            await self._time.read()
        if devices:
            with suppress(UnavailableError):  # a Redis Cluster may be without the primary that tells, and have others
                self._share = share_of(self._node_id, [one.node_id for one in await self._nodes()])
            share = set(self._share)
            for device in devices:
                if device.partition in share:
                    self._waiting.keep_looking(device)

    async def _last_note(self) -> str | None:
        """Return the store's note; None where a Redis Cluster is without the primary that has it."""
        try:
            return await self._store.last_held()
        except UnavailableError:
            return None

    def _most_skipped(self, *, changed: bool) -> int:
        """Return how many readings in a row may go without those who wait."""
        if not changed and not self._waiting:
            return READ_ANYWAY - 1
        return min(READ_ANYWAY - 1, len(self._waiting) // (AT_EACH_CHANGE if changed else AT_EACH_READING))

    async def _read(self) -> None:
        while True:
            try:
                await self.read()
            except (UnavailableError, CapacityError) as failure:
                self._log.debug("held_not_read", reason=str(failure))
            await asyncio.sleep(self._interval)

    async def _look(self) -> None:
        while True:
            while self._may_look and (device := self._next()) is not None:
                look = asyncio.get_running_loop().create_task(self._look_at(device))
                self._looks.add(look)
                look.add_done_callback(self._looked)
            self._changed.clear()
            delay = self._waiting.seconds_to_next() if self._may_look else None
            if delay is not None:
                delay = max(delay, self._pace.seconds_to_next)
            try:
                async with asyncio.timeout(self._interval if delay is None else min(self._interval, delay + TICK)):
                    await self._changed.wait()
            except TimeoutError:
                continue

    @property
    def _may_look(self) -> bool:
        return not self._closing and self._claims.ready and len(self._looks) < AT_A_TIME

    def _next(self) -> WaitingDevice | None:
        """Return whom to look at: who has a turn at once, and others at the pace of this node."""
        if (device := self._waiting.turn_taken()) is not None:
            return device
        if not self._pace.take():
            return None
        if (device := self._waiting.taken()) is None:
            self._pace.give_back()
        return device

    async def _tend(self) -> None:
        """Measure how late the loop wakes up, and tell the pace: each tick while a device waits, else each interval."""
        loop = asyncio.get_running_loop()
        while True:
            began, rest = loop.time(), TICK_SECONDS if self._waiting else self._interval
            await asyncio.sleep(rest)
            self._pace.tended(loop.time() - began - rest)

    def _looked(self, look: asyncio.Task[None]) -> None:
        self._looks.discard(look)
        self._changed.set()

    async def _look_at(self, device: WaitingDevice) -> None:
        fruitless, failed, again_in = True, False, inf
        try:
            awaited = await self._send_what_waits(device)
            fruitless = awaited is not None
            if awaited is not None:
                again_in = awaited
        except (UnavailableError, CapacityError) as failure:
            self._log.debug("held_not_sent", device_id=device.device_id, reason=str(failure))
            failed = True
            again_in = inf if self._claims.ready else 0.0  # nobody looks before it is
        finally:
            self._waiting.looked(device, fruitless=fruitless, failed=failed, again_in=again_in)

    async def _send_what_waits(self, device: WaitingDevice) -> float | None:
        """Return in how many seconds something may be sent that waits on; None if nothing waits, inf if nobody knows.

        Oldest first, by the store's clock, and of a lane of order lifo newest first: so lanes have them.
        """
        heard, place = self._waiting.heed(device), await self._judge.whereabouts(device.device_id)
        signs = self._judge.signs(place, heard=heard, known_for=self._waiting.known_for(device, place))
        ids, blocked, awaited, seen = sorted(device.ids), set[str](), list[float](), list[HeldSighting]()
        held = []
        for identity, command in zip(ids, await self._store.get(ids), strict=True):
            if command is not None and command.state is CommandState.HELD:
                held.append(command)
            else:
                self._waiting.drop(device.device_id, identity)
        for command in sorted(held, key=_turn):
            lane = command.lane
            if lane is not None and lane.name in blocked:
                awaited.append(inf)
                seen.append(HeldSighting(WaitReason.LANE, command.created_at))
                continue
            waits = await self._try(command, signs)
            if waits is None:
                self._waiting.drop(device.device_id, command.id)
            else:
                awaited.append(self._judge.seconds_left(waits))
                there = waits.reason is WaitReason.DEVICE and signs.online is True
                stopped = lane.name if lane is not None and waits.for_a_person else None
                seen.append(HeldSighting(OTHER if there else waits.reason, command.created_at, stopped))
            taken = waits is not None and waits.reason is WaitReason.LANE
            unapproved = waits is not None and waits.reason is WaitReason.APPROVAL  # and so it stands in no line
            if lane is not None and not unapproved and (taken or _comes_alone(lane, sent=waits is None)):
                blocked.add(lane.name)  # the next one comes later, whatever became of this one
        self.gauges.saw(device.device_id, seen)
        return min(awaited, default=None)

    async def _try(self, command: Command, signs: DeviceSigns) -> Waits | None:
        """Send or refuse a held command; if it waits on, return what for."""
        match await self._judge.judge(command, signs):
            case Readiness.READY:
                try:
                    return await self._claimant.claim(command)
                except DeviceBusyError:
                    return Waits(WaitReason.DEVICE, NOBODY_KNOWS)
            case Readiness.REFUSED | Readiness.RUN_OVER as fate:
                not_allowed = NOT_ALLOWED if command.approval is None else ONE_NOT_ALLOWED
                await self._claimant.refuse(command, RUN_OVER if fate is Readiness.RUN_OVER else not_allowed)
                return None
            case Readiness.UNAPPROVED:
                return Waits(WaitReason.APPROVAL, NOBODY_KNOWS)
            case Readiness.RUN_STANDS:
                return Waits(WaitReason.DEVICE, self._time.now() + STANDING_US)
            case Readiness.COMING:
                left = self._judge.seconds_to_ready(command.profile, signs)
                return Waits(WaitReason.DEVICE, self._time.now() + round(left * 1_000_000))
            case Readiness.EARLY if command.hold is not None and command.hold.not_before is not None:
                return Waits(WaitReason.TIME, command.hold.not_before)
            case _:
                return Waits(WaitReason.DEVICE, NOBODY_KNOWS)

    def _wait_again(self, device_id: str, command_id: str) -> None:
        device = self._waiting.add(device_id, command_id)
        if device is not None:
            self._waiting.keep_looking(device)


def _turn(command: Command) -> tuple[int, str]:
    last_comes_first = command.lane is not None and command.lane.order is LaneOrder.LIFO
    return -command.ready_at if last_comes_first else command.ready_at, command.id


def _comes_alone(lane: CommandLane, *, sent: bool) -> bool:
    """True if the next one has no turn now: the one before it waits, or has the only place."""
    return lane.order is not LaneOrder.PARALLEL and not (sent and lane.width > 1)
