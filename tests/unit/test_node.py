"""The life of a node over several incarnations, and what stops it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from app.cluster.directory import NodeInfo
from app.cluster.local import LocalCluster
from app.core.errors import NodeDrainingError, NodeIdTakenError, StoreUnavailableError, UnavailableError
from app.core.messages import Publication
from app.kernel import Adapters, open_kernel
from app.mqtt.base import Puback
from app.mqtt.loopback import LoopbackBroker, LoopbackMqttClient, LoopbackSessionDrain
from app.node import Node, NodeState
from app.runtime.services import STOP, Service, Services
from app.runtime.system import SystemClock, new_charter, new_ulid
from app.settings import load_settings
from app.store.memory.commands.store import MemoryStateStore
from tests.unit.assembly import compose
from tests.waiting import PATIENCE, eventually


class Lease(LocalCluster):
    """A cluster whose lease a test can take away."""

    def __init__(self) -> None:
        super().__init__(new_charter())
        self.joined: list[NodeInfo] = []
        self.claimed: list[NodeInfo] = []
        self.lost = asyncio.Event()
        self.refusal: UnavailableError | None = None
        self.frozen = False
        self.kept: bool | None = None
        """The node's word on its session as it left."""

    async def join(self, node: NodeInfo, *, replaces: NodeInfo | None = None) -> None:
        if self.refusal is not None:
            raise self.refusal
        assert replaces == (self.joined[-1] if self.joined else None)
        self.joined.append(node)
        self.lost.clear()
        await super().join(node, replaces=replaces)

    async def fenced(self) -> None:
        await self.lost.wait()

    async def claim(self, orphan: NodeInfo, right: timedelta, *, lost: bool = False) -> bool:
        self.claimed.append(orphan)
        return False

    async def drain(self) -> None:
        await self._answer()

    async def leave(self, *, session_kept: bool = False) -> None:
        self.kept = session_kept
        await self._answer()

    async def nodes(self) -> Sequence[NodeInfo]:
        await self._answer()
        return await super().nodes()

    async def _answer(self) -> None:
        if self.frozen:
            await asyncio.get_running_loop().create_future()


class Link(LoopbackMqttClient):
    """A client that connects when it may."""

    allowed = True
    deaf = False

    def publish(self, publication: Publication) -> Puback:
        """Its messages come back to nobody, as on a broker that knows no shared subscriptions."""
        return super().publish(replace(publication, topic="elsewhere") if self.deaf else publication)

    def connect(self) -> None:
        if self.allowed:
            super().connect()


class Rig:
    def __init__(self, stop: timedelta = STOP, *more: Service) -> None:
        self.cluster = Lease()
        self.failures: list[BaseException] = []
        broker, counters = LoopbackBroker(), Counter[str]()
        self.link = Link(broker, "first", counters)
        clock = SystemClock()
        adapters = Adapters(
            clock=clock,
            new_ulid=new_ulid,
            counters=counters,
            store=MemoryStateStore(clock),
            open_cluster=lambda _delivery: self.cluster,
            open_mqtt=lambda _client_id, _still_ours: self.link,
            open_drain=lambda client_id: LoopbackSessionDrain(broker, client_id, counters),
        )
        kernel = open_kernel(load_settings(_env_file=None), adapters)
        parts = compose(kernel)
        self.node = Node(parts.membership.parts, Services([*parts.services, *more], self.failures.append), stop)

    def ready(self) -> bool:
        return self.node.state is NodeState.READY


async def test_F15_a_node_that_lost_its_lease_goes_on_as_another_incarnation() -> None:
    rig = Rig()
    await rig.node.start()
    await eventually(rig.ready)
    first = rig.node.info
    rig.cluster.lost.set()
    await eventually(lambda: len(rig.cluster.joined) == 2 and rig.ready())
    assert rig.node.info.node_id == first.node_id
    assert rig.node.info.incarnation != first.incarnation
    assert rig.link.client_id == rig.node.info.client_id != first.client_id
    await rig.node.stop()
    assert rig.failures == []


