"""Settles responses: match -> record -> wake, and only then PUBACK."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from app.callbacks.echoes import Echoes
from app.callbacks.floods import Floods
from app.callbacks.observer import Observers
from app.callbacks.open_commands import OpenCommands
from app.core.clock import Clock
from app.core.commands.callback import Answer
from app.core.commands.routing import Annexed, DeliverLocally, Drop, Forwarded, MatchResult, Progressed, Recorded, route
from app.core.errors import InvalidInputError, StoreRefusedError, StoreUnavailableError
from app.core.identifiers import validate_command_id, validate_device_id
from app.core.profiles.correlation import Correlation
from app.latency.clock import StoreClock
from app.mqtt.inbox import Arrival
from app.store.commands import CommandWriter

_NOT_ITS: Final = (MatchResult.UNKNOWN, MatchResult.MISMATCH)
"""No command expects the message as it was read; another reading of it may be expected."""

_NOT_OPEN: Final = (*_NOT_ITS, MatchResult.FINISHED)
"""Another reading of the message may be of a command that is open."""


class Answers:
    """While the store is away, responses stay unacknowledged, so that the broker keeps them."""

    def __init__(
        self,
        *,
        store: CommandWriter,
        echoes: Echoes,
        open_commands: OpenCommands,
        node_id: str,
        clock: Clock,
        observers: Observers,
        store_clock: StoreClock | None = None,
    ) -> None:
        """A `store_clock` has responses recorded with their reception, see app/core/commands/reception.py."""
        self._store = store
        self._echoes = echoes
        self._open_commands = open_commands
        self._node_id = node_id
        self._clock = clock
        self._observers = observers
        self._store_clock = store_clock
        self._floods = Floods(clock)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._settling: set[asyncio.Task[None]] = set()

    def take(self, arrival: Arrival, answer: Answer) -> None:
        """Begin to settle a response. Returns at once."""
        try:
            answer = _well_named(answer)
        except InvalidInputError:
            for tell in self._observers.missed:
                tell("foreign_id", answer)
            self._drop("foreign_id", answer, named=False)
            arrival.settle()
            return
        if self._floods.holds_back(answer.device_id):
            self._drop("flood", answer)
            arrival.settle()
            return
        if self._store_clock is not None:
            answer.received_at = self._store_clock.store_time(arrival.at)
        answer.size = len(arrival.message.payload)
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        task = self._loop.create_task(self._settle(arrival, answer))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _settle(self, arrival: Arrival, answer: Answer) -> None:
        try:
            recorded, answer = await self._match(answer, again=arrival.message.redelivered)
            now = self._clock.monotonic()
            self._act(recorded, answer, arrival.at, now)
            for tell in self._observers.recorded:
                tell(recorded, answer, arrival.at, now)
            if recorded.verdict in _NOT_ITS:
                for tell_missed in self._observers.missed:
                    tell_missed(recorded.verdict.value, answer)
            arrival.settle()
        except StoreRefusedError:
            if arrival.refuse():
                self._tell_unrecorded(answer)
            else:
                self._drop("store_refused", answer)
                arrival.settle()
        except StoreUnavailableError:
            self._tell_unrecorded(answer)
            arrival.leave()
        except BaseException:
            arrival.leave()  # a mistake of ours holds up none behind it
            raise

    async def _match(self, first: Answer, *, again: bool) -> tuple[Recorded, Answer]:
        """Return what the store makes of the message, and the reading that it was.

        Where it has several (kinds, profiles, keys), an open command comes before one that has its outcome, whichever
        is read first. But our id means one command only, and what the broker delivers `again` may be what made the
        outcome that says the same.
        """
        certain = first.correlation is Correlation.ID
        recorded, answer = await self._respond(first, open_only=not certain and bool(first.others))
        if recorded.verdict not in (_NOT_ITS if certain else _NOT_OPEN) or not first.others:
            return recorded, answer
        others = list(filter(_has_our_ids, first.others))
        while others and not (recorded.verdict is MatchResult.FINISHED and again and _says(answer, recorded)):
            other = others.pop(0)
            other.received_at, other.size = first.received_at, first.size
            finished = recorded.verdict is MatchResult.FINISHED
            further, read_so = await self._respond(other, open_only=finished or bool(others))
            if further.verdict not in _NOT_OPEN:
                return further, read_so
            if further.verdict is MatchResult.FINISHED and other.correlation is Correlation.ID:
                others.clear()
            if not finished and (further.verdict is not MatchResult.UNKNOWN or recorded.verdict is MatchResult.UNKNOWN):
                recorded, answer = further, read_so
        if recorded.verdict is MatchResult.FINISHED and recorded.command_id is not None:
            by_id = replace(answer, correlation=Correlation.ID, value=recorded.command_id)
            recorded = await self._store.respond(by_id, self._node_id)
        return recorded, answer

    async def _respond(self, answer: Answer, *, open_only: bool) -> tuple[Recorded, Answer]:
        if answer.correlation is not Correlation.ECHO:
            return await self._store.respond(answer, self._node_id, open_only=open_only), answer
        named = await self._echoes.named(answer)
        if named is None:
            return Recorded(MatchResult.UNKNOWN), answer
        return await self._store.respond(named, self._node_id, open_only=open_only), named

    def _act(self, recorded: Recorded, answer: Answer, arrived_at: float, now: float) -> None:
        if recorded.outcome is not None and recorded.outcome.follower is not None:
            for tell_next in self._observers.next_in_lane:
                tell_next(recorded.outcome.follower)
        match route(recorded, self._node_id):
            case DeliverLocally(outcome):
                won = recorded.verdict is MatchResult.WON
                self._open_commands.complete(outcome, now - arrived_at if won else None)
                if not won:
                    self._drop(recorded.verdict.value, answer, outcome.command_id)
            case Progressed(command_id):
                self._open_commands.progressed(command_id)
            case Drop(reason):
                self._drop(reason, answer, recorded.command_id)
                if recorded.verdict is MatchResult.UNKNOWN:
                    self._floods.count(answer.device_id)
            case Forwarded() if self._store_clock is not None and recorded.outcome is not None:
                # Of a command whose home is here the store has told its time when it was registered.
                self._store_clock.learn(arrived_at, now, recorded.outcome.finished_at)
            case Forwarded() | Annexed():
                """Others see to it, or it is only kept."""

    def _drop(self, reason: str, answer: Answer, command_id: str | None = None, *, named: bool = True) -> None:
        """`named` says whether its device has a name that can be told."""
        device_id = answer.device_id if named else None
        for tell in self._observers.dropped:
            tell(reason, device_id=device_id, command_id=command_id, profile=answer.profile or None)

    def _tell_unrecorded(self, answer: Answer) -> None:
        for tell in self._observers.unrecorded:
            tell(answer)


def _says(answer: Answer, recorded: Recorded) -> bool:
    """True if this is what made the outcome, as far as one can tell."""
    made = recorded.outcome
    return made is not None and (made.state, made.result, made.error) == (answer.state, answer.result, answer.error)


def _well_named(answer: Answer) -> Answer:
    """The first of the readings whose ids can be ids of ours, with the others; InvalidInputError when there is none."""
    try:
        return _checked(answer)
    except InvalidInputError:
        readings = iter(answer.others)
        found = next(filter(_has_our_ids, readings), None)
        if found is None:
            raise
        found.further = readings
        return found


def _has_our_ids(answer: Answer) -> bool:
    try:
        _checked(answer)
    except InvalidInputError:
        return False
    return True


def _checked(answer: Answer) -> Answer:
    """InvalidInputError when its ids can be none of ours."""
    validate_device_id(answer.device_id)
    if answer.correlation is Correlation.ID:
        validate_command_id(answer.value)
    return answer
