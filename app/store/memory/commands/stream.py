"""The stream of what happens to commands, in memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import islice
from typing import Final

from app.core.commands.command import Command
from app.core.commands.stream import (
    MOST_HAPPENINGS,
    MOST_TEXT,
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
from app.core.identifiers import partition_of_command
from app.store.rules import micros


class MemoryCommandChanges:
    """`now` is the store's clock, in µs."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now: Final = now
        self._since = self._until = 0
        self._number = 0
        self._kept: dict[int, deque[CommandChange]] = {}

    def tell(self, kind: CommandChangeKind, command: Command, number: int, text: bytes | None) -> None:
        """Keep it, while somebody follows."""
        now = self._now()
        if now >= self._until:
            self._kept.clear()
            return
        partition = partition_of_command(command.id)
        self._number += 1
        self._kept.setdefault(partition, deque(maxlen=MOST_HAPPENINGS)).append(
            CommandChange(
                Position(max(now // 1000, self._since), self._number, partition),
                kind,
                command.id,
                number,
                now if kind is not CommandChangeKind.OUTCOME or command.finished_at is None else command.finished_at,
                command.state,
                command.device_id,
                command.profile,
                command.method,
                text if text is not None and len(text) <= MOST_TEXT else None,
            )
        )

    async def keep(self, duration: timedelta, told_ms: int = 0) -> int:
        now = self._now()
        if now >= self._until:
            self._kept.clear()
            self._since = now // 1000
        if max(now // 1000, self._since) < told_ms:
            self._kept.clear()
            self._since = told_ms + 1
        self._until = max(self._until, now + micros(duration))
        full = (_whole(kept) for kept in self._kept.values() if len(kept) == MOST_HAPPENINGS)
        return max(self._since, max(full, default=0))

    async def after(self, marks: Marks) -> StreamPage:
        now, whole = self._now(), self._since
        if now >= self._until:
            self._kept.clear()
        parts = {}
        for partition, kept in self._kept.items():
            news = list(islice(_behind(kept, marks[partition]), ROUND))
            if news:
                parts[partition] = PartitionRead(news, news[-1].position.mark, more=len(news) == ROUND)
                if len(kept) == MOST_HAPPENINGS and kept[0].position.mark > marks[partition]:
                    whole = max(whole, _whole(kept))
        return page_of(marks, parts, max(now // 1000, self._since), whole=whole, kept=now < self._until)


def _whole(kept: deque[CommandChange]) -> int:
    """The instant since which none is missing where the first ones were dropped, but for some of its millisecond."""
    return kept[0].position.ms + 1


def _behind(kept: deque[CommandChange], mark: Mark) -> Iterator[CommandChange]:
    if not kept or kept[-1].position.mark <= mark:
        return iter(())
    return (one for one in kept if one.position.mark > mark)
