"""A cheap look at what a sweep would do: a script costs Redis many times as much as to ask whether it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.core import keys
from app.store.redis.driver.lane import Argument
from app.store.redis.driver.lanes import Lanes

THOROUGH_US: Final = 1_000_000
THOROUGH_ONE_IN: Final = 4
"""The script runs wherever there are records in one second of so many, as some may have ended out of turn."""
OLDEST: Final = 20
"""Members of a list that are looked at, as sweep.lua does first."""


class SweepLook:
    """Says in which partitions a sweep has something to do."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes

    async def needed(self, partitions: Sequence[int], before: int) -> Sequence[int]:
        """Return the partitions in which something ended before an instant (µs), or has no record any more."""
        looks: list[tuple[Argument, ...]] = []
        for one in partitions:
            ended = "-inf", f"({before}", "LIMIT", 0, 1
            looks += [
                ("ZRANGEBYSCORE", keys.due(one), *ended),
                ("ZRANGEBYSCORE", keys.held(one), *ended),  # refused to a user of before 0.3.0, who holds nothing
                ("ZRANGE", keys.listing(one), 0, OLDEST - 1),
            ]
        replies = await self._lanes.call_for_list(looks)
        found, listed = set[int](), dict[int, list[str]]()
        for at, one in enumerate(partitions):
            due, held, oldest = replies[3 * at : 3 * at + 3]
            lapsed = held and not isinstance(held, Exception)
            thorough = (before // THOROUGH_US + one) % THOROUGH_ONE_IN == 0
            unclear = isinstance(due, Exception) or isinstance(oldest, Exception)
            if due or lapsed or unclear or (oldest and thorough):
                found.add(one)
            elif oldest:
                listed[one] = [member.partition(b":")[0].decode(errors="replace") for member in oldest]
        found.update(await self._without_record(listed))
        return [one for one in partitions if one in found]

    async def _without_record(self, listed: dict[int, list[str]]) -> Sequence[int]:
        counts = await self._lanes.call_for_list(
            [("EXISTS", *(keys.callback(one, id_) for id_ in ids)) for one, ids in listed.items()]
        )
        return [one for (one, ids), count in zip(listed.items(), counts, strict=True) if count != len(ids)]
