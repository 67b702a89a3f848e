"""The judgement whether a lane of a device lets a command go, in memory: the same as in lua/parts/places.lua."""

from __future__ import annotations

from collections.abc import Iterator

from app.core.commands.command import CommandState
from app.core.profiles.lanes import CommandLane, lane_topic
from app.store.holds import LaneOccupancy, LaneStop
from app.store.memory.commands.records import CommandTable, Record
from app.store.rules import LANE_LOOK, WITHOUT_END, micros


def occupancy(table: CommandTable, lane: CommandLane, device_id: str) -> LaneOccupancy:
    """Return how many have a place in a lane, who waits, and what else keeps a command from being sent."""
    waiting = tuple(one.command.id for one in table.standing(lane, device_id))
    in_flight = len(table.in_flight(lane.name, device_id))
    stop = table.marks.stop_of(lane.topic(device_id)) if lane.stops else None
    until = max(_kept_back(table, lane, device_id), default=0)
    return LaneOccupancy(in_flight, waiting, until=until, stop=stop)


def closed_until(table: CommandTable, lane: CommandLane, device_id: str) -> int | None:
    """Return when a lane may let the next one go at the latest (µs); None where it does so now."""
    if lane.stops and table.marks.stop_of(lane.topic(device_id)) is not None:
        return WITHOUT_END
    in_flight = table.in_flight(lane.name, device_id)
    if len(in_flight) >= lane.width:
        return _free_at(in_flight)
    return max(_kept_back(table, lane, device_id), default=None)


def note_sent(table: CommandTable, record: Record) -> None:
    """Note that a command leaves now, where its lane has a pace."""
    lane = record.registration.lane
    if lane is not None and lane.pace:
        table.marks.sent(lane.topic(record.registration.device_id), table.now())


def note_end(table: CommandTable, record: Record, *, held: bool, stood: bool) -> None:
    """Stop the lane of a command that has ended, where it was held or stood in line, and its end is no success."""
    lane, state = record.registration.lane, record.command.state
    if lane is None or not lane.stops or state is CommandState.SUCCEEDED:
        return
    unsent = state is CommandState.UNSENT
    if (unsent and stood) if held else (not unsent or record.command.hold is not None):
        stop = LaneStop(record.command.finished_at or table.now(), record.command.id)
        table.marks.stop(lane.topic(record.registration.device_id), stop)


def _kept_back(table: CommandTable, lane: CommandLane, device_id: str) -> Iterator[int]:
    """Yield until when lanes that it excludes have something in flight, and when its pace allows the next one."""
    for name in lane.excludes:
        if others := table.in_flight(name, device_id):
            yield _free_at(others)
    sent_at = table.marks.sent_at(lane_topic(lane.name, device_id)) if lane.pace else None
    if sent_at is not None and table.now() < sent_at + micros(lane.pace):
        yield sent_at + micros(lane.pace)


def _free_at(in_flight: list[Record]) -> int:
    look = micros(LANE_LOOK)
    return min(one.command.deadline + look if one.open else one.rests_until for one in in_flight)
