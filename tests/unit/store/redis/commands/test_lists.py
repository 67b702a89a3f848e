"""A page costs about what is in it, not what is on record, and goes over a connection of its own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from app.core.commands.command import CommandState
from app.store.commands import Query
from app.store.redis.commands.lists import FIRST_LOOK
from app.store.redis.commands.reader import LOOK
from app.store.redis.commands.store import RedisStateStore
from tests.contract.store_backends import answer, registration
from tests.services import RedisProcess
from tests.stores import redis_store
from tests.unit.assembly import ManualClock

COMMANDS = 1500


@pytest.fixture
async def store(redis_server: RedisProcess) -> AsyncIterator[RedisStateStore]:
    async with Redis.from_url(redis_server.url) as client:
        await client.flushall()
    store = redis_store(redis_server.node_url, budget=timedelta(seconds=30))
    await store.start()
    yield store
    await store.close()


async def fill(store: RedisStateStore, devices: int) -> list[str]:
    """Commands of so many devices; their ids, newest first."""
    chance = random.Random(7)
    ids: list[str] = []
    for _ in range(0, COMMANDS, 500):
        some = [registration(f"dock-{chance.randrange(devices)}", timeout=timedelta(hours=1)) for _ in range(500)]
        made = await asyncio.gather(*(store.register(one) for one in some))
        assert len(made) == len(some)
        ids += [one.command_id for one in some]
    commands = [one for one in await store.get(ids) if one is not None]
    return [one.id for one in sorted(commands, key=lambda one: (one.created_at, one.id), reverse=True)]


@pytest.mark.parametrize("devices", [1, 3, 40, 1000])
async def test_pages_hold_everything_once_however_it_is_spread(store: RedisStateStore, devices: int) -> None:
    wanted = await fill(store, devices)
    found: list[str] = []
    page = await store.list_commands(Query(limit=200))
    while True:
        found += [one.id for one in page.commands]
        if page.cursor is None:
            break
        page = await store.list_commands(Query(limit=200, cursor=page.cursor))
    assert found == wanted


@pytest.mark.parametrize("devices", [1, 40, 1000])
async def test_a_page_reads_few_members_that_are_not_on_it(
    store: RedisStateStore, redis_server: RedisProcess, devices: int
) -> None:
    await fill(store, devices)
    async with Redis.from_url(redis_server.url) as client:
        before = (await client.info("stats"))["total_net_output_bytes"]
        page = await store.list_commands(Query(limit=200))
        sent = (await client.info("stats"))["total_net_output_bytes"] - before
    assert len(page.commands) == 200
    # 256 partitions with a few members each; all of them would be 1,500 members.
    assert sent < 256 * (FIRST_LOOK + 2) * 80 + 4 * 200 * 80 + 200 * 400


async def test_a_page_of_a_state_looks_at_more_than_a_page(redis_server: RedisProcess) -> None:
    clock = ManualClock()  # stands still: no page is short for want of time
    store = redis_store(redis_server.node_url, budget=timedelta(seconds=30), clock=clock)
    async with Redis.from_url(redis_server.url) as client:
        await client.flushall()
    await store.start()
    done = [registration(f"dock-{number}") for number in range(4)]
    for one in done:
        await store.register(one)
        await store.respond(answer(one), "node-a")
    oldest_last = [one.command_id for one in reversed(done)]
    await fill(store, 40)
    try:
        first = await store.list_commands(Query(state=CommandState.SUCCEEDED, limit=3))
        assert [one.id for one in first.commands] == oldest_last[:3]
        rest = await store.list_commands(Query(state=CommandState.SUCCEEDED, limit=3, cursor=first.cursor))
        assert ([one.id for one in rest.commands], rest.cursor) == (oldest_last[3:], None)
        nothing = await store.list_commands(Query(state=CommandState.FAILED, limit=3))
        assert (list(nothing.commands), nothing.cursor) == ([], None)
    finally:
        await store.close()


@pytest.mark.parametrize("bound", ["MOST_LOOKED", "LOOK_SECONDS"])
async def test_it_does_not_look_for_ever(store: RedisStateStore, monkeypatch: pytest.MonkeyPatch, bound: str) -> None:
    wanted = await fill(store, 40)
    monkeypatch.setattr(f"app.store.redis.commands.reader.{bound}", 0)
    page = await store.list_commands(Query(state=CommandState.SUCCEEDED, limit=3))
    assert list(page.commands) == []
    assert page.cursor is not None
    assert page.cursor.endswith(wanted[LOOK - 1])


OWN = ("homing-commands", "homing-lists")


async def test_lists_and_commands_do_not_share_a_connection(store: RedisStateStore, redis_server: RedisProcess) -> None:
    async with Redis.from_url(redis_server.url) as client:
        own = [one for one in await client.client_list() if one["name"] in OWN]
        assert len(own) == 2
        await client.config_resetstat()
        await store.list_commands(Query())
        await store.ping()
        last = {one["id"]: one["cmd"] for one in await client.client_list() if one["name"] in OWN}
    assert max(last.values()) == "zrevrangebyscore"
