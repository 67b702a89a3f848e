"""Nodes tell each other how often they are asked for what is limited, so that shares of limits follow demand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final

import orjson

from app.core.access.limits import MOST_TOLD, Shares
from app.core.errors import StoreUnavailableError

INTERVAL: Final = 1.0
Exchange = Callable[[str], Awaitable[Sequence[str]]]
"""Tells the other live nodes something, and gives what they have told last; StoreUnavailableError."""


class LimitSharer:
    """Costs nothing while nobody is limited, and no request waits for it.

    While `always`, the others are heard also when there is nothing to tell them: what is open there may be older than
    the last second.
    """

    def __init__(
        self, shares: Shares, exchange: Exchange, always: Callable[[], bool], interval: float = INTERVAL
    ) -> None:
        self._shares = shares
        self._exchange = exchange
        self._always = always
        self._interval = interval

    async def run(self) -> None:
        """Tell and hear, until cancelled."""
        told_last: Mapping[str, float] = {}
        while True:
            await asyncio.sleep(self._interval)
            told = self._shares.tell()
            if told or told_last or self._always():
                await self._share(told)
            told_last = told

    async def _share(self, told: Mapping[str, float]) -> None:
        try:
            heard = await self._exchange(orjson.dumps(told).decode())
        except StoreUnavailableError:
            self._shares.hear(None)
        else:
            self._shares.hear(_read(heard))


def _read(heard: Sequence[str]) -> Iterator[Mapping[str, float]]:
    """Yield the readable part of what was heard: another version may tell something else."""
    for text in heard:
        try:
            told = orjson.loads(text)
        except ValueError:
            continue
        if isinstance(told, dict) and len(told) <= MOST_TOLD:
            yield {key: float(count) for key, count in told.items() if isinstance(count, int | float) and count > 0}
