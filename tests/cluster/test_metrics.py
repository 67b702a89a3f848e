"""The sums of three nodes are what their client did; dashboard and rules find what they ask for in a real node."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.harness import Caller, Cluster, Device, Json, caller, cluster_of, devices
from tests.project.test_monitoring import LIBRARY, dashboard_queries, metrics_in, recorded, rules
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import PATIENCE, eventually

COMMANDS = 900
SILENT = 15
CANCELLED = 6
ONE_WAY = 9


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with (
        MosquittoProcess() as broker,
        RedisProcess() as redis,
        cluster_of(3, redis, broker, HOMING_LATENCY_LOG_DIR=str(tmp_path)) as nodes,
    ):
        yield nodes


def answer_but_the_silent(device: Device, command: Json) -> None:
    if command["method"] != "silent":
        device.answer(command)


class Sums:
    """The metrics of all nodes, added up."""

    def __init__(self, cluster: Cluster) -> None:
        self.families: set[str] = set()
        self._samples: list[tuple[str, dict[str, str], float]] = []
        for node in cluster.nodes:
            with urllib.request.urlopen(f"{node.url}/metrics", timeout=PATIENCE) as response:  # noqa: S310 - our own http URL
                text = response.read().decode()
            for family in text_string_to_metric_families(text):
                self.families.add(family.name)
                self._samples += [(one.name, one.labels, one.value) for one in family.samples]

    def of(self, name: str, **labels: str) -> float:
        return sum(value for one, its, value in self._samples if one == name and labels.items() <= its.items())

    def knows(self, name: str) -> bool:
        stems = {name, *(name.removesuffix(end) for end in ("_total", "_info", "_bucket", "_sum", "_count"))}
        return bool(stems & self.families) or any(name == one for one, _, _ in self._samples)


async def test_the_sums_are_what_the_client_did(cluster: Cluster) -> None:
    async with devices(cluster.broker, answer_but_the_silent), caller(cluster) as client:
        tally = await client.many(COMMANDS, 32)
        timed_out = await asyncio.gather(
            *(client.command(n, f"SN-S{n}", {}, method="silent", timeout="1s") for n in range(SILENT))
        )
        for number in range(CANCELLED):  # each by another node than its home
            _, sent = await client.command(number, "SN-C", {}, method="silent", Prefer="respond-async")
            await _cancel(client, number + 1, sent["id"])
        for number in range(ONE_WAY):
            assert await _one_way(client, number) == "succeeded"
        await eventually(lambda: Sums(cluster).of("homing_commands_in_flight") == 0)
        sums = Sums(cluster)
    assert tally.states == {"succeeded": COMMANDS}
    assert [status for status, _ in timed_out] == [504] * SILENT

    ended = {state: sums.of("homing_commands_total", outcome=state) for state in ("timed_out", "cancelled", "unsent")}
    assert ended == {"timed_out": SILENT, "cancelled": CANCELLED, "unsent": 0}
    assert sums.of("homing_commands_total", outcome="succeeded", profile="dji") == COMMANDS + ONE_WAY
    everything = COMMANDS + SILENT + CANCELLED + ONE_WAY
    assert sums.of("homing_commands_total") == sums.of("homing_command_seconds_count") == everything
    assert sums.of("homing_register_seconds_count") == everything

    assert sums.of("homing_responses_total", kind="local") == COMMANDS - tally.forwarded
    assert sums.of("homing_responses_total", kind="forwarded") == tally.forwarded
    assert sums.of("homing_response_seconds_count", forwarded="true") == tally.forwarded
    assert sums.of("homing_response_seconds_count") == sums.of("homing_record_seconds_count") == COMMANDS
    assert sums.of("homing_delivery_seconds_count") == everything - CANCELLED  # those had nobody parked

    found = sums.of("homing_wakeups_total") + sums.of("homing_wakeups_lost_total")
    assert found == tally.forwarded + CANCELLED
    assert sums.of("homing_node_ready") == 3
    assert sums.of("homing_waiters") == sums.of("homing_dropped_total") == sums.of("homing_events_total") == 0
    calls, trips = sums.of("homing_store_batch_calls_sum"), sums.of("homing_store_round_trip_seconds_count")
    assert 2 * everything < calls
    assert 0 < trips == sums.of("homing_store_wait_seconds_count") < calls
    spent = sums.of("homing_command_seconds_sum", outcome="timed_out")
    assert SILENT <= spent < 100 * SILENT, "in seconds"


async def test_dashboard_and_rules_find_what_they_ask_for_in_a_node_under_load(cluster: Cluster) -> None:
    asked = metrics_in([*dashboard_queries(), *(rule["expr"] for rule in rules())]) - recorded()
    async with devices(cluster.broker, answer_but_the_silent), caller(cluster) as client:
        await client.many(100, 16)
    sums = Sums(cluster)
    missing = {name for name in asked if name not in ("up", "ALERTS") and not sums.knows(name)}
    assert missing == set()
    assert {name for name in asked if LIBRARY.fullmatch(name)} >= {"process_cpu_seconds_total"}


async def _cancel(client: Caller, node: int, command_id: str) -> None:
    url = f"{client.cluster.nodes[node % 3].url}/v1/commands/{command_id}"
    async with client.session.delete(url) as response:
        assert response.status == 200


async def _one_way(client: Caller, node: int) -> str:
    url = f"{client.cluster.nodes[node % 3].url}/v1/devices/SN-W/commands"
    async with client.session.post(url, json={"method": "silent", "one_way": True}) as response:
        body: Json = await response.json()
        state: str = body["state"]
        return state
