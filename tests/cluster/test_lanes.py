"""Lanes on real processes: one command after the other leaves, in order, from whichever node, and whoever dies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from tests.cluster.harness import Caller, Cluster, Device, Json, caller, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import eventually

LANE = """
[[lane]]
name = "flight"
methods = ["return_home"]
order = "fifo"
hold = "10m"
"""
DOCK = "SN1"
ANSWER_SECONDS = 0.02


class SlowDock:
    """Answers a while after it got a command, and keeps a book of what it got and what it had in hand then."""

    def __init__(self, *, silent_to: int | None = None) -> None:
        self.got: list[int] = []
        self.together: list[tuple[int, int]] = []
        self._in_hand: set[int] = set()
        self._silent_to = silent_to

    def react(self, device: Device, command: Json) -> None:
        number = command["data"]["n"]
        self.got.append(number)
        self.together += [(other, number) for other in self._in_hand]
        if number != self._silent_to:
            self._in_hand.add(number)
            asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._answer, device, command)

    def _answer(self, device: Device, command: Json) -> None:
        self._in_hand.discard(command["data"]["n"])
        device.answer(command)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    shipped = (resources.files("app.profiles.shipped") / "dji.toml").read_text("utf-8")
    (tmp_path / "dji.toml").write_text(shipped + LANE, encoding="utf-8")
    with (
        MosquittoProcess() as broker,
        RedisProcess() as redis,
        cluster_of(2, redis, broker, HOMING_PROFILES_DIR=str(tmp_path)) as nodes,
    ):
        yield nodes


async def put(client: Caller, count: int, timeout: str) -> list[str]:
    """Send commands to the nodes in turn, and return their ids."""
    ids = []
    for number in range(count):
        status, command = await client.command(
            number, DOCK, {"n": number}, method="return_home", timeout=timeout, Prefer="respond-async"
        )
        assert status == 202
        ids.append(str(command["id"]))
    return ids


async def test_order_is_kept_over_two_nodes_and_a_mute_head_frees_its_lane(cluster: Cluster) -> None:
    dock = SlowDock(silent_to=0)
    async with caller(cluster) as client, devices(cluster.broker, dock.react):
        ids = await put(client, 5, "2s")
        states = [(await client.get(1, one))[1] for one in ids]
        assert [one["state"] == "held" for one in states] == [False, True, True, True, True]
        finals = [await client.final(0, one) for one in ids]
    assert dock.got == [0, 1, 2, 3, 4]
    assert dock.together == []
    assert [one["state"] for one in finals] == ["timed_out", *["succeeded"] * 4]
    assert finals[1]["hold"]["claims"] == 1


async def test_a_node_that_dies_breaks_no_order_and_nothing_is_sent_twice(cluster: Cluster) -> None:
    dock = SlowDock()
    async with caller(cluster) as client, devices(cluster.broker, dock.react) as device:
        ids = await put(client, 40, "2s")
        await eventually(lambda: asyncio.sleep(0, len(dock.got) >= 5))
        cluster.nodes[0].kill()
        cluster.end_lease("n1")
        finals = [await client.final(1, one) for one in ids]
    assert dock.got == sorted(dock.got)
    assert dock.together == []
    assert max(device.executed.values()) == 1
    assert {one["state"] for one in finals} <= {"succeeded", "timed_out"}
    lost = [one["state"] for one in finals].count("timed_out")
    assert lost <= 1, "only what the dead node had in hand"
