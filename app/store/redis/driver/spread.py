"""Commands whose keys are in several slots of a Redis Cluster: their parts, and how the replies make one again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from app.store.redis.driver.slots import NO_SLOT, slot_of

Command = tuple[str | bytes | int, ...]
Join = Callable[[Sequence[Any]], Any]

ANYWHERE: Final = frozenset(("INFO", "PING", "PUBLISH", "PUBSUB", "TIME"))
"""Commands without a key: any member does."""


@dataclass(frozen=True, slots=True)
class CommandPart:
    """A command whose keys are in one slot."""

    slot: int
    command: Command


def slot_of_command(command: Command) -> int:
    """The slot of the first key; NO_SLOT where there is none."""
    name = command[0]
    if name in ANYWHERE:
        return NO_SLOT
    if name == "XREAD":
        return slot_of(command[command.index("STREAMS") + 1])
    return slot_of(command[1])


def parts_of(command: Command) -> list[CommandPart]:
    """A part for each slot in the order of their first keys; one part where all keys share a slot."""
    if command[0] in _JOINS:
        return [CommandPart(slot, (command[0], *keys)) for slot, keys in _by_slot(command[1:]).items()]
    if command[0] == "XREAD":
        return _parts_of_xread(command)
    return [CommandPart(slot_of_command(command), command)]


def joined(command: Command, replies: Sequence[Any]) -> Any:  # noqa: ANN401 - what Redis replies
    """The reply of the whole command. An error of any part is that of the whole."""
    for one in replies:
        if isinstance(one, Exception):
            return one
    if len(replies) == 1:
        return replies[0]
    if command[0] == "XREAD":
        return [entry for one in replies for entry in one or ()] or None
    return _JOINS[str(command[0])](replies)


_JOINS: Final[Mapping[str, Join]] = MappingProxyType({"DEL": sum, "EXISTS": sum, "UNLINK": sum})
"""Commands that have nothing but keys behind their names."""


def _by_slot(keys: Sequence[str | bytes | int]) -> dict[int, list[str | bytes | int]]:
    found: dict[int, list[str | bytes | int]] = {}
    for key in keys:
        found.setdefault(slot_of(key), []).append(key)
    return found


def _parts_of_xread(command: Command) -> list[CommandPart]:
    place = command.index("STREAMS") + 1
    options, rest = command[:place], command[place:]
    half = len(rest) // 2
    after = dict(zip(rest[:half], rest[half:], strict=True))
    return [
        CommandPart(slot, (*options, *keys, *(after[key] for key in keys)))
        for slot, keys in _by_slot(rest[:half]).items()
    ]
