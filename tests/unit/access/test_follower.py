"""A node goes by the directory, and by a copy of it when the directory is away while the node starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, cast

import pytest

from app.access.follower import LATE, DirectoryFollower
from app.access.rules_copy import RulesCopier
from app.core.access.model import Document
from app.core.errors import DirectoryUnavailableError, StoreUnavailableError, UnavailableError
from app.store.directory import AccessDirectory
from tests.api.rig import until
from tests.unit.access.test_rules_copy import LIFE, Clock, Store

DOCUMENT = Document(cluster_id="c", version=1)


@dataclass
class Database:
    """A directory as far as a follower needs one, which can be taken away."""

    document: Document = DOCUMENT
    away: bool = False
    asked: int = 0
    prepared: asyncio.Event = field(default_factory=asyncio.Event)

    async def version(self) -> int:
        self._check()
        return self.document.version

    async def read(self, known: Document | None = None) -> Document:
        del known
        self._check()
        return self.document

    async def prepare(self) -> None:
        self._check()

    def _check(self) -> None:
        self.asked += 1
        if self.away:
            raise DirectoryUnavailableError("the database is away")


class Shared(Store):
    """The cluster's store, which can be away, too."""

    away = False

    async def kept(self) -> tuple[int, int] | None:
        if self.away:
            raise StoreUnavailableError("the store is away")
        return await super().kept()

    async def read(self) -> bytes | None:
        if self.away:
            raise StoreUnavailableError("the store is away")
        return await super().read()


@dataclass
class Place:
    database: Database = field(default_factory=Database)
    store: Shared = field(default_factory=Shared)
    clock: Clock = field(default_factory=Clock)
    cluster: str = "c"
    changes: int = 0

    def changed(self) -> None:
        self.changes += 1

    @asynccontextmanager
    async def following(
        self, *, copies: bool = True, prepare: Callable[[], Awaitable[None]] | None = None, late: timedelta = LATE
    ) -> AsyncIterator[DirectoryFollower]:
        async def agreed(_own: str) -> str:
            return self.cluster

        one = DirectoryFollower(
            cast("AccessDirectory", self.database),
            self.clock,
            prepare=prepare or self.database.prepare,
            interval=0.001,
            changed=self.changed,
            agreed=agreed,
            copying=RulesCopier(self.store, "secret", self.clock, LIFE) if copies else None,
            late=late,
        )
        task = asyncio.ensure_future(one.run())
        try:
            yield one
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def place() -> Place:
    return Place()


async def kept(place: Place) -> None:
    """Another node has kept a copy."""
    async with place.following():
        await until(lambda: place.store.writes == 1)


async def test_a_node_that_starts_while_the_directory_is_away_goes_by_the_copy(place: Place) -> None:
    await kept(place)
    place.database.away = True
    place.clock.seconds += 60
    async with place.following() as following:
        await until(lambda: following.known)
        assert following.view.copied
        assert following.view.document == DOCUMENT
        assert following.age == 60
        place.database.away = False
        place.database.document = replace(DOCUMENT, version=2)
        await until(lambda: not following.view.copied)
        assert following.view.document.version == 2
        assert following.age == 0
        assert following.trouble == ""


async def test_a_copy_is_replaced_also_when_nothing_has_changed(place: Place) -> None:
    await kept(place)
    place.database.away = True
    async with place.following() as following:
        await until(lambda: following.known)
        changes = place.changes
        place.database.away = False
        await until(lambda: not following.view.copied)
        assert place.changes == changes + 1


@pytest.mark.parametrize("copies", [True, False])
async def test_without_a_copy_the_node_waits_and_says_so(place: Place, *, copies: bool) -> None:
    place.database.away = True
    async with place.following(copies=copies) as following:
        said = "no node has kept a copy of the rules" if copies else "this node has no rules to go by"
        await until(lambda: said in following.trouble)
        with pytest.raises(UnavailableError, match="the database is away; "):
            _ = following.view
        place.database.away = False
        await until(lambda: following.known)


async def test_the_copy_of_another_directory_is_none(place: Place) -> None:
    await kept(place)
    place.database.away, place.cluster = True, "another"
    async with place.following() as following:
        await until(lambda: "no node has kept a copy" in following.trouble)
        assert not following.known


async def test_a_store_that_is_away_as_well_is_asked_again(place: Place) -> None:
    await kept(place)
    place.database.away = place.store.away = True
    async with place.following() as following:
        await until(lambda: "nor can a copy of the rules be looked for: the store is away" in following.trouble)
        place.store.away = False
        await until(lambda: following.known)


async def test_what_changed_last_before_the_directory_went_away_is_in_the_copy(place: Place) -> None:
    async with place.following() as following:
        await until(lambda: place.store.writes == 1)
        place.store.away = True
        place.database.document = replace(DOCUMENT, version=2)
        await until(lambda: following.view.document.version == 2)
        place.database.away = True
        await until(lambda: following.trouble != "")
        place.store.away = False
        await until(lambda: place.store.writes == 2)
        assert place.store.copy is not None
        assert place.store.copy[0] == 2


async def test_while_the_first_steps_take_long_the_node_goes_by_the_copy(place: Place) -> None:
    await kept(place)
    migrated = asyncio.Event()

    async def migrate() -> None:
        await migrated.wait()

    async with place.following(prepare=migrate, late=timedelta(milliseconds=1)) as following:
        await until(lambda: following.known)
        assert following.view.copied
        migrated.set()
        await until(lambda: not following.view.copied)


async def test_callers_are_told_at_once_while_the_directory_is_known_to_be_away(place: Place) -> None:
    async with place.following() as following:
        await until(lambda: following.known)
        place.database.away = True
        await until(lambda: following.trouble != "")
        hung = asyncio.Event()
        version: Any = place.database.version

        async def hangs() -> int:
            await hung.wait()
            return int(await version())

        place.database.version = hangs  # type: ignore[method-assign] # a look of the node's own that takes long
        with pytest.raises(DirectoryUnavailableError, match="the database is away"):
            await following.now()
        place.database.away = False
        hung.set()
        await until(lambda: following.trouble == "")
        assert (await following.now()).document == DOCUMENT
