"""0.1.0 and this version share a Redis: each reads what the other wrote, and goes on with it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from app.core.cluster.wakekey import WakeKey
from app.core.cluster.wakeup import decode_wake_up
from app.core.commands.command import IfOffline
from app.store.redis.commands.store import RedisStateStore
from tests.contract import speak as voice
from tests.contract.store_reading import ALL_PARTITIONS, NO_GRACE
from tests.previous import previous_version, speak
from tests.services import RedisProcess
from tests.stores import redis_store

RECORDED = json.loads((Path(__file__).parent / "written_by_0_1_0.json").read_text())
"""`speak.py write` with 0.1.0. What it wrote is a fact, so this file is never made anew."""
KEY = WakeKey(b"the cluster's")

IDS = [f"151-01J{number:023d}" for number in range(9)]
NEWEST_FIRST = [
    *("cancelled", "pending", "acknowledged", "running", "unsent"),
    *("cancelled", "succeeded", "failed", "succeeded"),
]


@pytest.fixture
async def client(redis_server: RedisProcess) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_server.url) as client:
        await client.flushall()
        yield client


@pytest.fixture
async def store(redis_server: RedisProcess, client: Redis, counters: Counter[str]) -> AsyncIterator[RedisStateStore]:
    store = redis_store(redis_server.node_url, counters=counters, wake_key=KEY)
    await store.start()
    yield store
    await store.close()


@pytest.fixture
def counters() -> Counter[str]:
    return Counter()


@pytest.fixture(scope="module")
def previous() -> Iterator[Path]:
    with previous_version() as folder:
        yield folder


def seen(told: list[Any]) -> list[Any]:
    """Without the reception's parts, which JSON makes a list of."""
    return [[*one[:-1], one[-1] and one[-1][:2]] for one in json.loads(json.dumps(told))]


async def test_what_0_1_0_wrote_is_read(store: RedisStateStore, client: Redis, counters: Counter[str]) -> None:
    await voice.load(client, RECORDED["keys"])
    told = await voice.read(store)
    assert [(one[0], one[1]) for one in told] == list(zip(reversed(IDS), NEWEST_FIRST, strict=True))
    by_id = {one[0]: one for one in told}
    assert by_id[IDS[0]][2:7] == ["dock-1", "takeoff", "home", '{"height":30}', '{"code":0}']
    assert by_id[IDS[0]][-1][:2] == ["succeeded", "other"]
    assert by_id[IDS[0]][-1][2] == (1_700_000_000_000_000, "id", 42, None)
    assert by_id[IDS[3]][-2] is True
    assert counters["drop.unreadable_record"] == 0


async def test_what_0_1_0_began_is_gone_on_with(store: RedisStateStore, client: Redis, counters: Counter[str]) -> None:
    await voice.load(client, RECORDED["keys"])
    told = await voice.answer_all(store)
    open_ones = [f"151-01J{number:023d}" for number in (7, 6, 5)]
    assert [one for one in told if one[0] in open_ones] == [[one, "won", ["home"]] for one in open_ones]
    assert counters == Counter()


async def test_what_0_1_0_left_overdue_is_swept(store: RedisStateStore, client: Redis, counters: Counter[str]) -> None:
    await voice.load(client, RECORDED["keys"])
    for key in await client.keys("mqtt:due:*"):
        overdue: Any = dict.fromkeys(await client.zrange(key, 0, -1), 1)
        await client.zadd(key, overdue)
    ended = {one.command_id for one in await store.sweep(ALL_PARTITIONS, "sweeper", NO_GRACE)}
    assert ended == {IDS[number] for number in (5, 6, 7)}
    assert counters["drop.unreadable_record"] == 0


def test_what_0_1_0_says_in_wake_ups_is_a_hint_with_an_outcome() -> None:
    told = voice.decode([data for _, data in RECORDED["wake_ups"]])
    assert [one[:3] for one in told] == [
        *([IDS[0], "succeeded", "other"], [IDS[1], "failed", "other"]),
        *([IDS[2], "succeeded", "other"], [IDS[2], "succeeded", "other"]),
        *([IDS[3], "cancelled", None], [IDS[4], "unsent", None], [IDS[8], "cancelled", None]),
    ]
    _, outcome = decode_wake_up(RECORDED["wake_ups"][1][1].encode("latin-1"))
    assert outcome is not None
    assert (outcome.trace, outcome.token) == (voice.TRACE, "")


async def test_what_this_version_says_is_signed(store: RedisStateStore, client: Redis) -> None:
    written = await voice.write(store, client)
    assert len(written["wake_ups"]) == len(RECORDED["wake_ups"])
    for _, data in written["wake_ups"]:
        command_id, outcome = decode_wake_up(data.encode("latin-1"))
        assert outcome is not None
        assert KEY.made(outcome.token, command_id)
    traces = [decode_wake_up(data.encode("latin-1"))[1].trace for _, data in written["wake_ups"]]  # type: ignore[union-attr]
    assert traces == [None, voice.TRACE, *[None] * 5]


async def test_0_1_0_reads_what_this_version_wrote(
    store: RedisStateStore, client: Redis, redis_server: RedisProcess, previous: Path
) -> None:
    written = await voice.write(store, client)
    (failing,) = await store.get([IDS[1]])
    assert failing is not None
    assert failing.if_offline is IfOffline.FAIL
    assert seen(speak(previous, "read", redis_server.node_url)) == seen(await voice.read(store))
    said = speak(previous, "decode", said=[data for _, data in written["wake_ups"]])
    assert said == voice.decode([data for _, data in written["wake_ups"]])
    told = speak(previous, "answer", redis_server.node_url)
    assert sum(one[1] == "won" for one in told) == 3


async def test_the_recorded_bytes_are_those_of_0_1_0(client: Redis, redis_server: RedisProcess, previous: Path) -> None:
    written = speak(previous, "write", redis_server.node_url.replace("homing:change-me@", ""))
    assert set(written["keys"]) == set(RECORDED["keys"])
    assert [channel for channel, _ in written["wake_ups"]] == [channel for channel, _ in RECORDED["wake_ups"]]
    for key, content in RECORDED["keys"].items():
        if isinstance(content, dict):
            assert set(written["keys"][key]) == set(content)
