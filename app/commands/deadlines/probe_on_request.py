"""Looks, when somebody asks for it, for a command that has timed out: on any node, also where its own node died."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import orjson

from app.commands.deadlines.looker import StateLooker
from app.commands.deadlines.questions import DeviceQuestions
from app.core.commands.command import Command, CommandState
from app.core.errors import CapacityError, InvalidInputError, NotYetError
from app.core.profiles.probes import Probe, ProbeEvidence, ProbeFinding, Unsettled
from app.runtime.telemetry import Counters
from app.store.commands import CommandStore
from app.store.rules import not_verified

FEATURE: Final = "verified"
"""The word by which nodes tell that they know findings after the outcome."""
MOST: Final = 32
"""Commands that a node looks for at once on request."""
LOOKS: Final = 8
LONGEST: Final = timedelta(seconds=10)
"""The time in which a device that was asked may tell its state; callers wait for it."""


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """The result of looking for a command that has timed out, and the command as it stands then."""

    result: ProbeEvidence | Unsettled
    command: Command


class ProbeOnRequest:
    """Looks for one command once at a time, for all who ask. `all_know` tells whether all live nodes know a feature."""

    def __init__(
        self,
        *,
        store: CommandStore,
        looker: StateLooker,
        questions: DeviceQuestions,
        all_know: Callable[[str], Awaitable[bool]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        counters: Counters,
    ) -> None:
        self._store = store
        self._looker = looker
        self._questions = questions
        self._all_know = all_know
        self._sleep = sleep
        self._counters = counters
        self._under_way: dict[str, asyncio.Task[ProbeReport]] = {}

    async def verify(self, command: Command) -> ProbeReport:
        """Look at the state of its device, ask for it where the profile says how, and annex what is found, once.

        IllegalTransitionError for a command that has not timed out, or was answered late. InvalidInputError where its
        profile has no probe for it. CapacityError while this node looks for too many; NotYetError; UnavailableError.
        """
        if command.verified is not None:
            return _known(command)
        probe = self._looker.probe_of(command.profile, command.method)
        if probe is None or command.one_way:
            raise InvalidInputError("command_id", f"profile {command.profile!r} has no probe for {command.method}")
        if command.state is not CommandState.TIMED_OUT or command.late is not None:
            raise not_verified(command.id, command.state if command.late is None else "answered")
        task = self._under_way.get(command.id)
        if task is None:
            if len(self._under_way) >= MOST:
                raise CapacityError(f"this node looks for {MOST} commands already; ask again in a moment")
            task = self._under_way[command.id] = asyncio.get_running_loop().create_task(self._verify(command, probe))
            task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[ProbeReport]) -> None:
        self._under_way = {known: one for known, one in self._under_way.items() if one is not task}
        if not task.cancelled():
            task.exception()  # of which nobody may be left to hear

    async def _verify(self, command: Command, probe: Probe) -> ProbeReport:
        if not await self._all_know(FEATURE):
            raise NotYetError("a node of the cluster does not know findings after the outcome: it is of before 0.3")
        found = await self._found(command, probe)
        if isinstance(found, ProbeFinding):
            if await self._store.verify(command.id, found):
                self._counters[f"verified.{found.evidence}"] += 1
            return _known(await self._store.read(command.id))
        self._counters[f"verified.{found}"] += 1
        return ProbeReport(found, command)

    async def _found(self, command: Command, probe: Probe) -> ProbeFinding | Unsettled:
        """Look at once, and as long as a device that is asked may take to tell its state.

        It is asked again at each look that is due: another question may have had the turn, and what is told within a
        second of the time-out may be of before it.
        """
        since = self._since(command, probe)
        if since is None:
            return Unsettled.NO_PUBACK
        found = await self._looker.look(command, probe, since)
        if isinstance(found, ProbeFinding) or found is Unsettled.BLIND or probe.ask is None:
            return found
        time = min(probe.within, LONGEST)
        for done in range(LOOKS):
            left = time * (LOOKS - done) / LOOKS
            self._questions.ask(command.profile, command.device_id, probe.ask, left)
            await self._sleep(time.total_seconds() / LOOKS)
            found = await self._looker.look(command, probe, since)
            if isinstance(found, ProbeFinding):
                break
        return found

    def _since(self, command: Command, probe: Probe) -> int | None:
        """Return since when a state may be the doing of the command; None if it surely has not arrived.

        When the broker had it is not on record, but that was before its end; a state that names it cannot be of before
        it.
        """
        known = orjson.loads(command.error or b"{}").get("known") or {}
        if known.get("published") is False or known.get("subscribers") == "none":
            return None
        return command.created_at if probe.bound else command.finished_at


def _known(command: Command) -> ProbeReport:
    """Return what is annexed to a command."""
    return ProbeReport(ProbeEvidence(orjson.loads(command.verified or b"{}")["kind"]), command)
