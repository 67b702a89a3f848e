"""Asks devices for their state, as the probes of profiles say: each device once a second, for all who wait for it.

The store gives the turns, so a second has one question, whichever node puts it; the others read how it was answered.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

import orjson
import structlog

from app.commands.send.invoker import Invocation
from app.commands.send.registrar import CommandRequest
from app.core.clock import Clock, IdFactory
from app.core.commands.command import Command, IfOffline
from app.core.errors import CommandNotFoundError, HomingError, UnavailableError, UnreadableRecordError
from app.core.identifiers import command_id
from app.core.payload import compact
from app.core.profiles.correlation import Correlation
from app.core.profiles.interlocks import AHEAD
from app.core.profiles.probes import ProbeQuestion
from app.runtime.telemetry import Counters
from app.store.questions import ASKED_EVERY
from app.store.rules import micros

MOST: Final = 1_000
"""Devices that a node asks within a second, and questions that wait for their answers."""
_CERTAIN: Final = (Correlation.ID, Correlation.VALUE)
_SHORTEST: Final = timedelta(seconds=1)
_PATIENCE: Final = timedelta(seconds=1)
"""The time after the deadline of a question in which its end is awaited."""


@dataclass(slots=True, eq=False)
class DeviceQuestion:
    """A question that was put to a device, and whether it was answered."""

    question: ProbeQuestion
    asked_at: float
    """The instant before it was sent, on the monotonic clock."""
    answered_at: int | None = None
    """The instant of the answer, in µs since the epoch on the store's clock; None without one."""
    over: bool = False
    elsewhere: str | None = None
    """The command id of the question that another node put in its place; None of one that this node puts."""
    registered_at: int | None = None
    """The instant of that one's registration, in µs on the store's clock; None until it is known."""

    @property
    def in_vain(self) -> bool:
        """True if there will be no answer."""
        return self.over and self.answered_at is None

    def came_after(self, since_us: int, since: float) -> bool:
        """Return whether it was put to the device after an instant, given on the store's and on this node's clock.

        What another node asked is compared on the store's clock, of which this node's view may be late.
        """
        if self.elsewhere is None:
            return self.asked_at >= since
        return self.registered_at is not None and self.registered_at > since_us + micros(AHEAD)

    def read(self, command: Command) -> None:
        """Learn from the record how far the question of another node is; another question answers nothing here."""
        same = command.method == self.question.method and command.params == _params(self.question)
        if same and command.by_homing:
            self.registered_at = command.created_at
            self.answered_at = _answered_at(command)
        self.over = command.state.final or not same


def _params(question: ProbeQuestion) -> bytes:
    """Return them as records have them."""
    return compact(orjson.dumps(question.params))


def _answered_at(command: Command) -> int | None:
    """Return when a device answered a question. That it has failed is an answer, too: it had heard the question."""
    return command.finished_at if command.matched_by in _CERTAIN else None


class Sends(Protocol):
    """The part of the invoker that questions need."""

    async def invoke(self, request: CommandRequest, *, park: bool) -> Invocation:
        """Register and publish."""


class AskStore(Protocol):
    """The part of the store that questions need: the turns, and the records of questions that other nodes put."""

    async def turn_to_ask(self, device_id: str, command_id: str) -> str:
        """Return the id of the question that has the turn."""

    async def read(self, command_id: str) -> Command:
        """Read a command. CommandNotFoundError; UnreadableRecordError; StoreUnavailableError."""


class DeviceQuestions:
    """The questions of one node. They are commands of Homing itself: outside lanes and limits, and nobody is told."""

    def __init__(
        self, *, invoker: Sends, store: AskStore, clock: Clock, new_ulid: IdFactory, counters: Counters
    ) -> None:
        self._invoker = invoker
        self._store = store
        self._new_ulid = new_ulid
        self._clock = clock
        self._counters = counters
        self._asked: dict[str, DeviceQuestion] = {}
        """The last question to each device within the last second, oldest first."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger()

    def ask(self, profile: str, device_id: str, question: ProbeQuestion, left: timedelta) -> DeviceQuestion | None:
        """Ask a device, with so much time for the answer; nothing waits for it here.

        If the device was asked within the last second, on any node, that question is shared. None where this node asked
        it another one, or asks too many.
        """
        now = self._clock.monotonic()
        self._forget(now)
        shared = self._asked.get(device_id)
        if shared is not None:
            return shared if shared.question == question else None
        if max(len(self._asked), len(self._tasks)) >= MOST:
            self._counters["probe.question.full"] += 1
            return None
        asked = self._asked[device_id] = DeviceQuestion(question, now)
        request = CommandRequest(
            device_id=device_id,
            method=question.method,
            params=question.params,
            timeout=max(left, _SHORTEST),
            profile=profile,
            command_id=command_id(device_id, self._new_ulid()),
            if_offline=IfOffline.FAIL,
            by_homing=True,
        )
        task = asyncio.get_running_loop().create_task(self._answered(asked, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return asked

    async def hear(self, asked: DeviceQuestion) -> None:
        """Learn whether a question was answered that another node has put; nothing of those that are put here."""
        if asked.elsewhere is None or asked.over:
            return
        try:
            asked.read(await self._store.read(asked.elsewhere))
        except (UnavailableError, CommandNotFoundError, UnreadableRecordError) as error:
            self._log.debug("question_not_read", command_id=asked.elsewhere, reason=str(error))

    async def _answered(self, asked: DeviceQuestion, request: CommandRequest) -> None:
        try:
            turn = await self._store.turn_to_ask(request.device_id, request.command_id)
            if turn != request.command_id:
                asked.elsewhere = turn
                self._counters["probe.question.shared"] += 1
                return
            invocation = await self._invoker.invoke(request, park=True)
            command = await invocation.wait(request.timeout + _PATIENCE)
        except HomingError as error:
            self._counters["probe.question.not_sent"] += 1
            self._log.debug("device_not_asked", device_id=request.device_id, reason=str(error))
        else:
            asked.answered_at = _answered_at(command)
            self._counters[f"probe.question.{'unanswered' if asked.answered_at is None else 'answered'}"] += 1
        finally:
            asked.over = asked.elsewhere is None

    def _forget(self, now: float) -> None:
        """Let go of devices that may be asked again."""
        for device_id, one in list(self._asked.items()):
            if now - one.asked_at < ASKED_EVERY.total_seconds():
                break
            del self._asked[device_id]
