"""Changes commands in memory: the same steps as the scripts of Redis."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from app.core.cluster.wakekey import WakeKey
from app.core.commands.approval import Approval, ApprovalDecision
from app.core.commands.callback import Answer, Registration
from app.core.commands.command import CommandState
from app.core.commands.history import takes_late
from app.core.commands.reception import reception_of, reception_of_finding
from app.core.commands.routing import MatchResult, Outcome, Recorded
from app.core.commands.stream import CommandChangeKind
from app.core.errors import (
    CommandNotFoundError,
    DeviceBusyError,
    IdempotencyMismatchError,
    IllegalTransitionError,
)
from app.core.identifiers import partition_of_command
from app.core.profiles.correlation import Correlation
from app.core.profiles.lanes import LaneOrder
from app.core.profiles.probes import ProbeFinding
from app.core.webhooks.deliveries import OutboxEntry, Tidings
from app.store.commands import Finished, Joined, Registered
from app.store.holds import Decided
from app.store.memory.commands.history import note_report
from app.store.memory.commands.holds import begin_flight
from app.store.memory.commands.lanes import note_end, note_sent, occupancy
from app.store.memory.commands.namesakes import last_one_stays, namesakes
from app.store.memory.commands.records import CommandTable, Record
from app.store.memory.commands.room import check_room
from app.store.memory.commands.stream import MemoryCommandChanges
from app.store.memory.fleets import MemoryFleets
from app.store.memory.schedules import MemorySchedules
from app.store.memory.webhooks import MemoryWebhooks
from app.store.rules import (
    CONFIRMED_FROM,
    HOLD_EXPIRED,
    MAX_JOINED,
    NO_RESPONSE,
    NOT_APPROVED,
    SWEEP_LIMIT,
    ended_by,
    error_of_finding,
    lane_taken,
    late_annex,
    marked_by,
    micros,
    not_confirmed,
    not_verified,
    refused_by_second,
    replaced,
    superseded,
    verified_annex,
    verified_news,
)

Wake = Callable[[str, Outcome], None]
"""Called with a waiting node and the outcome."""

Tell = Callable[[str, str], None]
"""Called with a watching node and the id of the command to which something has happened."""


class MemoryCommandWriter:
    """`wake` and `tell` are called where Redis would publish: for each node but the receiver or finisher."""

    def __init__(
        self, table: CommandTable, wake: Wake | None, wake_key: WakeKey | None, tell: Tell | None = None
    ) -> None:
        self._table = table
        self._tell = tell
        self.webhooks: Final = MemoryWebhooks(table.now, table.changed)
        self.fleets: Final = MemoryFleets(table.now, table.changed)
        self.schedules: Final = MemorySchedules(table.changed)
        self.changes: Final = MemoryCommandChanges(table.now)
        self._wake = wake
        self._wake_key = wake_key

    async def register(self, registration: Registration) -> Registered | Joined:
        self._table.forget_expired()
        known = self._table.records.get(registration.command_id)
        if known is not None:
            return Registered(known.command.created_at, known.command.deadline, known.held)
        joined = self._join(registration)
        if joined is not None:
            return joined
        held = registration.begins_held or self._is_taken(registration)
        at_once = registration.hold is None or registration.hold.approval is None  # else once it is approved
        make_way = namesakes(self._table, registration) if at_once else ()
        check_room(self._table, registration, make_way, held=held)
        for one in make_way:
            self.give_way(one, replaced(registration.command_id))
        if at_once:
            self._supersede(registration)
        now = self._table.now()
        command = registration.command(now, now + micros(registration.longest(held=held)), held=held)
        record = Record(command, registration, [registration.home_node], 0)
        self._table.add(record)
        self._table.expire(record, command.deadline)
        self._table.has_changed(record)
        if not held:
            note_sent(self._table, record)
        if command.awaits_approval and registration.notify:
            self.webhooks.tell(OutboxEntry(command.id, Tidings.ASKED))
        return Registered(command.created_at, command.deadline, held)

    async def respond(self, answer: Answer, receiver: str, *, open_only: bool = False) -> Recorded:
        self._table.forget_expired()
        now = self._table.now()
        command_id = self._named_by(answer, now)
        record = self._table.records.get(command_id) if command_id is not None else None
        if record is None:
            return Recorded(MatchResult.UNKNOWN)
        if not record.expects(answer):
            by_id = answer.correlation in (Correlation.ID, Correlation.ECHO)
            return Recorded(MatchResult.MISMATCH, command_id) if by_id else Recorded(MatchResult.UNKNOWN)
        if record.held and (record.command.hold is None or not record.command.hold.claims):  # nobody can have it
            return Recorded(MatchResult.UNKNOWN)
        if record.open and answer.state is CommandState.RUNNING:
            if record.held:
                begin_flight(self._table, record, record.command.home_node)
            news = note_report(record, answer.result, now)
            record.command = replace(record.command, state=CommandState.RUNNING, progress=answer.result)
            self._table.has_changed(record)
            if news:
                self.changes.tell(CommandChangeKind.PROGRESS, record.command, record.report_count, answer.result)
                self._tell_watching(record, receiver)
            return self._recorded(MatchResult.PROGRESS, record)
        if record.open:
            record.reception = reception_of(answer)
            self._settle(record, answer.state, answer.result, answer.error, receiver, received_by=receiver)
            return self._recorded(MatchResult.WON, record)
        if open_only:
            return self._recorded(MatchResult.FINISHED, record)
        verdict = self._annex(record, answer, now)
        if verdict is MatchResult.LATE:
            self._tell_watching(record, receiver)
        return self._recorded(verdict, record)

    async def finish(
        self,
        command_id: str,
        state: CommandState,
        finisher: str,
        error: bytes | None = None,
        *,
        only_held: bool = False,
    ) -> Finished:
        allowed = ended_by(state, only_held=only_held)
        self._table.forget_expired()
        record = self._table.records.get(command_id)
        if record is None:
            raise CommandNotFoundError(command_id)
        won = record.open
        if won:
            of_another = state is CommandState.UNSENT and record.taken_by not in (None, finisher)
            if of_another or record.command.state not in allowed:
                raise IllegalTransitionError(command_id, f"a command that is {record.command.state} cannot be {state}")
            self._settle(record, state, None, error, finisher)
        return Finished(won, record.settled)

    async def confirm(self, command_id: str, finding: ProbeFinding, finder: str) -> Finished:
        self._table.forget_expired()
        record = self._table.records.get(command_id)
        if record is None:
            raise CommandNotFoundError(command_id)
        if not record.open:
            return Finished(won=False, outcome=record.settled)
        if record.command.state not in CONFIRMED_FROM:
            raise not_confirmed(command_id, record.command.state)
        if not record.registration.expectations:
            raise not_confirmed(command_id, "one-way")
        if self._table.now() > record.command.deadline:
            raise not_confirmed(command_id, "past its deadline")
        record.reception = reception_of_finding(finding)
        self._settle(record, finding.state, None, error_of_finding(finding), finder, received_by=finder)
        return Finished(won=True, outcome=record.settled)

    async def verify(self, command_id: str, finding: ProbeFinding) -> bool:
        self._table.forget_expired()
        record = self._table.records.get(command_id)
        if record is None:
            raise CommandNotFoundError(command_id)
        command = record.command
        if command.state is not CommandState.TIMED_OUT:
            raise not_verified(command_id, command.state)
        if command.verified is not None:
            return False
        if command.late is not None:
            raise not_verified(command_id, "answered")
        record.command = replace(command, verified=b"%b%d}" % (verified_annex(finding), self._table.now()))
        self._table.has_changed(record)
        if record.registration.notify:
            self.webhooks.tell(OutboxEntry(command_id, Tidings.VERIFIED))
        self.changes.tell(CommandChangeKind.VERIFIED, record.command, record.report_count + 2, verified_news(finding))
        self._tell_watching(record, "")
        return True

    async def mark(self, command_id: str, state: CommandState, sender: str | None = None) -> bool:
        allowed = marked_by(state)
        self._table.forget_expired()
        record = self._table.records.get(command_id)
        if record is None:
            return False
        if record.command.state is state and sender is not None and record.sender == sender:
            return True
        if record.command.state not in allowed:
            return False
        record.command = replace(record.command, state=state)
        record.sender = sender or record.sender
        self._table.has_changed(record)
        return True

    async def sweep(self, partitions: Sequence[int], finisher: str, grace: timedelta) -> list[Outcome]:
        self._table.forget_expired()
        before = self._table.now() - micros(grace)
        due: dict[int, list[Record]] = {}
        for one in self._table.indexes.open:
            record = self._table.records[one]
            if record.command.deadline < before and (partition := partition_of_command(one)) in partitions:
                due.setdefault(partition, []).append(record)
        outcomes = []
        for record in self._lapsed(partitions, before):
            error = NOT_APPROVED if record.command.awaits_approval else HOLD_EXPIRED
            self._settle(record, CommandState.UNSENT, None, error, finisher)
            outcomes.append(record.settled)
        for partition in partitions if due else ():
            records = due.get(partition, ())
            for record in heapq.nsmallest(SWEEP_LIMIT, records, key=lambda one: one.command.deadline):
                self._settle(record, CommandState.TIMED_OUT, None, NO_RESPONSE, finisher)
                outcomes.append(record.settled)
        return outcomes

    async def decide(self, command_id: str, decision: ApprovalDecision, finisher: str) -> Decided:
        self._table.forget_expired()
        record = self._table.records.get(command_id)
        hold = None if record is None else record.command.hold
        if record is None or hold is None or hold.approval is None:
            return Decided(won=False)
        if hold.approval.decision == decision:  # the first reply was lost
            return Decided(won=True, outcome=None if decision.approves else record.outcome)
        now = self._table.now()
        if not record.command.awaits_approval or min(hold.approval.until, hold.until) <= now:
            return Decided(won=False)
        approval = Approval(hold.approval.until, decision, now)
        record.command = replace(record.command, hold=replace(hold, approval=approval))
        if decision.approves:
            self._supersede(record.registration)
            self._table.indexes.stand_in_line(record.registration)
            self._table.has_changed(record)
            last_one_stays(self._table, record, self.give_way)
            return Decided(won=True)
        self._settle(record, CommandState.CANCELLED, None, refused_by_second(decision), finisher)
        return Decided(won=True, outcome=record.settled)

    def _lapsed(self, partitions: Sequence[int], before: int) -> list[Record]:
        wanted = set(partitions)
        held = (self._table.records[one] for one in self._table.indexes.held if partition_of_command(one) in wanted)
        return [one for one in held if one.command.hold is not None and one.command.hold.lapses_at < before]

    def _join(self, registration: Registration) -> Joined | None:
        key = registration.idempotency_key
        known = self._table.indexes.idempotency.get((registration.device_id, key)) if key is not None else None
        if known is None:
            return None
        record = self._table.records[known]
        if record.command.state is CommandState.UNSENT:
            return None
        if record.registration.fingerprint != registration.fingerprint:
            raise IdempotencyMismatchError(known)
        asking = registration.home_node
        if record.open and asking not in record.waiting and len(record.waiting) <= MAX_JOINED:
            record.waiting.append(asking)
            self._table.has_changed(record)
        return Joined(record.command)

    def _is_taken(self, registration: Registration) -> bool:
        """Return whether its lane has no room for it; DeviceBusyError where it may not wait for that."""
        lane = registration.lane
        if lane is None:
            return False
        taken = not occupancy(self._table, lane, registration.device_id).has_room(lane)
        if taken and registration.hold is None:
            raise DeviceBusyError(lane_taken(registration.device_id, lane.name))
        return taken

    def _supersede(self, registration: Registration) -> None:
        """Cancel those that wait in a lane in which only the last one does."""
        lane = registration.lane
        if lane is not None and lane.order is LaneOrder.LATEST:
            for one in self._table.line(registration):
                self.give_way(one, superseded(registration.command_id))

    def give_way(self, record: Record, error: bytes) -> None:
        """Cancel one that waits, as another one came after it."""
        self._settle(record, CommandState.CANCELLED, None, error, "")

    def _named_by(self, answer: Answer, now: int) -> str | None:
        if answer.correlation in (Correlation.ID, Correlation.ECHO):
            return answer.value
        if answer.correlation is Correlation.VALUE:
            return self._table.indexes.values.get((answer.topic, answer.value))
        # A command by order registers only where nobody waits, so it is always the oldest.
        oldest = self._table.occupant(answer.topic, now)
        return oldest if oldest is not None and self._table.records[oldest].by_order(answer.topic) else None

    def _annex(self, record: Record, answer: Answer, now: int) -> MatchResult:
        if not takes_late(record.command) or answer.state is CommandState.RUNNING:
            return MatchResult.DUPLICATE
        self._table.indexes.free(answer.topic, record.command.id)
        self._table.has_changed(record)
        if record.command.late is not None:
            return MatchResult.DUPLICATE
        record.command = replace(record.command, late=late_annex(answer.state, answer.result, answer.error, now))
        if record.registration.notify:
            self.webhooks.tell(OutboxEntry(record.command.id, Tidings.LATE))
        text = b'{"state":"%b","error":%b}' % (answer.state.value.encode(), answer.error or b"null")
        number = record.report_count + (2 if record.command.verified is None else 3)
        self.changes.tell(CommandChangeKind.LATE, record.command, number, text)
        return MatchResult.LATE

    def _settle(
        self,
        record: Record,
        state: CommandState,
        result: bytes | None,
        error: bytes | None,
        settler: str,
        received_by: str | None = None,
    ) -> None:
        now = self._table.now()
        registration, held = record.registration, record.held
        stood = held and not record.command.awaits_approval
        record.command = replace(
            record.command,
            state=state,
            finished_at=now,
            received_by=received_by,
            result=result,
            error=error,
            matched_by=None if record.reception is None else record.reception.correlation,
            confirmed_by=None if record.reception is None else record.reception.finding,
        )
        quarantine = (
            registration.quarantine if not held and state in (CommandState.TIMED_OUT, CommandState.CANCELLED) else None
        )
        lane = registration.lane
        rests = lane is not None and bool(lane.rest) and not held and state is not CommandState.SUCCEEDED
        if lane is not None and rests:
            record.rests_until = now + micros(lane.rest)
        if quarantine:
            record.quarantined_until = now + micros(quarantine)
            self._table.indexes.leave(registration, keep=lambda one: one.correlation is Correlation.ORDER, rests=rests)
        else:
            self._table.indexes.leave(registration, rests=rests)
        note_end(self._table, record, held=held, stood=stood)
        record.follower = self._table.follower(registration)
        self._table.expire(record, now)
        self._table.has_changed(record)
        if registration.notify:
            self.webhooks.tell(OutboxEntry(registration.command_id, Tidings.OUTCOME))
        self.changes.tell(CommandChangeKind.OUTCOME, record.command, record.report_count + 1, error)
        if self._wake is not None:
            for node in record.waiting:
                if node != settler:
                    trace = registration.trace if received_by is not None else None
                    token = "" if self._wake_key is None else self._wake_key.token(registration.command_id)
                    self._wake(node, replace(record.settled, trace=trace, token=token))

    def _tell_watching(self, record: Record, knowing: str) -> None:
        if self._tell is not None:
            for node in record.watching:
                if node != knowing:
                    self._tell(node, record.command.id)

    def _recorded(self, verdict: MatchResult, record: Record) -> Recorded:
        outcome = record.outcome if verdict is not MatchResult.PROGRESS else None
        return Recorded(verdict, record.command.id, outcome, tuple(record.waiting), record.registration.trace)
