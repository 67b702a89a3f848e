"""A role in Redis is held by one at a time, with a number that grows each time that it changes hands."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from app.core.events import keys
from app.runtime.system import SystemClock, new_secret
from app.runtime.tasks import end
from app.store.redis.driver.role import RedisRole
from tests.services import RedisProcess
from tests.waiting import PATIENCE, eventually

LEASE = timedelta(seconds=PATIENCE)
"""So long that only what a test does takes it away."""
Make = Callable[..., RedisRole]


@pytest.fixture
async def make(redis_server: RedisProcess) -> AsyncIterator[Make]:
    made: list[RedisRole] = []

    def role(lease: timedelta = LEASE, node_id: str = "n1") -> RedisRole:
        holder = f"{node_id} {new_secret()}"
        made.append(
            RedisRole(redis_server.node_url, "intake", holder, lease=lease, clock=SystemClock(), counters=Counter())
        )
        return made[-1]

    async with Redis.from_url(redis_server.url) as client:
        await client.flushall()
    yield role
    for one in made:
        await one.close()


async def test_the_next_one_holds_it_when_it_is_released_with_a_later_epoch(make: Make) -> None:
    first, second = make(LEASE), make(timedelta(seconds=1))
    async with asyncio.timeout(PATIENCE):
        epoch = await first.hold()
        await first.still_held()
        waiting = asyncio.create_task(second.hold())
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await first.release()
        later = await waiting
    assert epoch is not None
    assert later is not None
    assert later > epoch


async def test_who_holds_it_again_after_a_loss_has_a_later_epoch(make: Make, redis_server: RedisProcess) -> None:
    role = make(timedelta(seconds=1))
    async with asyncio.timeout(PATIENCE), Redis.from_url(redis_server.url) as client:
        epoch = await role.hold()
        await client.set(keys.role("intake"), "somebody else")
        await role.lost()
        await role.release()
        assert await client.get(keys.role("intake")) == b"somebody else", "it was not ours to give back"
        await client.delete(keys.role("intake"))
        later = await role.hold()
    assert epoch is not None
    assert later is not None
    assert later > epoch


@pytest.mark.parametrize("told", ["before it waits", "while it waits"])
async def test_what_a_dead_node_held_is_taken_without_waiting_for_its_lease(make: Make, told: str) -> None:
    dead, next_one = make(LEASE, "n1"), make(LEASE, "n2")
    async with asyncio.timeout(PATIENCE / 6):
        epoch = await dead.hold()
        if told == "before it waits":
            next_one.gone("n1")
        waiting = asyncio.create_task(next_one.hold())
        if told == "while it waits":
            await asyncio.sleep(0.2)
            next_one.gone("n1")
        later = await waiting
        assert (epoch, later) == (1, 2)
        still = asyncio.create_task(dead.still_held())
        await dead.lost()  # were it alive, it would notice
        still.cancel()


async def test_only_what_the_dead_node_held_is_taken(make: Make) -> None:
    holder, other = make(LEASE, "n10"), make(LEASE, "n2")
    async with asyncio.timeout(PATIENCE):
        await holder.hold()
        waiting = asyncio.create_task(other.hold())
        await asyncio.sleep(0.1)
        other.gone("n1")
        await asyncio.sleep(0.3)
        assert not waiting.done()
        holder.gone("n10")  # who holds it knows better
        await holder.still_held()
        await end([waiting])


async def test_a_holder_that_cannot_renew_in_time_has_lost_it(redis_server: RedisProcess) -> None:
    with RedisProcess() as server:
        role = RedisRole(
            server.node_url,
            "intake",
            "n1",
            lease=timedelta(seconds=1),
            clock=SystemClock(),
            counters=Counter(),
        )
        async with asyncio.timeout(PATIENCE):
            await role.hold()
            await asyncio.to_thread(server.kill)
            await role.lost()
        still = asyncio.create_task(role.still_held())
        await asyncio.sleep(0.1)
        assert not still.done()
        still.cancel()
        await role.close()


async def test_a_lease_is_renewed_for_as_long_as_it_is_held(make: Make, redis_server: RedisProcess) -> None:
    role = make(timedelta(seconds=2))
    async with asyncio.timeout(PATIENCE), Redis.from_url(redis_server.url) as client:
        await role.hold()

        async def renewed() -> bool:
            return bool(await client.pttl(keys.role("intake")) > 1900)

        await client.pexpire(keys.role("intake"), 1800)
        await eventually(renewed)
