"""Admits a command before it is registered: by its profile, and by interlocks over the last values of the event log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple, TypeAlias

from app.commands.send.registrar import CommandRequest
from app.core.commands.command import Command, CommandState
from app.core.errors import (
    EventLogError,
    EventsOffError,
    HomingError,
    InterlockBlindError,
    InterlockError,
    InvalidInputError,
    NeedsSecondPersonError,
    UnavailableError,
)
from app.core.events.event import Event
from app.core.profiles.interlocks import (
    Interlock,
    InterlockVerdict,
    JudgedAs,
    LastWord,
    judge,
    worst_of,
)
from app.core.profiles.profile import DeviceProfile
from app.runtime.telemetry import Counters
from app.store.commands import CommandReader, Query

LastEvent: TypeAlias = Callable[[str | None, str], Awaitable[Event | None]]
"""The last value of a topic, in the database that a profile proposes."""
READ_BUDGET: Final = timedelta(seconds=1)
"""The time that the event log has to tell the last values; after that the interlocks are blind."""

_Place: TypeAlias = tuple[str | None, str]


async def no_events(_database: str | None, _topic: str) -> Event | None:
    """Raise EventsOffError: this node keeps no events."""
    raise EventsOffError("this node has no event log: HOMING_EVENTS_URL is empty")


class Admitted(NamedTuple):
    """A command that may be registered.

    Where there is a `refusal`, an earlier call with its idempotency key has sent it: then it is only to be joined.
    """

    profile: DeviceProfile
    refusal: HomingError | None

    def check(self) -> None:
        """Return when it may be sent; raises the refusal otherwise."""
        if self.refusal is not None:
            raise self.refusal


class CommandAdmission:
    """Judges commands; `now_us` is this node's time, in microseconds since 1970, as positions of events are."""

    def __init__(
        self,
        *,
        profiles: Mapping[str, DeviceProfile],
        last_event: LastEvent,
        store: CommandReader,
        now_us: Callable[[], int],
        counters: Counters,
    ) -> None:
        self._profiles = profiles
        self._last_event = last_event
        self._store = store
        self._now_us = now_us
        self._counters = counters

    async def admit(self, request: CommandRequest) -> Admitted:
        """Return when the profile has such a command, and its interlocks let it through.

        Raises InvalidInputError, InterlockError and InterlockBlindError; StoreUnavailableError where a refused command
        has an idempotency key, and nothing can be read of that.
        """
        profile = self.profile_of(request)
        interlocks = profile.interlocks_of(request.method)
        refusal = await self._counted_refusal(request, profile) if interlocks else None
        if refusal is not None and await self.on_record(request) is None:
            raise refusal
        return Admitted(profile, refusal)

    def profile_of(self, request: CommandRequest) -> DeviceProfile:
        """The profile that has such a command; InvalidInputError where none has.

        NeedsSecondPersonError where a second person has to approve it, and nobody is going to be asked.
        """
        profile = self.profile_named(request.profile)
        profile.check(request.method, request.params)
        if request.approval is None and (within := profile.approval_of(request.method)) is not None:
            raise NeedsSecondPersonError(
                f"profile {profile.name!r} wants a second person for {request.method}; a single command waits for one, "
                "and nothing else does",
                within,
            )
        return profile

    def profile_named(self, name: str) -> DeviceProfile:
        """Return the profile of this name; InvalidInputError where there is none."""
        profile = self._profiles.get(name)
        if profile is None:
            raise InvalidInputError(
                "profile", f"{name[:64]!a} is unknown; allowed: {', '.join(sorted(self._profiles))}"
            )
        return profile

    def binds(self, profile: str, method: str) -> bool:
        """True if interlocks of this profile judge commands of this method."""
        known = self._profiles.get(profile)
        return known is not None and bool(known.interlocks_of(method))

    def has_puback(self, profile: str, method: str) -> bool:
        """True if the broker confirms commands of this method, and so may tell that nobody is subscribed."""
        try:
            return self._profiles[profile].qos_of(method) > 0
        except (KeyError, InvalidInputError):
            return False

    def ready_after(self, profile: str) -> timedelta:
        """The time after the return of a device in which nothing that waited for it is sent."""
        known = self._profiles.get(profile)
        return timedelta() if known is None else known.ready_after

    def approval_of(self, request: CommandRequest) -> timedelta | None:
        """The time in which the profile wants a second person to approve a command; None if it wants none."""
        profile = self._profiles.get(request.profile)
        return None if profile is None else profile.approval_of(request.method)

    async def judge(self, request: CommandRequest, profile: DeviceProfile) -> Sequence[InterlockVerdict]:
        """Return the verdicts of the interlocks about a command. Nothing is counted.

        InterlockBlindError where nothing can be read.
        """
        interlocks = profile.interlocks_of(request.method)
        try:
            async with asyncio.timeout(READ_BUDGET.total_seconds()):
                return await self._verdicts(interlocks, request, profile)
        except (TimeoutError, EventLogError, UnavailableError) as error:
            why = str(error) or f"the event log did not answer within {READ_BUDGET.total_seconds():g} s"
            named = ", ".join(one.name for one in interlocks)
            raise InterlockBlindError(
                f"{request.method} was not sent: nothing can be read for interlocks {named}: {why}"
            ) from error

    async def on_record(self, request: CommandRequest) -> Command | None:
        """Return what an earlier call with the same idempotency key has sent; it is told of, and not judged."""
        if request.idempotency_key is None:
            return None
        query = Query(device_id=request.device_id, idempotency_key=request.idempotency_key, limit=1)
        known = (await self._store.list_commands(query)).commands
        return next((one for one in known if one.state is not CommandState.UNSENT), None)

    async def _counted_refusal(self, request: CommandRequest, profile: DeviceProfile) -> HomingError | None:
        """Return why the command must not be sent: an InterlockError or InterlockBlindError; None when it may be."""
        try:
            verdicts = await self.judge(request, profile)
        except InterlockBlindError as error:
            self._counters["interlock.blind"] += 1
            return error
        self._counters[f"interlock.{worst_of(one.result for one in verdicts)}"] += 1
        return refusal_of(verdicts, request)

    async def _verdicts(
        self, interlocks: tuple[Interlock, ...], request: CommandRequest, profile: DeviceProfile
    ) -> list[InterlockVerdict]:
        places: dict[tuple[str, str], _Place] = {
            (interlock.name, spec.name): (spec.database, profile.topic_for(spec.topic, request.device_id))
            for interlock in interlocks
            for spec in interlock.inputs
        }
        words = await self._words(list(dict.fromkeys(places.values())))
        return [
            judge(one, {spec.name: words[places[one.name, spec.name]] for spec in one.inputs}, request.params)
            for one in interlocks
        ]

    async def _words(self, places: list[_Place]) -> Mapping[_Place, LastWord | None]:
        events = await asyncio.gather(*(self._last_event(database, topic) for database, topic in places))
        now = self._now_us()
        return {
            place: None if event is None else _word(event, now) for place, event in zip(places, events, strict=True)
        }


def refusal_of(verdicts: Sequence[InterlockVerdict], request: CommandRequest) -> InterlockError | None:
    """Return the refusal of those interlocks that do not let the command through; None when all do."""
    refusing = [one for one in verdicts if one.result is not JudgedAs.HOLDS]
    if not refusing:
        return None
    return InterlockError(request.method, request.device_id, [one.shown() for one in refusing])


def _word(event: Event, now: int) -> LastWord:
    return LastWord(event.entry.value, timedelta(microseconds=now - event.position))
