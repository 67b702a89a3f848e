"""The event log that a cluster shares: Redis streams whose entries are blocks of events.

One script appends: it gives positions, keeps the epoch, the last values and the sizes of generations, or refuses.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, get_args

from app.core.errors import (
    ConfigurationError,
    DamagedEventsError,
    DatabaseNotFoundError,
    FencedError,
    StoreUnavailableError,
    ValueChangedError,
)
from app.core.eventlog import keys
from app.core.eventlog.batches import MOST_WRITERS, Batch
from app.core.eventlog.block import count_of, pack_block, unpack_block
from app.core.eventlog.event import BEGINNING, Database, Entry, Event, Position, Shard, size_of
from app.core.eventlog.generation import ColdFile, Generation, GenerationState, pack_files, unpack_files
from app.core.eventlog.quota import is_bounded
from app.core.eventlog.quota import no_room as no_room_left
from app.core.eventlog.reading import MOST_SCANNED, Reading, Slice
from app.core.eventlog.record import pack_entry, unpack_entry
from app.core.eventlog.structures import Structures
from app.core.eventlog.transaction import Transaction
from app.core.eventlog.values import Bound, no_room
from app.core.topics import matches
from app.observability import BurstLog, Fill
from app.store.eventlog import ArchivedError
from app.store.redis.combiner import Argument, Combiner, CombinerOptions
from app.store.redis.scripts import APPEND_EVENTS, COOL_EVENTS, DROP_EVENTS, EVENT_SCRIPTS, ROTATE_EVENTS
from app.store.redis.server import check_server, connector, parse_info

POLL_SECONDS: Final = 0.02
"""How often heads are looked at while somebody waits for events."""
FETCHED: Final = 64
"""Blocks of one round trip."""
TOPICS: Final = 512
"""Topics of one."""
MOST_NAMED: Final = 10_000
"""Damaged blocks that are remembered so that each is counted once. With more of them some are counted again."""

_Colds = dict[int, tuple[list[int], list[ColdFile]]]
"""Generation -> first, last, count and size of what is in it, and its files."""


class RedisEventLog:
    """`budget` bounds each call. ConfigurationError when the URL cannot be used."""

    def __init__(
        self,
        url: str,
        databases: Sequence[Database],
        *,
        counters: Counter[str],
        drops: BurstLog,
        new_secret: Callable[[], str],
        budget: timedelta = timedelta(seconds=2),
    ) -> None:
        self.databases: Final = tuple(databases)
        self._budget = budget.total_seconds()
        self._options = CombinerOptions()
        self._redis = Combiner(connector(url), EVENT_SCRIPTS, counters=counters, options=self._options)
        self._drops = drops
        self._new_secret = new_secret
        self._by_name: Mapping[str, Database] = {one.name: one for one in databases}
        self._structures = {one.name: Structures(one.taught) for one in databases}
        self._cold: dict[Shard, tuple[bytes, _Colds]] = {}
        self._damaged: set[tuple[Shard, Position]] = set()
        self._closed = False

    async def start(self) -> None:
        """As the port says. StoreUnavailableError when Redis is away: it may be tried again."""
        self._redis.start()
        try:
            async with asyncio.timeout(self._options.answer_seconds):
                await self._redis.call(("PING",), None)
        except TimeoutError:
            reason = self._redis.last_error or f"no answer within {self._options.answer_seconds:g} s"
            raise StoreUnavailableError(f"the Redis of the event log cannot be used now: {reason}") from None
        check_server(parse_info(await self._call("INFO")))
        for database in self.databases:
            await self._check(database)

    async def close(self) -> None:
        self._closed = True
        await self._redis.close()

    def queues(self) -> dict[str, Fill]:
        return {"events_calls": Fill(self._redis.outstanding, self._options.max_queue)}

    async def append(
        self, shard: Shard, entries: Sequence[Entry], epoch: int | None = None, batch: Batch | None = None
    ) -> Position:
        return await self._append(shard, entries, epoch, batch)

    async def commit(self, transaction: Transaction) -> Position:
        return await self._append(transaction.shard, transaction.entries, transaction=transaction)

    async def read(self, shard: Shard, reading: Reading, limit: int) -> Slice:
        self._database(shard.database)
        (head, cold), cuts = await self._call_many(
            [("HMGET", keys.state(shard), "head", "cold"), ("HGETALL", keys.cuts(shard))]
        )
        until = min(reading.until, int(head or 0))
        if until <= reading.after:
            return Slice([], reading.after, more=False)
        if reading.generation is None:
            _check_here(reading, cold)
        numbers = [one for one in _numbers(cuts, reading.after, until) if reading.generation in (None, one)]
        return await self._scan(shard, reading, until, limit, numbers)

    async def wait(self, database: str, after: Sequence[Position]) -> None:
        shards = self._database(database).all_shards()
        commands: list[tuple[Argument, ...]] = [("HGET", keys.state(shard), "head") for shard in shards]
        while True:
            heads = await self._call_many(commands)
            if any(int(head or 0) > position for head, position in zip(heads, after, strict=True)):
                return
            await asyncio.sleep(POLL_SECONDS)

    async def value(self, shard: Shard, topic: str) -> Event | None:
        self._database(shard.database)
        found = await self._call("HGET", keys.latest(shard), topic)
        return self._value(shard, topic.encode(), found)

    async def values(self, shard: Shard, topic_filter: str, after: str, limit: int) -> Sequence[Event]:
        self._database(shard.database)
        found: list[Event] = []
        start = f"({after}" if after else "-"
        while len(found) < limit:
            names: list[bytes] = await self._call(
                "ZRANGEBYLEX", keys.topics(shard), start, "+", "LIMIT", "0", str(TOPICS)
            )
            fitting = [name for name in names if matches(topic_filter, name.decode())][: limit - len(found)]
            if fitting:
                rows = await self._call("HMGET", keys.latest(shard), *fitting)
                there = [self._value(shard, name, row) for name, row in zip(fitting, rows, strict=True)]
                found += [one for one in there if one is not None]
            if len(names) < TOPICS:
                break
            start = f"({names[-1].decode()}"
        return found

    async def structures(self, database: str) -> Sequence[str]:
        self._database(database)
        known: list[bytes] = await self._call("HGETALL", keys.structures(database))
        return sorted({one.decode() for one in known[::2]} | set(self._structures[database]))

    async def generations(self, database: str) -> Sequence[Generation]:
        currents, cuts, colds = await self._catalogue(database)
        known = {number for one in cuts for number in one} | {number for other in colds for number in other}
        numbers = sorted(known | {max(currents)})
        return [_generation(number, currents, cuts, colds) for number in numbers]

    async def rotate(self, database: str, expected: int) -> None:
        currents, _, _ = await self._catalogue(database)
        latest = max(currents)
        if latest == expected or (
            latest == expected + 1 and min(currents) < latest
        ):  # the rest of one that was cut off
            for shard in self._database(database).all_shards():
                await self._run_rotate(shard, expected + 1)

    async def cool(self, database: str, number: int, files: Sequence[ColdFile]) -> None:
        for shard in self._database(database).all_shards():
            own = [file for file in files if file.shard == shard.number]
            names = [keys.state(shard), keys.cuts(shard), keys.cold(shard), f"{keys.slabs(shard)}{number}"]
            last = max((file.last for file in own), default=BEGINNING)
            arguments: list[Argument] = [number, pack_files(own), last, self._new_secret()]
            await self._redis.run_script(COOL_EVENTS, names, arguments, self._budget)

    async def allow(self, database: str, room: int | None) -> None:
        names = [keys.state(shard) for shard in self._database(database).all_shards()]
        # What is appended in between takes of this room, too.
        known = await self._call_many([("HMGET", name, "taken", "most") for name in names])
        changes: list[tuple[Argument, ...]] = []
        for name, (taken, most) in zip(names, known, strict=True):
            allowed = None if room is None else b"%d" % (int(taken or 0) + max(0, room))
            if allowed != most:
                changes.append(("HDEL", name, "most") if allowed is None else ("HSET", name, "most", allowed))
        if changes:
            await self._call_many(changes)

    async def drop(self, database: str, number: int) -> None:
        currents, _, _ = await self._catalogue(database)
        if number >= min(currents):
            return
        for shard in self._database(database).all_shards():
            # All at once: blocks that no catalogue has would stay for ever where a node dies in between.
            names = [keys.cuts(shard), f"{keys.slabs(shard)}{number}", keys.cold(shard), keys.state(shard)]
            await self._redis.run_script(DROP_EVENTS, names, [number, self._new_secret()], self._budget)

    async def _append(
        self,
        shard: Shard,
        entries: Sequence[Entry],
        epoch: int | None = None,
        batch: Batch | None = None,
        transaction: Transaction | None = None,
    ) -> Position:
        database = self._database(shard.database)
        conditions = () if transaction is None else transaction.conditions
        await self._learn(shard.database, entries)
        arguments: list[Argument] = [
            keys.slabs(shard),
            "" if epoch is None else epoch,
            len(entries),
            sum(map(size_of, entries)),
            1 if is_bounded(entries) else 0,
            pack_block(entries),
            database.values_allowed(""),
            database.value_bytes_allowed(""),
            "" if transaction is None else "1",
            *(batch or ("", 0)),
            MOST_WRITERS,
            len(conditions),
        ]
        for condition in conditions:
            arguments += (condition.topic, "" if condition.position is None else condition.position)
        for topic, place in {entry.topic: place for place, entry in enumerate(entries)}.items():
            arguments += (topic, place, pack_entry(entries[place]) if entries[place].value else b"")
        names = [keys.state(shard), keys.cuts(shard), keys.latest(shard), keys.topics(shard)]
        # A connection that breaks repeats the call; whoever may repeat it later has numbered it.
        names.append(keys.writers(shard) if batch else keys.done(shard, self._new_secret()))
        reply = await self._redis.run_script(APPEND_EVENTS, names, arguments, self._budget)
        if reply[0] == b"ok":
            for bound, count in zip(get_args(Bound), reply[2:], strict=True):
                for _ in range(int(count)):
                    self._drops.drop(bound, topic=str(shard))
            return int(reply[1])
        if reply[0] == b"over":
            raise no_room_left(database.name)
        if reply[0] == b"full":
            raise no_room(database.name, reply[1].decode(), "last_value" if reply[2] == b"0" else "last_value_bytes")
        if reply[0] == b"fenced":
            raise FencedError(f"epoch {int(reply[1])} writes to shard {shard}, and this is {epoch}")
        raise ValueChangedError(reply[1].decode(), _or_none(reply[2]), _or_none(reply[3]))

    async def _scan(self, shard: Shard, reading: Reading, until: Position, limit: int, numbers: Sequence[int]) -> Slice:
        found: list[Event] = []
        scanned, lost = 0, BEGINNING
        for number in numbers:
            start = reading.after + 1
            while True:
                slab = f"{keys.slabs(shard)}{number}"
                commands: list[tuple[Argument, ...]] = [
                    ("XRANGE", slab, f"{start}-0", "+", "COUNT", str(FETCHED)),
                    # Asked behind it: whether the slab was still there.
                    ("HGET", keys.state(shard), "cold"),
                    ("HGET", keys.cuts(shard), str(number)),
                ]
                blocks, cold, cut = await self._call_many(commands)
                if reading.generation is None:
                    _check_here(reading, cold)
                elif cut is None:
                    raise ArchivedError(int(cold or 0))
                for identity, fields in blocks:
                    last = int(identity.partition(b"-")[0])
                    events, count, gone = self._open_block(shard, last, fields[1], reading)
                    lost = max(lost, min(gone, until))
                    found += [event for event in events if reading.after < event.position <= until]
                    scanned += count
                    if len(found) > limit:
                        return Slice(found[:limit], found[limit].position - 1, more=True, lost=lost)
                    if last >= until:
                        return Slice(found, until, more=False, lost=lost)
                    if scanned >= MOST_SCANNED:
                        return Slice(found, last, more=True, lost=lost)
                    start = last + 1
                if len(blocks) < FETCHED:
                    break
        return Slice(found, until, more=False, lost=lost)

    def _open_block(
        self, shard: Shard, last: Position, data: bytes, reading: Reading
    ) -> tuple[list[Event], int, Position]:
        """What fits, how many events there are, and where it ends if it cannot be read.

        Then it stays where it is, and is left out of every reading; it is counted and named once.
        """
        try:
            return unpack_block(data, last, shard.number, reading.fits), count_of(data), BEGINNING
        except DamagedEventsError as error:
            if (shard, last) not in self._damaged:
                if len(self._damaged) >= MOST_NAMED:
                    self._damaged.clear()
                self._damaged.add((shard, last))
                self._drops.drop("damaged_block", topic=f"{shard} at {last}", why=str(error))
            return [], 1, last

    def _value(self, shard: Shard, topic: bytes, row: bytes | None) -> Event | None:
        """A last value as its bytes have it; None when there is none, or it cannot be read."""
        if row is None:
            return None
        position, _, record = row.partition(b" ")
        try:
            return Event(int(position), shard.number, unpack_entry(record))
        except (DamagedEventsError, ValueError) as error:
            self._drops.drop("damaged_value", topic=topic.decode(errors="replace"), why=str(error))
            return None

    async def _learn(self, database: str, entries: Sequence[Entry]) -> None:
        """Structures are shown to people here; what is read does not depend on them."""
        known = self._structures[database]
        before = len(known)
        new = {known.of(entry.topic) for entry in entries} if entries else set()
        if len(known) > before:
            fields = [part for one in sorted(new) for part in (one, "")]
            await self._call("HSET", keys.structures(database), *fields)

    async def _catalogue(self, database: str) -> tuple[list[int], list[dict[int, list[int]]], list[_Colds]]:
        """The current generation of each shard; what is in each generation: first, last, count, size; those cold."""
        shards = self._database(database).all_shards()
        # In this order: one that becomes cold meanwhile is in both, never in none.
        commands: list[tuple[Argument, ...]] = [("HGETALL", keys.cuts(one)) for one in shards]
        commands += [("HMGET", keys.state(one), "generation", "colds") for one in shards]
        replies = await self._call_many(commands)
        states = replies[len(shards) :]
        colds = [await self._colds(shard, state[1]) for shard, state in zip(shards, states, strict=True)]
        return [int(state[0] or 1) for state in states], [_cuts(one) for one in replies[: len(shards)]], colds

    async def _colds(self, shard: Shard, version: bytes | None) -> _Colds:
        """The generations of a shard that are cold; there are many, and they seldom change."""
        if version is None:
            return {}
        known = self._cold.get(shard)
        if known is None or known[0] != version:
            found = _colds(shard, await self._call("HGETALL", keys.cold(shard)))
            known = self._cold[shard] = (version, found)
        return known[1]

    async def _run_rotate(self, shard: Shard, number: int) -> None:
        await self._redis.run_script(ROTATE_EVENTS, [keys.state(shard), keys.cuts(shard)], [number], self._budget)

    async def _check(self, database: Database) -> None:
        await self._call("SET", keys.shards(database.name), str(database.shards), "NX")
        there = int(await self._call("GET", keys.shards(database.name)))
        if there != database.shards:
            raise ConfigurationError(
                f"the database {database.name!a} of events has {there} shards, which cannot be changed; "
                f"asked for are {database.shards}"
            )

    async def _call(self, *command: Argument) -> Any:  # noqa: ANN401 - what Redis replies
        if self._closed:
            raise StoreUnavailableError("the event log is closed")
        return await self._redis.call(command, self._budget)

    async def _call_many(self, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        if self._closed:
            raise StoreUnavailableError("the event log is closed")
        return await self._redis.call_many(commands, self._budget)

    def _database(self, name: str) -> Database:
        found = self._by_name.get(name)
        if found is None:
            raise DatabaseNotFoundError(f"there is no database {name[:64]!a}; there are {', '.join(self._by_name)}")
        return found


def _cuts(reply: Sequence[bytes]) -> dict[int, list[int]]:
    return {int(name): [int(part) for part in cut.split()] for name, cut in zip(reply[::2], reply[1::2], strict=True)}


def _numbers(reply: Sequence[bytes], after: Position, until: Position) -> list[int]:
    """The generations of a shard that may have events between these positions."""
    cuts = sorted(_cuts(reply).items())
    return [number for number, (first, last, count, _) in cuts if count and last > after and first <= until]


def _colds(shard: Shard, reply: Sequence[bytes]) -> _Colds:
    found: _Colds = {}
    for name, text in zip(reply[::2], reply[1::2], strict=True):
        *cut, files = text.decode().split(" ", 4)
        found[int(name)] = [int(part) for part in cut], unpack_files(shard.number, files)
    return found


def _check_here(reading: Reading, cold: bytes | None) -> None:
    if reading.after < int(cold or 0):
        raise ArchivedError(int(cold or 0))


def _generation(
    number: int, currents: Sequence[int], cuts: Sequence[Mapping[int, Sequence[int]]], colds: Sequence[_Colds]
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


def _or_none(text: bytes) -> Position | None:
    return int(text) if text else None
