"""The catalogue of generations of a database, as Redis has it: those that are hot, and those that are cold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from app.core.events import keys
from app.core.events.event import Position, Shard
from app.core.events.generation import ColdFile, Generation, GenerationState, unpack_files
from app.store.redis.driver.lane import Argument
from app.store.redis.events.calls import EventCalls, parsing

Colds = dict[int, tuple[list[int], list[ColdFile]]]
"""Generation -> first, last, count and size of what is in it, and its files."""


class Contents(NamedTuple):
    """By shard: the current generation; what is in each generation: first, last, count, size; those that are cold."""

    currents: list[int]
    cuts: list[dict[int, list[int]]]
    colds: list[Colds]


class GenerationCatalogue:
    """Raises StoreUnavailableError."""

    def __init__(self, calls: EventCalls) -> None:
        self._calls = calls
        self._cold: dict[Shard, tuple[bytes, Colds]] = {}

    async def read(self, shards: Sequence[Shard]) -> Contents:
        """Return what there is of these shards."""
        # In this order: one that becomes cold meanwhile is in both, never in none.
        commands: list[tuple[Argument, ...]] = [("HGETALL", keys.cuts(one)) for one in shards]
        commands += [("HMGET", keys.state(one), "generation", "colds") for one in shards]
        replies = await self._calls.call_many(commands)
        states = replies[len(shards) :]
        colds = [await self._colds(shard, state[1]) for shard, state in zip(shards, states, strict=True)]
        currents = [int_of(keys.state(shard), state[0]) or 1 for shard, state in zip(shards, states, strict=True)]
        cuts = [cuts_of(shard, one) for shard, one in zip(shards, replies[: len(shards)], strict=True)]
        return Contents(currents, cuts, colds)

    async def generations(self, shards: Sequence[Shard]) -> list[Generation]:
        """The generations of a database with these shards."""
        found = await self.read(shards)
        known = {number for one in found.cuts for number in one} | {number for one in found.colds for number in one}
        return [_generation(number, *found) for number in sorted(known | {max(found.currents)})]

    async def _colds(self, shard: Shard, version: bytes | None) -> Colds:
        """The generations of a shard that are cold; there are many, and they seldom change."""
        if version is None:
            return {}
        known = self._cold.get(shard)
        if known is None or known[0] != version:
            reply = await self._calls.call("HGETALL", keys.cold(shard))
            known = self._cold[shard] = (version, _colds_of(shard, reply))
        return known[1]


def int_of(key: str, text: bytes | None) -> int:
    """A number that a key has, 0 where it has none; StoreUnavailableError."""
    with parsing(key):
        return int(text or 0)


def cuts_of(shard: Shard, reply: Sequence[bytes]) -> dict[int, list[int]]:
    """Generation -> first, last, count and size of what is in it; StoreUnavailableError."""
    found = {}
    with parsing(keys.cuts(shard)):
        for name, cut in zip(reply[::2], reply[1::2], strict=True):
            first, last, count, size = map(int, cut.split())
            found[int(name)] = [first, last, count, size]
    return found


def numbers_of(shard: Shard, reply: Sequence[bytes], after: Position, until: Position) -> list[int]:
    """The generations of a shard that may have events between these positions."""
    cuts = sorted(cuts_of(shard, reply).items())
    return [number for number, (first, last, count, _) in cuts if count and last > after and first <= until]


def _colds_of(shard: Shard, reply: Sequence[bytes]) -> Colds:
    found: Colds = {}
    with parsing(keys.cold(shard)):
        for name, text in zip(reply[::2], reply[1::2], strict=True):
            first, last, count, size, files = text.decode().split(" ", 4)
            found[int(name)] = [int(part) for part in (first, last, count, size)], unpack_files(shard.number, files)
    return found


def _generation(
    number: int, currents: Sequence[int], cuts: Sequence[Mapping[int, Sequence[int]]], colds: Sequence[Colds]
) -> Generation:
    cold = [one[number] for one in colds if number in one]
    there = [one[number] for one, other in zip(cuts, colds, strict=True) if number in one and number not in other]
    state = GenerationState.SEALED if number < min(currents) else GenerationState.CURRENT
    if cold and not any(count for _, _, count, _ in there):
        state = GenerationState.COLD
    there += [cut for cut, _ in cold]
    return Generation(
        number,
        state,
        min((first for first, _, _, _ in there if first), default=0),
        max((last for _, last, _, _ in there), default=0),
        sum(count for _, _, count, _ in there),
        sum(size for _, _, _, size in there),
        files=tuple(file for _, files in cold for file in files),
    )
