"""Held commands of a device make way for the last one with their key, in memory: as in lua/parts/replacing.lua."""

from __future__ import annotations

from collections.abc import Callable

from app.core.commands.callback import Registration
from app.store.memory.commands.records import CommandTable, Record
from app.store.rules import replaced


def namesakes(table: CommandTable, registration: Registration) -> list[Record]:
    """Return those that wait with the key of a command that is about to come."""
    key = "" if registration.hold is None else registration.hold.replaces
    return _waiting(table, registration.device_id, key)


def last_one_stays(table: CommandTable, record: Record, give_way: Callable[[Record, bytes], None]) -> bool:
    """Have those that came before a command make way for it, or the command for one that came later.

    Return whether it was the command. One that a second person has yet to approve takes nobody's place.
    """
    later: Record | None = None
    for one in _waiting(table, record.command.device_id, _key_of(record)):
        if _place(one) < _place(record):
            give_way(one, replaced(record.command.id))
        elif one is not record and not one.command.awaits_approval:
            later = one
    if later is not None:
        give_way(record, replaced(later.command.id))
    return later is not None


def _waiting(table: CommandTable, device_id: str, key: str) -> list[Record]:
    if not key:
        return []
    held = (table.records[one] for one in table.indexes.held)
    return [one for one in held if one.command.device_id == device_id and _key_of(one) == key]


def _key_of(record: Record) -> str:
    return "" if record.command.hold is None else record.command.hold.replaces


def _place(record: Record) -> tuple[int, str]:
    return record.command.created_at, record.command.id
