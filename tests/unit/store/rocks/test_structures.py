"""Structures of the RocksDB log: each generation has its own, they are bounded, and nothing that is read needs them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.core.events import structures
from app.core.events.event import Database, Entry, Shard
from app.core.events.reading import Reading
from app.core.topics import matches
from app.runtime.system import SystemClock
from app.store.rocks import keys, scan
from app.store.rocks.events import RocksEventLog
from app.store.rocks.folder import RocksFolder
from app.store.rocks.rows import keys_from

DATABASE = Database("events", 1, ("taught/+/x",))
SHARD = Shard("events", 0)
FILTERS = (
    *("#", "", "+/+/x", "taught/+/x", "taught/3/x", "made/#", "made/7/#", "made/+/up", "+/7/+", "root7/#", "+"),
    *("made/77/up", "made/7/up/#", "root7/x", "deep/0/0/0/#", "nothing/#", "nothing", "$own/#", "//#"),
)


def said(number: int) -> Entry:
    topic = [
        f"taught/{number % 7}/x",
        f"made/{number}/up",
        f"root{number}/x",
        f"deep/{number % 3}/{number % 5}/{number % 7}/{number}",
        f"$own/{number}",
        f"//{number}/",
        "made",
    ][number % 7]
    return Entry(topic, b"%d" % number)


async def open_log(folder: Path) -> RocksEventLog:
    log = RocksEventLog(RocksFolder(folder), [DATABASE], SystemClock())
    await log.start()
    return log


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[RocksEventLog]:
    log = await open_log(tmp_path)
    yield log
    await log.close()


async def numbers(log: RocksEventLog, topic_filter: str, page: int = 13) -> list[int]:
    found: list[int] = []
    reading, more = Reading(topic_filter), True
    while more:
        part = await log.read(SHARD, reading, page)
        found += [int(event.entry.value) for event in part.events]
        reading, more = Reading(topic_filter, part.position), part.more
    return found


def expected(topic_filter: str, count: int) -> list[int]:
    return [one for one in range(count) if not topic_filter or matches(topic_filter, said(one).topic)]


def saved(log: RocksEventLog) -> set[str]:
    """The structures that 0.2.0 would know."""
    prefix = keys.of_structure("events", "")
    rows = keys_from(log._state.database, prefix)
    return {key[len(prefix) :].decode() for key in rows if key.startswith(prefix)}


@pytest.mark.parametrize("most", [3, 40, 2000])
@pytest.mark.parametrize("merged", [0, 64])
async def test_every_filter_finds_the_same_however_many_there_are(
    tmp_path: Path, most: int, merged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(structures, "MOST", most)
    monkeypatch.setattr(scan, "MOST_MERGED", merged)
    monkeypatch.setattr(scan, "MOST_OF_ALL", merged)
    log = await open_log(tmp_path)
    for first in range(0, 600, 50):
        await log.append(SHARD, [said(number) for number in range(first, first + 50)])
        if first == 300:
            await log.rotate("events", 1)
    assert (structures.OTHERS in await log.structures("events")) is (most < 2000)
    for again in range(2):
        for topic_filter in FILTERS:
            assert await numbers(log, topic_filter) == expected(topic_filter, 600), (topic_filter, again)
        await log.close()
        log = await open_log(tmp_path)
    await log.close()


async def test_they_go_with_their_generation_and_what_varies_is_inherited(log: RocksEventLog) -> None:
    await log.append(SHARD, [Entry(f"made/up{number}/x", b"1") for number in range(40)])
    await log.append(SHARD, [Entry("once", b"1")])
    before = set(await log.structures("events"))
    assert {"taught/+/x", "made/+/x", "made/up3/x", "once"} <= before == saved(log)
    await log.rotate("events", 1)
    await log.append(SHARD, [Entry("made/up3/x", b"2"), Entry("later", b"2")])
    assert await log.structures("events") == sorted({*before, "later"})
    await log.drop("events", 1)
    assert set(await log.structures("events")) == {"taught/+/x", "made/+/x", "later"} == saved(log)
    assert await numbers(log, "made/up3/x") == [2], "where it was before is forgotten as well"


@pytest.mark.parametrize("count", [30, 300])
async def test_topics_of_hundreds_of_levels_share_one_structure(log: RocksEventLog, count: int) -> None:
    """A key has one byte for the place of a level that varies: the 300th one ended whoever appended in 0.2.0."""
    front = "/".join("a" * count)
    await log.append(SHARD, [Entry(f"{front}/x{number}/b", b"%d" % number) for number in range(40)])
    for number in (0, 25, 39):
        assert await numbers(log, f"{front}/x{number}/b") == [number]
    assert len(await numbers(log, f"{front}/+/b")) == 40
    assert len(await numbers(log, "a/#")) == 40
    known = log._state.book("events").current.structures
    assert (structures.OTHERS in known) is (count > structures.DEEPEST)
    assert known._nodes < 100


async def test_a_structure_whose_stream_has_the_name_of_the_others_is_one_of_them(
    log: RocksEventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four bytes can be met on purpose."""
    monkeypatch.setattr(structures, "stream_id", lambda _structure: b"same")
    await log.rotate("events", 1)
    await log.append(SHARD, [Entry("a", b"1"), Entry("b", b"2"), Entry("c/d", b"3")])
    assert [await numbers(log, one) for one in ("a", "b", "c/#", "#")] == [[1], [2], [3], [1, 2, 3]]


async def test_who_makes_topics_up_fills_no_memory(log: RocksEventLog) -> None:
    topics = [f"{one}/{'/'.join(30 * [str(one)])}" for one in range(3_000)]
    for first in range(0, 3_000, 500):
        await log.append(SHARD, [Entry(topic, b"1") for topic in topics[first : first + 500]])
    assert len(await log.structures("events")) <= structures.MOST + 1
    known = log._state.book("events").current.structures
    assert known._nodes <= structures.MOST_NODES
    assert await numbers(log, topics[-1]) == [1]
    assert await numbers(log, "2999/2999/#") == [1]
