"""A node tells each new start of the store's servers what it has claimed, and waits for the other nodes to do so."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Set
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.commands.held import reasserter
from app.commands.held.reasserter import BEYOND_LEASE, KEPT_SECONDS, Reasserter
from app.core.errors import StoreUnavailableError
from app.store.holds import Claimed
from app.store.server_starts import KeptClaim, Reclaimed
from tests.contract.store_backends import ManualClock

LEASE = 5.0


class Servers:
    """The servers of a store. `silent` are nodes that enter nothing."""

    def __init__(self) -> None:
        self.up = {"first"}
        self.reclaimed: list[str] = []
        self.told: dict[str, Set[str]] = {}
        self.away = False
        self.result = Reclaimed.AGAIN

    async def starts(self) -> Set[str]:
        if self.away:
            raise StoreUnavailableError("away")
        return frozenset(self.up)

    async def reclaim(self, kept: KeptClaim, node_id: str) -> Reclaimed:
        assert node_id == "node-a"
        self.reclaimed.append(kept.token)
        return self.result

    async def enter(self, node_id: str, starts: Set[str]) -> None:
        self.told[node_id] = frozenset(starts)

    async def entered(self, node_ids: Set[str]) -> Mapping[str, Set[str]]:
        return {one: self.told.get(one, frozenset()) for one in node_ids}


class Node:
    def __init__(self) -> None:
        self.clock, self.servers, self.counters = ManualClock(), Servers(), Counter[str]()
        self.leased: frozenset[str] = frozenset({"node-a"})
        self.cancelled: list[str] = []
        self.opened = 0
        self.reasserter = Reasserter(
            starts=self.servers,
            cancel=self._cancel,
            directory=cast("Any", SimpleNamespace(nodes=self._nodes, leased=frozenset())),
            node_id="node-a",
            lease=LEASE,
            clock=self.clock,
            counters=self.counters,
        )
        self.directory = self.reasserter._directory
        self.reasserter.settled.add(self._settled)

    async def _nodes(self) -> None:
        cast("Any", self.directory).leased = self.leased

    async def _cancel(self, command_id: str) -> None:
        self.cancelled.append(command_id)

    def _settled(self) -> None:
        self.opened += 1

    def keep(self, token: str, *, forgettable: bool = True) -> None:
        record = (b"state", b"pending") if forgettable else ()
        self.reasserter.keep(Claimed(cast("Any", SimpleNamespace(id=token)), None, record), token)


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture(autouse=True)
def asks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasserter, "ASK_SECONDS", 0)


async def test_nothing_is_claimed_before_the_first_look(node: Node) -> None:
    assert not node.reasserter.ready
    await node.reasserter.look()
    assert node.reasserter.ready
    assert (node.reasserter.told, node.opened) == ({"first"}, 1)


async def test_a_new_start_is_told_of_what_was_claimed_and_cancelled(node: Node) -> None:
    await node.reasserter.look()
    node.keep("one")
    node.keep("two")
    node.reasserter.undone("two")
    node.keep("three", forgettable=False)
    node.reasserter.cancelled("four")
    node.servers.up = {"second"}
    node.reasserter.restarted("second")
    assert not node.reasserter.ready
    await node.reasserter.look()
    assert (node.servers.reclaimed, node.cancelled) == (["one"], ["four"])
    assert node.reasserter.ready
    assert node.reasserter.told == {"first", "second"}
    assert node.counters["held.reasserted.again"] == 1


async def test_a_start_that_is_known_stops_nobody(node: Node) -> None:
    await node.reasserter.look()
    node.reasserter.restarted("first")
    assert node.reasserter.ready


async def test_what_was_claimed_long_ago_is_told_to_nobody(node: Node) -> None:
    await node.reasserter.look()
    node.keep("one")
    node.reasserter.cancelled("two")
    node.clock.now += KEPT_SECONDS + 0.1
    await node.reasserter.look()
    node.servers.up = {"second"}
    await node.reasserter.look()
    assert (node.servers.reclaimed, node.cancelled) == ([], [])


async def test_while_the_store_is_away_nothing_is_forgotten(node: Node) -> None:
    await node.reasserter.look()
    node.keep("one")
    node.servers.away = True
    for _ in range(3):
        node.clock.now += KEPT_SECONDS
        with pytest.raises(StoreUnavailableError):
            await node.reasserter.look()
    node.servers.away, node.servers.up = False, {"second"}
    await node.reasserter.look()
    assert node.servers.reclaimed == ["one"]


async def test_claims_wait_until_every_node_has_told_of_its_own(node: Node) -> None:
    node.leased = frozenset({"node-a", "node-b"})
    look = asyncio.create_task(node.reasserter.look())
    for _ in range(20):
        await asyncio.sleep(0)
    assert node.servers.told == {"node-a": {"first"}}
    assert not node.reasserter.ready
    node.servers.told["node-b"] = frozenset({"first"})
    await look
    assert node.reasserter.ready


async def test_a_node_whose_lease_ran_out_meanwhile_is_waited_for(node: Node) -> None:
    """All leases run out while the store is away for long, and the other node may be the last one to come back."""
    node.leased = frozenset({"node-a", "node-b"})
    node.servers.told["node-b"] = frozenset({"first"})
    await node.reasserter.look()
    node.leased, node.servers.up = frozenset({"node-a"}), {"second"}
    look = asyncio.create_task(node.reasserter.look())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not node.reasserter.ready
    node.servers.told["node-b"] = frozenset({"first", "second"})
    await look


async def test_a_node_that_says_nothing_is_waited_for_as_long_as_a_dead_one_may_live(node: Node) -> None:
    node.leased = frozenset({"node-a", "node-b"})
    look = asyncio.create_task(node.reasserter.look())
    for _ in range(20):
        await asyncio.sleep(0)
    node.clock.now += LEASE + BEYOND_LEASE
    await look
    assert node.reasserter.ready


async def test_no_more_is_kept_than_there_is_room_for(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasserter, "MOST_KEPT", 2)
    await node.reasserter.look()
    for token in ("one", "two", "three"):
        node.keep(token)
    node.servers.up = {"second"}
    await node.reasserter.look()
    assert node.servers.reclaimed == ["two", "three"]
    assert node.counters["drop.kept_claim"] == 1
