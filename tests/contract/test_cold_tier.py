"""The cold tier over the engines that outlive a process: kills at each step, damage, and what is swept."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from app.core.errors import StoreUnavailableError
from app.core.events.cold import COLUMNS, path_of
from app.core.events.event import Entry, Event, Shard
from app.core.events.generation import HOUR_US, Generation, GenerationState
from app.core.events.plan import NamedDatabase, Plan
from app.core.events.reading import Cursor, Reading
from app.events.reader import EventsReader
from app.events.tail import Tails
from app.runtime.system import SystemClock, new_secret
from app.store.engine import open_events
from app.store.events import EventStore
from app.store.parquet.archive import ParquetArchive
from app.store.parquet.place import ObjectStore
from app.store.tiered import TieredEventLog
from tests.contract.cold_places import archive_at, cooler_of
from tests.contract.cools_and_dies import DATABASE, FORGOTTEN_FIRST, STEPS
from tests.services import RedisProcess

EVENTS = 300


@pytest.fixture(params=["rocks", "redis"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "rocks":
        return f"rocks://{tmp_path}/log"
    server: RedisProcess = request.getfixturevalue("redis_server")
    async with Redis.from_url(server.url) as client:
        await client.flushall()
    return server.node_url


def hot_log(url: str) -> EventStore:
    return open_events(url, clock=SystemClock(), counters=Counter(), new_secret=new_secret).open_log([DATABASE])


@asynccontextmanager
async def opened(url: str, folder: Path) -> AsyncIterator[TieredEventLog]:
    log = TieredEventLog(hot_log(url), archive_at(folder), Counter())
    await log.start()
    try:
        yield log
    finally:
        await log.close()


async def say(log: EventStore, first: int, count: int = EVENTS) -> None:
    for number in range(first, first + count, 3):
        entries = [Entry(f"site/{each % 7}/up", b"%d" % each, f"SN{each % 7}") for each in range(number, number + 3)]
        await log.append(Shard("events", number % 2), entries)


async def all_of(log: EventStore, topic_filter: str = "#") -> list[Event]:
    """Return what readers see of all shards."""
    found: list[Event] = []
    for number in (0, 1):
        after, more = 0, True
        while more:
            part = await log.read(Shard("events", number), Reading(topic_filter, after), 50)
            assert [event.position for event in part.events] == sorted({event.position for event in part.events})
            assert not part.more or part.position > after
            found += part.events
            after, more = part.position, part.more
    return found


def numbers(events: Sequence[Event]) -> list[int]:
    return sorted(int(event.entry.value) for event in events)


async def only(log: EventStore, number: int) -> Generation:
    (found,) = [one for one in await log.generations("events") if one.number == number]
    return found


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("shard=*.parquet")}


async def named(log: EventStore) -> set[str]:
    return {path_of("events", one.number, file) for one in await log.generations("events") for file in one.files}


def cool_and_die(url: str, folder: Path, step: str) -> int:
    command = [sys.executable, "-m", "tests.contract.cools_and_dies", url, str(folder), step]
    return subprocess.run(command, check=False, cwd=Path.cwd(), env={"PYTHONPATH": str(Path.cwd())}).returncode


@pytest.mark.parametrize("step", STEPS)
async def test_a_death_in_between_leaves_each_event_in_exactly_one_tier(url: str, step: str, tmp_path: Path) -> None:
    cold = tmp_path / "cold"
    async with opened(url, cold) as log:
        await say(log, 0)
        await log.rotate("events", 1)
        await say(log, EVENTS)
        before = await all_of(log)
    assert await asyncio.to_thread(cool_and_die, url, cold, step) == -signal.SIGKILL
    async with opened(url, cold) as log:
        assert await all_of(log) == before
        await cooler_of(log, log._archive).look()
        assert (await only(log, 1)).state is GenerationState.COLD
        assert await all_of(log) == before
        assert files_in(cold) == await named(log)
        assert numbers(before) == list(range(2 * EVENTS))
        one, other = [await all_of(log, f"site/{number}/up") for number in (3, 4)]
        assert numbers(one + other) == [number for number in range(2 * EVENTS) if number % 7 in {3, 4}]


async def test_a_log_that_forgets_before_the_catalogue_names_the_files_is_found_out(
    redis_server: RedisProcess, tmp_path: Path
) -> None:
    """The test above finds the mistake that it is there for, which a death brings to light."""
    async with Redis.from_url(redis_server.url) as client:
        await client.flushall()
    url, cold = redis_server.node_url, tmp_path / "cold"
    async with opened(url, cold) as log:
        await say(log, 0)
        await log.rotate("events", 1)
        await say(log, EVENTS)
    assert await asyncio.to_thread(cool_and_die, url, cold, FORGOTTEN_FIRST) == -signal.SIGKILL
    async with opened(url, cold) as log:
        assert numbers(await all_of(log)) == list(range(EVENTS, 2 * EVENTS))


async def test_what_is_cold_is_nowhere_else(url: str, tmp_path: Path) -> None:
    async with opened(url, tmp_path / "cold") as log:
        await say(log, 0)
        await log.rotate("events", 1)
        await cooler_of(log, log._archive).look()
    for path in (tmp_path / "cold").rglob("*.parquet"):
        path.unlink()
    async with opened(url, tmp_path / "cold") as log:
        assert await all_of(log) == []


async def test_pages_that_end_within_an_hour_leave_nothing_out_whatever_was_read_before(
    url: str, tmp_path: Path
) -> None:
    """Row groups overlap in time, as they are in the order of topics: another end or beginning reads others of them."""
    async with opened(url, tmp_path / "cold") as log:
        assert isinstance(log._archive, ParquetArchive)
        log._archive.group_events = 8
        await say(log, 0, 90)
        await log.rotate("events", 1)
        shard = Shard("events", 0)
        places = [event.position for event in (await log.read(shard, Reading(), 1000)).events]
        await cooler_of(log, log._archive).look()
        for after in places[::3]:
            for until in places[::4]:
                found = (await log.read(shard, Reading(after=after, until=until), 1000)).events
                assert [one.position for one in found] == [one for one in places if after < one <= until]


async def test_events_of_damaged_and_missing_files_are_named_when_they_are_picked(url: str, tmp_path: Path) -> None:
    cold = tmp_path / "cold"
    async with opened(url, cold) as log:
        for number in range(3):
            await say(log, number * EVENTS)
            await log.rotate("events", number + 1)
        await cooler_of(log, log._archive).look()
        files = [next(file for file in one.files if file.shard == 0) for one in (await log.generations("events"))[:3]]
        (cold / path_of("events", 1, files[0])).write_bytes(b"PAR1")
        (cold / path_of("events", 2, files[1])).unlink()
    async with opened(url, cold) as log:
        ends = [file.last for file in files]
        for _ in range(2):
            picked = await log.pick(Shard("events", 0), [ends[2], ends[0], ends[1] - 1, ends[1], ends[2] - 1])
            assert sorted(picked.events) == [ends[2] - 1, ends[2]]
            assert sorted(picked.damaged) == [ends[0], ends[1] - 1, ends[1]]
        notes = [[file.note for file in one.files if file.note] for one in (await log.generations("events"))[:3]]
        assert [len(one) for one in notes] == [1, 1, 0]
    hot = hot_log(url)
    await hot.start()
    picked = await hot.pick(Shard("events", 0), ends)
    await hot.close()
    assert (dict(picked.events), picked.archived) == ({}, ends[2]), "a node without the cold tier says that it may be"


async def test_damaged_and_missing_files_are_named_and_the_rest_is_served(url: str, tmp_path: Path) -> None:
    cold = tmp_path / "cold"
    async with opened(url, cold) as log:
        for number in range(4):
            await say(log, number * EVENTS)
            await log.rotate("events", number + 1)
        await cooler_of(log, log._archive).look()
        first, second, third, fourth = (await log.generations("events"))[:4]
        of_shard = [next(file for file in one.files if file.shard == 0) for one in (first, second, third)]
        damaged = cold / path_of("events", 1, of_shard[0])
        content = bytearray(damaged.read_bytes())
        content[200:216] = bytes(16)
        damaged.write_bytes(content)
        (cold / path_of("events", 2, of_shard[1])).unlink()
        (cold / path_of("events", 3, of_shard[2])).write_bytes(b"PAR1")
    async with opened(url, cold) as log:
        with capture_logs() as said:
            found = await all_of(log)
        left_out = [number for number in range(3 * EVENTS) if number // 3 * 3 % 2 == 0]
        assert numbers(found) == sorted(set(range(4 * EVENTS)) - set(left_out))
        assert [(one["event"], one["generation"]) for one in said] == [("events_damaged", n) for n in (1, 2, 3)]
        assert "is missing" in said[1]["reason"]
        assert all("shard=00-gen=" in one["reason"] for one in said)
        notes = [[file.note for file in one.files if file.note] for one in (await log.generations("events"))[:4]]
        assert [len(one) for one in notes] == [1, 1, 1, 0]
        assert await all_of(log) == found, "once is enough to know it"
        reader = EventsReader(log, Plan([NamedDatabase("events", timedelta(days=1))], [], 2))
        page = await reader.page("events", "#", Cursor((of_shard[1].last, of_shard[1].last)), 10)
        assert page.lost == of_shard[2].last, "whoever passes the place is told"
        assert (await reader.page("events", "#", Cursor((of_shard[2].last, 1)), 10)).lost == 0
        following = Tails(log, reader, Counter(), SystemClock()).follow("events", "#", Cursor((1, 1)))
        batch = await anext(following)
        await following.aclose()
        assert batch.lost >= of_shard[0].last
        assert (await reader.heads("events")).positions == (fourth.files[0].last, fourth.files[1].last)


async def test_a_place_that_does_not_answer_is_no_damage(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(url, tmp_path / "cold") as log:
        await say(log, 0)
        await log.rotate("events", 1)
        await cooler_of(log, log._archive).look()

        def broken(*_: object) -> bytes:
            raise OSError("the network is down")

        with monkeypatch.context() as patched:
            patched.setattr("fsspec.implementations.local.LocalFileOpener.read", broken, raising=False)
            patched.setattr("app.store.parquet.place.CheckedFile.read", _failing)
            with pytest.raises(StoreUnavailableError, match="the network is down"):
                await all_of(log)
        assert numbers(await all_of(log)) == list(range(EVENTS))


def _failing(source: object, _size: int = -1) -> bytes:
    source.failed = source._away(OSError("the network is down"))  # type: ignore[attr-defined]
    raise source.failed  # type: ignore[attr-defined]


async def test_what_nobody_names_goes_when_its_time_is_over(url: str, tmp_path: Path) -> None:
    cold = tmp_path / "cold"
    async with opened(url, cold) as log:
        await say(log, 0)
        await log.rotate("events", 1)
        cooler = cooler_of(log, log._archive, timedelta(hours=5))
        await cooler.look()
        there = files_in(cold)
        old, new = cold / "db=events/date=2026-01-01/hour=07", cold / next(iter(there)).rpartition("/")[0]
        old.mkdir(parents=True)
        for folder in (old, new):
            (folder / "shard=00-gen=000077-64412f0b3a400.parquet").write_bytes(b"nobody's")
        (old / "notes.txt").write_text("somebody's")
        cooler._swept = float("-inf")
        await cooler.look()
        assert files_in(cold) == there | {f"{new.relative_to(cold)}/shard=00-gen=000077-64412f0b3a400.parquet"}
        assert (old / "notes.txt").exists()
        await log.drop("events", 1)
        assert await all_of(log) == []
        archive = log._archive
        assert (
            await archive.sweep("events", (await log.append(Shard("events", 0), [Entry("a", b"1")])) + HOUR_US, []) == 3
        )
        assert files_in(cold) == set()


async def test_other_programs_read_the_files_as_a_table(url: str, tmp_path: Path) -> None:
    cold = tmp_path / "cold"
    async with opened(url, cold) as log:
        await say(log, 0)
        await log.append(Shard("events", 1), [Entry("ä/☃", b"\x00\xff", "SN1", "dji:osd", "e-7")])
        await log.rotate("events", 1)
        expected = await all_of(log)
        await cooler_of(log, log._archive).look()
    with duckdb.connect() as connection:
        relation = connection.read_parquet(f"{cold}/*/*/*/*.parquet", hive_partitioning=True).order("logged_at")
        assert set(relation.columns) == {*(column.name for column in COLUMNS), "db", "date", "hour"}
        columns = (
            "epoch_us(logged_at), topic, value, device_id, kind, id, bytes, db, date_part('hour', logged_at) = hour"
        )
        rows = relation.project(columns).fetchall()
    assert [row[:6] for row in rows] == [
        (event.position, entry.topic, entry.value, entry.device or None, entry.kind or None, entry.id or None)
        for event, entry in ((event, event.entry) for event in sorted(expected))
    ]
    assert all(row[6] == len(row[2]) and row[7] == "events" and row[8] for row in rows)


async def test_an_object_store_has_whole_files_or_none() -> None:
    archive = ParquetArchive(ObjectStore("memory://homing-events", SystemClock(), new_secret))

    async def said() -> AsyncIterator[list[Event]]:
        for first in range(0, 50_000, 2_000):
            yield [
                Event(HOUR_US * 500_000 + number * 100_000, 1, Entry(f"site/{number % 999}/up", b"%d" % number))
                for number in range(first, first + 2_000)
            ]

    files = await archive.put(Shard("events", 1), 7, said())
    assert [file.events for file in files] == [36_000, 14_000], "an hour each"
    part = await archive.read("events", 7, files[0], Reading("site/5/up"), 100)
    assert [int(event.entry.value) for event in part.events] == list(range(5, 36_000, 999))
    part = await archive.read("events", 7, files[1], Reading("#", files[1].first + 4), 100)
    assert [int(event.entry.value) for event in part.events] == list(range(36_001, 36_101))
    assert part.more
    assert await archive.sweep("events", files[1].last + HOUR_US, [(7, files[0])]) == 1
    await archive.close()
