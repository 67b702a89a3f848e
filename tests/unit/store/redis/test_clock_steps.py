"""The clock of a real Redis is set while commands wait: none ends early, and none waits for ever."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from redis.asyncio import Redis

from app.core.commands.approval import ApprovalDecision
from app.core.commands.callback import Registration
from app.core.commands.command import CommandState
from app.core.commands.routing import Outcome
from app.core.errors import DeviceBusyError
from app.store.commands import Joined, Query, Registered
from app.store.holds import Claimed
from app.store.redis.commands.store import RedisStateStore
from tests.contract.store_backends import by_order, registration
from tests.contract.store_reading import ALL_PARTITIONS, NO_GRACE
from tests.stepped_redis import SteppedRedis
from tests.stores import redis_store
from tests.waiting import eventually

TEN_MINUTES = 600
SOON = timedelta(milliseconds=50)
LONG = timedelta(minutes=5)
HOUR = timedelta(hours=1)
"""Keys end by Redis's clock: a retention must be longer than a step forward, or what is on record is gone."""


@pytest.fixture(scope="module")
def server() -> Iterator[SteppedRedis]:
    with SteppedRedis(at_once=True) as server:
        yield server


@pytest.fixture
def counters() -> Counter[str]:
    return Counter()


@pytest.fixture
async def store(server: SteppedRedis, counters: Counter[str]) -> AsyncIterator[RedisStateStore]:
    server.clock.right()
    async with Redis.from_url(server.url) as client:
        await client.flushall()
    store = redis_store(server.node_url, counters=counters, budget=timedelta(seconds=20))
    await store.start()
    assert await sweep(store) == []
    yield store
    await store.close()


async def sweep(store: RedisStateStore) -> list[Outcome]:
    return await store.sweep(ALL_PARTITIONS, "sweeper", NO_GRACE)


async def registered(store: RedisStateStore, count: int, timeout: timedelta) -> list[Registration]:
    wanted = [registration(f"dock-{number}", timeout=timeout, retention=HOUR) for number in range(count)]
    for one in wanted:
        assert isinstance(await store.register(one), Registered)
    return wanted


async def ended(store: RedisStateStore, *wanted: Registration) -> None:
    """Return when the sweep has ended just these."""
    seen: set[str] = set()

    async def look() -> bool:
        seen.update(one.command_id for one in await sweep(store))
        return len(seen) >= len(wanted)

    await eventually(look)
    assert seen == {one.command_id for one in wanted}


@pytest.mark.parametrize("step", [TEN_MINUTES, -TEN_MINUTES, 3, -3])
async def test_a_step_ends_no_command_that_waits(
    server: SteppedRedis, store: RedisStateStore, counters: Counter[str], step: int
) -> None:
    waiting = await registered(store, 20, LONG)
    server.clock.step(step)
    for _ in range(3):
        assert await sweep(store) == []
    assert await store.outcomes([one.command_id for one in waiting]) == [None] * 20
    assert counters["store.clock_steps"] == 1


@pytest.mark.parametrize("step", [3600, -3600])
async def test_c128_a_step_lets_nothing_lapse_that_is_held(
    server: SteppedRedis, store: RedisStateStore, step: int
) -> None:
    held = [registration(f"dock-{number}", held=LONG, retention=3 * HOUR) for number in range(20)]
    for one in held:
        assert isinstance(await store.register(one), Registered)
    server.clock.step(step)
    for _ in range(3):
        assert await sweep(store) == []
    assert {one.command_id for one in await store.held()} == {one.command_id for one in held}


@pytest.mark.parametrize("step", [TEN_MINUTES, -TEN_MINUTES])
async def test_what_a_dead_node_left_before_the_step_ends_when_its_time_has_passed(
    server: SteppedRedis, store: RedisStateStore, step: int
) -> None:
    before = await registered(store, 3, timedelta(seconds=1))
    still_waiting = await registered(store, 3, LONG)
    server.clock.step(step)
    assert await sweep(store) == []
    await ended(store, *before)
    assert await store.outcomes([one.command_id for one in still_waiting]) == [None] * 3


@pytest.mark.parametrize("step", [TEN_MINUTES, -TEN_MINUTES])
async def test_what_a_dead_node_left_after_the_step_ends_at_its_deadline(
    server: SteppedRedis, store: RedisStateStore, step: int
) -> None:
    server.clock.step(step)
    assert await sweep(store) == []
    await asyncio.sleep(2.1)  # as long as the ends of an era are not known exactly
    await ended(store, *await registered(store, 3, SOON))


