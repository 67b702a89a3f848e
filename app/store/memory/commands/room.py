"""The room for held commands in memory: of a device, of a lane, and of those that share a part of the store."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.commands.callback import Registration
from app.core.errors import TooManyHeldError
from app.core.identifiers import partition_of_command
from app.store.memory.commands.records import CommandTable, Record
from app.store.rules import MOST_HELD, MOST_HELD_OF_LANE, MOST_HELD_OF_PARTITION, too_many_held


def check_room(table: CommandTable, registration: Registration, make_way: Sequence[Record]) -> None:
    """Return where one more can wait once those that make way for it are gone; TooManyHeldError."""
    partition, going = partition_of_command(registration.command_id), {one.command.id for one in make_way}
    near = [one for one in table.indexes.held if partition_of_command(one) == partition and one not in going]
    own = sum(table.records[one].command.device_id == registration.device_id for one in near)
    line = [one for one in table.line(registration) if one.command.id not in going]
    if len(line) >= MOST_HELD_OF_LANE or own >= MOST_HELD or len(near) >= MOST_HELD_OF_PARTITION:
        lane = None if registration.lane is None else registration.lane.name
        raise TooManyHeldError(too_many_held(registration.device_id, lane))
