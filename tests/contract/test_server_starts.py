"""A Redis that was killed has forgotten what was claimed last, and is told of it before anybody claims again (C104)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from app.core.commands.callback import Registration
from app.core.commands.command import Command, CommandState, IfOffline
from app.core.commands.routing import MatchResult
from app.store.commands import Joined, Registered
from app.store.holds import Claimed, Restarted
from app.store.redis.commands.store import RedisStateStore
from app.store.server_starts import KeptClaim, Reclaimed
from tests.contract.store_backends import answer, by_order, by_value, registration
from tests.services import NODE_USER, RedisProcess
from tests.stores import redis_store

HOUR = timedelta(hours=1)
S = CommandState


@dataclass
class Forgetful:
    """Two nodes on a Redis that may forget."""

    redis: RedisProcess
    store: RedisStateStore
    other: RedisStateStore

    async def hold(self, key: str | None = None) -> Registration:
        held = registration("dock-1", by_order(), by_value("v"), held=HOUR, if_offline=IfOffline.HOLD, key=key)
        assert isinstance(await self.store.register(held), Registered)
        return held

    async def claim(self, held: Registration) -> KeptClaim:
        claimed = await self.store.claim(held.command_id, "node-a", "a claim", await self.store.starts.starts())
        assert isinstance(claimed, Claimed)
        return KeptClaim(claimed, "a claim")

    async def of(self, held: Registration) -> Command | None:
        (found,) = await self.store.get([held.command_id])
        return found


@pytest.fixture
def redis() -> Iterator[RedisProcess]:
    with RedisProcess() as server:
        yield server


@pytest.fixture
async def at(redis: RedisProcess) -> AsyncIterator[Forgetful]:
    async with AsyncExitStack() as stack:
        stores = []
        for _ in range(2):
            store = redis_store(redis.node_url)
            await store.start()
            stack.push_async_callback(store.close)
            stores.append(store)
        yield Forgetful(redis, *stores)


async def test_nobody_claims_in_a_start_that_is_not_known(at: Forgetful) -> None:
    held = await at.hold()
    before = await at.store.starts.starts()
    at.redis.restart()
    now = await at.store.starts.starts()
    assert before != now
    assert await at.other.claim(held.command_id, "node-b", "another claim", before) == Restarted(*now)
    assert isinstance(await at.other.claim(held.command_id, "node-b", "another claim", before | now), Claimed)


async def test_a_claim_that_was_forgotten_is_in_place_again(at: Forgetful) -> None:
    held = await at.hold()
    end = at.redis.log_end()
    kept = await at.claim(held)
    at.redis.forget_since(end)
    forgotten = await at.of(held)
    assert forgotten is not None
    assert forgotten.state is S.HELD
    assert await at.store.starts.reclaim(kept, "node-a") is Reclaimed.AGAIN
    assert await at.store.starts.reclaim(kept, "node-a") is Reclaimed.KEPT
    command = await at.of(held)
    assert command is not None
    assert command.hold is not None
    assert (command.state, command.home_node, command.hold.claims) == (S.PENDING, "node-a", 1)
    assert [*await at.store.held()] == []
    assert await at.other.claim(held.command_id, "node-b", "another claim") is None
    assert (await at.other.respond(answer(held), "node-b")).verdict is MatchResult.WON


async def test_a_command_that_was_forgotten_is_on_record_again(at: Forgetful) -> None:
    """So nobody who knows its id or its key makes it anew: a fleet run, or a caller who heard nothing."""
    end = at.redis.log_end()
    held = await at.hold(key="k")
    kept = await at.claim(held)
    at.redis.forget_since(end)
    assert await at.of(held) is None
    assert await at.store.starts.reclaim(kept, "node-a") is Reclaimed.RESTORED
    assert await at.store.starts.reclaim(kept, "node-a") is Reclaimed.KEPT
    command, claimed = await at.of(held), kept.claimed.command
    assert command is not None
    assert (command.state, command.hold, command.created_at) == (S.PENDING, claimed.hold, claimed.created_at)
    joined = await at.other.register(registration("dock-1", by_order(), by_value("v"), held=HOUR, key="k"))
    assert isinstance(joined, Joined)
    assert joined.command.id == held.command_id
    assert await at.store.pending_of("node-a")
    assert (await at.other.respond(answer(held), "node-b")).verdict is MatchResult.WON


async def test_the_time_of_a_command_that_was_restored_ends(at: Forgetful) -> None:
    end = at.redis.log_end()
    held = registration(held=HOUR, timeout=timedelta(milliseconds=1))
    await at.store.register(held)
    kept = await at.claim(held)
    at.redis.forget_since(end)
    await at.store.starts.reclaim(kept, "node-a")
    ended = [one.command_id for one in await at.other.sweep(range(256), "node-b", timedelta())]
    assert ended == [held.command_id]


async def test_what_another_node_has_claimed_since_stays_with_it(at: Forgetful) -> None:
    held = await at.hold()
    end = at.redis.log_end()
    kept = await at.claim(held)
    at.redis.forget_since(end)
    assert isinstance(await at.other.claim(held.command_id, "node-b", "another claim"), Claimed)
    assert await at.store.starts.reclaim(kept, "node-a") is Reclaimed.TAKEN
    command = await at.of(held)
    assert command is not None
    assert command.home_node == "node-b"


@pytest.mark.parametrize("end", ["an outcome", "the claim is undone"])
async def test_what_has_ended_is_let_be(at: Forgetful, end: str) -> None:
    held = await at.hold()
    kept = await at.claim(held)
    if end == "an outcome":
        await at.store.finish(held.command_id, S.TIMED_OUT, "node-a")
    else:
        assert await at.store.give_back(held.command_id, kept.token)
    before = await at.of(held)
    assert await at.store.starts.reclaim(kept, "node-a") is Reclaimed.ENDED
    assert await at.of(held) == before


async def test_each_node_says_which_starts_it_has_told(at: Forgetful) -> None:
    starts = await at.store.starts.starts()
    assert len(starts) == 1
    await at.store.starts.enter("node-a", starts)
    entered = await at.other.starts.entered(frozenset({"node-a", "node-b"}))
    assert entered == {"node-a": starts, "node-b": frozenset()}
    assert at.redis.refusals() == ""


async def test_a_user_without_the_right_to_look_claims_all_the_same(at: Forgetful) -> None:
    """Some who run Redis for others do not let anybody ask which start of it this is."""
    held = await at.hold()
    starts = await at.store.starts.starts()
    at.redis.restart()
    async with Redis.from_url(at.redis.url) as admin:
        await admin.execute_command("ACL", "SETUSER", NODE_USER, "-info")  # type: ignore[no-untyped-call]
    assert await at.store.starts.starts() == set()
    assert isinstance(await at.store.claim(held.command_id, "node-a", "a claim", starts), Claimed)
