"""The latency log of three real nodes, one of which is killed while it writes."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import Counter
from collections.abc import Iterable
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import aiohttp
import pyarrow as pa
import pyarrow.parquet as pq

from app.latency.arrow import SCHEMA
from tests.cluster.harness import Caller, Cluster, Device, Json, caller, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import PATIENCE, eventually

ROUND = 600


async def test_a_killed_node_loses_its_open_interval_and_nothing_that_was_closed(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with (
        MosquittoProcess() as broker,
        RedisProcess() as server,
        cluster_of(
            3,
            server,
            broker,
            HOMING_LATENCY_LOG_DIR=str(folder),
            HOMING_LATENCY_LOG_INTERVAL="1s",
        ) as cluster,
    ):
        async with devices(broker, at_once), caller(cluster) as client:
            answered = await answers(client, range(ROUND), nodes=3)
            await eventually(lambda: named(folder, "n2"))
            over = asyncio.Event()
            numbers = takewhile(lambda _: not over.is_set(), count(ROUND))
            loading = asyncio.create_task(answers(client, numbers, nodes=3, may_fail=True))
            await eventually(lambda: temporary(folder, "n2"))
            victim = cluster.nodes[1]
            victim.kill()
            closed = {path: path.read_bytes() for path in named(folder)}
            left = temporary(folder, "n2")
            cluster.end_lease("n2")
            over.set()
            answered |= await loading
            await eventually(lambda: same(client))
            cluster.nodes.pop(1)
            answered |= await answers(client, range(ROUND), nodes=2)
            queues = reported(cluster)["queues"]
            counters = reported(cluster)["counters"]
        assert queues["latency_records"]["bound"] == 50_000
        assert counters["latency.files"] >= 1
        for node in cluster.nodes:
            node.stop()  # writes its open interval
        assert all(path.read_bytes() == content for path, content in closed.items())
        rows = read(folder)
        outcomes = [row for row in rows if row["kind"] == "outcome"]
        per_command = Counter(row["command_id"] for row in outcomes)
        assert set(per_command.values()) == {1}
        # Whatever a living node was home to is there, and of the dead one what was closed.
        survived = {identity for identity, home in answered.items() if home != "n2"}
        assert survived <= set(per_command)
        assert any(row["home_node"] == "n2" for row in outcomes)
        check(outcomes, answered)
        # The next start of the dead node removes what it left behind; the others never look at it.
        assert all(path.exists() for path in left)
        victim.start()
        await eventually(lambda: reported(Cluster(server, broker, [victim]))["state"] == "ready")
        async with caller(Cluster(server, broker, [victim])) as alone, devices(broker, at_once):
            await answers(alone, range(20), nodes=1)
        victim.stop()
        assert not temporary(folder)
        assert len(read(folder)) >= len(rows) + 20


def at_once(device: Device, command: Json) -> None:
    device.answer(command)


async def answers(client: Caller, numbers: Iterable[int], *, nodes: int, may_fail: bool = False) -> dict[str, str]:
    """Home node by id of the commands that were answered."""
    found: dict[str, str] = {}
    left = iter(numbers)

    async def work() -> None:
        for number in left:
            try:
                status, body = await client.command(number % nodes, f"SN{number % 50:04}", {"nonce": number})
            except aiohttp.ClientError:
                assert may_fail
                continue
            assert status == 200 or may_fail, body
            if status == 200:
                found[body["id"]] = body["home_node"]

    await asyncio.gather(*(work() for _ in range(16)))
    return found


async def same(client: Caller) -> bool:
    """True if the lease of the dead node has run out."""
    async with client.session.get(f"{client.cluster.nodes[0].url}/v1/nodes") as response:
        return [one["node_id"] for one in (await response.json())["nodes"]] == ["n1", "n3"]


def reported(cluster: Cluster) -> Any:  # noqa: ANN401 - JSON
    with urllib.request.urlopen(f"{cluster.nodes[0].url}/v1/nodes", timeout=PATIENCE) as response:  # noqa: S310
        return json.load(response)["self"]


def named(folder: Path, node: str = "") -> list[Path]:
    return [path for path in folder.rglob(f"{node}*.parquet") if not path.name.startswith(".")]


def temporary(folder: Path, node: str = "") -> list[Path]:
    return list(folder.rglob(f".{node}*.tmp"))


def read(folder: Path) -> list[Json]:
    """All rows, file by file: each one must be whole and have the schema."""
    tables = []
    for path in named(folder):
        table = pq.ParquetFile(path).read()
        assert table.schema.equals(SCHEMA), path
        tables.append(table)
    whole = pa.concat_tables(tables)
    # A reader that takes the folder as a whole sees the same, and none of the temporaries.
    assert pq.read_table(folder).num_rows == len(whole)
    rows: list[Json] = whole.to_pylist()
    return rows


def check(rows: list[Json], answered: dict[str, str]) -> None:
    """Check that the rows of answered commands are complete and in order."""
    forwarded = 0
    for row in rows:
        if row["command_id"] not in answered or row["writing_node"] != row["home_node"]:
            continue
        assert row["outcome"] == "succeeded"
        assert row["home_node"] == answered[row["command_id"]]
        assert row["forwarded"] == (row["receiving_node"] != row["home_node"])
        forwarded += row["forwarded"]
        complete = {name for name, value in row.items() if value is None}
        # PUBACK may come after the answer did; nobody reports progress here.
        allowed = {"error_code", "progressed_at", "acknowledged_at", "publish_us"}
        assert complete <= allowed | ({"record_us"} if row["forwarded"] else set())
        assert row["registered_at"] <= row["recorded_at"] <= row["deadline_at"]
        # Estimates: good to half of the shortest round trip so far, on a machine that may be busy.
        assert (row["recorded_at"] - row["received_at"]).total_seconds() > -1
        assert (row["received_at"] - row["registered_at"]).total_seconds() > -1
        assert 0 < row["register_us"] + row["respond_us"] + row["deliver_us"] <= row["total_us"] + 3
    assert forwarded > 0
