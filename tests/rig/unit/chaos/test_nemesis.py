"""The rig's faults: whom they meet, and when."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from homing_rig.chaos.nemesis import Nemesis
from homing_rig.chaos.schedule import INTAKE, Fault, Kind
from homing_rig.chaos.servers import NodeProcess
from tests.waiting import PATIENCE, eventually, turns


class FakeNode:
    """A node that is up at once, and serves when a test says so."""

    frozen = False

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
