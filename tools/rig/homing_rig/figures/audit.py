"""Commands on record in the audit while their nodes are killed (A8)."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections import Counter, defaultdict
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count, cycle
from time import perf_counter
from typing import Annotated, Final

import aiohttp
from typer import Option

from app.audit.verification import all_lines, verify
from app.core.audit.lines import things_of
from app.store.audit import AuditStore
from homing_rig.directory import add_service, guarded_site, opened, until_known
from homing_rig.figures.calls import Calls, unlimited_session
from homing_rig.figures.kit import Findings
from homing_rig.harness import Cluster
from homing_rig.services import NotStartedError

WINDOW: Final = 0.5
"""Seconds before a kill in which lines may be lost: of gathering them, and of the call."""
LOOKED: Final = 2.0
"""Seconds from a kill within which its lost lines are looked for."""


@dataclass
class Record:
    """The audit's record of commands."""

    commands: Counter[str] = field(default_factory=Counter)
    """The times that each command is on record."""
    ended: Counter[str] = field(default_factory=Counter)
    unordered: int = 0
    """Facts behind a later one of their writer."""
    dropped: int = 0


async def read_record(audit: AuditStore) -> Record:
    """Read the whole audit."""
    found, latest = Record(), defaultdict[str, int](int)
    async for kept in all_lines(audit):
        for fact in things_of(json.loads(kept.line.body)):
            found.unordered += fact["at"] < latest[kept.line.writer]
            latest[kept.line.writer] = fact["at"]
            found.dropped += fact["kind"] == "dropped"
            if fact["kind"] == "command":
                found.commands[fact["command"]] += 1
            if "state" in fact:
                found.ended[fact["command"]] += 1
    return found


@dataclass
class Run:
    """The commands that were accepted, and when nodes were killed."""

    accepted: dict[str, tuple[str, float]] = field(default_factory=dict)
    """The node and the time of the answer to each command."""
    failed: Counter[str] = field(default_factory=Counter)
    kills: list[tuple[str, float]] = field(default_factory=list)
    late: Counter[str] = field(default_factory=Counter)
    """The times that each node did not answer soon enough after a start, and was started again."""

    async def send(self, calls: Calls, cluster: Cluster, number: int) -> None:
        """Send a command to the nodes in turn."""
        node = cluster.nodes[number % len(cluster.nodes)]
        try:
            answer = await calls.send(node.url, number, devices=500, timeout="5s")
        except (aiohttp.ClientError, OSError) as error:
            self.failed[type(error).__name__] += 1
            await asyncio.sleep(0.05)  # a node that is dead refuses at once
            return
        if answer.status == HTTPStatus.ACCEPTED:
            self.accepted[answer.command_id] = node.node_id, perf_counter()
        else:
            self.failed[str(answer.status)] += 1

    async def kill(self, cluster: Cluster, every: float) -> None:
        """Kill one node after the other, and start it again, as often as that takes on a busy machine."""
        for node in cycle(cluster.nodes):
            await asyncio.sleep(every)
            self.kills.append((node.node_id, perf_counter()))
            await asyncio.to_thread(node.kill)
            while True:
                try:
                    await asyncio.to_thread(node.start)
                    break
                except NotStartedError:
                    self.late[node.node_id] += 1

    def age(self, command: str) -> float:
        """The seconds from the answer to the next kill of the node that gave it; -1 if there was none."""
        node_id, at = self.accepted[command]
        later = [when - at for killed, when in self.kills if killed == node_id and when >= at - LOOKED]
        return min(later, default=-1.0)

    def explained(self, command: str) -> bool:
        """True if that node was killed so soon afterwards that the line may have been lost."""
        node_id, at = self.accepted[command]
        return any(node_id == killed and -LOOKED <= when - at <= WINDOW for killed, when in self.kills)


async def audit(
    findings: Findings,
    *,
    commands: Annotated[int, Option(min=1, help="The number of commands to be accepted.")] = 100_000,
    every: Annotated[float, Option(min=0.1, help="The seconds from a start to the next kill.")] = 5.0,
    in_flight: Annotated[int, Option(min=1, help="The number of commands open at the same time.")] = 16,
    folder: Annotated[bool, Option("--folder", help="Let lines wait on the disk: HOMING_AUDIT_DIR.")] = False,
    settle: Annotated[float, Option(min=0, help="The seconds for the last lines to be written.")] = 15.0,
) -> None:
    """Commands on record while one of three nodes after the other is killed."""
    async with AsyncExitStack() as stack:
        env = {"HOMING_AUDIT_DIR": stack.enter_context(tempfile.TemporaryDirectory())} if folder else {}
        cluster, _, url, _ = stack.enter_context(guarded_site(3, **env))
        directory = await stack.enter_async_context(opened(url))
        key = await add_service(directory, "caller")
        session = await stack.enter_async_context(unlimited_session(30))
        await until_known(session, cluster, key)
        run, calls, numbers = Run(), Calls(session, key), count()

        async def work() -> None:
            while len(run.accepted) < commands:
                await run.send(calls, cluster, next(numbers))

        async with asyncio.TaskGroup() as group:  # a killer that fails ends the run, and says so
            killer = group.create_task(run.kill(cluster, every))
            began = perf_counter()
            await asyncio.gather(*(work() for _ in range(in_flight)))
            seconds = perf_counter() - began
            killer.cancel()
            with suppress(asyncio.CancelledError):
                await killer
        await asyncio.sleep(settle)  # the last lines are written, and heads are told
        found = (await read_record(directory.audit)).commands
        judged = await verify(directory.audit)
    missing = [command for command in run.accepted if not found[command]]
    ages = sorted(round(run.age(command), 2) for command in missing)
    findings.note(f"{len(run.accepted)} accepted in {seconds:.0f} s, {len(run.kills)} kills")
    findings.note(f"calls that were not accepted: {dict(run.failed)}")
    findings.note(f"nodes that did not start in time, and were started again: {dict(run.late)}")
    findings.note(f"the missing were answered so many seconds before the kill: {ages}")
    findings.figure("accepted and missing", len(missing))
    findings.figure("on record, and nobody got an answer", len(found.keys() - run.accepted.keys()))
    findings.figure("commands on record twice", sum(found[command] > 1 for command in run.accepted), most=0)
    lost = sum(not run.explained(command) for command in missing)
    findings.figure(f"missing, and answered more than {WINDOW:g} s before the kill of that node", lost, most=0)
    findings.figure(f"faults in {judged.lines} lines of {judged.writers} writers", len(judged.faults), most=0)
