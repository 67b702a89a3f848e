"""Three nodes under load while their PostgreSQL is away, and a fourth that is started meanwhile (A4)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from statistics import median
from time import perf_counter
from typing import Annotated, Final

import aiohttp
from typer import Option

from app.audit.verification import verify
from app.core.access.keys import Key
from app.store.audit import AuditStore
from homing_rig.directory import add_service, bearer, guarded_site, opened, until_known
from homing_rig.figures.audit import read_record
from homing_rig.figures.calls import Calls, unlimited_session
from homing_rig.figures.kit import FigureError, Findings, paced
from homing_rig.harness import Cluster
from homing_rig.patience import PATIENCE

RATE: Final = 200
"""Commands a second, over the three nodes."""
STARTS: Final = 3
"""The number of times that the fourth node is killed and started while PostgreSQL is away."""
VERBS: Final[Sequence[tuple[str, str, object]]] = (
    ("GET", "/v1/principals", None),
    ("GET", "/v1/keys", None),
    ("GET", "/v1/audit", None),
    ("PUT", "/v1/devices/dock-1", {"profile": "dji"}),
    ("POST", "/v1/keys", {}),
)
"""The verbs of access that need the directory itself."""


@dataclass
class Load:
    """Commands to the first three nodes at a steady rate."""

    findings: Findings
    session: aiohttp.ClientSession
    cluster: Cluster
    key: Key
    accepted: Counter[str] = field(default_factory=Counter)
    """The times that each command was accepted."""
    refused: int = 0

    @asynccontextmanager
    async def during(self, name: str) -> AsyncIterator[Calls]:
        """Send for as long as the block lasts, however nodes answer; at its end all commands have their answers."""
        calls, over = Calls(self.session, self.key), asyncio.Event()

        async def send(number: int) -> None:
            answer = await calls.send(self.cluster.nodes[number % 3].url, number)
            if answer.status == HTTPStatus.ACCEPTED:
                self.accepted[answer.command_id] += 1

        async def send_all() -> None:
            async with asyncio.TaskGroup() as group:
                async for number in paced(RATE):
                    if over.is_set():
                        return
                    group.create_task(send(number))

        sending = asyncio.create_task(send_all())
        try:
            yield calls
        finally:
            over.set()
            await sending
        self.refused += calls.statuses.total() - calls.statuses[HTTPStatus.ACCEPTED]
        times = [seconds * 1000 for seconds in calls.times]
        self.findings.note(
            f"{name}: {len(times)} commands, statuses {dict(calls.statuses)}, median {median(times):.1f} ms, "
            f"p99 {calls.p99:.1f} ms, worst {max(times):.0f} ms"
        )


@dataclass
class Asked:
    """The answers to verbs of access, and after how many seconds they came."""

    statuses: Counter[str] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)

    async def keep_asking(self, session: aiohttp.ClientSession, cluster: Cluster, admin: Key) -> None:
        """Use each verb again and again, of the nodes in turn."""
        async for number in paced(1.0):
            for method, path, body in VERBS:
                url, began = f"{cluster.nodes[number % 3].url}{path}", perf_counter()
                async with session.request(method, url, json=body, headers=bearer(admin)) as response:
                    await response.read()
                self.times.append(perf_counter() - began)
                self.statuses[f"{method} {path} {response.status}"] += 1

    @property
    def not_unavailable(self) -> int:
        """The number of answers other than 503."""
        return sum(count for told, count in self.statuses.items() if not told.endswith(" 503"))


async def starts(cluster: Cluster, times: int) -> list[float]:
    """Return the seconds that the fourth node took until it was ready, each time."""
    node, found = cluster.nodes[3], []
    for _ in range(times):
        await asyncio.to_thread(node.kill)
        began = perf_counter()
        await asyncio.to_thread(node.start)
        found.append(perf_counter() - began)
        await asyncio.sleep(2)
    return found


async def outage(
    findings: Findings,
    *,
    seconds: Annotated[float, Option(min=1, help="The seconds for which PostgreSQL is away.")] = 600.0,
    beside: Annotated[float, Option(min=1, help="The seconds of load before and after.")] = 30.0,
    frozen: Annotated[bool, Option("--frozen", help="Freeze PostgreSQL, so that connections stay open.")] = False,
) -> None:
    """Three nodes under load while their PostgreSQL is away, and a fourth that is started meanwhile."""
    async with AsyncExitStack() as stack:
        cluster, postgresql, url, admin = stack.enter_context(guarded_site(4))
        directory = await stack.enter_async_context(opened(url))
        key = await add_service(directory, "caller")
        async with unlimited_session() as session:
            load = Load(findings, session, cluster, key)
            await until_known(session, cluster, key)
            async with load.during("first, to warm up"):
                await asyncio.sleep(min(5.0, beside))
            async with load.during("PostgreSQL there") as before, asking(session, cluster, admin):
                await asyncio.sleep(beside)
            await asyncio.to_thread(postgresql.pause if frozen else postgresql.kill)
            async with asking(session, cluster, admin) as asked:
                async with load.during(f"PostgreSQL {'frozen' if frozen else 'killed'}") as away:
                    await asyncio.sleep(seconds)
                async with load.during("the same while a fourth node is started"):
                    ready = await starts(cluster, STARTS)
            async with load.during("PostgreSQL back") as back:
                await asyncio.to_thread(postgresql.resume if frozen else postgresql.start)
                await asyncio.sleep(beside)
        findings.note(f"verbs of access meanwhile: {dict(asked.statuses)}")
        findings.figure("commands refused", load.refused, most=0)
        findings.figure("p99 while it was away, against before", away.p99 / before.p99, " ×", most=1.1)
        findings.figure("p99 after its return, against before", back.p99 / before.p99, " ×", most=1.1)
        findings.figure("verbs of access that were not 503", asked.not_unavailable, most=0)
        findings.figure("the slowest of them", max(asked.times), " s", most=0.5)
        findings.spread("a node that is started meanwhile is ready after", ready, " s")
        findings.figure("the longest of them", max(ready), " s", most=5)
        await judge_audit(findings, directory.audit, load.accepted)


@asynccontextmanager
async def asking(session: aiohttp.ClientSession, cluster: Cluster, admin: Key) -> AsyncIterator[Asked]:
    """Verbs of access are used for as long as the block lasts."""
    asked = Asked()
    task = asyncio.create_task(asked.keep_asking(session, cluster, admin))
    try:
        yield asked
    finally:
        ended = task.done()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    if ended:
        raise FigureError("verbs of access were not used to the end")


async def judge_audit(findings: Findings, audit: AuditStore, accepted: Counter[str]) -> None:
    """Wait until all of these commands are on record with their outcomes, and judge what is."""
    began = perf_counter()
    while True:
        record = await read_record(audit)
        missing = [one for one in accepted if not (record.commands[one] and record.ended[one])]
        if not missing or perf_counter() - began > PATIENCE:
            break
        await asyncio.sleep(1)
    judged = await verify(audit)
    findings.figure("the audit was whole after the last command after", perf_counter() - began, " s")
    findings.figure(f"of {len(accepted)} commands, missing or without outcome in the audit", len(missing), most=0)
    findings.figure("on record more than once", sum(record.commands[one] > 1 for one in accepted), most=0)
    findings.figure("told out of order, or dropped", record.unordered + record.dropped, most=0)
    findings.figure(f"faults in {judged.lines} lines of {judged.writers} writers", len(judged.faults), most=0)
