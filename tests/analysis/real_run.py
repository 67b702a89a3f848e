"""A run of three real nodes, one of which is killed, and what its callers saw."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from app.core.messages import Publication
from tests.cluster.harness import Caller, Cluster, Device, Json, caller, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import PATIENCE, eventually

KINDS: Final = ("mute", "late", "twice", "refusing", "cancelled", *["slow"] * 4, *["prompt"] * 11)
"""The kinds of devices, in turn; prime to the number of nodes."""


NODES: Final = ("n1", "n2", "n3")


METHODS: Final = ("cover_open", "cover_close")


ROUND: Final = 15 * len(KINDS)


ORPHANS: Final = 6


WITHIN: Final = timedelta(seconds=15)


@dataclass(frozen=True, slots=True)
class Seen:
    """A finished command as its caller saw it; `took` in seconds where the caller waited for the outcome."""

    command_id: str
    node: str
    method: str
    outcome: str
    took: float | None = None


@dataclass(slots=True)
class Run:
    """The record of a run."""

    log: Path
    seen: list[Seen] = field(default_factory=list)
    """All of the two that lived; of the killed one those of closed intervals, and those that the others ended."""
    lost: set[str] = field(default_factory=set)
    """Commands of the killed node in its open interval: it may have closed it."""
    through: set[str] = field(default_factory=set)
    """Commands of the others while it was killed: the broker may give their responses to two nodes."""
    closed: dict[Path, bytes] = field(default_factory=dict)
    left: list[Path] = field(default_factory=list)
    """The files of the killed node, which was writing them."""
    late: set[str] = field(default_factory=set)
    """Commands whose response came after their deadline."""
    twice: set[str] = field(default_factory=set)
    """Commands that were answered twice."""


class Fleet:
    """Devices that do as their names say; those that are late answer when told to."""

    def __init__(self) -> None:
        self.held: list[Json] = []
        self.late: set[str] = set()
        self.twice: set[str] = set()

    def __call__(self, device: Device, command: Json) -> None:
        match command["device_id"].partition("-")[0]:
            case "mute" | "cancelled":
                pass
            case "late":
                self.held.append(command)
                self.late.add(command["tid"])
            case "twice":
                device.answer(command)
                device.answer(command)
                self.twice.add(command["tid"])
            case "refusing":
                refuse(device, command)
            case "slow":
                delay = 0.02 + command["data"]["number"] % 7 / 100
                asyncio.get_running_loop().call_later(delay, device.answer, command)
            case _:
                device.answer(command)


def refuse(device: Device, command: Json) -> None:
    named = {name: command[name] for name in ("tid", "bid", "timestamp", "method")}
    reply = json.dumps({**named, "data": {"result": 314_000}}).encode()
    _puback = device._client.publish(Publication(f"thing/product/{command['device_id']}/services_reply", reply))


async def send(client: Caller, node: int, kind: str, number: int, *, waits: bool = True, timeout: str = "10s") -> Seen:
    """Send a command to a node and stay with it until it has its outcome."""
    method = METHODS[number % 2]
    headers = {} if waits and kind != "cancelled" else {"Prefer": "respond-async"}
    clock = asyncio.get_running_loop().time
    began = clock()
    status, said = await client.command(
        node, f"{kind}-{number % 5}", {"number": number}, method=method, timeout=timeout, **headers
    )
    took = clock() - began
    name = client.cluster.nodes[node].node_id
    if status == 504:
        return Seen(said["command_id"], name, method, "timed_out", took)
    if kind == "cancelled":
        elsewhere = client.cluster.nodes[2 if node != 2 else 0]  # which both live to the end
        async with client.session.delete(f"{elsewhere.url}/v1/commands/{said['id']}") as response:
            assert response.status == 200
    if status == 200:
        return Seen(said["id"], name, method, said["state"], took)
    assert status == 202, said
    return Seen(said["id"], name, method, (await client.final(node, said["id"], WITHIN))["state"])


async def send_round(client: Caller, fleet: Fleet, device: Device, nodes: Sequence[int], numbers: range) -> list[Seen]:
    """Commands of all kinds to these nodes in turn; returns when nothing of them is open or on its way any more."""
    before = counted(client.cluster, nodes)
    left, seen = iter(numbers), list[Seen]()

    async def work() -> None:
        for number in left:
            kind, node = KINDS[number % len(KINDS)], nodes[number % len(nodes)]
            timeout = "300ms" if kind in ("mute", "late") else "10s"
            seen.append(await send(client, node, kind, number, waits=number % 7 > 0, timeout=timeout))

    await asyncio.gather(*(work() for _ in range(24)))
    kinds = Counter(KINDS[number % len(KINDS)] for number in numbers)
    await eventually(lambda: len(fleet.held) == kinds["late"])
    while fleet.held:
        device.answer(fleet.held.pop())

    def all_came_in() -> bool:
        now = counted(client.cluster, nodes)
        return now["late"] - before["late"] >= kinds["late"] and now["twice"] - before["twice"] >= kinds["twice"]

    await eventually(all_came_in, 10)
    await eventually(lambda: not any(reported(client.cluster, node)["pending"] for node in nodes))
    return seen


async def kill_one(client: Caller, run: Run) -> list[Json]:
    """Kill n2 while it writes, and the others go on. Returns its open commands, which no device answers."""
    over = asyncio.Event()

    async def load(node: int) -> None:
        while not over.is_set():
            seen = await send(client, node, "prompt", len(run.through), timeout="3s")
            run.seen.append(seen)
            run.through.add(seen.command_id)

    async with asyncio.TaskGroup() as group:
        for node in (0, 2):
            group.create_task(load(node))
        for number in range(20):
            run.lost.add((await send(client, 1, "prompt", number)).command_id)
        sent = [
            await client.command(1, "mute-orphan", {}, timeout="3s", Prefer="respond-async") for _ in range(ORPHANS)
        ]
        await eventually(lambda: temporary(run.log, "n2"), 10)
        client.cluster.nodes[1].kill()
        run.left = temporary(run.log, "n2")
        await eventually(lambda: all(reported(client.cluster, node)["members"] == {"n1", "n3"} for node in (0, 2)), 15)
        over.set()
    assert {status for status, _ in sent} == {202}
    return [said for _, said in sent]


def reported(cluster: Cluster, node: int) -> Any:  # noqa: ANN401 - JSON
    with urllib.request.urlopen(f"{cluster.nodes[node].url}/v1/nodes", timeout=PATIENCE) as response:  # noqa: S310
        found = json.load(response)
    return {**found["self"], "members": {one["node_id"] for one in found["nodes"]}}


def counted(cluster: Cluster, nodes: Iterable[int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for node in nodes:
        counters = reported(cluster, node)["counters"]
        found["late"] += counters.get("response.late", 0)
        found["twice"] += counters.get("drop.duplicate", 0)
    return found


def named(folder: Path, node: str = "") -> list[Path]:
    return [path for path in folder.rglob(f"{node}*.parquet") if not path.name.startswith(".")]


def temporary(folder: Path, node: str) -> list[Path]:
    return list(folder.rglob(f".{node}*.tmp"))


async def happen(log: Path) -> Run:
    """Three nodes, all kinds of commands; one is killed with an open interval, the others go on and are stopped."""
    run, fleet = Run(log), Fleet()
    settings = {
        "HOMING_LATENCY_LOG_DIR": str(log),
        "HOMING_LATENCY_LOG_INTERVAL": "1s",
        "HOMING_CLUSTER_LEASE": "3s",  # a shorter one may run out where Spark has the processors
    }
    with MosquittoProcess() as broker, RedisProcess() as server, cluster_of(3, server, broker, **settings) as cluster:
        async with devices(broker, fleet) as device, caller(cluster) as client:
            run.seen += await send_round(client, fleet, device, (0, 1, 2), range(ROUND))
            await eventually(lambda: reported(cluster, 1)["queues"]["latency_records"]["size"] == 0, 10)
            run.closed = {path: path.read_bytes() for path in named(log)}
            orphans = await kill_one(client, run)
            run.seen += await send_round(client, fleet, device, (0, 2), range(ROUND, ROUND + 6 * len(KINDS)))
            for orphan in orphans:
                ended = await client.final(0, orphan["id"], WITHIN)
                run.seen.append(Seen(orphan["id"], "n2", orphan["method"], ended["state"]))
        run.late, run.twice = fleet.late, fleet.twice
        await asyncio.gather(*(asyncio.to_thread(cluster.nodes[node].stop) for node in (0, 2)))
    return run