async def test_F53_a_node_whose_session_was_taken_over_goes_on_as_another_incarnation_at_once() -> None:
    rig = Rig()
    await rig.node.start()
    await eventually(rig.ready)
    first = rig.node.info
    rig.link.take_over()
    await eventually(lambda: len(rig.cluster.joined) == 2 and rig.ready())
    assert rig.link.client_id == rig.node.info.client_id != first.client_id
    await eventually(lambda: rig.cluster.claimed == [first])
    await rig.node.stop()
    assert rig.failures == []


async def test_a_node_is_not_ready_before_its_canaries_come_back() -> None:
    rig = Rig()
    rig.link.deaf = True
    await rig.node.start()
    await eventually(rig.ready)
    health = await rig.node.health()
    assert not health.ready
    assert "has come back yet" in health.checks["canary"]
    rig.link.deaf = False

    async def ready() -> bool:
        return (await rig.node.health()).ready

    await eventually(ready)
    await rig.node.stop()


async def test_F15_a_lease_may_be_lost_before_there_is_a_connection() -> None:
    rig = Rig()
    rig.link.allowed = False
    await rig.node.start()
    rig.cluster.lost.set()
    await eventually(lambda: len(rig.cluster.joined) == 2)
    assert rig.node.state is NodeState.STARTING
    rig.link.allowed = True
    rig.link.connect()
    await eventually(rig.ready)
    await rig.node.stop()


async def test_a_node_whose_store_is_away_waits_for_it_and_takes_no_commands() -> None:
    rig = Rig()
    rig.cluster.refusal = StoreUnavailableError("away")
    await rig.node.start()
    with pytest.raises(UnavailableError, match="starting"):
        rig.node.admit()
    rig.cluster.refusal = None
    await eventually(rig.ready)
    await rig.node.stop()


async def test_F53_a_taken_node_id_ends_the_start() -> None:
    rig = Rig()
    rig.cluster.refusal = NodeIdTakenError("n1")
    with pytest.raises(NodeIdTakenError):
        await rig.node.start()


async def test_F53_a_node_id_that_is_taken_meanwhile_ends_the_node() -> None:
    rig = Rig()
    await rig.node.start()
    await eventually(rig.ready)
    rig.cluster.refusal = NodeIdTakenError("n1")
    rig.cluster.lost.set()
    await eventually(lambda: bool(rig.failures))
    assert isinstance(rig.failures[0], NodeIdTakenError)
    await rig.node.stop()


async def test_a_node_stops_in_time_though_the_cluster_is_frozen() -> None:
    rig = Rig(stop=timedelta(milliseconds=200))
    await rig.node.start()
    await eventually(rig.ready)
    rig.cluster.frozen = True
    async with asyncio.timeout(PATIENCE):
        await rig.node.stop()
    assert rig.node.state is NodeState.STOPPED


async def test_F70_a_draining_node_serves_on_until_it_is_closed() -> None:
    rig = Rig()
    await rig.node.start()
    await eventually(rig.ready)
    draining = asyncio.create_task(rig.node.drain(timedelta(seconds=0.5)))
    await asyncio.sleep(0)
    assert rig.node.state is NodeState.DRAINING
    rig.node.admit()
    assert not (await rig.node.health()).ready
    await draining
    with pytest.raises(NodeDrainingError):
        rig.node.admit()
    await rig.node.stop()


@pytest.mark.parametrize("keeps", [False, True])
async def test_a_session_that_a_part_leaves_at_the_broker_is_told_for_whoever_adopts_it(*, keeps: bool) -> None:
    rig = Rig(STOP, Service("events", keeps=lambda: keeps))
    await rig.node.start()
    await eventually(rig.ready)
    await rig.node.stop()
    assert rig.cluster.kept is keeps
