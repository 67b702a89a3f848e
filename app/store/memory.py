"""The state store of one node alone: the same semantics as in Redis, in this process's memory."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from app.core.callback import Answer, Correlation, Expectation, Registration
from app.core.clock import Clock
from app.core.command import Command, CommandState
from app.core.errors import (
    CapacityError,
    CommandNotFoundError,
    DeviceBusyError,
    IdempotencyMismatchError,
    IllegalTransitionError,
)
from app.core.identifiers import partition_of_command
from app.core.reception import Reception, reception_of
from app.core.routing import Outcome, Recorded, Verdict
from app.observability import Fill
from app.store.base import Finished, Joined, Page, Query, Registered
from app.store.rules import (
    GONE,
    LATE_STATES,
    MAX_JOINED,
    NO_RESPONSE,
    SWEEP_LIMIT,
    ended_by,
    late_annex,
    marked_by,
    micros,
    page_cursor,
    page_start,
    retention_of,
)

Wake = Callable[[str, Outcome], None]
"""Called with a waiting node and the outcome."""


@dataclass(slots=True)
class _Record:
    command: Command
    registration: Registration
    waiting: list[str]
    expires_at: int
    reception: Reception | None = None
    quarantined_until: int = 0
    """Until when an ORDER topic stays occupied after the outcome; 0 when it was freed."""

    @property
    def open(self) -> bool:
        return not self.command.state.final

    @property
    def outcome(self) -> Outcome | None:
        command = self.command
        if command.finished_at is None:
            return None
        return Outcome(
            command.id,
            command.state,
            command.finished_at,
            command.received_by,
            command.result,
            command.error,
            self.reception,
        )

    def expects(self, answer: Answer) -> bool:
        return self.registration.device_id == answer.device_id and any(
            one.topic == answer.topic for one in self.registration.expectations
        )

    def by_order(self, topic: str) -> bool:
        """Whether a response without any id on this topic may belong to this command."""
        return any(
            one.topic == topic and one.correlation is Correlation.ORDER for one in self.registration.expectations
        )


@dataclass(slots=True)
class _Indexes:
    """Dictionaries keep the order of registration, so the oldest of a topic is the first."""

    topics: dict[str, dict[str, None]] = field(default_factory=dict)
    values: dict[tuple[str, str], str] = field(default_factory=dict)
    idempotency: dict[tuple[str, str], str] = field(default_factory=dict)
    open: dict[str, None] = field(default_factory=dict)

    def enter(self, registration: Registration) -> None:
        for one in registration.expectations:
            self.topics.setdefault(one.topic, {})[registration.command_id] = None
            if one.correlation is Correlation.VALUE:
                self.values[one.topic, one.value] = registration.command_id
        if registration.idempotency_key is not None:
            self.idempotency[registration.device_id, registration.idempotency_key] = registration.command_id
        self.open[registration.command_id] = None

    def leave(self, registration: Registration, keep: Callable[[Expectation], bool] | None = None) -> None:
        """No longer wait; topics of expectations that `keep` wants stay occupied."""
        self.open.pop(registration.command_id, None)
        for one in registration.expectations:
            if keep is None or not keep(one):
                self.free(one.topic, registration.command_id)

    def free(self, topic: str, command_id: str) -> None:
        members = self.topics.get(topic)
        if members is not None:
            members.pop(command_id, None)
            if not members:
                del self.topics[topic]

    def forget(self, registration: Registration) -> None:
        """Remove all that still points to the command."""
        self.leave(registration)
        for one in registration.expectations:
            if self.values.get((one.topic, one.value)) == registration.command_id:
                del self.values[one.topic, one.value]
        key = (registration.device_id, registration.idempotency_key or "")
        if self.idempotency.get(key) == registration.command_id:
            del self.idempotency[key]

    @property
    def size(self) -> int:
        return len(self.topics) + len(self.values) + len(self.idempotency) + len(self.open)


def _matches(query: Query, command: Command) -> bool:
    return query.device_id in (None, command.device_id) and query.state in (None, command.state)


class MemoryStateStore:
    """Everything in dictionaries of this process. No operation awaits anything, so each is atomic on its event loop.

    It promises nothing across the end of the process. `wake` is for tests that model several nodes on one store:
    it is called for each waiting node but the receiver or finisher, where Redis would publish.
    """

    def __init__(self, clock: Clock, *, max_commands: int = 500_000, wake: Wake | None = None) -> None:
        self._clock = clock
        self._started_at = round(clock.wall() * 1_000_000)
        self._started = clock.monotonic()
        self._max_commands = max_commands
        self._wake = wake
        self._records: dict[str, _Record] = {}
        self._indexes = _Indexes()
        self._expiries: list[tuple[int, str]] = []

    async def start(self) -> None:
        return

    async def close(self) -> None:
        return

    def queues(self) -> dict[str, Fill]:
        return {"records": Fill(len(self._records), self._max_commands)}

    async def ping(self) -> None:
        return

    @property
    def size(self) -> int:
        """How many records and index entries there are: 0 when nothing is left."""
        self._forget_expired()
        return len(self._records) + self._indexes.size

    async def now(self) -> int:
        return self._now()

    async def register(self, registration: Registration) -> Registered | Joined:
        self._forget_expired()
        known = self._records.get(registration.command_id)
        if known is not None:
            return Registered(known.command.created_at, known.command.deadline)
        joined = self._join(registration)
        if joined is not None:
            return joined
        self._admit(registration)
        now = self._now()
        command = registration.command(now, now + micros(registration.timeout))
        record = _Record(command, registration, [registration.home_node], 0)
        self._records[command.id] = record
        self._indexes.enter(registration)
        self._expire(record, command.deadline)
        return Registered(command.created_at, command.deadline)

    async def respond(self, answer: Answer, receiver: str) -> Recorded:
        self._forget_expired()
        now = self._now()
        command_id = self._named_by(answer, now)
        record = self._records.get(command_id) if command_id is not None else None
        if record is None:
            return Recorded(Verdict.UNKNOWN)
        if not record.expects(answer):
            by_id = answer.correlation is Correlation.ID
            return Recorded(Verdict.MISMATCH, command_id) if by_id else Recorded(Verdict.UNKNOWN)
        if record.open and answer.state is CommandState.RUNNING:
            record.command = replace(record.command, state=CommandState.RUNNING, progress=answer.result)
            return self._recorded(Verdict.PROGRESS, record)
        if record.open:
            record.reception = reception_of(answer)
            self._settle(record, answer.state, answer.result, answer.error, receiver, received_by=receiver)
            return self._recorded(Verdict.WON, record)
        return self._recorded(self._annex(record, answer, now), record)

    async def finish(self, command_id: str, state: CommandState, finisher: str, error: bytes | None = None) -> Finished:
        allowed = ended_by(state)
        self._forget_expired()
        record = self._records.get(command_id)
        if record is None:
            raise CommandNotFoundError(command_id)
        won = record.open
        if won:
            if record.command.state not in allowed:
                raise IllegalTransitionError(command_id, f"a command that is {record.command.state} cannot be {state}")
            self._settle(record, state, None, error, finisher)
        return Finished(won, self._outcome(record))

    async def mark(self, command_id: str, state: CommandState) -> None:
        allowed = marked_by(state)
        self._forget_expired()
        record = self._records.get(command_id)
        if record is not None and record.command.state in allowed:
            record.command = replace(record.command, state=state)

    async def get(self, command_ids: Sequence[str]) -> list[Command | None]:
        self._forget_expired()
        return [record.command if (record := self._records.get(one)) else None for one in command_ids]

    async def outcomes(self, command_ids: Sequence[str]) -> list[Outcome | None]:
        self._forget_expired()
        return [
            record.outcome
            if (record := self._records.get(one))
            else Outcome(one, CommandState.TIMED_OUT, self._now(), error=GONE)
            for one in command_ids
        ]

    async def list_commands(self, query: Query) -> Page:
        self._forget_expired()
        start = page_start(query.cursor)
        found: list[Command] = []
        for record in reversed(self._records.values()):  # by registration, newest first
            command = record.command
            if len(found) > query.limit and command.created_at < found[query.limit].created_at:
                break
            if _matches(query, command) and (start is None or (command.created_at, command.id) < start):
                found.append(command)
        found.sort(key=lambda command: (command.created_at, command.id), reverse=True)
        page = found[: query.limit]
        return Page(page, page_cursor(page[-1].created_at, page[-1].id) if len(found) > len(page) > 0 else None)

    async def pending_of(self, node_id: str, limit: int = 1000) -> list[Command]:
        self._forget_expired()
        commands = (self._records[one].command for one in self._indexes.open)
        own = (command for command in commands if command.home_node == node_id)
        return heapq.nsmallest(limit, own, key=lambda command: (command.deadline, command.id))

    async def sweep(self, partitions: Sequence[int], finisher: str, grace: timedelta) -> list[Outcome]:
        self._forget_expired()
        before = self._now() - micros(grace)
        due: dict[int, list[_Record]] = {partition: [] for partition in partitions}
        for one in self._indexes.open:
            record = self._records[one]
            if record.command.deadline < before and (partition := partition_of_command(one)) in due:
                due[partition].append(record)
        outcomes = []
        for records in due.values():
            for record in heapq.nsmallest(SWEEP_LIMIT, records, key=lambda one: one.command.deadline):
                self._settle(record, CommandState.TIMED_OUT, None, NO_RESPONSE, finisher)
                outcomes.append(self._outcome(record))
        return outcomes

    def _now(self) -> int:
        # Wall time once, then the monotonic clock: the store's clock never jumps.
        return self._started_at + round((self._clock.monotonic() - self._started) * 1_000_000)

    def _join(self, registration: Registration) -> Joined | None:
        key = registration.idempotency_key
        known = self._indexes.idempotency.get((registration.device_id, key)) if key is not None else None
        if known is None:
            return None
        record = self._records[known]
        if record.registration.fingerprint != registration.fingerprint:
            raise IdempotencyMismatchError(known)
        asking = registration.home_node
        if record.open and asking not in record.waiting and len(record.waiting) <= MAX_JOINED:
            record.waiting.append(asking)
        return Joined(record.command)

    def _admit(self, registration: Registration) -> None:
        now = self._now()
        for one in registration.expectations:
            if one.correlation is Correlation.ORDER and self._occupant(one.topic, now):
                raise DeviceBusyError(f"device {registration.device_id} has a command in flight on {one.topic}")
            if one.correlation is Correlation.VALUE:
                holder = self._indexes.values.get((one.topic, one.value))
                if holder is not None and self._records[holder].open:
                    raise DeviceBusyError(
                        f"device {registration.device_id} has a command in flight with the same value on {one.topic}"
                    )
        if len(self._records) >= self._max_commands:
            raise CapacityError(f"the store in memory holds {self._max_commands} commands, its limit")

    def _occupant(self, topic: str, now: int) -> str | None:
        """The oldest that waits on the topic or keeps it in quarantine."""
        while members := self._indexes.topics.get(topic):
            oldest = next(iter(members))
            record = self._records[oldest]
            if record.open or now < record.quarantined_until:
                return oldest
            self._indexes.free(topic, oldest)
        return None

    def _named_by(self, answer: Answer, now: int) -> str | None:
        if answer.correlation is Correlation.ID:
            return answer.value
        if answer.correlation is Correlation.VALUE:
            return self._indexes.values.get((answer.topic, answer.value))
        # A command by order registers only where nobody waits, so it is always the oldest.
        oldest = self._occupant(answer.topic, now)
        return oldest if oldest is not None and self._records[oldest].by_order(answer.topic) else None

    def _annex(self, record: _Record, answer: Answer, now: int) -> Verdict:
        if record.command.state not in LATE_STATES or answer.state is CommandState.RUNNING:
            return Verdict.DUPLICATE
        self._indexes.free(answer.topic, record.command.id)
        if record.command.late is not None:
            return Verdict.DUPLICATE
        record.command = replace(record.command, late=late_annex(answer.state, answer.result, answer.error, now))
        return Verdict.LATE

    def _settle(
        self,
        record: _Record,
        state: CommandState,
        result: bytes | None,
        error: bytes | None,
        settler: str,
        received_by: str | None = None,
    ) -> None:
        now = self._now()
        registration = record.registration
        record.command = replace(
            record.command, state=state, finished_at=now, received_by=received_by, result=result, error=error
        )
        quarantine = registration.quarantine if state in (CommandState.TIMED_OUT, CommandState.CANCELLED) else None
        if quarantine:
            record.quarantined_until = now + micros(quarantine)
            self._indexes.leave(registration, keep=lambda one: one.correlation is Correlation.ORDER)
        else:
            self._indexes.leave(registration)
        self._expire(record, now)
        if self._wake is not None:
            for node in record.waiting:
                if node != settler:
                    trace = registration.trace if received_by is not None else None
                    self._wake(node, replace(self._outcome(record), trace=trace))

    def _recorded(self, verdict: Verdict, record: _Record) -> Recorded:
        outcome = record.outcome if verdict is not Verdict.PROGRESS else None
        return Recorded(verdict, record.command.id, outcome, tuple(record.waiting), record.registration.trace)

    def _outcome(self, record: _Record) -> Outcome:
        outcome = record.outcome
        if outcome is None:
            raise IllegalTransitionError(record.command.id, "an open command has no outcome")
        return outcome

    def _expire(self, record: _Record, after: int) -> None:
        record.expires_at = after + micros(retention_of(record.registration))
        heapq.heappush(self._expiries, (record.expires_at, record.command.id))

    def _forget_expired(self) -> None:
        """Two entries a command at most (registration, outcome), each taken out once."""
        now = self._now()
        while self._expiries and self._expiries[0][0] <= now:
            _, command_id = heapq.heappop(self._expiries)
            record = self._records.get(command_id)
            if record is not None and record.expires_at <= now:
                del self._records[command_id]
                self._indexes.forget(record.registration)
