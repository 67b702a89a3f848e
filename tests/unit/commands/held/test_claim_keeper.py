"""A node tells each new start of the store's servers what it has claimed, and waits for the other nodes to do so."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.commands.held import claim_keeper
from app.commands.held.claim_keeper import BEYOND_LEASE, KEPT_SECONDS, ClaimKeeper
from app.core.errors import StoreUnavailableError
from app.store.holds import Claimed, Restarted
from app.store.server_starts import KeptClaim, Reclaimed
from tests.contract.store_backends import ManualClock

LEASE = 5.0


class Servers:
    """The servers of a store. `silent` are nodes that enter nothing."""

    def __init__(self) -> None:
        self.up = {"first"}
        self.reclaimed: list[str] = []
        self.told: dict[str, AbstractSet[str]] = {}
        self.away = False
        self.asked = asyncio.Event()
        self.result = Reclaimed.AGAIN

    async def starts(self) -> AbstractSet[str]:
        self.asked.set()
        if self.away:
            raise StoreUnavailableError("away")
        return frozenset(self.up)

    async def reclaim(self, kept: KeptClaim, node_id: str) -> Reclaimed:
        assert node_id == "node-a"
        self.reclaimed.append(kept.token)
        return self.result

    async def enter(self, node_id: str, starts: AbstractSet[str]) -> None:
        self.told[node_id] = frozenset(starts)

    async def entered(self, node_ids: AbstractSet[str]) -> Mapping[str, AbstractSet[str]]:
        return {one: self.told.get(one, frozenset()) for one in node_ids}


class Store:
    """Lets everything be claimed, but in a start that the claimant does not know."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self.record: tuple[bytes, ...] = (b"state", b"pending")
        self.given_back: list[str] = []

    async def claim(self, command_id: str, node_id: str, token: str, starts: AbstractSet[str]) -> Claimed | Restarted:
        assert (node_id, token) == ("node-a", command_id)
        if unknown := self._servers.up - starts:
            return Restarted(unknown.pop())
        return Claimed(cast("Any", SimpleNamespace(id=token)), None, self.record)

    async def give_back(self, _command_id: str, token: str) -> bool:
        self.given_back.append(token)
        return True


class Node:
    """A node with a claim keeper, whose tokens are the ids of what it claims."""

    def __init__(self) -> None:
        self.clock, self.servers, self.counters = ManualClock(), Servers(), Counter[str]()
        self.leased: frozenset[str] = frozenset({"node-a"})
        self.cancelled: list[str] = []
        self.opened = 0
        self.store = Store(self.servers)
        self.claims = ClaimKeeper(
            store=cast("Any", self.store),
            starts=self.servers,
            cancel=self._cancel,
            directory=cast("Any", SimpleNamespace(nodes=self._nodes, leased=frozenset())),
            node_id="node-a",
            new_secret=lambda: "secret",
            lease=LEASE,
            clock=self.clock,
            counters=self.counters,
        )
        self.directory = self.claims._directory
        self.claims.settled.add(self._settled)

    async def _nodes(self) -> None:
        cast("Any", self.directory).leased = self.leased

    async def _cancel(self, command_id: str) -> None:
        self.cancelled.append(command_id)

    def _settled(self) -> None:
        self.opened += 1

    async def claim(self, *ids: str) -> None:
        for one in ids:
            assert isinstance(await self.claims.claim(one, one), Claimed)


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture(autouse=True)
def asks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_keeper, "ASK_SECONDS", 0)


async def test_nothing_is_claimed_before_the_first_look(node: Node) -> None:
    assert not node.claims.ready
    with pytest.raises(StoreUnavailableError):
        await node.claims.claim("one", "one")
    await node.claims.look()
    assert (node.claims.ready, node.opened) == (True, 1)
    await node.claim("one")


async def test_a_new_start_is_told_of_what_was_claimed_and_cancelled(node: Node) -> None:
    await node.claims.look()
    await node.claim("one", "two")
    await node.claims.give_back("two", "two")
    assert node.store.given_back == ["two"]
    node.claims.cancelled("four")
    node.servers.up = {"second"}
    with pytest.raises(StoreUnavailableError) as refused:
        await node.claims.claim("five", "five")
    assert not refused.value.asked, "so it needs not be undone"
    assert not node.claims.ready
    await node.claims.look()
    assert (node.servers.reclaimed, node.cancelled) == (["one"], ["four"])
    assert node.claims.ready
    assert node.counters["held.reasserted.again"] == 1
    await node.claim("five")


