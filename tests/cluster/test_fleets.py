"""Fleet runs on real processes: the node that drives a run is killed, and another one ends it. Nobody gets two."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

from tests.cluster.harness import Caller, Cluster, Device, Json, caller, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import eventually

TOTAL = 60


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with MosquittoProcess() as broker, RedisProcess() as redis, cluster_of(2, redis, broker) as nodes:
        yield nodes


async def read(client: Caller, node: int, path: str) -> Json:
    async with client.session.get(f"{client.cluster.nodes[node].url}/v1/fleet-runs/{path}") as response:
        assert response.status == 200
        found: Json = await response.json()
        return found


async def begin(client: Caller, node: int) -> Json:
    body = {
        "targets": {"devices": [f"SN{index}" for index in range(TOTAL)]},
        "command": {"method": "return_home", "timeout": "3s", "hold": "30s"},  # not repeatable
        "waves": [5, "20%"],
        "in_flight": 4,
    }
    async with client.session.post(f"{client.cluster.nodes[node].url}/v1/fleet-runs", json=body) as response:
        assert response.status == 202
        run: Json = await response.json()
        return run


async def test_a_driver_that_is_killed_is_replaced_and_nobody_gets_two(cluster: Cluster) -> None:
    got: defaultdict[str, set[str]] = defaultdict(set)

    def answer(device: Device, command: Json) -> None:
        got[command["device_id"]].add(command["tid"])
        Device.answer(device, command)

    async with caller(cluster) as client, devices(cluster.broker, answer) as device:
        run = await begin(client, 0)

        async def is_under_way() -> bool:
            found = await read(client, 0, run["id"])
            return bool(found["counts"].get("succeeded", 0) >= 8 and found["counts"].get("waiting", 0))

        await eventually(is_under_way)
        driver = (await read(client, 0, run["id"]))["driver"]
        dead = int(driver.removeprefix("n")) - 1
        cluster.nodes[dead].kill()
        survivor = 1 - dead
        found: Json = {}

        async def has_ended() -> bool:
            found.update(await read(client, survivor, run["id"]))
            return found["state"] in ("succeeded", "failed")

        await eventually(has_ended)
        rows: list[Json] = (await read(client, survivor, f"{run['id']}/targets?limit=200"))["targets"]
    assert found["driver"] == f"n{survivor + 1}"
    assert Counter(one["state"] for one in rows) == Counter(found["counts"])
    assert sum(found["counts"].values()) == TOTAL
    assert set(found["counts"]) <= {"succeeded", "timed_out"}, "what the dead node had in hand may be lost"
    assert found["counts"].get("timed_out", 0) <= run["in_flight"]
    for one in rows:
        assert got[one["device_id"]] <= {one["command_id"]}, "each device gets one command at most"
        assert device.executed[one["command_id"]] <= 1
        if one["state"] == "succeeded":
            assert device.executed[one["command_id"]] == 1
