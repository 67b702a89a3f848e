"""Held commands in memory: the same steps as the scripts of Redis."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from app.core.commands.command import CommandState, WaitReason
from app.core.commands.routing import Follower
from app.core.profiles.lanes import CommandLane, LaneOrder, lane_topic
from app.store.holds import Claimed, HeldEntries, HeldEntry, LaneOccupancy, Restarted, Resumed, Waits
from app.store.memory.commands.lanes import closed_until, note_sent, occupancy
from app.store.memory.commands.namesakes import last_one_stays
from app.store.memory.commands.records import CommandTable, Record
from app.store.rules import LANE_LOOK, marked_by, micros, superseded


class MemoryHolds:
    """The held commands of the table. `give_way` cancels one that waits, with an error that names who came after it."""

    def __init__(self, table: CommandTable, give_way: Callable[[Record, bytes], None]) -> None:
        self._table = table
        self._give_way = give_way

    async def held(self) -> HeldEntries:
        self._table.forget_expired()
        commands = (self._table.records[one].command for one in sorted(self._table.indexes.held))
        return HeldEntries(
            [HeldEntry(one.device_id, one.id, one.hold.lapses_at) for one in commands if one.hold is not None]
        )

    async def last_held(self) -> str:
        return str(self._table.indexes.times_held)

    async def lane_now(self, device_id: str, lane: CommandLane) -> LaneOccupancy:
        self._table.forget_expired()
        return occupancy(self._table, lane, device_id)

    async def resume(self, device_id: str, lane: str, stopped_by: str) -> Resumed:
        self._table.forget_expired()
        stop = self._table.marks.resume(lane_topic(lane, device_id), stopped_by)
        first = next(iter(self._table.standing(CommandLane(lane), device_id)), None)
        return Resumed(stop, None if stop is None or first is None else Follower(first.command.id, device_id))

    async def claim(
        self, command_id: str, node_id: str, token: str, starts: Collection[str] = ()
    ) -> Claimed | Waits | Restarted | None:
        del starts  # it has one, with which all claims end
        self._table.forget_expired()
        record = self._table.records.get(command_id)
        if record is None or record.command.hold is None:
            return None
        if record.claim == token and record.command.state is CommandState.PENDING:
            return Claimed(record.command, record.registration.trace)
        hold, now = record.command.hold, self._table.now()
        if not record.held or record.claim == token or hold.until <= now:
            return None
        if hold.approval is not None and hold.approval.waits:
            return Waits(WaitReason.APPROVAL, hold.approval.until)
        if hold.not_before is not None and self._table.date() < hold.not_before:
            return Waits(WaitReason.TIME, hold.not_before)
        if (waits := self._waits_in_lane(record)) is not None:
            return waits
        self._table.check_free(record.registration)
        record.claim = token
        begin_flight(self._table, record, node_id)
        note_sent(self._table, record)
        return Claimed(record.command, record.registration.trace)

    def _waits_in_lane(self, record: Record) -> Waits | None:
        registration = record.registration
        lane = registration.lane
        if lane is None:
            return None
        closed = closed_until(self._table, lane, registration.device_id)
        comes_later = lane.order.has_a_first and self._table.first_in_line(registration) is not record
        if closed is None and not comes_later:
            return None
        return Waits(WaitReason.LANE, self._table.now() + micros(LANE_LOOK) if closed is None else closed)

    async def pass_on(self, command_id: str) -> Follower | None:
        self._table.forget_expired()
        record = self._table.records.get(command_id)
        if record is None or record.held or record.registration.lane is None:
            return None
        if record.registration.lane.order is not LaneOrder.FIFO_ACK:
            return None
        if record.command.state in marked_by(CommandState.ACKNOWLEDGED):
            record.command = replace(record.command, state=CommandState.ACKNOWLEDGED)
        record.passed_on = True
        self._table.has_changed(record)
        self._table.indexes.leave_lane(record.registration)
        return self._table.follower(record.registration)

    async def give_back(self, command_id: str, token: str) -> bool:
        self._table.forget_expired()
        record = self._table.records.get(command_id)
        if record is None or record.command.hold is None:
            return False
        if record.held:
            record.claim = token
            self._table.has_changed(record)
            return True
        if record.command.state is not CommandState.PENDING or record.claim != token:
            return False
        hold, registration = record.command.hold, record.registration
        latest = hold.until + micros(hold.timeout)
        given_back = replace(hold, given_back_at=self._table.now())
        record.command = replace(record.command, state=CommandState.HELD, deadline=latest, hold=given_back)
        self._table.indexes.give_back(registration)
        self._table.expire(record, latest)
        self._table.has_changed(record)
        if registration.lane is not None and registration.lane.order is LaneOrder.LATEST:
            last = self._table.line(registration)[-1]
            if last is not record:
                self._give_way(record, superseded(last.command.id))
                return False
        return not last_one_stays(self._table, record, self._give_way)


def begin_flight(table: CommandTable, record: Record, home: str) -> None:
    """Let a held command wait for its answer, from now on and at that node."""
    hold, before = record.command.hold, record.registration.home_node
    if hold is None:
        raise ValueError("only held commands begin to wait later than they are registered")
    deadline = table.now() + micros(hold.timeout)
    record.passed_on = False
    record.registration = replace(record.registration, home_node=home)
    record.command = replace(
        record.command,
        state=CommandState.PENDING,
        home_node=home,
        deadline=deadline,
        hold=replace(hold, claims=hold.claims + 1, given_back_at=None),
    )
    joined = [one for one in record.waiting[1:] if one != home]
    record.waiting = [home, *joined, *([] if before == home or before in joined else [before])]
    table.indexes.enter(record.registration, held=False)
    table.expire(record, deadline)
    table.has_changed(record)
