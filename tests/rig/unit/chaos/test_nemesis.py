"""The rig's faults: whom they meet, and when."""

from __future__ import annotations

import asyncio
import math
from typing import Any, cast

import pytest

from homing_rig.chaos.nemesis import Nemesis
from homing_rig.chaos.options import ChaosError
from homing_rig.chaos.redis_cluster import RedisThirds
from homing_rig.chaos.redis_pair import RedisPair
from homing_rig.chaos.schedule import DRIVER, INTAKE, REDIS, THIRDS, Fault, Kind
from homing_rig.chaos.servers import NodeProcess
from tests.waiting import PATIENCE, eventually, turns


class FakeNode:
    """A node that is up at once, and serves when a test says so."""

    frozen = False

    def freeze(self) -> None:
        self.frozen = self.running

    def thaw(self) -> None:
        self.frozen = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.running = self.serves = True
        self.kills = 0

    async def ready(self) -> bool:
        return self.running and self.serves

    async def kill(self) -> None:
        self.running = False
        self.kills += 1

    async def spawn(self) -> None:
        self.running = True

    async def until_ready(self, _seconds: float) -> bool:
        return self.serves


class FakeRedis:
    holder = b"n1 first"
    listeners = 0

    async def client_kill_filter(self, _type: str) -> int:
        return self.listeners

    async def get(self, _key: str) -> bytes:
        return self.holder


class Stage:
    def __init__(self) -> None:
        self.nodes = {name: FakeNode(name) for name in ("n1", "n2")}
        self.redis = FakeRedis()
        known = cast("dict[str, NodeProcess]", self.nodes)
        unused: Any = None
        self.nemesis = Nemesis(known, unused, unused, cast("Any", self.redis), {}, lambda *_: None)
        self.nemesis.poll_seconds = 0.001

    def kills(self) -> list[int]:
        return [node.kills for node in self.nodes.values()]


@pytest.fixture
def stage() -> Stage:
    return Stage()


KILL = Fault(0.0, Kind.KILL, INTAKE, 0.001)


async def test_who_was_killed_is_not_the_intake_again_as_redis_still_names_him(stage: Stage) -> None:
    async with asyncio.timeout(PATIENCE):
        await stage.nemesis.run([KILL])
        await eventually(lambda: stage.nodes["n1"].kills == 1 and stage.nodes["n1"].running)
        looking = asyncio.create_task(stage.nemesis.intake())
        await asyncio.sleep(0.05)
        assert not looking.done()
        assert stage.nemesis.takeovers == []
        stage.redis.holder = b"n1 second"  # another process of the same name
        assert await looking == "n1"
        await eventually(lambda: len(stage.nemesis.takeovers) == 1)


async def test_a_kill_waits_until_another_node_can_take_over_and_the_next_ones_are_left_out(stage: Stage) -> None:
    stage.nodes["n2"].serves = False
    async with asyncio.timeout(PATIENCE):
        await stage.nemesis.run([KILL])
        await asyncio.sleep(0.05)
        assert stage.kills() == [0, 0]
        await stage.nemesis.run([KILL])
        await turns()
        assert stage.nemesis.counts["left out"] == 1
        stage.nodes["n2"].serves = True
        await eventually(lambda: stage.kills() == [1, 0])
        stage.redis.holder = b"n2 first"
        await eventually(lambda: len(stage.nemesis.takeovers) == 1)
        assert len(stage.nemesis.begun) == 1


async def test_a_kill_for_which_no_other_node_ever_gets_ready_ends_the_run(stage: Stage) -> None:
    stage.nodes["n2"].serves = False
    stage.nemesis.patience = 0.0
    async with asyncio.timeout(PATIENCE):
        await stage.nemesis.run([KILL])
        with pytest.raises(ChaosError, match="n1 brings events in, and no other node is ready"):
            await stage.nemesis.heal()


class FakePair:
    """A primary whose replica follows when a test says so."""

    def __init__(self) -> None:
        self.whole = True
        self.fail_overs = 0

    async def fail_over(self, _seconds: float) -> float:
        self.fail_overs += 1
        self.whole = False
        return 0.0


async def test_a_primary_whose_replica_does_not_follow_yet_is_let_live(stage: Stage) -> None:
    pair = FakePair()
    stage.nemesis.pair = cast("RedisPair", pair)
    fail_over = Fault(0.0, Kind.FAIL_OVER, REDIS, 0.001)
    async with asyncio.timeout(PATIENCE):
        await stage.nemesis.run([fail_over])
        await eventually(lambda: pair.fail_overs == 1)
        await stage.nemesis.run([fail_over])
        await eventually(lambda: stage.nemesis.counts["left out"] == 1)
        pair.whole = True
        await stage.nemesis.run([fail_over])
        await eventually(lambda: pair.fail_overs == 2)


