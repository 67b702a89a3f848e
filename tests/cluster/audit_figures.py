"""What is on record of commands whose nodes, or whose database, are killed; docs/performance.md has what came out.

python -m tests.cluster.audit_figures --commands 100000 --every 5     one of three nodes is killed every 5 s
python -m tests.cluster.audit_figures --folder                        the same with HOMING_AUDIT_DIR
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import cycle

import aiohttp
import pytest

from app.audit.verification import all_lines, verify
from app.core.access.keys import Key
from app.core.audit.lines import things_of
from app.runtime.system import new_secret
from app.store.audit import AuditStore
from app.store.engine import open_directory
from tests.cluster.access_rig import add, bearer, site, until_known
from tests.cluster.harness import Cluster, NodeProcess
from tests.cluster.stream_rig import judge, say

WINDOW = 0.5
"""Seconds before a kill in which lines may be lost: of gathering them, and of the call."""
LOOKED = 2.0
"""How far from a kill it is looked for what is missing."""


@dataclass
class Run:
    """What was accepted, and when nodes were killed."""

    accepted: dict[str, tuple[str, float]] = field(default_factory=dict)
    """By command, the node and the time of its answer."""
    failed: Counter[str] = field(default_factory=Counter)
    kills: list[tuple[str, float]] = field(default_factory=list)
    late: Counter[str] = field(default_factory=Counter)
    """By node, how often it did not answer in time after a start, and was started again."""


async def send(session: aiohttp.ClientSession, cluster: Cluster, key: Key, number: int, run: Run) -> None:
    node = cluster.nodes[number % len(cluster.nodes)]
    body = {"method": "cover_open", "timeout": "5s", "if_offline": "send", "profile": "dji"}
    target, headers = f"{node.url}/v1/devices/dock-{number % 500}/commands", {**bearer(key), "Prefer": "respond-async"}
    try:
        async with session.post(target, json=body, headers=headers) as response:
            told = await response.json()
    except (aiohttp.ClientError, OSError) as error:
        run.failed[type(error).__name__] += 1
        await asyncio.sleep(0.05)  # a node that is dead refuses at once
        return
    if response.status == 202:
        run.accepted[told["id"]] = node.node_id, time.time()
    else:
        run.failed[str(response.status)] += 1


async def kill(cluster: Cluster, every: float, run: Run) -> None:
    """Kill one node after the other, and start it again, as often as that takes on a busy machine."""
    for node in cycle(cluster.nodes):
        await asyncio.sleep(every)
        run.kills.append((node.node_id, time.time()))
        await asyncio.to_thread(node.kill)
        while not await asyncio.to_thread(started, node):
            run.late[node.node_id] += 1


def started(node: NodeProcess) -> bool:
    """Start it; false when it did not answer in time, and was killed."""
    try:
        node.start()
    except pytest.fail.Exception as failure:
        say(str(failure))
        return False
    return True


async def on_record(audit: AuditStore) -> Counter[str]:
    """How often each command is."""
    found: Counter[str] = Counter()
    async for kept in all_lines(audit):
        things = things_of(json.loads(kept.line.body))
        found.update(one["command"] for one in things if one["kind"] == "command")
    return found


async def audit(commands: int, every: float, in_flight: int, folder: str | None) -> None:
    with site(**({} if folder is None else {"HOMING_AUDIT_DIR": folder})) as (cluster, _, url, _):
        directory = open_directory(url, new_cluster_id=new_secret)
        key = await add(directory, 0)
        run, numbers = Run(), iter(range(10**9))
        timeout = aiohttp.ClientTimeout(total=30)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
            await until_known(session, cluster, key)

            async def worker() -> None:
                while len(run.accepted) < commands:
                    await send(session, cluster, key, next(numbers), run)

            async with asyncio.TaskGroup() as group:  # a killer that fails ends the run, and says so
                killer = group.create_task(kill(cluster, every, run))
                began = time.perf_counter()
                await asyncio.gather(*[worker() for _ in range(in_flight)])
                seconds = time.perf_counter() - began
                killer.cancel()
        await asyncio.sleep(15)  # the last lines are written, and heads are told
        found = await on_record(directory.audit)
        missing = [one for one in run.accepted if not found[one]]
        lost = [one for one in missing if not explained(run, *run.accepted[one])]
        twice = sum(found[one] > 1 for one in run.accepted)
        judged = await verify(directory.audit)
        await directory.close()
    say(f"{len(run.accepted)} accepted in {seconds:.0f} s, {len(run.kills)} kills, not accepted: {dict(run.failed)}")
    say(f"  nodes that did not start in time, and were started again: {dict(run.late)}")
    say(f"  on record once: {len(run.accepted) - len(missing) - twice}, missing: {len(missing)}")
    say(f"  on record, and nobody got an answer: {len(found.keys() - run.accepted.keys())}")
    ages = sorted(age(run, *run.accepted[one]) for one in missing)
    say(f"  the missing were answered so many seconds before the kill: {[round(one, 2) for one in ages]}")
    judge("commands on record twice", twice, most=0)
    judge(f"missing, and answered by a node more than {WINDOW:g} s before it was killed", len(lost), most=0)
    judge(f"faults in {judged.lines} lines of {judged.writers} writers", len(judged.faults), most=0)


def age(run: Run, node_id: str, at: float) -> float:
    """How long after the answer that node was killed next."""
    return min([when - at for killed, when in run.kills if killed == node_id and when >= at - LOOKED], default=-1.0)


def explained(run: Run, node_id: str, at: float) -> bool:
    """Whether that node was killed so soon afterwards that the line may have been lost."""
    return any(node_id == killed and -LOOKED <= when - at <= WINDOW for killed, when in run.kills)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commands", type=int, default=100_000)
    parser.add_argument("--every", type=float, default=5.0)
    parser.add_argument("--in-flight", type=int, default=16)
    parser.add_argument("--folder", action="store_true", help="lines may wait on the disk")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(audit(options.commands, options.every, options.in_flight, folder if options.folder else None))


if __name__ == "__main__":
    main()
