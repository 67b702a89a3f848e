"""Asks devices for their state, as the probes of profiles say: each device once a second, for all who wait for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

import structlog

from app.commands.send.invoker import Invocation
from app.commands.send.registrar import CommandRequest
from app.core.clock import Clock
from app.core.commands.command import IfOffline
from app.core.errors import HomingError
from app.core.profiles.correlation import Correlation
from app.core.profiles.probes import ProbeQuestion
from app.runtime.telemetry import Counters

EVERY_SECONDS: Final = 1.0
"""A device is asked so often at most."""
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

    @property
    def in_vain(self) -> bool:
        """True if there will be no answer."""
        return self.over and self.answered_at is None


class Sends(Protocol):
    """The part of the invoker that questions need."""

    async def invoke(self, request: CommandRequest, *, park: bool) -> Invocation:
        """Register and publish."""


class DeviceQuestions:
    """The questions of one node. They are commands of Homing itself: outside lanes and limits, and nobody is told."""

    def __init__(self, *, invoker: Sends, clock: Clock, counters: Counters) -> None:
        self._invoker = invoker
        self._clock = clock
        self._counters = counters
        self._asked: dict[str, DeviceQuestion] = {}
        """The last question to each device within the last second, oldest first."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger()

    def ask(self, profile: str, device_id: str, question: ProbeQuestion, left: timedelta) -> DeviceQuestion | None:
        """Ask a device, with so much time for the answer; nothing waits for it here.

        If the device was asked within the last second, that question is shared. None where that was another one, or
        where too many are asked.
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
            if_offline=IfOffline.FAIL,
            by_homing=True,
        )
        task = asyncio.get_running_loop().create_task(self._answered(asked, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return asked

    async def _answered(self, asked: DeviceQuestion, request: CommandRequest) -> None:
        try:
            invocation = await self._invoker.invoke(request, park=True)
            command = await invocation.wait(request.timeout + _PATIENCE)
        except HomingError as error:
            self._counters["probe.question.not_sent"] += 1
            self._log.debug("device_not_asked", device_id=request.device_id, reason=str(error))
        else:
            # An answer that it has failed is one, too: the device had heard the question.
            if command.matched_by in _CERTAIN:
                asked.answered_at = command.finished_at
            self._counters[f"probe.question.{'unanswered' if asked.answered_at is None else 'answered'}"] += 1
        finally:
            asked.over = True

    def _forget(self, now: float) -> None:
        """Let go of devices that may be asked again."""
        for device_id, one in list(self._asked.items()):
            if now - one.asked_at < EVERY_SECONDS:
                break
            del self._asked[device_id]