async def test_of_a_store_that_forgets_nothing_no_claim_is_kept(node: Node) -> None:
    await node.claims.look()
    node.store.record = ()
    await node.claim("one")
    assert node.claims.fills()["kept_claims"].size == 0


async def test_what_was_claimed_long_ago_is_told_to_nobody(node: Node) -> None:
    await node.claims.look()
    await node.claim("one")
    node.claims.cancelled("two")
    node.clock.now += KEPT_SECONDS + 0.1
    await node.claims.look()
    node.servers.up = {"second"}
    await node.claims.look()
    assert (node.servers.reclaimed, node.cancelled) == ([], [])


async def test_a_command_that_is_cancelled_again_keeps_no_other_from_being_forgotten(node: Node) -> None:
    await node.claims.look()
    node.claims.cancelled("one")
    node.claims.cancelled("two")
    node.clock.now += KEPT_SECONDS
    node.claims.cancelled("one")
    node.clock.now += 0.1
    await node.claims.look()
    node.servers.up = {"second"}
    await node.claims.look()
    assert node.cancelled == ["one"]


async def test_what_was_claimed_in_a_new_start_has_a_failed_look_followed_at_once(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_keeper, "LOOK_SECONDS", 3600)
    monkeypatch.setattr(claim_keeper, "ASK_SECONDS", 3600)
    settled = asyncio.Event()
    node.claims.settled.add(settled.set)
    node.servers.away = True
    run = asyncio.create_task(node.claims.run())
    await node.servers.asked.wait()
    node.servers.away = False
    with pytest.raises(StoreUnavailableError):
        await node.claims.claim("one", "one")
    async with asyncio.timeout(10):
        await settled.wait()
    run.cancel()


async def test_while_the_store_is_away_nothing_is_forgotten(node: Node) -> None:
    await node.claims.look()
    await node.claim("one")
    node.servers.away = True
    for _ in range(3):
        node.clock.now += KEPT_SECONDS
        with pytest.raises(StoreUnavailableError):
            await node.claims.look()
    node.servers.away, node.servers.up = False, {"second"}
    await node.claims.look()
    assert node.servers.reclaimed == ["one"]


async def test_claims_wait_until_every_node_has_told_of_its_own(node: Node) -> None:
    node.leased = frozenset({"node-a", "node-b"})
    look = asyncio.create_task(node.claims.look())
    for _ in range(20):
        await asyncio.sleep(0)
    assert node.servers.told == {"node-a": {"first"}}
    assert not node.claims.ready
    node.servers.told["node-b"] = frozenset({"first"})
    await look
    assert node.claims.ready


async def test_a_node_whose_lease_ran_out_meanwhile_is_waited_for(node: Node) -> None:
    """All leases run out while the store is away for long, and the other node may be the last one to come back."""
    node.leased = frozenset({"node-a", "node-b"})
    node.servers.told["node-b"] = frozenset({"first"})
    await node.claims.look()
    node.leased, node.servers.up = frozenset({"node-a"}), {"second"}
    look = asyncio.create_task(node.claims.look())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not node.claims.ready
    node.servers.told["node-b"] = frozenset({"first", "second"})
    await look


async def test_a_node_that_says_nothing_is_waited_for_as_long_as_a_dead_one_may_live(node: Node) -> None:
    node.leased = frozenset({"node-a", "node-b"})
    look = asyncio.create_task(node.claims.look())
    for _ in range(20):
        await asyncio.sleep(0)
    node.clock.now += LEASE + BEYOND_LEASE
    await look
    assert node.claims.ready


async def test_no_more_is_kept_than_there_is_room_for(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_keeper, "MOST_KEPT", 2)
    await node.claims.look()
    await node.claim("one", "two", "three")
    node.servers.up = {"second"}
    await node.claims.look()
    assert node.servers.reclaimed == ["two", "three"]
    assert node.counters["drop.kept_claim"] == 1
