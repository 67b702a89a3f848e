"""Turns to ask a device for its state: one a second and device, whichever node asks."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from app.core.identifiers import partition_of
from app.core.keys import asked
from app.store.questions import ASKED_EVERY
from app.store.rules import micros
from app.store.state import StateStore
from tests.contract.store_backends import Backend, RedisBackend, new_id


async def test_one_question_of_a_second_has_the_turn_on_all_nodes(store: StateStore, other_node: StateStore) -> None:
    some = [new_id("dock-1") for _ in range(10)]
    nodes = (store, other_node)
    turns = await asyncio.gather(*(nodes[at % 2].turn_to_ask("dock-1", one) for at, one in enumerate(some)))
    assert set(turns) == {turns[0]}
    assert turns[0] in some
    assert await other_node.turn_to_ask("dock-1", turns[0]) == turns[0]  # as after a reply that got lost


async def test_each_device_has_turns_of_its_own(store: StateStore, other_node: StateStore) -> None:
    for device in ("dock-1", "dock-2", "dock 3/ö"):
        own = new_id(device)
        assert await store.turn_to_ask(device, own) == own
        assert await other_node.turn_to_ask(device, new_id(device)) == own


async def test_a_turn_of_the_future_is_anybodys(backend: Backend, store: StateStore) -> None:
    """As the clock of Redis was set back since; the clock of one process never is."""
    if not isinstance(backend, RedisBackend):
        pytest.skip("it has a clock that is never set back")
    own = new_id("dock-1")
    async with Redis.from_url(backend.node_url) as client:
        ahead = await store.now() + micros(timedelta(hours=1))
        await client.set(asked(partition_of("dock-1"), "dock-1"), f"{ahead} {new_id('dock-1')}", px=3_600_000)
        assert await store.turn_to_ask("dock-1", own) == own
        assert 0 < await client.pttl(asked(partition_of("dock-1"), "dock-1")) <= 1_000


async def test_after_a_second_the_turn_is_anybodys_and_nothing_stays(
    backend: Backend, store: StateStore, other_node: StateStore
) -> None:
    first, second = new_id("dock-1"), new_id("dock-1")
    assert await store.turn_to_ask("dock-1", first) == first
    await backend.advance(ASKED_EVERY + timedelta(milliseconds=1))
    assert await other_node.turn_to_ask("dock-1", second) == second
    assert await store.turn_to_ask("dock-1", first) == second
    await backend.advance(ASKED_EVERY + timedelta(milliseconds=5))
    assert await backend.size() == 0
