"""Declarations in each engine: a reader of changes knows in the end all that a reader of everything knows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from redis.asyncio import Redis

from app.core.errors import QueueDiffersError
from app.core.queues.keys import DECLARED
from app.core.queues.model import QueueOptions, TopicRoute
from app.queues.book import QueueBook
from app.store.declared import Declarations, Declared, DocumentChange
from tests.contract.queue_places import BEGIN, QueuePlace

OPTIONS = QueueOptions(routes=(TopicRoute("events", "site/+/alarm"),))


class CountedDeclared:
    """Counts the documents that are read."""

    def __init__(self, declared: Declared) -> None:
        self._declared = declared
        self.documents = 0

    async def version(self) -> int:
        return await self._declared.version()

    async def read(self, since: int = -1) -> Declarations:
        told = await self._declared.read(since)
        self.documents += len(told.documents)
        return told

    async def apply(self, changes: Sequence[DocumentChange], expected: int) -> int | None:
        return await self._declared.apply(changes, expected)


class Reader:
    """Somebody who remembers what was read, and reads what has changed since."""

    def __init__(self) -> None:
        self.version = -1
        self.documents: dict[str, bytes] = {}

    async def read(self, declared: Declared) -> bool:
        """Return whether all was read."""
        told = await declared.read(self.version)
        self.version = told.version
        if told.whole:
            self.documents.clear()
        for name, document in told.documents.items():
            if document is None:
                self.documents.pop(name, None)
            else:
                self.documents[name] = document
        return told.whole


async def test_readers_of_changes_know_what_readers_of_all_know(queue_place: QueuePlace) -> None:
    random, readers, version = Random(7), [Reader() for _ in range(4)], 0
    for turn in range(300):
        changes = [
            DocumentChange(f"q -/{random.randrange(12)}", random.choice((None, b"%d" % turn)))
            for _ in range(random.choice((1, 1, 1, 5)))
        ]
        last = {one.name: one for one in changes}
        applied = await queue_place.declared.apply(list(last.values()), version)
        assert applied is not None
        assert applied > version, "versions grow"
        assert await queue_place.declared.apply(changes, version) is None
        version = applied
        for reader, oftenness in zip(readers, (1, 3, 30, 100), strict=True):
            if not random.randrange(oftenness):
                await reader.read(queue_place.declared)
                told = await queue_place.declared.read()
                assert told.whole
                assert (reader.version, reader.documents) == (told.version, told.documents)


async def test_who_knows_all_is_told_nothing(queue_place: QueuePlace) -> None:
    assert await queue_place.declared.apply([DocumentChange("q -/a", b"1")], 0)
    reader = Reader()
    assert await reader.read(queue_place.declared)
    assert not await reader.read(queue_place.declared)
    assert reader.documents == {"q -/a": b"1"}


@pytest.mark.parametrize("queue_place", ["redis"], indirect=True)
async def test_an_engine_that_went_back_to_an_older_copy_gives_no_version_twice(
    queue_place: QueuePlace, request: pytest.FixtureRequest
) -> None:
    """As when a replica takes over that lacks the last change: another one has another version, and all is read."""
    older = await queue_place.declared.apply([DocumentChange("q -/a", b"1")], 0)
    assert older is not None
    admin = Redis.from_url(request.getfixturevalue("redis_server").url)
    copy = await admin.dump(DECLARED)
    assert copy is not None
    reader = Reader()
    lost = await queue_place.declared.apply([DocumentChange("q -/lost", b"1")], older)
    await reader.read(queue_place.declared)
    await admin.restore(DECLARED, 0, copy, replace=True)
    await admin.aclose()
    await queue_place.pass_time(1_000_000)
    other = await queue_place.declared.apply([DocumentChange("q -/other", b"1")], older)
    assert other != lost
    assert await reader.read(queue_place.declared)
    assert reader.documents == {"q -/a": b"1", "q -/other": b"1"}


async def test_a_declaration_among_many_reads_none_of_them(queue_place: QueuePlace) -> None:
    declared = CountedDeclared(queue_place.declared)
    ids = iter(range(1000))
    books = [QueueBook(declared, ["events"], lambda: f"01ID{next(ids)}") for _ in range(2)]
    for number in range(50):
        await books[0].declare("", f"q{number}", OPTIONS, 0, BEGIN, lambda _: False)
    assert declared.documents == 0, "what a node has written it need not read"
    await books[1].refresh()
    assert [one.name for one in books[1].all] == sorted(f"q{number}" for number in range(50))
    declared.documents = 0
    for number in range(10):
        await books[number % 2].declare("", f"new{number}", OPTIONS, 0, BEGIN, lambda _: False)
    assert declared.documents <= 10 or queue_place.name != "redis", "only what the other one has written"
    await books[1].delete(books[1].get("", "q7"))
    for book in books:
        await book.refresh()
    assert books[0].all == books[1].all
    assert len(books[0].all) == 59


async def test_workers_of_one_node_that_declare_together_are_all_served(queue_place: QueuePlace) -> None:
    ids = iter(range(1000))
    book = QueueBook(queue_place.declared, ["events"], lambda: f"01ID{next(ids)}")
    declaring = [book.declare("", f"q{number}", OPTIONS, 0, BEGIN, lambda _: False) for number in range(50)]
    assert all(is_new for _, is_new in await asyncio.gather(*declaring))
    assert len(book.all) == 50


@pytest.mark.parametrize("queue_place", ["redis"], indirect=True)
async def test_what_an_older_version_has_declared_is_not_missed(
    queue_place: QueuePlace, request: pytest.FixtureRequest
) -> None:
    reader, server = Reader(), request.getfixturevalue("redis_server")
    first = await queue_place.declared.apply([DocumentChange("q -/a", b"1")], 0)
    assert first is not None
    await reader.read(queue_place.declared)
    async with Redis.from_url(server.url) as redis:
        await redis.hset(DECLARED, mapping={"q -/old": b"2", "version": str(first + 7)})
    await reader.read(queue_place.declared)
    assert reader.documents == {"q -/a": b"1", "q -/old": b"2"}
    async with Redis.from_url(server.url) as redis:
        await redis.hset(DECLARED, mapping={"q -/older": b"3", "version": str(first + 8)})
    assert await queue_place.declared.apply([DocumentChange("q -/b", b"4")], first + 8) is not None
    await reader.read(queue_place.declared)
    assert reader.documents == {"q -/a": b"1", "q -/old": b"2", "q -/older": b"3", "q -/b": b"4"}


async def test_of_two_who_declare_a_queue_otherwise_at_one_time_one_is_told_so(queue_place: QueuePlace) -> None:
    ids = iter(range(100))
    books = [QueueBook(queue_place.declared, ["events"], lambda: f"01ID{next(ids)}") for _ in range(2)]
    for number in range(20):
        given = [replace(OPTIONS, max_deliveries=1 + at) for at in range(2)]
        declaring = (
            book.declare("", f"q{number}", one, 0, BEGIN, lambda _: False)
            for book, one in zip(books, given, strict=True)
        )
        found = await asyncio.gather(*declaring, return_exceptions=True)
        refused = [one for one in found if isinstance(one, QueueDiffersError)]
        ((queue, new),) = [one for one in found if not isinstance(one, BaseException)]
        assert (len(refused), new) == (1, True)
        for book in books:
            await book.refresh()
            assert book.get("", f"q{number}") == queue
