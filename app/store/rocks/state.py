"""The state of the RocksDB of the event log, in memory: heads, structures, generations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import takewhile
from typing import Final

from rocksdict import ColumnFamily, Rdict

from app.core.errors import ConfigurationError, DamagedEventsError, DatabaseNotFoundError
from app.core.events.batches import BatchId, CallId, ClaimedKeys, KnownCalls, LastBatches
from app.core.events.event import BEGINNING, Database, Position, Shard
from app.core.events.generation import ColdFile, Generation, GenerationState
from app.core.events.record import unpack_entry
from app.core.events.structures import Structures
from app.core.events.values import Size, ValueUsage
from app.store.rocks import keys
from app.store.rocks.folder import close_table, table_of
from app.store.rocks.rows import keys_from, rows_from


@dataclass(frozen=True, slots=True)
class ShardHead:
    """The end of a shard: its last position, and the latest epoch that somebody appended with."""

    position: Position = 0
    epoch: int = 0


@dataclass(slots=True)
class OpenGeneration:
    """A generation and its table, which is None when it is cold."""

    about: Generation
    table: Rdict | None
    handle: ColumnFamily | None
    structures: Structures
    named: int = 0
    """The number of its events that are named in their order."""
    ordered: bool = True
    """True if all of them are. 0.2.0 has written here otherwise, and may have structures that are not its own."""
    unsaved: set[str] = field(default_factory=set)
    """Structures that were learned and are in no batch yet."""


@dataclass(slots=True)
class RocksDatabase:
    """The state of one database."""

    database: Database
    heads: list[ShardHead]
    batches: list[LastBatches]
    calls: list[KnownCalls]
    claimed: ClaimedKeys = field(default_factory=ClaimedKeys)
    cuts: dict[int, OpenGeneration] = field(default_factory=dict)
    before: Structures | None = None
    """The structures of all generations, where 0.2.0 has written to one that is still there."""
    held: list[ValueUsage] = field(default_factory=list)
    """The bytes that last values take, by shard and the hashes of their keys."""
    rooms: dict[int, int] = field(default_factory=dict)
    """The bytes that a shard can still take, by shard, where they are bounded."""
    cold: dict[int, Position] = field(default_factory=dict)
    """The position up to which a shard is in the cold tier, by shard."""

    @property
    def current(self) -> OpenGeneration:
        """The generation that is appended to."""
        return self.cuts[max(self.cuts)]

    def taken(self, shard: Shard, batch: BatchId | CallId | None) -> Position | None:
        """Return where a batch or a call ended that was taken before."""
        if isinstance(batch, CallId):
            return self.calls[shard.number].position_of(batch)
        return self.batches[shard.number].position_of(batch)

    def structures(self) -> set[str]:
        """Return those of all generations."""
        return set().union(*(cut.structures for cut in self.all_cuts()))

    def only_in(self, number: int) -> set[str]:
        """Structures that no other generation has."""
        return set(self.cuts[number].structures).difference(
            *(cut.structures for cut in self.all_cuts() if cut.about.number != number)
        )

    def all_cuts(self) -> list[OpenGeneration]:
        """Its generations, the oldest first; in any thread, as they are copied at once."""
        return [cut for _, cut in sorted(self.cuts.copy().items())]

    def cooled(self, files: Sequence[ColdFile]) -> None:
        """Know of files in the cold tier."""
        for file in files:
            self.cold[file.shard] = max(self.cold.get(file.shard, BEGINNING), file.last)


class RocksState:
    """The state of all databases in an open RocksDB that has these column families; ConfigurationError."""

    def __init__(self, database: Rdict, families: Sequence[str], databases: Sequence[Database]) -> None:
        self.closed = False
        self.books: Final[dict[str, RocksDatabase]] = {}
        self.database = database
        self.values = table_of(database, keys.VALUES)
        self.values_handle = database.get_column_family_handle(keys.VALUES)
        try:
            for one in databases:
                self._book(one)
            self._sweep(families)
        except BaseException:
            self.close()
            raise

    def book(self, name: str) -> RocksDatabase:
        """The book of a database; DatabaseNotFoundError."""
        book = self.books.get(name)
        if book is None:
            raise DatabaseNotFoundError(f"there is no database {name[:64]!a}; there are {', '.join(self.books)}")
        return book

    def reload(self) -> None:
        """Read again what a write that failed may have left undone."""
        for book in self.books.values():
            book.heads[:] = self._heads(book.database)
            book.batches[:] = map(self._batches, book.database.all_shards())
            book.calls[:] = map(self._calls, book.database.all_shards())
            book.held[:] = self._held(book.database)
            for cut in book.cuts.values():
                cut.about = self._generation(book.database.name, cut.about.number)
                cut.named = self._named(book.database.name, cut.about.number)

    def begin(self, book: RocksDatabase, number: int, inherited: Sequence[str] = ()) -> OpenGeneration:
        """A generation with its table, which may be there already; one that is cold has none."""
        name = keys.family(book.database.name, number)
        about = self._generation(book.database.name, number)
        if about.state is GenerationState.COLD:
            book.cuts[number] = OpenGeneration(about, None, None, Structures())
            book.cooled(about.files)
            return book.cuts[number]
        table = table_of(self.database, name)
        cut = OpenGeneration(about, table, self.database.get_column_family_handle(name), Structures())
        book.cuts[number] = cut
        if about.state is not GenerationState.DAMAGED:
            self._learn(book, cut, table, inherited)
        return cut

    def close(self) -> None:
        """Let go of all tables; nothing may use it any more."""
        if self.closed:
            return
        self.closed = True
        for book in self.books.values():
            for cut in book.all_cuts():
                if cut.table is not None:
                    close_table(cut.table)
                cut.table = cut.handle = None  # whoever has failed may know of it for a while
            book.cuts.clear()
        close_table(self.values)
        # RocksDB lets go of its lock when nobody has a handle any more.
        del self.values_handle, self.values, self.database

    def _sweep(self, families: Sequence[str]) -> None:
        """Drop tables of generations that the catalogue has no more, or has elsewhere: a process died in between."""
        for name in families:
            database, colon, number = name.rpartition(":")
            book = self.books.get(database)
            if colon and book is not None and (int(number) not in book.cuts or book.cuts[int(number)].table is None):
                self.database.drop_column_family(name)

    def _book(self, database: Database) -> None:
        self._check_shards(database)
        batches = [self._batches(shard) for shard in database.all_shards()]
        calls = [self._calls(shard) for shard in database.all_shards()]
        book = RocksDatabase(database, self._heads(database), batches, calls)
        self.books[database.name] = book
        book.held = self._held(database)
        numbers = [int.from_bytes(key[-4:]) for key in self._keys(keys.of_generation(database.name, 0)[:-4])]
        for number in numbers or [1]:
            self.begin(book, number)
        for cut in book.all_cuts()[:-1]:
            if cut.about.state is GenerationState.CURRENT:  # a full disk could leave it so in 0.2.0
                cut.about = replace(cut.about, state=GenerationState.SEALED)
        if not book.current.ordered:
            self._end(book)

    def _end(self, book: RocksDatabase) -> None:
        """Go on in a generation with an order."""
        old, name = book.current, book.database.name
        if old.about.state is GenerationState.CURRENT:
            old.about = replace(old.about, state=GenerationState.SEALED)
        new = self.begin(book, old.about.number + 1, old.structures.inherited())
        for cut in (old, new):
            self.database[keys.of_generation(name, cut.about.number)] = written(cut.about)

    def _check_shards(self, database: Database) -> None:
        there = self.database.get(keys.of_database(database.name))
        if there is None:
            self.database[keys.of_database(database.name)] = b"%d" % database.shards
        elif int(there) != database.shards:
            raise ConfigurationError(
                f"the database {database.name!a} of events has {int(there)} shards, which cannot be changed; "
                f"asked for are {database.shards}"
            )

    def _heads(self, database: Database) -> list[ShardHead]:
        found = (self.database.get(keys.of_head(shard)) for shard in database.all_shards())
        return [ShardHead() if one is None else ShardHead(*keys.HEAD.unpack(one)) for one in found]

    def _batches(self, shard: Shard) -> LastBatches:
        prefix = keys.of_writer(shard, "")
        found = ((key[len(prefix) :].decode(), self.database.get(key)) for key in self._keys(prefix))
        taken = ((writer, keys.TAKEN.unpack(row)) for writer, row in found if row is not None)
        return LastBatches((BatchId(writer, number), position) for writer, (number, position) in taken)

    def _calls(self, shard: Shard) -> KnownCalls:
        prefix = keys.of_call(shard, "")
        found = ((key[len(prefix) :].decode(), self.database.get(key)) for key in self._keys(prefix))
        return KnownCalls((call, keys.place_of(row)) for call, row in found if row is not None)

    def _held(self, database: Database) -> list[ValueUsage]:
        return [ValueUsage(database, self._sizes(database, keys.of_shard(shard))) for shard in database.all_shards()]

    def _sizes(self, database: Database, prefix: bytes) -> Iterator[Size]:
        divided = database.tenants.count() > 0
        for key, row in takewhile(lambda one: one[0].startswith(prefix), rows_from(self.values, prefix)):
            size = len(key) - len(prefix) + len(row) - keys.PLACE.size
            yield Size(hash(key), size, database.tenants.of(_device_of(row)) if divided else "")

    def _learn(self, book: RocksDatabase, cut: OpenGeneration, table: Rdict, inherited: Sequence[str]) -> None:
        """Learn what a generation knows of topics; of all of them where 0.2.0 has written, or it cannot be read."""
        name = book.database.name
        cut.named = self._named(name, cut.about.number)
        own: list[str] = []
        try:
            own += [key[1:].decode() for key in _beginning(table, keys.STRUCTURE)]
            cut.ordered = cut.named == cut.about.count
        except (DamagedEventsError, UnicodeDecodeError):  # which whoever reads its events finds out
            cut.ordered = False
        if cut.ordered:
            cut.structures = Structures([*own, *book.database.taught, *inherited])
            cut.unsaved = set(cut.structures) - set(own)
            return
        if book.before is None:
            known = [key.partition(b"\0")[2].decode() for key in self._keys(keys.of_structure(name, ""))]
            book.before = Structures([*book.database.taught, *known])
        cut.structures = book.before

    def _named(self, database: str, number: int) -> int:
        found = self.database.get(keys.of_ordered(database, number))
        return 0 if found is None else keys.PLACE.unpack(found)[0]

    def _generation(self, database: str, number: int) -> Generation:
        found = self.database.get(keys.of_generation(database, number))
        if found is None:
            return Generation(number, GenerationState.CURRENT)
        facts = json.loads(found)
        files = tuple(ColdFile(*one) for one in facts.get("files", ()))
        return Generation(**(facts | {"state": GenerationState(facts["state"]), "files": files}))

    def _keys(self, prefix: bytes) -> list[bytes]:
        return list(_beginning(self.database, prefix))


def _device_of(row: bytes) -> str:
    try:
        return unpack_entry(row[keys.PLACE.size :]).device
    except DamagedEventsError:
        return ""


def _beginning(table: Rdict, prefix: bytes) -> Iterator[bytes]:
    return takewhile(lambda key: key.startswith(prefix), keys_from(table, prefix))


def written(about: Generation) -> bytes:
    """The catalogue's entry of a generation."""
    return json.dumps(asdict(about)).encode()
