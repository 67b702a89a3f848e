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
from app.store.redis.driver.role import RedisRole, open_role
from tests.services import RedisProcess
from tests.stepped_redis import SteppedRedis
from tests.waiting import PATIENCE, eventually

LEASE = timedelta(seconds=PATIENCE)
"""So long that only what a test does takes it away."""
AHEAD = 10**14
"""An epoch that no clock comes to."""
Make = Callable[..., RedisRole]


@pytest.fixture
async def make(redis_server: RedisProcess) -> AsyncIterator[Make]:
    made: list[RedisRole] = []

    def role(lease: timedelta = LEASE, node_id: str = "n1") -> RedisRole:
        holder = f"{node_id} {new_secret()}"
        made.append(
            open_role(redis_server.node_url, "intake", holder, lease=lease, clock=SystemClock(), counters=Counter())
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


async def test_an_epoch_grows_though_its_server_has_forgotten_it(make: Make, redis_server: RedisProcess) -> None:
    """No server is replaced within the millisecond in which it gave an epoch out."""
    role, another = make(LEASE), make(LEASE)
    async with asyncio.timeout(PATIENCE), Redis.from_url(redis_server.url) as client:
        known = 0
        for _ in range(3):  # more than a number that is counted from 1 would reach
            known = await role.hold() or 0
            await role.release()

        async def passed() -> bool:
            seconds, micros = await client.time()
            return seconds * 1000 + micros // 1000 > known

        await eventually(passed)
        await client.delete(keys.epoch("intake"), keys.role("intake"))
        assert (await another.hold() or 0) > known


async def test_an_epoch_grows_though_the_clock_of_its_server_was_set_back(
    make: Make, redis_server: RedisProcess
) -> None:
    async with asyncio.timeout(PATIENCE), Redis.from_url(redis_server.url) as client:
        await client.set(keys.epoch("intake"), AHEAD)
        assert await make(LEASE).hold() == AHEAD + 1


async def test_who_hears_of_a_later_epoch_has_lost_the_role_and_takes_it_above_that(make: Make) -> None:
    """Both are forgotten: the server has no epoch any more, and its clock was set back."""
    role = make(LEASE)
    async with asyncio.timeout(PATIENCE):
        epoch = await role.hold() or 0
        role.outrun(epoch - 1)
        await role.still_held()
        role.outrun(AHEAD)
        await role.lost()
        await role.release()
        assert await role.hold() == AHEAD + 1
        await role.still_held()


async def test_who_hears_of_a_later_epoch_while_he_asks_takes_the_role_above_that(make: Make) -> None:
    role = make(LEASE)
    async with asyncio.timeout(PATIENCE):
        asking = asyncio.create_task(role.hold())
        await asyncio.sleep(0)
        role.outrun(AHEAD)
        assert await asking == AHEAD + 1


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
        assert epoch is not None
        assert later is not None
        assert later > epoch
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
        role = open_role(
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


async def test_one_holds_it_with_a_later_epoch_however_the_clock_of_its_server_is_set() -> None:
    """A lease ends as its clock says: forward it is free at once, and back nobody takes it from who renews it."""
    with SteppedRedis(at_once=True) as server:

        def role(node_id: str, lease: timedelta) -> RedisRole:
            return open_role(server.node_url, "intake", node_id, lease=lease, clock=SystemClock(), counters=Counter())

        first, second = role("n1", timedelta(seconds=4)), role("n2", timedelta(seconds=2))
        async with asyncio.timeout(PATIENCE):
            epoch = await first.hold() or 0
            waiting = asyncio.create_task(second.hold())
            server.clock.step(3600)
            later = await waiting or 0
            await first.lost()
            await first.release()
            server.clock.step(-7200)
            await second.still_held()
            waiting = asyncio.create_task(first.hold())
            await second.release()
            latest = await waiting or 0
            await first.still_held()
        assert epoch < later < latest
        await first.close()
        await second.close()
