"""Three nodes under load while their PostgreSQL is away, and a fourth that is started meanwhile (A4)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from statistics import median, quantiles
from time import perf_counter

import aiohttp

from app.audit.verification import all_lines, verify
from app.core.access.keys import Key
from app.core.audit.lines import things_of
from app.runtime.system import new_secret
from app.store.audit import AuditStore
from app.store.engine import open_directory
from tests.cluster.access_rig import add, bearer, site, until_known
from tests.cluster.harness import Cluster
from tests.cluster.stream_rig import judge, say
from tests.waiting import PATIENCE

RATE = 200
"""Commands a second, over the three nodes."""
BESIDE = 30.0
"""Seconds of load before, and after."""
STARTS = 3
"""How often the fourth node is killed and started while PostgreSQL is away."""
ASK_EVERY = 1.0
VERBS: Sequence[tuple[str, str, object]] = (
    ("GET", "/v1/principals", None),
    ("GET", "/v1/keys", None),
    ("GET", "/v1/audit", None),
    ("PUT", "/v1/devices/dock-1", {"profile": "dji"}),
    ("POST", "/v1/keys", {}),
)
"""Of access: those that need the directory itself."""


@dataclass
class Part:
    """What was seen of commands in one part of a run."""

    name: str
    times: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    @property
    def p99(self) -> float:
        """Milliseconds."""
        return quantiles(self.times, n=100)[98] * 1000

    @property
    def refused(self) -> int:
        return self.statuses.total() - self.statuses[202]

    def tell(self) -> None:
        say(f"{self.name}: {len(self.times)} commands, {self.refused} refused, statuses {dict(self.statuses)},")
        say(
            f"  median {median(self.times) * 1000:.1f} ms, p99 {self.p99:.1f} ms, worst {max(self.times) * 1000:.0f} ms"
        )


@dataclass
class Run:
    """Somebody who sends, and what was seen."""

    session: aiohttp.ClientSession
    cluster: Cluster
    key: Key
    accepted: Counter[str] = field(default_factory=Counter)
    """By command, how often."""

    async def send(self, number: int, part: Part) -> None:
        body = {"method": "cover_open", "timeout": "1s", "if_offline": "send", "profile": "dji"}
        target = f"{self.cluster.nodes[number % 3].url}/v1/devices/dock-{number % 100}/commands"
        began, headers = perf_counter(), {**bearer(self.key), "Prefer": "respond-async"}
        async with self.session.post(target, json=body, headers=headers) as response:
            told = await response.json(content_type=None)
        part.times.append(perf_counter() - began)
        part.statuses[response.status] += 1
        if response.status == 202:
            self.accepted[told["id"]] += 1

    @asynccontextmanager
    async def load(self, name: str) -> AsyncIterator[Part]:
        """Commands at a steady rate for as long as the block lasts, whatever becomes of the ones before.

        All of them have their answers at its end.
        """
        part, until = Part(name), asyncio.Event()

        async def send_all() -> None:
            began, number = perf_counter(), 0
            async with asyncio.TaskGroup() as group:
                while not until.is_set():
                    await asyncio.sleep(max(0.0, began + number / RATE - perf_counter()))
                    group.create_task(self.send(number, part))
                    number += 1

        sending = asyncio.create_task(send_all())
        try:
            yield part
        finally:
            until.set()
            await sending
        part.tell()


@dataclass
class Asked:
    """What verbs of access were answered."""

    statuses: Counter[str] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)


async def keep_asking(session: aiohttp.ClientSession, cluster: Cluster, admin: Key, asked: Asked) -> None:
    """Each verb again and again, of the nodes in turn."""
    number = 0
    while True:
        for method, path, body in VERBS:
            url, began = f"{cluster.nodes[number % 3].url}{path}", perf_counter()
            async with session.request(method, url, json=body, headers=bearer(admin)) as response:
                await response.read()
            asked.times.append(perf_counter() - began)
            asked.statuses[f"{method} {path} {response.status}"] += 1
        number += 1
        await asyncio.sleep(ASK_EVERY)


async def starts(cluster: Cluster) -> list[float]:
    """How many seconds the fourth node took until it was ready, each time."""
    node, found = cluster.nodes[3], []
    for _ in range(STARTS):
        await asyncio.to_thread(node.kill)
        began = perf_counter()
        await asyncio.to_thread(node.start)
        found.append(perf_counter() - began)
        await asyncio.sleep(2)
    return found


async def outage(seconds: float, *, frozen: bool) -> None:
    with site(4) as (cluster, postgresql, url, admin):
        directory = open_directory(url, new_cluster_id=new_secret)
        key = await add(directory, 0)
        await directory.close()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            run = Run(session, cluster, key)
            await until_known(session, cluster, key)
            async with run.load("first, to warm up"):
                await asyncio.sleep(5)
            beside = asyncio.create_task(keep_asking(session, cluster, admin, Asked()))
            async with run.load("PostgreSQL there") as before:
                await asyncio.sleep(BESIDE)
            beside.cancel()
            asked = Asked()
            await asyncio.to_thread(postgresql.pause if frozen else postgresql.kill)
            asking = asyncio.create_task(keep_asking(session, cluster, admin, asked))
            async with run.load(f"PostgreSQL {'frozen' if frozen else 'killed'}") as away:
                await asyncio.sleep(seconds)
            async with run.load("the same while a fourth node is started") as starting:
                ready = await starts(cluster)
            assert not asking.done(), asking
            asking.cancel()
            async with run.load("PostgreSQL back") as back:
                await asyncio.to_thread(postgresql.resume if frozen else postgresql.start)
                await asyncio.sleep(BESIDE)
        say(f"verbs of access meanwhile: {dict(asked.statuses)}")
        refused = sum(part.refused for part in (before, away, starting, back))
        judge("commands refused", refused, most=0)
        judge("p99 while it was away, against before", away.p99 / before.p99, " x", most=1.1)
        judge("p99 after its return, against before", back.p99 / before.p99, " x", most=1.1)
        judge("verbs of access that were not 503", not_refused(asked), most=0)
        judge("the slowest of them", max(asked.times), " s", most=0.5)
        judge(f"a node that is started meanwhile is ready after, worst of {len(ready)}", max(ready), " s", most=5)
        patient = open_directory(url, new_cluster_id=new_secret, budget=timedelta(minutes=1))
        await judge_audit(patient.audit, run.accepted)
        await patient.close()


def not_refused(asked: Asked) -> int:
    return sum(count for told, count in asked.statuses.items() if not told.endswith(" 503"))


@dataclass
class Record:
    """What the audit tells of commands."""

    commands: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    unordered: int = 0
    """Things told behind a later one of their writer."""
    dropped: int = 0


async def read_record(audit: AuditStore) -> Record:
    found, latest = Record(), defaultdict[str, int](int)
    async for kept in all_lines(audit):
        for one in things_of(json.loads(kept.line.body)):
            found.unordered += one["at"] < latest[kept.line.writer]
            latest[kept.line.writer] = one["at"]
            command = one.get("command", "")
            found.commands[command] += one["kind"] == "command"
            found.ended[command] += "state" in one
            found.dropped += one["kind"] == "dropped"
    return found


async def judge_audit(audit: AuditStore, accepted: Counter[str]) -> None:
    began = perf_counter()
    while True:
        record = await read_record(audit)
        missing = [one for one in accepted if not (record.commands[one] and record.ended[one])]
        if not missing or perf_counter() - began > PATIENCE:
            break
        await asyncio.sleep(1)
    say(f"the audit was whole {perf_counter() - began:.0f} s after the last command, or given up")
    judge(f"of {len(accepted)} commands, missing in the audit or without outcome there", len(missing), most=0)
    judge("on record more than once", sum(record.commands[one] > 1 for one in accepted), most=0)
    judge("told out of order, or dropped", record.unordered + record.dropped, most=0)
    judged = await verify(audit)
    judge(f"faults in {judged.lines} lines of {judged.writers} writers", len(judged.faults), most=0)
