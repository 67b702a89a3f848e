"""What happens to commands, in Redis: a stream for each partition, which is there while somebody follows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from app.core import keys
from app.core.command import CommandState
from app.core.errors import StoreRefusedError
from app.core.happenings import ROUND, Happening, HappeningKind, Mark, Marks, Page, Part, Position, page_of
from app.core.identifiers import PARTITIONS
from app.store.redis.combiner import Argument
from app.store.redis.lanes import Lanes
from app.store.redis.scripts import KEEP_HAPPENINGS
from app.store.rules import micros

_KEYS = tuple(keys.happened(partition) for partition in range(PARTITIONS))
_PARTITIONS = {name.encode(): partition for partition, name in enumerate(_KEYS)}
_PARTS = 9
_AT_ONCE = 32
"""How many streams are made at a time: each call has a budget."""


class RedisHappenings:
    """Over the connection for lists: no command waits behind them. `happened` in lua/common.lua writes them."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    async def keep(self, duration: timedelta) -> int:
        ms = micros(duration) // 1000
        asked = [part for name in _KEYS for part in (("PEXPIRE", name, ms), ("XRANGE", name, "-", "+", "COUNT", 1))]
        replies = await self._call(asked)
        oldest = {name: one[0][0] for name, one in zip(_KEYS, replies[1::2], strict=True) if one}
        missing = [name for name in _KEYS if name not in oldest]
        for first in range(0, len(missing), _AT_ONCE):
            some = missing[first : first + _AT_ONCE]
            made = await asyncio.gather(*(self._lanes.run_for_list(KEEP_HAPPENINGS, [name], ms) for name in some))
            oldest.update(zip(some, made, strict=True))
        return max(_mark(one).ms for one in oldest.values())

    async def after(self, marks: Marks) -> Page:
        read: tuple[Argument, ...] = (
            "XREAD",
            "COUNT",
            ROUND,
            "STREAMS",
            *_KEYS,
            *(f"{ms}-{number}" for ms, number in marks),
        )
        time, found = await self._lanes.call_for_list([("TIME",), read])
        for reply in (time, found):
            if isinstance(reply, BaseException):
                raise StoreRefusedError(str(reply))
        parts = {(one := _PARTITIONS[name]): _part(one, entries) for name, entries in found or ()}
        return page_of(marks, parts, int(time[0]) * 1000 + int(time[1]) // 1000)

    async def _call(self, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        replies = await self._lanes.call_for_list(commands)
        for reply in replies:
            if isinstance(reply, BaseException):
                raise StoreRefusedError(str(reply))
        return replies


def _part(partition: int, entries: Sequence[tuple[bytes, Sequence[bytes]]]) -> Part:
    """Without what this version cannot read, and without what stands at the beginning of each stream."""
    found = (_happening(Position(*_mark(identity), partition), *fields) for identity, fields in entries)
    return Part([one for one in found if one is not None], _mark(entries[-1][0]), more=len(entries) == ROUND)


def _mark(identity: bytes) -> Mark:
    ms, _, number = identity.partition(b"-")
    return Mark(int(ms), int(number))


def _happening(position: Position, name: bytes, value: bytes) -> Happening | None:
    if name != b"h":
        return None
    try:
        kind, command_id, count, at, state, device, profile, method, text = value.split(b"\0", _PARTS - 1)
        return Happening(
            position,
            HappeningKind(kind.decode()),
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
