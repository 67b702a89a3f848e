"""Reads lists of commands out of Redis, over a connection of its own, so that no command waits behind them.

What is read at once is little: Redis serves others between two slices, and so does the event loop of the node.
"""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from redis.exceptions import ResponseError

from app.core import keys
from app.core.identifiers import PARTITIONS, partition_of
from app.store.redis.commands.records import PartitionEntry

FIRST_LOOK: Final = 4
"""The number of members of each partition that are read at first: a page has less than one of each as a rule."""
SLICE: Final = 64
"""The number of commands that go to Redis as one."""
SCAN_ROUND: Final = 500
SCAN_ROUNDS: Final = 20
"""One page of a device looks at 10,000 commands of its partition at most."""

Position = tuple[int, str]
Ask = Callable[[Sequence[tuple[Any, ...]]], Awaitable[list[Any]]]
"""Sends commands as one, and gives their replies; among them the errors of those that Redis refused for good."""


class Lists:
    """The members of the partitions' lists, merged. `unreadable` is told what cannot be read and is left out."""

    def __init__(self, ask: Ask, unreadable: Callable[[str], None]) -> None:
        self._ask = ask
        self._unreadable = unreadable

    async def newest(self, limit: int, start: Position | None) -> tuple[list[PartitionEntry], Position | None]:
        """Up to `limit` members after `start`, and where the next page begins if there is one."""
        parts = [_PartitionList(partition, start) for partition in range(PARTITIONS)]
        wanted, behind = parts, 0
        merged: list[PartitionEntry] = []
        while wanted:
            await self._read(wanted, FIRST_LOOK << behind)
            merged = heapq.nlargest(limit + 1, _entries(parts), key=lambda one: one.position)
            last = merged[-1].position if len(merged) > limit else None
            wanted = [one for one in wanted if one.may_have_more(last)]
            behind += 1
        return merged[:limit], merged[limit - 1].position if len(merged) > limit else None

    async def newest_of(
        self, device_id: str, limit: int, start: Position | None
    ) -> tuple[list[PartitionEntry], Position | None]:
        """The same of one device, whose partition holds other devices as well. A page may be short before the end."""
        part = _PartitionList(partition_of(device_id), start)
        own: list[PartitionEntry] = []
        for _ in range(SCAN_ROUNDS):
            await self._read([part], SCAN_ROUND)
            own += [one for one in part.entries if one.device_id == device_id]
            part.entries.clear()
            if len(own) > limit:
                return own[:limit], own[limit - 1].position
            if part.ended:
                return own, None
        return own, part.position

    async def _read(self, parts: Sequence[_PartitionList], size: int) -> None:
        for first in range(0, len(parts), SLICE):
            slice_of = parts[first : first + SLICE]
            replies = await self._ask([one.command(size) for one in slice_of])
            for one, reply in zip(slice_of, replies, strict=True):
                for bad in one.take(reply, size):
                    self._unreadable(bad)


class _PartitionList:
    """The known commands of one partition, newest first."""

    def __init__(self, partition: int, start: Position | None) -> None:
        self.entries: list[PartitionEntry] = []
        self.ended = False
        self.position = start
        self._key = keys.listing(partition)

    def command(self, size: int) -> tuple[Any, ...]:
        # Those with the score of `position` come again; there are hardly ever two, for a script takes microseconds.
        most = "+inf" if self.position is None else self.position[0]
        return ("ZREVRANGEBYSCORE", self._key, most, "-inf", "WITHSCORES", "LIMIT", 0, size + 1)

    def take(self, reply: Sequence[bytes] | ResponseError, size: int) -> Iterable[str]:
        """Add what is new; what cannot be read comes back."""
        if isinstance(reply, ResponseError):
            self.ended = True
            return [str(reply)]
        self.ended = len(reply) <= 2 * size
        known, bad = self.position, []
        for member, score in zip(reply[::2], reply[1::2], strict=True):
            try:
                entry = PartitionEntry.of(member, score)
            except ValueError:
                bad.append(ascii(member[:64]))
                continue
            if known is None or entry.position < known:
                self.entries.append(entry)
                self.position = entry.position
        return bad

    def may_have_more(self, last: Position | None) -> bool:
        """True if something that is not read yet may come before `last`, or before the end where that is None."""
        return not self.ended and (last is None or self.position is None or self.position > last)


def _entries(parts: Iterable[_PartitionList]) -> Iterable[PartitionEntry]:
    return (entry for part in parts for entry in part.entries)
