"""The records of this node for the latency log: of its own commands, of what else devices told it, and for the dead."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from typing import Any, Final, NamedTuple

import structlog

from app.callbacks.observer import Observer
from app.callbacks.pending import Pending
from app.core.clock import Clock
from app.core.commands.callback import Answer
from app.core.commands.command import Command, CommandState
from app.core.commands.routing import MatchResult, Outcome, Recorded
from app.core.errors import CapacityError, UnavailableError
from app.latency.log import LatencyLog
from app.latency.record import error_code
from app.latency.schema import RecordKind
from app.runtime.telemetry import Counters, Fill
from app.store.commands import CommandReader

MOST_WAITING: Final = 10_000
"""Outcomes of commands of other nodes that wait to be looked at."""
BATCH: Final = 200
LOOK_SECONDS: Final = 1.0


class _Foreign(NamedTuple):
    due: float
    number: int
    outcome: Outcome
    record_seconds: float | None


class Journal(Observer):
    """Home writes the outcome of its command. Where home is gone, the node that ended the command does it for it.

    A node without a lease is gone. A dead one may still count as alive for `patience` seconds, and a new one may not
    do so for `news` seconds.
    """

    def __init__(
        self,
        *,
        log: LatencyLog,
        store: CommandReader,
        clock: Clock,
        node_id: str,
        gone: Callable[[str], bool],
        patience: float,
        news: float,
        counters: Counters,
    ) -> None:
        """`gone` says whether a node is known not to live."""
        self._log = log
        self._store = store
        self._clock = clock
        self._node_id = node_id
        self._gone = gone
        self._patience = patience
        self._news = news
        self._counters = counters
        self._foreign: list[_Foreign] = []
        self._numbers = count()
        self._logger = structlog.get_logger()

    def fills(self) -> dict[str, Fill]:
        """The fills of everything on its way into the log."""
        return self._log.fills() | {"latency_foreign": Fill(len(self._foreign), MOST_WAITING)}

    def closed(self, pending: Pending) -> None:
        self._log.closed(pending)

    def foreign(self, outcome: Outcome) -> None:
        if not outcome.home_heard:
            self._keep(outcome, self._patience, None)

    def recorded(self, recorded: Recorded, answer: Answer, arrived_at: float, now: float) -> None:
        outcome = recorded.outcome
        if outcome is None or answer.state is CommandState.RUNNING:
            return
        won = recorded.verdict is MatchResult.WON
        if not won and not self._same(outcome, answer):
            self._further(recorded, outcome, answer, arrived_at, now)
            return
        home = recorded.waiting[0]
        if home == self._node_id:
            return
        if won and not outcome.home_heard:
            self._keep(outcome, self._patience, now - arrived_at)
        elif not won and self._gone(home):
            self._keep(outcome, self._news, now - arrived_at)

    async def run(self) -> None:
        """Write the log, and look after the commands of dead nodes, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._log.run())
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                await self._look(self._clock.monotonic())

    async def close(self) -> None:
        """Write everything there is."""
        await self._look(float("inf"))
        await self._log.close()

    def _same(self, outcome: Outcome, answer: Answer) -> bool:
        """True if the answer is the outcome itself: the store's first reply to it was lost."""
        reception = outcome.reception
        return (
            outcome.received_by == self._node_id
            and reception is not None
            and reception.received_at is not None
            and reception.received_at == answer.received_at
        )

    def _further(self, recorded: Recorded, outcome: Outcome, answer: Answer, arrived_at: float, now: float) -> None:
        recorded_at = self._log.store_clock.store_time(now)
        if recorded_at is None:
            self._counters["latency.dropped_clock_unknown"] += 1
            return
        home = recorded.waiting[0]
        self._log.row(
            {
                "kind": (RecordKind.LATE if recorded.verdict is MatchResult.LATE else RecordKind.DUPLICATE).value,
                "command_id": outcome.command_id,
                "device_id": answer.device_id,
                "outcome": outcome.state.value,
                "error_code": error_code(answer.error),
                "home_node": home,
                "receiving_node": self._node_id,
                "writing_node": self._node_id,
                "forwarded": home != self._node_id,
                "correlation": answer.correlation.value,
                "attempt": 1,
                "response_bytes": answer.size,
                "received_at": answer.received_at,
                "recorded_at": recorded_at,
                "record_us": round((now - arrived_at) * 1e6),
            }
        )

    def _keep(self, outcome: Outcome, wait: float, record_seconds: float | None) -> None:
        if len(self._foreign) >= MOST_WAITING:
            self._counters["latency.dropped_foreign"] += 1
            return
        due = self._clock.monotonic() + wait
        heapq.heappush(self._foreign, _Foreign(due, next(self._numbers), outcome, record_seconds))

    async def _look(self, now: float) -> None:
        while self._foreign and self._foreign[0].due <= now:
            batch: list[_Foreign] = []
            while self._foreign and self._foreign[0].due <= now and len(batch) < BATCH:
                batch.append(heapq.heappop(self._foreign))
            try:
                commands = await self._store.get([one.outcome.command_id for one in batch])
            except (UnavailableError, CapacityError) as failure:
                self._counters["latency.dropped_foreign"] += len(batch)
                self._logger.debug("foreign_outcomes_not_read", reason=str(failure))
                return
            for one, command in zip(batch, commands, strict=True):
                if command is not None and (command.home_node == self._node_id or self._gone(command.home_node)):
                    self._log.row(self._row(command, one))

    def _row(self, command: Command, foreign: _Foreign) -> dict[str, Any]:
        outcome = foreign.outcome
        reception = outcome.reception
        seconds = foreign.record_seconds
        return {
            "kind": RecordKind.OUTCOME.value,
            "command_id": command.id,
            "device_id": command.device_id,
            "profile": command.profile,
            "method": command.method,
            "outcome": outcome.state.value,
            "error_code": error_code(outcome.error),
            "home_node": command.home_node,
            "receiving_node": outcome.received_by,
            "writing_node": self._node_id,
            "forwarded": outcome.received_by not in (None, command.home_node),
            "correlation": reception and reception.correlation.value,
            "attempt": 1,
            "response_bytes": reception and reception.size,
            "registered_at": command.begun_at,
            "received_at": reception and reception.received_at,
            "recorded_at": outcome.finished_at,
            "deadline_at": command.deadline,
            "record_us": None if seconds is None else round(seconds * 1e6),
        }