class FakeThirds:
    """A cluster whose replicas are in step when a test says so."""

    def __init__(self) -> None:
        self.turns = asyncio.Lock()
        self.in_step = asyncio.Event()
        self.met = list[str]()

    async def switch(self, third: str) -> float:
        self.met.append(f"switch {third}")
        await self.in_step.wait()
        return 1.0

    async def fail_over(self, third: str, _seconds: float) -> float:
        self.met.append(f"fail over {third}")
        await self.in_step.wait()
        return 2.0


SWITCH, FAIL_OVER = Fault(0.0, Kind.SWITCH, THIRDS[1]), Fault(0.0, Kind.FAIL_OVER, THIRDS[1], 0.001)


async def test_a_primary_of_a_cluster_fails_over_when_those_before_it_are_in_step(stage: Stage) -> None:
    thirds = FakeThirds()
    stage.nemesis.thirds = cast("RedisThirds", thirds)
    async with asyncio.timeout(PATIENCE):
        await stage.nemesis.run([SWITCH])
        await eventually(lambda: thirds.met == ["switch third2"])
        await stage.nemesis.run([FAIL_OVER])
        await turns()
        assert thirds.met == ["switch third2"]
        thirds.in_step.set()
        await eventually(lambda: (stage.nemesis.switches, stage.nemesis.returns) == ([1.0], [2.0]))
        assert thirds.met == ["switch third2", "fail over third2"]


async def test_a_fail_over_that_waits_as_the_load_ends_is_left_out(stage: Stage) -> None:
    thirds = FakeThirds()
    stage.nemesis.thirds = cast("RedisThirds", thirds)
    async with asyncio.timeout(PATIENCE):
        await stage.nemesis.run([SWITCH, FAIL_OVER, FAIL_OVER])
        await eventually(lambda: thirds.met)
        first = list(thirds.met)
        healing = asyncio.create_task(stage.nemesis._end_faults())
        await turns()
        thirds.in_step.set()
        await healing
    assert thirds.met == first
    assert stage.nemesis.counts["left out"] == 2


async def test_whoever_drives_is_killed_and_not_once_more_as_redis_still_names_him(stage: Stage) -> None:
    kill = Fault(0.0, Kind.KILL, DRIVER, 0.001)
    stage.nemesis.run_lease = "the lease of a run"
    await over(stage, kill)
    assert stage.kills() == [1, 0]
    async with asyncio.timeout(PATIENCE):
        await stage.nemesis.run([kill])
        await asyncio.sleep(0.05)
        assert stage.kills() == [1, 0]
        stage.redis.holder = b"n2 first"
        await eventually(lambda: stage.kills() == [1, 1])


async def over(stage: Stage, *faults: Fault) -> None:
    async with asyncio.timeout(PATIENCE):
        await stage.nemesis.run(faults)
        await eventually(lambda: not stage.nemesis._under_way)


async def test_a_fault_that_met_nobody_did_not_happen(stage: Stage) -> None:
    cut = Fault(0.0, Kind.CUT_PUBSUB, REDIS)
    kills = [Fault(0.0, Kind.KILL, name) for name in ("n1", "n2")]
    schedule = [cut, *kills]
    assert stage.nemesis.kinds_in_vain(schedule) == [Kind.CUT_PUBSUB, Kind.KILL]  # none has begun
    stage.nodes["n1"].running = False
    await over(stage, kills[0])
    assert Kind.KILL in stage.nemesis.kinds_in_vain(schedule)
    await over(stage, *schedule)
    assert stage.nemesis.kinds_in_vain(schedule) == [Kind.CUT_PUBSUB]
    stage.redis.listeners = 2
    await over(stage, cut)
    assert stage.nemesis.kinds_in_vain(schedule) == []


async def test_who_never_serves_again_has_not_returned_soon(stage: Stage) -> None:
    await over(stage, Fault(0.0, Kind.FREEZE, "n1", 0.001))
    assert stage.nemesis.returns == [pytest.approx(0.0, abs=PATIENCE)]
    stage.nodes["n1"].serves = False
    await over(stage, Fault(0.0, Kind.FREEZE, "n1", 0.001))
    assert stage.nemesis.returns[1] == math.inf
