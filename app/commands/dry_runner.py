"""Says what would become of a command, by the judgements of those who send commands. It sends and registers nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum, auto
from typing import Final

from app.commands.held.command_holder import APPROVALS, FEATURE, CommandHolder
from app.commands.held.held_judge import HeldJudge
from app.commands.send.admission import CommandAdmission, refusal_of
from app.commands.send.publisher import Publisher
from app.commands.send.registrar import CommandRequest, Registrar
from app.core.access.callers import Caller
from app.core.commands.callback import Registration
from app.core.commands.command import Command, IfOffline
from app.core.errors import (
    BrokerUnavailableError,
    DeviceBusyError,
    HomingError,
    InterlockBlindError,
    TooManyHeldError,
)
from app.core.events.presence import Whereabouts
from app.core.profiles.interlocks import InterlockVerdict
from app.core.profiles.lanes import CommandLane, LaneOrder
from app.core.profiles.profile import DeviceProfile
from app.store.holds import HoldStore, LaneOccupancy
from app.store.rules import MOST_HELD_OF_LANE, lane_taken, too_many_held


class DryRunFate(StrEnum):
    """The fate that a command would have."""

    SEND = auto()
    WAIT = auto()
    REFUSE = auto()
    JOIN = auto()
    """Its idempotency key stands for a command already."""


class Obstacle(StrEnum):
    """A reason why a command would wait."""

    APPROVAL = auto()
    TIME = auto()
    LANE = auto()
    DEVICE = auto()
    INTERLOCK = auto()
    BROKER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class DryLane:
    """The lane of a command, as it would find it."""

    lane: CommandLane
    now: LaneOccupancy

    @property
    def position(self) -> int | None:
        """Return its place in line; None where it would not stand in it."""
        if self.now.has_room(self.lane):
            return None
        return 1 if self.lane.order in (LaneOrder.LATEST, LaneOrder.LIFO) else len(self.now.waiting) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """All that was found about a command. Of what is left out, nothing stands in its way."""

    registration: Registration
    joins: Command | None
    verdicts: Sequence[InterlockVerdict]
    lane: DryLane | None
    online: bool | None
    """True if the device is there; None where nobody knows."""
    offline_since: int | None
    """The instant (microseconds since 1970) since when the device is away, if a command is not sent to one that is."""
    connected: bool
    """True if this node has a connection to the MQTT broker."""
    refusals: Sequence[HomingError]
    obstacles: Sequence[Obstacle]

    @property
    def would(self) -> DryRunFate:
        """Return what would become of the command."""
        if self.joins is not None:
            return DryRunFate.JOIN
        if self.refusals or self.offline_since is not None:
            return DryRunFate.REFUSE
        return DryRunFate.WAIT if self.obstacles else DryRunFate.SEND


class DryRunner:
    """Runs dry on this node, whose parts it asks."""

    def __init__(
        self,
        *,
        admission: CommandAdmission,
        registrar: Registrar,
        publisher: Publisher,
        holder: CommandHolder,
        judge: HeldJudge,
        store: HoldStore,
    ) -> None:
        self._admission: Final = admission
        self._registrar: Final = registrar
        self._publisher: Final = publisher
        self._holder: Final = holder
        self._judge: Final = judge
        self._store: Final = store

    async def run(self, request: CommandRequest, caller: Caller | None) -> DryRun:
        """Judge a command whose caller may send it.

        Raises InvalidInputError, NotYetError and StoreUnavailableError, as sending it would.
        """
        profile = self._admission.profile_of(request)
        if request.hold is not None or request.approval is not None:
            self._holder.check(request)
            await self._holder.check_known(FEATURE if request.approval is None else APPROVALS)
        registration = self._registrar.registration(request, profile, request.timeout, caller)
        verdicts, refusal = await self._interlocks(request, profile)
        lane = await self._lane(registration)
        place = await self._judge.whereabouts(request.device_id)
        sent_at_once = not registration.begins_held and (lane is None or lane.position is None)
        absence = self._publisher.absence
        asks_first = sent_at_once and absence.asks_first(request.if_offline)
        against = () if registration.begins_held else (one for one in (refusal, self._broker()) if one is not None)
        return DryRun(
            registration=registration,
            joins=await self._admission.on_record(request),
            verdicts=verdicts,
            lane=lane,
            online=place.online,
            offline_since=await absence.offline_since(request.device_id) if asks_first else None,
            connected=self._publisher.connected,
            refusals=[*against, *_of_lane(registration, lane)],
            obstacles=[*_in_line(lane), *self._obstacles(registration, refusal, place)],
        )

    async def judge_interlocks(self, request: CommandRequest) -> Sequence[InterlockVerdict]:
        """Return how the interlocks judge a command. InvalidInputError; InterlockBlindError."""
        return await self._admission.judge(request, self._admission.profile_named(request.profile))

    async def _interlocks(
        self, request: CommandRequest, profile: DeviceProfile
    ) -> tuple[Sequence[InterlockVerdict], HomingError | None]:
        """Return the verdicts of the interlocks, and why they let the command not through."""
        try:
            verdicts = await self._admission.judge(request, profile)
        except InterlockBlindError as error:
            return (), error
        return verdicts, refusal_of(verdicts, request)

    async def _lane(self, registration: Registration) -> DryLane | None:
        lane = registration.lane
        if lane is None:
            return None
        return DryLane(lane=lane, now=await self._store.lane_now(registration.device_id, lane))

    def _broker(self) -> BrokerUnavailableError | None:
        try:
            self._publisher.check_connected()
        except BrokerUnavailableError as error:
            return error
        return None

    def _obstacles(
        self, registration: Registration, refusal: HomingError | None, place: Whereabouts
    ) -> Iterator[Obstacle]:
        """Yield what a command that may wait for more than its lane would wait for at this moment."""
        hold = registration.hold
        if hold is None or not registration.begins_held:
            return
        if hold.approval is not None:
            yield Obstacle.APPROVAL
        if hold.not_before is not None and self._judge.seconds_to_date(hold.not_before) > 0:
            yield Obstacle.TIME
        signs, profile = self._judge.signs(place), registration.profile
        there = self._judge.is_there(profile, registration.method, signs)
        ready = there and not self._judge.seconds_to_ready(profile, signs)
        if registration.if_offline is IfOffline.HOLD and not ready:
            yield Obstacle.DEVICE
        if refusal is not None:
            yield Obstacle.INTERLOCK
        if not self._publisher.connected:
            yield Obstacle.BROKER


def _in_line(lane: DryLane | None) -> Iterator[Obstacle]:
    if lane is not None and lane.position is not None:
        yield Obstacle.LANE


def _of_lane(registration: Registration, found: DryLane | None) -> Iterator[HomingError]:
    """Yield why a lane without room would not have the command wait."""
    if found is None or found.position is None:
        return
    if registration.hold is None:
        yield DeviceBusyError(lane_taken(registration.device_id, found.lane.name))
    elif len(found.now.waiting) >= MOST_HELD_OF_LANE:
        yield TooManyHeldError(too_many_held(registration.device_id, found.lane.name))
