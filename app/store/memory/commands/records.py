"""Records of commands in memory, and the indexes that lead to them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from app.core.clock import Clock, wall_us
from app.core.commands.callback import Answer, Expectation, Registration
from app.core.commands.command import Command, CommandState
from app.core.commands.history import Report
from app.core.commands.reception import Reception
from app.core.commands.routing import Follower, Outcome
from app.core.errors import DeviceBusyError, IllegalTransitionError
from app.core.profiles.correlation import Correlation
from app.core.profiles.lanes import CommandLane, LaneOrder, lane_topic
from app.store.memory.commands.lane_marks import LaneMarks, LaneMembers
from app.store.rules import busy, micros, retention_of

RowKey = tuple[str, ...]
"""The name of something that changes as one: a word for its kind, and the names of the one of that kind."""
Changed = Callable[[RowKey], None]
"""Called with what has changed in a way that is to outlive the process."""
COMMAND_ROW: Final = "c"
RECORD_BYTES: Final = 2_048
"""The bytes that a record takes besides what its caller and its device have said, roughly."""
STEP_US: Final = 1_000_000
"""A clock that is ahead by less was not set: two clocks are never read at one moment."""


def nobody(_key: RowKey) -> None:
    """Tell nobody of a row that changed, where nothing outlives the process."""


@dataclass(slots=True)
class Record:
    """A command and all that is known of it."""

    command: Command
    registration: Registration
    waiting: list[str]
    expires_at: int
    reception: Reception | None = None
    sender: str | None = None
    """The node that took over sending it, as its home had died."""
    watching: list[str] = field(default_factory=list)
    """The nodes that are told of progress; they are waiting as well."""
    reports: list[Report] = field(default_factory=list)
    report_count: int = 0
    quarantined_until: int = 0
    """The instant until which an ORDER topic stays occupied after the outcome; 0 when it was freed."""
    claim: str = ""
    """The token of the last claim; one claims once."""
    rests_until: int = 0
    """The instant until which its place in a lane stays taken after the outcome; 0 when it was freed."""
    passed_on: bool = False
    """True if its place in a lane is free before its outcome, as the broker has it."""
    number: int = 0
    """Its place in the order of registration."""
    follower: Follower | None = None
    """The command that waited for its place in a lane when it had its outcome."""
    taken: int = 0
    """The bytes that its table counts for it."""

    @property
    def size(self) -> int:
        """Bytes that it takes, roughly."""
        command = self.command
        said = (command.params, command.result, command.error, command.progress, command.late, command.verified)
        told = sum(len(one.progress or b"") for one in self.reports)
        return RECORD_BYTES + sum(len(one) for one in said if one) + told

    @property
    def open(self) -> bool:
        return not self.command.state.final

    @property
    def held(self) -> bool:
        return self.command.state is CommandState.HELD

    @property
    def taken_by(self) -> str | None:
        """The node that took over sending it, or has claimed it, and so alone knows whether it was sent."""
        if self.sender is not None or self.held or self.command.hold is None:
            return self.sender
        return self.command.home_node

    @property
    def was_sent(self) -> bool:
        """True if its values have named it: it did not wait, or its last claim was not undone."""
        hold = self.command.hold
        return hold is None or (hold.claims > 0 and hold.given_back_at is None)

    @property
    def values(self) -> list[tuple[str, str]]:
        """The values by which it is answered, with their topics."""
        expectations = self.registration.expectations
        return [(one.topic, one.value) for one in expectations if one.correlation is Correlation.VALUE]

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
            follower=self.follower,
        )

    @property
    def settled(self) -> Outcome:
        """The outcome of a command that has one; IllegalTransitionError for an open one."""
        outcome = self.outcome
        if outcome is None:
            raise IllegalTransitionError(self.command.id, "an open command has no outcome")
        return outcome

    def expects(self, answer: Answer) -> bool:
        return (
            self.registration.device_id == answer.device_id
            and answer.profile in ("", self.registration.profile)
            and any(one.topic == answer.topic for one in self.registration.expectations)
        )

    def by_order(self, topic: str) -> bool:
        """True if a response without any id on this topic may belong to this command."""
        return any(
            one.topic == topic and one.correlation is Correlation.ORDER for one in self.registration.expectations
        )


@dataclass(slots=True)
class Indexes:
    """Dictionaries keep the order of registration, so the oldest of a topic is the first."""

    topics: dict[str, dict[str, None]] = field(default_factory=dict)
    values: dict[tuple[str, str], str] = field(default_factory=dict)
    idempotency: dict[tuple[str, str], str] = field(default_factory=dict)
    open: dict[str, None] = field(default_factory=dict)
    """The commands that were sent, or are about to be."""
    held: dict[str, None] = field(default_factory=dict)
    lanes: dict[str, LaneMembers] = field(default_factory=dict)
    """The members of each lane of a device, by the topic that stands for its place."""
    times_held: int = 0
    """The number of commands that were held, and of claims that were undone."""

    def enter(self, registration: Registration, *, held: bool = False, in_line: bool = True) -> None:
        """Wait for responses; with `held` not yet, as nothing was sent, and `in_line` says if for its lane already."""
        if registration.idempotency_key is not None:
            self.idempotency[registration.device_id, registration.idempotency_key] = registration.command_id
        if held:
            self._hold(registration, in_line=in_line)
            return
        self.held.pop(registration.command_id, None)
        if (members := self._members(registration)) is not None:
            members.waiting.pop(registration.command_id, None)
            members.in_flight[registration.command_id] = None
        for one in registration.expectations:
            self.topics.setdefault(one.topic, {})[registration.command_id] = None
            if one.correlation is Correlation.VALUE:
                self.values[one.topic, one.value] = registration.command_id
        self.open[registration.command_id] = None

    def give_back(self, registration: Registration) -> None:
        """Wait for nothing any more, and be held again."""
        self.leave(registration)
        self._free_values(registration)
        self._hold(registration, in_line=True)

    def stand_in_line(self, registration: Registration) -> None:
        """Wait for its lane from now on, as it is approved."""
        self._hold(registration, in_line=True)

    def _hold(self, registration: Registration, *, in_line: bool) -> None:
        self.held[registration.command_id] = None
        self.times_held += 1
        if in_line and (members := self._members(registration)) is not None:
            members.waiting[registration.command_id] = None

    def _members(self, registration: Registration) -> LaneMembers | None:
        if registration.lane is None:
            return None
        return self.lanes.setdefault(registration.lane.topic(registration.device_id), LaneMembers())

    def leave_lane(self, registration: Registration) -> None:
        """Free the place in a lane, and in its line."""
        members = self._members(registration)
        if registration.lane is not None and members is not None:
            members.waiting.pop(registration.command_id, None)
            members.in_flight.pop(registration.command_id, None)
            if not members.waiting and not members.in_flight:
                del self.lanes[registration.lane.topic(registration.device_id)]

    def leave(
        self,
        registration: Registration,
        keep: Callable[[Expectation], bool] | None = None,
        *,
        rests: bool = False,
    ) -> None:
        """No longer wait. Topics of expectations that `keep` wants stay occupied; with `rests`, its place in a lane."""
        self.open.pop(registration.command_id, None)
        self.held.pop(registration.command_id, None)
        if not rests:
            self.leave_lane(registration)
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
        self._free_values(registration)
        key = (registration.device_id, registration.idempotency_key or "")
        if self.idempotency.get(key) == registration.command_id:
            del self.idempotency[key]

    def _free_values(self, registration: Registration) -> None:
        for one in registration.expectations:
            if self.values.get((one.topic, one.value)) == registration.command_id:
                del self.values[one.topic, one.value]

    @property
    def size(self) -> int:
        waiting = len(self.open) + len(self.held) + len(self.lanes)
        return len(self.topics) + len(self.values) + len(self.idempotency) + waiting


class CommandTable:
    """All commands of the process. Nothing in here waits, so each step is atomic on its event loop."""

    def __init__(self, clock: Clock, max_bytes: int, changed: Changed, not_before: int) -> None:
        self.max_bytes = max_bytes
        self.taken = 0
        """The bytes that all records take, roughly."""
        self.records: dict[str, Record] = {}
        self.indexes = Indexes()
        self.marks = LaneMarks(changed)
        self.changed = changed
        self._clock = clock
        self._numbers = 0
        self._started_at = max(wall_us(clock), not_before)
        self._started = clock.monotonic()
        self._expiries: list[tuple[int, str]] = []

    @property
    def size(self) -> int:
        """The number of records and index entries."""
        return len(self.records) + self.indexes.size + len(self.marks)

    def now(self) -> int:
        """The store's clock, in microseconds since the epoch: wall time once, then the monotonic clock, never jumps."""
        return self._started_at + round((self._clock.monotonic() - self._started) * 1_000_000)

    def date(self) -> int:
        """The clock on the wall, if it was set ahead: people mean that by a date or a window (docs/adr/0183)."""
        now, wall = self.now(), wall_us(self._clock)
        return wall if wall - now >= STEP_US else now

    def add(self, record: Record) -> None:
        """A command that is registered."""
        self._numbers = record.number = self._numbers + 1
        self.records[record.command.id] = record
        self._weigh(record)
        self.indexes.enter(record.registration, held=record.held, in_line=not record.command.awaits_approval)

    def restore(self, record: Record, occupied: Collection[str]) -> None:
        """A command as it was, the oldest first; `occupied` as `occupied_by` gave it."""
        self._numbers = max(self._numbers, record.number)
        self.records[record.command.id] = record
        self._weigh(record)
        values = self.indexes.values
        before = {one: values[one] for one in record.values if one in values}
        self.indexes.enter(record.registration, held=record.held, in_line=not record.command.awaits_approval)
        if record.passed_on:
            self.indexes.leave_lane(record.registration)
        if not record.open:
            rests = record.rests_until > self.now()
            self.indexes.leave(record.registration, keep=lambda one: one.topic in occupied, rests=rests)
            for one in record.values:  # which name an open command, or the last one that was sent
                holder = before.get(one)
                if holder is not None and (self.records[holder].open or not record.was_sent):
                    values[one] = holder
                elif not record.was_sent:
                    del values[one]
        heapq.heappush(self._expiries, (record.expires_at, record.command.id))

    def occupied_by(self, record: Record) -> list[str]:
        """The topics on which a command waits, or which it keeps in quarantine."""
        topics = dict.fromkeys(one.topic for one in record.registration.expectations)
        return [one for one in topics if record.command.id in self.indexes.topics.get(one, ())]

    def check_free(self, registration: Registration) -> None:
        """DeviceBusyError while another command keeps this one from the topics or values that it needs."""
        now = self.now()
        for one in registration.expectations:
            if one.correlation is Correlation.ORDER and (occupant := self.occupant(one.topic, now)):
                record = self.records[occupant]
                raise DeviceBusyError(
                    busy(registration.device_id, None if record.open else record.quarantined_until - now)
                )
            if one.correlation is Correlation.VALUE:
                holder = self.indexes.values.get((one.topic, one.value))
                if holder is not None and self.records[holder].open:
                    raise DeviceBusyError(busy(registration.device_id, None))

    def line(self, registration: Registration) -> list[Record]:
        """Return those that wait in the lane of a command, first come first."""
        return [] if registration.lane is None else self.standing(registration.lane, registration.device_id)

    def first_in_line(self, registration: Registration) -> Record | None:
        """Return the one that is the next in the lane of a command."""
        line = self.line(registration)
        last_comes_first = registration.lane is not None and registration.lane.order is LaneOrder.LIFO
        return line[-1 if last_comes_first else 0] if line else None

    def follower(self, registration: Registration) -> Follower | None:
        """Return who waits for a place in the lane of a command that has become free, or for that lane to be empty."""
        lane, device_id, first = registration.lane, registration.device_id, self.first_in_line(registration)
        if lane is not None and lane.stops and self.marks.stop_of(lane.topic(device_id)) is not None:
            first = None
        lines = (self.standing(CommandLane(one), device_id) for one in (() if lane is None else lane.excluded_by))
        first = first or next((line[0] for line in lines if line), None)
        return None if first is None else Follower(first.command.id, device_id)

    def standing(self, lane: CommandLane, device_id: str) -> list[Record]:
        """Return those that wait in a lane of a device, first come first."""
        members = self._lane(lane.name, device_id)
        waiting = [] if members is None else [self.records[one] for one in members.waiting]
        return sorted(waiting, key=lambda one: (one.command.ready_at, one.command.id))

    def in_flight(self, lane: str, device_id: str) -> list[Record]:
        """Return those that have a place in a lane: they were sent, or are about to be, or are at rest."""
        members, now = self._lane(lane, device_id), self.now()
        found = [] if members is None else [self.records[one] for one in members.in_flight]
        for one in found:
            if not one.open and one.rests_until <= now:
                self.indexes.leave_lane(one.registration)
        return [one for one in found if one.open or one.rests_until > now]

    def _lane(self, lane: str, device_id: str) -> LaneMembers | None:
        return self.indexes.lanes.get(lane_topic(lane, device_id))

    def occupant(self, topic: str, now: int) -> str | None:
        """The oldest that waits on the topic or keeps it in quarantine."""
        while members := self.indexes.topics.get(topic):
            oldest = next(iter(members))
            record = self.records[oldest]
            if record.open or now < record.quarantined_until:
                return oldest
            self.indexes.free(topic, oldest)
        return None

    def has_changed(self, record: Record) -> None:
        """Something that outlives the process, where anything does."""
        self._weigh(record)
        self.changed((COMMAND_ROW, record.command.id))

    def _weigh(self, record: Record) -> None:
        size = record.size
        self.taken += size - record.taken
        record.taken = size

    def expire(self, record: Record, after: int) -> None:
        """Keep the record for its retention after an instant."""
        record.expires_at = after + micros(retention_of(record.registration))
        heapq.heappush(self._expiries, (record.expires_at, record.command.id))

    def forget_expired(self) -> None:
        """Two entries a command at most (registration, outcome), each taken out once."""
        now = self.now()
        self.marks.forget(now)
        while self._expiries and self._expiries[0][0] <= now:
            _, command_id = heapq.heappop(self._expiries)
            record = self.records.get(command_id)
            if record is not None and record.expires_at <= now:
                del self.records[command_id]
                self.indexes.forget(record.registration)
                self.taken -= record.taken
                self.changed((COMMAND_ROW, command_id))
