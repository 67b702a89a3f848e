"""The room for one more command in memory: at its device, in its lane, in its partition, and in the process."""

from __future__ import annotations

from collections.abc import Sequence

from app.core.commands.callback import Registration
from app.core.errors import CapacityError, TooManyHeldError
from app.core.identifiers import partition_of_command
from app.store.memory.commands.records import CommandTable, Record
from app.store.rules import MOST_HELD, MOST_HELD_OF_LANE, MOST_HELD_OF_PARTITION, too_many_held


def check_room(table: CommandTable, registration: Registration, make_way: Sequence[Record], *, held: bool) -> None:
    """Return where a command may go on record, once those that make way for it are gone.

    DeviceBusyError, TooManyHeldError or CapacityError.
    """
    if held:
        _check_room_of_held(table, registration, make_way)
    else:
        table.check_free(registration)
    if table.taken >= table.max_bytes:
        raise CapacityError(
            f"the store of this process has {len(table.records)} commands in {table.max_bytes} bytes, its limit; "
            "they go when their retention ends"
        )


def _check_room_of_held(table: CommandTable, registration: Registration, make_way: Sequence[Record]) -> None:
    partition, going = partition_of_command(registration.command_id), {one.command.id for one in make_way}
    near = [one for one in table.indexes.held if partition_of_command(one) == partition and one not in going]
    own = sum(table.records[one].command.device_id == registration.device_id for one in near)
    line = [one for one in table.line(registration) if one.command.id not in going]
    if len(line) >= MOST_HELD_OF_LANE or own >= MOST_HELD or len(near) >= MOST_HELD_OF_PARTITION:
        lane = None if registration.lane is None else registration.lane.name
        raise TooManyHeldError(too_many_held(registration.device_id, lane))
