"""A write of a broker that is too large for one step of Redis is there or not, wherever it is cut off."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

import pytest
from redis.asyncio import Redis

from app.core.errors import BrokerTakenOverError, StoreUnavailableError
from app.core.keys import broker_ahead
from app.store.redis import sessions
from app.store.redis.driver.lane import Argument, Script
from app.store.redis.sessions import RedisSessions, parts_of
from app.store.sessions import SessionStore
from tests.contract.session_places import NAME, RedisPlace
from tests.contract.test_sessions import ROLE, redis_place, started
from tests.services import RedisProcess

AHEAD = broker_ahead(f"{NAME}-broker")
OLD = {b"t%d" % one: b"old" for one in range(5)}
LARGE = {b"t0": None, b"t1": b"", b"t2": b"-", b"t3": b"+", b"t9": b"new"}
NEW = {b"t1": b"", b"t2": b"-", b"t3": b"+", b"t4": b"old", b"t9": b"new"}
PARTS = 3
STEPS = PARTS + 1 + PARTS + 1
"""Parts that are kept ahead, one that makes them count, those that become rows, one that forgets them."""


@pytest.fixture
async def on_redis(redis_server: RedisProcess, monkeypatch: pytest.MonkeyPatch) -> RedisPlace:
    monkeypatch.setattr(sessions, "PART_ROWS", 2)
    return await redis_place(redis_server)


class Cut:
    """Between a store and its Redis, where `happen` happens instead of the step after so many."""

    def __init__(self, store: SessionStore, steps: int, happen: Callable[[], Awaitable[object]]) -> None:
        assert isinstance(store, RedisSessions)
        self.left = steps
        self._happen = happen
        self._run = store._redis.run_script
        store._redis.run_script = self.run_script  # type: ignore[method-assign] # nothing else is between two steps

    async def run_script(
        self, script: Script, keys: Sequence[str], arguments: Sequence[Argument], budget: float | None
    ) -> object:
        self.left -= 1
        if self.left == -1:
            await self._happen()
        found: object = await self._run(script, keys, arguments, budget)
        return found


async def away() -> None:
    raise StoreUnavailableError("cut")


@pytest.mark.parametrize("steps", range(STEPS))
async def test_the_next_process_has_all_of_it_or_nothing(
    on_redis: RedisPlace, redis_server: RedisProcess, steps: int
) -> None:
    first, second = on_redis.open(), on_redis.open()
    async with started(first), Redis.from_url(redis_server.url) as client:
        await first.write(OLD)
        Cut(first, steps, away)
        with suppress(StoreUnavailableError):
            await first.write(LARGE)
        await client.delete(ROLE)  # it was killed there
        async with started(second) as rows:
            assert rows == (NEW if steps > PARTS else OLD)
            assert not await client.exists(AHEAD)
            with pytest.raises(BrokerTakenOverError):
                await first.write(LARGE)
            await second.write({b"t4": None})
        async with started(on_redis.open()) as again:
            assert again == {key: row for key, row in rows.items() if key != b"t4"}


@pytest.mark.parametrize("steps", range(STEPS))
@pytest.mark.parametrize("more", [{}, {b"t5": b"5", b"t6": b"6"}])
async def test_it_is_written_again_with_what_has_changed_since(
    on_redis: RedisPlace, redis_server: RedisProcess, steps: int, more: Mapping[bytes, bytes]
) -> None:
    store = on_redis.open()
    async with started(store), Redis.from_url(redis_server.url) as client:
        await store.write(OLD)
        Cut(store, steps, away)
        with suppress(StoreUnavailableError):
            await store.write(LARGE)
        await store.write({**LARGE, b"t9": b"newer", **more})
        assert not await client.exists(AHEAD)
    async with started(on_redis.open()) as rows:
        assert rows == {**NEW, b"t9": b"newer", **more}


@pytest.mark.parametrize("steps", range(STEPS))
async def test_parts_that_redis_has_forgotten_count_for_nothing(
    on_redis: RedisPlace, redis_server: RedisProcess, steps: int
) -> None:
    """As a replica does that was promoted before it had the last of them."""
    store = on_redis.open()
    async with started(store), Redis.from_url(redis_server.url) as client:
        await store.write(OLD)
        Cut(store, steps, lambda: client.delete(AHEAD))
        if 0 < steps <= PARTS:
            with pytest.raises(BrokerTakenOverError, match="Redis has forgotten"):
                await store.write(LARGE)
        else:
            await store.write(LARGE)
    async with started(on_redis.open()) as rows:
        assert rows == (OLD if 0 < steps <= PARTS else NEW)


def test_no_part_has_more_rows_or_bytes_than_redis_writes_in_a_moment() -> None:
    many = {b"m%06d" % one: None if one % 2 else b"x" for one in range(4_500)}
    assert [len(one) for one in parts_of(many)] == [2_000, 2_000, 500]
    assert {key: row for part in parts_of(many) for key, row in part.items()} == many
    assert [len(one) for one in parts_of({b"m%d" % one: bytes(1_500_000) for one in range(5)})] == [2, 2, 1]
    assert [len(one) for one in parts_of({b"m": bytes(9_000_000), b"n": b""})] == [1, 1]
    assert list(parts_of({})) == []