async def test_a_step_between_the_look_at_the_clock_and_the_sweep_ends_nothing(
    server: SteppedRedis, store: RedisStateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = await registered(store, 20, LONG)
    lanes = store._lanes
    look = lanes.now

    async def look_and_step(key: str = "") -> int:
        now = await look(key)
        server.clock.step(TEN_MINUTES)
        return now

    monkeypatch.setattr(lanes, "now", look_and_step)
    assert await sweep(store) == []
    monkeypatch.undo()
    assert await sweep(store) == []
    assert await store.outcomes([one.command_id for one in waiting]) == [None] * 20


async def test_more_commands_than_a_sweep_looks_at_wait_and_do_not_hide_what_is_overdue(
    server: SteppedRedis, store: RedisStateStore
) -> None:
    for _ in range(150):
        await store.register(registration("dock-1", timeout=LONG, retention=HOUR))
    server.clock.step(TEN_MINUTES)
    assert await sweep(store) == []
    await asyncio.sleep(2.1)
    overdue = registration("dock-1", timeout=SOON)
    await store.register(overdue)
    await ended(store, overdue)


async def test_a_quarantine_does_not_grow_by_a_step_backwards(server: SteppedRedis, store: RedisStateStore) -> None:
    def one() -> Registration:
        return registration("dock-1", by_order(), quarantine=timedelta(seconds=1), timeout=LONG)

    first = one()
    await store.register(first)
    await store.finish(first.command_id, CommandState.CANCELLED, "node-b")
    server.clock.step(-TEN_MINUTES)
    with pytest.raises(DeviceBusyError):
        await store.register(one())

    async def free() -> bool:
        try:
            return isinstance(await store.register(one()), Registered)
        except DeviceBusyError:
            return False

    await eventually(free)


async def held(store: RedisStateStore, lasts: timedelta = LONG, **more: Any) -> str:
    one = registration(held=lasts, retention=HOUR, **more)
    assert isinstance(await store.register(one), Registered)
    return one.command_id


@pytest.mark.parametrize("step", [TEN_MINUTES, -TEN_MINUTES])
@pytest.mark.parametrize("swept", [True, False], ids=["known", "just-now"])
async def test_what_is_held_is_claimed_whatever_was_set_meanwhile(
    server: SteppedRedis, store: RedisStateStore, counters: Counter[str], step: int, *, swept: bool
) -> None:
    identity = await held(store)
    server.clock.step(step)
    if swept:
        assert await sweep(store) == []
    assert isinstance(await store.claim(identity, "node-a", "first"), Claimed)
    assert counters["store.clock_steps"] == 1


@pytest.mark.parametrize("step", [TEN_MINUTES, -TEN_MINUTES])
async def test_what_was_held_to_its_end_is_claimed_by_nobody(
    server: SteppedRedis, store: RedisStateStore, step: int
) -> None:
    identity = await held(store, SOON)
    server.clock.step(step)
    await asyncio.sleep(2 * SOON.total_seconds())
    assert await store.claim(identity, "node-a", "first") is None
    assert [one.command_id for one in await sweep(store)] == [identity]


async def test_a_command_that_is_claimed_after_a_step_backwards_has_its_whole_time(
    server: SteppedRedis, store: RedisStateStore
) -> None:
    identity = await held(store, timeout=LONG)
    server.clock.step(-TEN_MINUTES)
    assert await sweep(store) == []
    assert isinstance(await store.claim(identity, "node-a", "first"), Claimed)
    assert await sweep(store) == []
    assert await store.outcomes([identity]) == [None]


async def test_a_command_that_a_dead_node_claimed_after_a_step_forward_ends_at_its_deadline(
    server: SteppedRedis, store: RedisStateStore
) -> None:
    identity = await held(store, timeout=SOON)
    server.clock.step(TEN_MINUTES)
    assert await sweep(store) == []
    assert isinstance(await store.claim(identity, "node-a", "first"), Claimed)

    async def ended() -> bool:
        return [one.state for one in await sweep(store)] == [CommandState.TIMED_OUT]

    await eventually(ended)


@pytest.mark.parametrize("step", [TEN_MINUTES, -TEN_MINUTES])
async def test_a_second_person_decides_whatever_was_set_meanwhile(
    server: SteppedRedis, store: RedisStateStore, step: int
) -> None:
    identity, too_late = await held(store, approval=LONG), await held(store, approval=SOON)
    server.clock.step(step)
    await asyncio.sleep(2 * SOON.total_seconds())
    yes = ApprovalDecision(approves=True, who='["key"]', name="anna", note="")
    assert (await store.decide(identity, yes, "node-a")).won
    assert not (await store.decide(too_late, yes, "node-a")).won
    assert isinstance(await store.claim(identity, "node-a", "first"), Claimed)


@pytest.mark.parametrize("step", [TEN_MINUTES, -TEN_MINUTES])
async def test_lists_are_paged_through_and_keys_are_known_whichever_way_the_clock_went(
    server: SteppedRedis, store: RedisStateStore, step: int
) -> None:
    known = registration("dock-1", key="once", fingerprint="same", timeout=LONG, retention=HOUR)
    await store.register(known)
    wanted = {known.command_id}
    for offset in (0, step):
        server.clock.step(offset)
        for number in range(7):
            one = registration(f"dock-{number}", timeout=LONG, retention=HOUR)
            await store.register(one)
            wanted.add(one.command_id)
    again = await store.register(registration("dock-1", key="once", fingerprint="same"))
    assert isinstance(again, Joined)
    assert again.command.id == known.command_id
    assert sorted(await paged(store, None)) == sorted(wanted)
    assert len(await paged(store, "dock-1")) == 3


async def paged(store: RedisStateStore, device: str | None) -> list[str]:
    page = await store.list_commands(Query(limit=4, device_id=device))
    found = [one.id for one in page.commands]
    while page.cursor is not None:
        page = await store.list_commands(Query(limit=4, device_id=device, cursor=page.cursor))
        found += [one.id for one in page.commands]
    return found
