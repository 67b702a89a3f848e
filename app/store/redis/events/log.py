"""The event log that a cluster shares: Redis streams whose entries are blocks of events.

One script appends: it gives positions, keeps the epoch, the last values and the sizes of generations, or refuses.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final, cast

from app.core.errors import (
    ConfigurationError,
    DamagedEventsError,
    DatabaseNotFoundError,
    FencedError,
    StoreUnavailableError,
    ValueChangedError,
)
from app.core.events import keys
from app.core.events.batches import CALL_KNOWN_US, MOST_WRITERS, BatchId, CallId, check_claim
from app.core.events.block import pack_block
from app.core.events.event import BEGINNING, Database, Entry, Event, Position, Shard, size_of
from app.core.events.generation import ColdFile, Generation, pack_files
from app.core.events.marks import pack_marks
from app.core.events.quota import is_bounded
from app.core.events.quota import no_room as no_room_left
from app.core.events.reading import Picked, Reading, Slice
from app.core.events.record import pack_entry, unpack_entry
from app.core.events.structures import Structures
from app.core.events.transaction import Transaction
from app.core.events.values import Bound, no_room
from app.core.queues.hints import appended_to, hint_text
from app.core.redis_address import NO_TERMS, RedisTerms
from app.core.topics import matches
from app.runtime.tasks import end
from app.runtime.telemetry import BurstLog, Fill
from app.store.redis.driver.each_server import of_each_server
from app.store.redis.driver.lane import Argument
from app.store.redis.driver.scripts import APPEND_EVENTS, COOL_EVENTS, DISOWN_EVENTS, DROP_EVENTS, ROTATE_EVENTS
from app.store.redis.events.calls import EventCalls
from app.store.redis.events.catalogue import GenerationCatalogue, int_of
from app.store.redis.events.ends import ShardEnds
from app.store.redis.events.named_cursors import RedisCursors
from app.store.redis.events.scan import BlockReader

POLL_SECONDS: Final = 0.02
"""The time between two looks at heads while somebody waits for events."""
RETRIED_MS: Final = 60_000
"""The time for which the outcome of a call that a connection has lost is known."""
TOPICS: Final = 512
"""Topics of one round trip."""


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
        terms: RedisTerms = NO_TERMS,
    ) -> None:
        self.databases: Final = tuple(databases)
        self._calls = EventCalls(url, counters, budget.total_seconds(), terms=terms)
        self.cursors: Final = RedisCursors(self._calls)
        self._catalogue = GenerationCatalogue(self._calls)
        self._ends = ShardEnds(self._calls, counters)
        self._blocks = BlockReader(self._calls, drops, self._ends)
        self._drops = drops
        self._new_secret = new_secret
        self._by_name: Mapping[str, Database] = {one.name: one for one in databases}
        self._structures = {one.name: Structures(one.taught) for one in databases}
        self._oldest: dict[str, int] = {}
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """As the port says. StoreUnavailableError when Redis is away: it may be tried again."""
        await self._calls.start()
        for database in self.databases:
            await self._check(database)
        if self._watching is None:
            self._watching = asyncio.create_task(self._calls.watch.run(), name="watch of the Redis of events")

    async def close(self) -> None:
        try:
            await end(() if self._watching is None else [self._watching])
        finally:
            await self._calls.close()

    def fills(self) -> dict[str, Fill]:
        return {"events_calls": self._calls.fill()}

    async def append(
        self, shard: Shard, entries: Sequence[Entry], epoch: int | None = None, batch: BatchId | CallId | None = None
    ) -> Position:
        return await self._append(shard, entries, epoch, batch)

    async def claim(self, database: str, call: CallId) -> None:
        shards = self._database(database).all_shards()
        key = keys.done(shards[int(call.key[:8], 16) % len(shards)], f"key:{call.key}")
        _, found = await self._calls.call_many(
            [("SET", key, call.text, "NX", "PX", str(CALL_KNOWN_US // 1000)), ("GET", key)]
        )
        if found is not None:  # it ends between the two: nothing to compare
            check_claim(call, found.decode())

    async def commit(self, transaction: Transaction) -> Position:
        return await self._append(transaction.shard, transaction.entries, transaction=transaction)

    async def read(self, shard: Shard, reading: Reading, limit: int) -> Slice:
        self._database(shard.database)
        found = await self._blocks.read(shard, reading, limit)
        if found.events:
            self._ends.see(shard, found.events[-1].position)
        return found

    async def pick(self, shard: Shard, positions: Sequence[Position]) -> Picked:
        self._database(shard.database)
        return await self._blocks.pick(shard, sorted(set(positions)))

    async def wait(self, database: str, after: Sequence[Position]) -> Sequence[Position]:
        shards = self._database(database).all_shards()
        while True:
            heads = await self._heads(shards, after)
            if any(head > position for head, position in zip(heads, after, strict=True)):
                return heads
            await asyncio.sleep(POLL_SECONDS)

    async def value(self, shard: Shard, topic: str) -> Event | None:
        self._database(shard.database)
        found = await self._calls.call("HGET", keys.latest(shard), topic)
        return self._value(shard, topic.encode(), found)

    async def values(self, shard: Shard, topic_filter: str, after: str, limit: int) -> Sequence[Event]:
        self._database(shard.database)
        found: list[Event] = []
        start: bytes = b"(" + after.encode() if after else b"-"
        while len(found) < limit:
            names: list[bytes] = await self._calls.call(
                "ZRANGEBYLEX", keys.topics(shard), start, "+", "LIMIT", "0", str(TOPICS)
            )
            fitting = [name for name in names if _fits(topic_filter, name)][: limit - len(found)]
            if fitting:
                rows = await self._calls.call("HMGET", keys.latest(shard), *fitting)
                there = [self._value(shard, name, row) for name, row in zip(fitting, rows, strict=True)]
                found += [one for one in there if one is not None]
            if len(names) < TOPICS:
                break
            start = b"(" + names[-1]
        return found

    async def structures(self, database: str) -> Sequence[str]:
        self._database(database)
        known: list[bytes] = await self._calls.call("HGETALL", keys.structures(database))
        return sorted({one.decode(errors="replace") for one in known[::2]} | set(self._structures[database]))

    async def generations(self, database: str) -> Sequence[Generation]:
        about = self._database(database)
        found = await self._catalogue.generations(about.all_shards())
        if self._oldest.setdefault(database, found[0].number) != found[0].number:
            # One was dropped, and with it what was known of topics: what comes from now on is told again.
            self._oldest[database] = found[0].number
            self._structures[database] = Structures(about.taught)
        return found

    async def rotate(self, database: str, expected: int) -> None:
        currents = (await self._catalogue.read(self._database(database).all_shards())).currents
        latest = max(currents)
        if latest == expected or (
            latest == expected + 1 and min(currents) < latest
        ):  # the rest of one that was cut off
            for shard in self._database(database).all_shards():
                await self._run_rotate(shard, expected + 1)
            if self._database(database).tenants.count():
                for shard in self._database(database).all_shards():
                    await self._disown(shard)

    async def cool(self, database: str, number: int, files: Sequence[ColdFile]) -> None:
        for shard in self._database(database).all_shards():
            own = [file for file in files if file.shard == shard.number]
            names = [keys.state(shard), keys.cuts(shard), keys.cold(shard), f"{keys.slabs(shard)}{number}"]
            last = max((file.last for file in own), default=BEGINNING)
            arguments: list[Argument] = [number, pack_files(own), last, self._new_secret()]
            await self._calls.run(COOL_EVENTS, names, arguments)

    async def allow(self, database: str, room: int | None) -> None:
        names = [keys.state(shard) for shard in self._database(database).all_shards()]
        # What is appended in between takes of this room, too.
        known = await self._calls.call_many([("HMGET", name, "taken", "most") for name in names])
        changes: list[tuple[Argument, ...]] = []
        for name, (taken, most) in zip(names, known, strict=True):
            allowed = None if room is None else b"%d" % (int_of(name, taken) + max(0, room))
            if allowed != most:
                changes.append(("HDEL", name, "most") if allowed is None else ("HSET", name, "most", allowed))
        if changes:
            await self._calls.call_many(changes)

    async def drop(self, database: str, number: int) -> None:
        currents = (await self._catalogue.read(self._database(database).all_shards())).currents
        if number >= min(currents):
            return
        await self._calls.call("UNLINK", keys.structures(database))
        for shard in self._database(database).all_shards():
            # All at once: blocks that no catalogue has would stay for ever where a node dies in between.
            names = [keys.cuts(shard), f"{keys.slabs(shard)}{number}", keys.cold(shard), keys.state(shard)]
            await self._calls.run(DROP_EVENTS, names, [number, self._new_secret()])

    async def _heads(self, shards: Sequence[Shard], unknown: Sequence[Position]) -> Sequence[Position]:
        """The heads of shards. Where one of several servers is away, those of its shards are as in `unknown`."""
        names = [keys.state(shard) for shard in shards]
        known = [self._ends.known(shard) for shard in shards]

        async def ask(places: Sequence[int]) -> Sequence[Position]:
            found = await self._calls.call_many([("HGET", names[place], "head") for place in places])
            return [int_of(names[place], head) for place, head in zip(places, found, strict=True)]

        heads = await of_each_server(names, self._calls.server_of, ask)
        return [
            there if head is None else await self._ends.agreed(shard, seen, head)
            for shard, seen, there, head in zip(shards, known, unknown, heads, strict=True)
        ]

    async def _append(
        self,
        shard: Shard,
        entries: Sequence[Entry],
        epoch: int | None = None,
        batch: BatchId | CallId | None = None,
        transaction: Transaction | None = None,
    ) -> Position:
        if self._calls.watch.unfit:
            raise StoreUnavailableError(f"the event log takes nothing: {self._calls.watch.unfit}")
        database = self._database(shard.database)
        conditions = () if transaction is None else transaction.conditions
        last = {entry.topic: place for place, entry in enumerate(entries)}
        await self._learn(shard.database, last)
        known = self._ends.known(shard)
        arguments: list[Argument] = [
            keys.slabs(shard),
            "" if epoch is None else epoch,
            len(entries),
            sum(map(size_of, entries)),
            1 if is_bounded(entries) else 0,
            pack_block(entries),
            pack_marks(last),
            database.values_allowed(""),
            database.value_bytes_allowed(""),
            "" if transaction is None else "1",
            *(batch if isinstance(batch, BatchId) else ("", CALL_KNOWN_US // 1000 if batch else RETRIED_MS)),
            MOST_WRITERS,
            len(conditions),
            database.tenants.count(),
            hint_text([appended_to(shard)]),
            known,
        ]
        for condition in conditions:
            arguments += (condition.topic, "" if condition.position is None else condition.position)
        for topic, place in last.items():
            one = entries[place]
            arguments += (topic, place, pack_entry(one) if one.value else b"", database.tenants.of(one.device))
        names = [keys.state(shard), keys.cuts(shard), keys.latest(shard), keys.topics(shard)]
        # A connection that breaks repeats the call; whoever may repeat it later has numbered it.
        if isinstance(batch, BatchId):
            names.append(keys.writers(shard))
        else:
            names.append(keys.done(shard, f"call:{batch.text}" if batch else self._new_secret()))
        names += (keys.owners(shard), keys.shares(shard))
        while (reply := await self._calls.run(APPEND_EVENTS, names, arguments))[0] == b"behind":
            await self._ends.tell(shard, known)
        if reply[0] == b"ok":
            for bound, count in zip(reply[2::2], reply[3::2], strict=True):
                for _ in range(int(count)):
                    self._drops.drop(bound.decode(), topic=str(shard))
            self._ends.see(shard, int(reply[1]))
            return int(reply[1])
        raise _refusal(reply, shard, epoch)

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

    async def _learn(self, database: str, topics: Iterable[str]) -> None:
        """Structures are shown to people here; what is read does not depend on them."""
        known = self._structures[database]
        before = len(known)
        new = set(map(known.of, topics))
        if len(known) > before:
            fields = [part for one in sorted(new) for part in (one, "")]
            await self._calls.call("HSET", keys.structures(database), *fields)

    async def _run_rotate(self, shard: Shard, number: int) -> None:
        await self._calls.run(ROTATE_EVENTS, [keys.state(shard), keys.cuts(shard)], [number])

    async def _disown(self, shard: Shard) -> None:
        """Take values out of the shares of tenants that 0.2.0 has deleted."""
        names = [keys.latest(shard), keys.owners(shard), keys.shares(shard)]
        start = b"-"
        while start:
            owned: list[bytes] = await self._calls.call(
                "ZRANGEBYLEX", keys.owners(shard), start, "+", "LIMIT", "0", str(TOPICS)
            )
            if owned:
                await self._calls.run(DISOWN_EVENTS, names, [one.partition(b"\0")[0] for one in owned])
            start = b"(" + owned[-1] if len(owned) == TOPICS else b""

    async def _check(self, database: Database) -> None:
        await self._calls.call("SET", keys.shards(database.name), str(database.shards), "NX")
        there = int_of(keys.shards(database.name), await self._calls.call("GET", keys.shards(database.name)))
        if there != database.shards:
            raise ConfigurationError(
                f"the database {database.name!a} of events has {there} shards, which cannot be changed; "
                f"asked for are {database.shards}"
            )

    def _database(self, name: str) -> Database:
        found = self._by_name.get(name)
        if found is None:
            raise DatabaseNotFoundError(f"there is no database {name[:64]!a}; there are {', '.join(self._by_name)}")
        return found


def _fits(topic_filter: str, name: bytes) -> bool:
    try:
        return matches(topic_filter, name.decode())
    except UnicodeDecodeError:  # no topic, so somebody else's
        return False


def _refusal(reply: Sequence[bytes], shard: Shard, epoch: int | None) -> Exception:
    """The error of an append with this reply."""
    if reply[0] == b"over":
        return no_room_left(shard.database)
    if reply[0] == b"full":
        return no_room(shard.database, reply[1].decode(), cast("Bound", reply[2].decode()))
    if reply[0] == b"fenced":
        return FencedError(f"epoch {int(reply[1])} writes to shard {shard}, and this is {epoch}", int(reply[1]))
    return ValueChangedError(reply[1].decode(), _or_none(reply[2]), _or_none(reply[3]))


def _or_none(text: bytes) -> Position | None:
    return int(text) if text else None
