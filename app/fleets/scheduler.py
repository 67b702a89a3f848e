"""Begins what schedules say, without a leader: a node decides an occurrence in the step that writes it down.

A schedule falls to one of the living nodes; what it leaves lying for two seconds, any other decides. The step compares
with what was read, so one of them wins. What is begun has an id that follows from the occurrence: a node that finishes
what another one had begun to begin makes no second run and no second command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import structlog

from app.cluster.shares import falls_to
from app.core.errors import AccessError, CapacityError, HomingError, InvalidInputError, UnavailableError
from app.core.schedules.schedule import (
    DueOccurrence,
    Occurrence,
    OccurrenceResult,
    Schedule,
    ScheduleOverlap,
    decode_schedule,
    encode_schedule,
)
from app.fleets.scheduled_work import ScheduledWork
from app.fleets.timetable import Timetable
from app.runtime.telemetry import Counters
from app.store.commands import CommandReader
from app.store.schedules import ScheduleStore

PATIENCE_US: Final = 2_000_000
"""After so long any node decides an occurrence whose own node has not."""
ABANDONED_US: Final = 10_000_000
"""After so long any node begins what another one has not."""
MOST_SAID: Final = 300
_UNSEEN: Final = "no node looked within the catch-up, and neither for what followed within it"
_WAITED: Final = "within the catch-up, what had begun before it did not end, or no node looked"
_WAITING: Final = (ScheduleOverlap.QUEUE_ONE, ScheduleOverlap.REPLACE)
"""The overlaps in which an occurrence waits for the end of what began before."""
_PASSED_OVER: Final = "others before it were missed, and are passed over"


@dataclass(slots=True)
class _KnownSchedule:
    """A schedule as it was read, and the instant before which there is nothing to do for it."""

    document: bytes
    schedule: Schedule
    timetable: Timetable
    next_at: int | None
    due_at: int = 0
    """The occurrence that was due in the last look, and waits."""


class Scheduler:
    """The scheduler of one node. `live` are the ids of the live nodes; `interval` is in seconds."""

    def __init__(
        self,
        *,
        store: ScheduleStore,
        commands: CommandReader,
        work: ScheduledWork,
        live: Callable[[], Awaitable[Sequence[str]]],
        node_id: str,
        interval: float,
        counters: Counters,
    ) -> None:
        self._store = store
        self._commands = commands
        self._work = work
        self._live = live
        self._node_id = node_id
        self._interval = interval
        self._counters = counters
        self._changes = -1
        self._entries: dict[str, _KnownSchedule] = {}
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Begin what is due, until cancelled."""
        while True:
            try:
                await self.look()
            except (UnavailableError, CapacityError) as failure:
                self._log.debug("schedules_not_read", reason=str(failure))
            await asyncio.sleep(self._interval)

    async def look(self) -> None:
        """Decide and begin what is due, as far as it falls to this node or nobody else does."""
        await self._refresh()
        if not self._entries:
            return
        now = await self._commands.date()
        waiting = [one for one in self._entries.values() if one.next_at is not None and one.next_at <= now]
        live = await self._live() if waiting else ()
        for one in waiting:
            await self._serve(one, live, now)

    async def _refresh(self) -> None:
        if await self._store.changes() == self._changes:
            return
        changes, documents = await self._store.read()
        before, self._entries = self._entries, {}
        for name, document in documents.items():
            known = before.get(name)
            if known is not None and known.document == document:
                self._entries[name] = known
                continue
            await asyncio.sleep(0)
            if (entry := self._entry(name, document)) is not None:
                self._entries[name] = entry
        self._changes = changes

    def _entry(self, name: str, document: bytes) -> _KnownSchedule | None:
        try:
            schedule = decode_schedule(document)
            table = Timetable(schedule.spec.cron, schedule.spec.zone)
        except (ValueError, KeyError, TypeError, InvalidInputError) as fault:
            self._log.warning("schedule_unreadable", name=name, reason=f"{type(fault).__name__}: {fault}"[:MOST_SAID])
            return None
        coming = schedule.coming(table.after, schedule.decided, 1)
        unfinished = schedule.unfinished()
        next_at = unfinished.at if unfinished is not None else coming[0] if coming else None
        return _KnownSchedule(document, schedule, table, next_at)

    async def _serve(self, entry: _KnownSchedule, live: Sequence[str], now: int) -> None:
        """Decide what is due of a schedule, and begin it."""
        schedule = entry.schedule
        try:
            unfinished = schedule.unfinished()
            if unfinished is not None:
                is_left = unfinished.node not in live or now - unfinished.noted_at > ABANDONED_US
                if now - unfinished.at > schedule.spec.catch_up:
                    await self._give_up(schedule, entry.document, unfinished)
                elif unfinished.node == self._node_id or is_left:
                    await self._begin(schedule, entry.document, unfinished)
                return
            due = schedule.due(entry.timetable.after, now, entry.due_at)
            if due is None:
                return
            entry.due_at = due.at
            if not due.missed and now < schedule.begins_at(due.at):
                return
            late = now - schedule.begins_at(due.at)
            if falls_to(self._node_id, live, schedule.document) or late >= PATIENCE_US:
                await self._decide(schedule, entry.document, due, now)
        except HomingError as failure:  # the next look tries it again
            self._log.debug("schedule_waits", name=schedule.name, reason=str(failure))

    async def _decide(self, schedule: Schedule, document: bytes, due: DueOccurrence, now: int) -> None:
        said = _PASSED_OVER if due.passed_over else ""
        paused = ""
        plain = Occurrence(at=due.at, result=OccurrenceResult.BEGINNING, noted_at=now, node=self._node_id, reason=said)
        if due.missed:
            reason = _WAITED if schedule.spec.overlap in _WAITING else _UNSEEN
            occurrence = replace(plain, result=OccurrenceResult.MISSED, reason=reason)
        elif schedule.spec.overlap != ScheduleOverlap.PARALLEL and not await self._work.has_ended(schedule):
            paused = await self._end_last(schedule) if schedule.spec.overlap == ScheduleOverlap.REPLACE else ""
            if schedule.spec.overlap in _WAITING and not paused:
                return  # a later look decides it, or the one after it
            result = OccurrenceResult.REFUSED if paused else OccurrenceResult.SKIPPED
            occurrence = replace(plain, result=result, reason=paused or f"{schedule.last_begun} has not ended")
        else:
            occurrence = replace(plain, began=self._work.id_of(schedule, due.at))
        decided = replace(schedule.with_decided(occurrence, now), paused=paused)
        written = encode_schedule(decided)
        if not await self._store.write(schedule.document, written, document):
            return  # somebody else has decided it, or the schedule is another one
        if occurrence.result is OccurrenceResult.BEGINNING:
            await self._begin(decided, written, occurrence)
        else:
            self._note(schedule, occurrence)

    async def _end_last(self, schedule: Schedule) -> str:
        """End what a schedule has begun last; if its principal may not, return why it has to pause."""
        try:
            await self._work.end_last(schedule)
        except AccessError as refusal:
            return _refused(schedule, refusal)
        return ""

    async def _begin(self, schedule: Schedule, document: bytes, occurrence: Occurrence) -> None:
        """Begin what was decided, and write down what came of it; what is unavailable or full is tried again."""
        paused = ""
        try:
            await self._work.begin(schedule, occurrence.at)
            ended = replace(occurrence, result=OccurrenceResult.BEGAN)
        except AccessError as refusal:
            paused = _refused(schedule, refusal)
            ended = replace(occurrence, result=OccurrenceResult.REFUSED, began="", reason=paused)
        except (UnavailableError, CapacityError):
            raise
        except HomingError as fault:
            ended = replace(occurrence, result=OccurrenceResult.FAILED, began="", reason=str(fault)[:MOST_SAID])
        await self._end(schedule, document, ended, paused)

    async def _give_up(self, schedule: Schedule, document: bytes, occurrence: Occurrence) -> None:
        """End an occurrence that nobody could begin in time. It may have begun all the same, so its id stays."""
        reason = "no node has noted within the catch-up that it began"
        await self._end(schedule, document, replace(occurrence, result=OccurrenceResult.FAILED, reason=reason))

    async def _end(self, schedule: Schedule, document: bytes, ended: Occurrence, paused: str = "") -> None:
        if await self._store.write(schedule.document, encode_schedule(schedule.with_ended(ended, paused)), document):
            self._note(schedule, ended)

    def _note(self, schedule: Schedule, occurrence: Occurrence) -> None:
        self._counters[f"schedule.{occurrence.result}"] += 1
        result, began, reason = str(occurrence.result), occurrence.began, occurrence.reason
        if occurrence.result is OccurrenceResult.BEGAN:
            self._log.info("schedule_began", name=schedule.name, began=began, reason=reason)
        else:
            self._log.warning("schedule_not_begun", name=schedule.name, result=result, reason=reason)


def _refused(schedule: Schedule, refusal: AccessError) -> str:
    """Say why a schedule pauses itself."""
    return f"{schedule.by or 'its caller'} may not do this any more: {refusal}"[:MOST_SAID]
