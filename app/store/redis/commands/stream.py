"""The events of commands, in Redis: a stream for each partition, which is there while somebody follows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from app.core import keys
from app.core.commands.command import CommandState
from app.core.commands.stream import (
    ROUND,
    CommandChange,
    CommandChangeKind,
    Mark,
    Marks,
    PartitionRead,
    Position,
    StreamPage,
    page_of,
)
from app.core.identifiers import PARTITIONS
from app.store.redis.driver.lane import Argument
from app.store.redis.driver.lanes import Lanes
from app.store.redis.driver.scripts import KEEP_HAPPENINGS
from app.store.rules import micros

_KEYS = tuple(keys.happened(partition) for partition in range(PARTITIONS))
_PARTITIONS = {name.encode(): partition for partition, name in enumerate(_KEYS)}
_PARTS = 9
_BEGUN = b"opened"
"""The field of the entry that stands at the beginning of each stream; lua/keep_happenings.lua has it, too."""
_AT_ONCE = 32
"""The number of streams that are made at a time: each call has a budget."""

_Entry = tuple[bytes, Sequence[bytes]]
"""Its id, and the one field that it has."""


class RedisCommandChanges:
    """Over the connection for lists: no command waits behind them. `happened` in lua/parts/news.lua writes them."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    async def keep(self, duration: timedelta, told_ms: int = 0) -> int:
        ms = micros(duration) // 1000
        asked = [part for name in _KEYS for part in (("PEXPIRE", name, ms), ("XRANGE", name, "-", "+", "COUNT", 1))]
        time, *replies = await self._lanes.replies_for_list([("TIME",), *asked])
        oldest = {name: one[0] for name, one in zip(_KEYS, replies[1::2], strict=True) if one}
        now, since = _ms(time), max((_mark(one[0]).ms for one in oldest.values()), default=0)
        first = told_ms + 1 if max(now, since) < told_ms else since
        wanting = [name for name in _KEYS if name not in oldest or now < first > _mark(oldest[name][0]).ms]
        for number in range(0, len(wanting), _AT_ONCE):
            some = wanting[number : number + _AT_ONCE]
            made = (self._lanes.run_for_list(KEEP_HAPPENINGS, [name], ms, first) for name in some)
            oldest.update(zip(some, await asyncio.gather(*made), strict=True))
        return max(_whole(one) for one in oldest.values())

    async def after(self, marks: Marks) -> StreamPage:
        read: tuple[Argument, ...] = (
            "XREAD",
            "COUNT",
            ROUND,
            "STREAMS",
            *_KEYS,
            *(f"{ms}-{number}" for ms, number in marks),
        )
        time, kept, found = await self._lanes.replies_for_list([("TIME",), ("EXISTS", *_KEYS), read])
        entries = {_PARTITIONS[name]: some for name, some in found or ()}
        parts = {partition: _part(partition, some) for partition, some in entries.items()}
        begun = [_mark(one[0]).ms for some in entries.values() for one in some if one[1][0] == _BEGUN]
        dropped = await self._dropped(marks, [partition for partition, part in parts.items() if part.more])
        whole = max(*begun, *dropped, 0, 0)
        return page_of(marks, parts, _ms(time), whole=whole, kept=kept == PARTITIONS)

    async def _dropped(self, marks: Marks, partitions: Sequence[int]) -> list[int]:
        """The instant since which none is missing of partitions of which some were dropped, perhaps unread."""
        if not partitions:
            return []
        replies = await self._lanes.replies_for_list(
            [("XRANGE", _KEYS[partition], "-", "+", "COUNT", 1) for partition in partitions]
        )
        oldest = [(partition, one[0]) for partition, one in zip(partitions, replies, strict=True) if one]
        return [_whole(one) for partition, one in oldest if one[1][0] != _BEGUN and _mark(one[0]) > marks[partition]]


def _part(partition: int, entries: Sequence[_Entry]) -> PartitionRead:
    """Without what this version cannot read, and without what stands at the beginning of each stream."""
    found = (_happening(Position(*_mark(identity), partition), *fields) for identity, fields in entries)
    return PartitionRead([one for one in found if one is not None], _mark(entries[-1][0]), more=len(entries) == ROUND)


def _whole(oldest: _Entry) -> int:
    """The instant since which none is missing. Of the millisecond of an entry that is not the first one some may be."""
    ms, number = _mark(oldest[0])
    return ms if number == 0 or oldest[1][0] == _BEGUN else ms + 1


def _ms(time: Sequence[bytes]) -> int:
    return int(time[0]) * 1000 + int(time[1]) // 1000


def _mark(identity: bytes) -> Mark:
    ms, _, number = identity.partition(b"-")
    return Mark(int(ms), int(number))


def _happening(position: Position, name: bytes, value: bytes) -> CommandChange | None:
    if name != b"h":
        return None
    try:
        kind, command_id, count, at, state, device, profile, method, text = value.split(b"\0", _PARTS - 1)
        return CommandChange(
            position,
            CommandChangeKind(kind.decode()),
            command_id.decode(),
            int(count),
            int(at),
            CommandState(state.decode()),
            device.decode(),
            profile.decode(),
            method.decode(),
            text or None,
        )
    except ValueError:
        return None
