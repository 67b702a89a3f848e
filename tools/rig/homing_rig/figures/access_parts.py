"""The parts of what access does for a command: processor time of this process, without a node (A2)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from statistics import median
from time import process_time
from typing import Annotated

from typer import Option

from app.access.authority import Authority
from app.access.follower import DirectoryFollower
from app.access.origin import ASKING
from app.api.http import asking
from app.audit.recorder import Audit
from app.audit.writer import AuditWriter
from app.callbacks.pending import Pending
from app.core.access.rules import Action
from app.core.commands.callback import Registration
from app.core.commands.command import CommandState
from app.runtime.system import SystemClock
from app.runtime.telemetry import Counters
from app.store.directory import AccessDirectory
from homing_rig.directory import opened
from homing_rig.figures.kit import Findings
from homing_rig.guard import Guard

COMMANDS = 1_000
"""The commands of one round, as many as a busy node has in half a second."""
QUESTIONS = 200


async def nothing() -> None:
    """Nothing is to be prepared."""


async def agreed(cluster_id: str) -> str:
    """Agree on any name of the cluster."""
    return cluster_id


async def parts(
    findings: Findings,
    *,
    times: Annotated[int, Option(min=1, help="The number of rounds of 1,000 commands.")] = 12,
) -> None:
    """Measure the parts of access for a command: processor time of this process, without a node."""
    with tempfile.TemporaryDirectory() as folder:
        guard = Guard(Path(folder))
        await guard.set_up()
        async with opened(guard.settings["HOMING_ACCESS_URL"]) as directory:
            taken = await _rounds(guard, directory, times)
            await directory.version()
            began = process_time()
            for _ in range(QUESTIONS):
                await directory.version()
            question = (process_time() - began) / QUESTIONS * 1_000_000
    for name, values in taken.items():
        findings.spread(name, values, " µs")
    findings.figure("whether the directory has changed, asked twice a second", question, " µs")
    findings.figure("all parts, medians", sum(median(values) for values in taken.values()), " µs", most=5)


async def _rounds(guard: Guard, directory: AccessDirectory, rounds: int) -> dict[str, list[float]]:
    clock, counters = SystemClock(), Counters()
    following = DirectoryFollower(directory, clock, prepare=nothing, interval=1.0, changed=lambda: None, agreed=agreed)
    await following.now()
    authority = Authority(following, clock, stale=600, nodes=lambda: 2, counters=counters)
    audit = Audit(AuditWriter(directory.audit, counters, None), clock, counters, commands=True, required=False)
    audit.begin("node-a/1", authority.who, authority.tenant_of)
    steps = _steps(guard.authorization.encode(), authority, audit)
    taken: dict[str, list[float]] = {name: [] for name in (*steps, "write to SQLite")}
    for _ in range(rounds):
        for name, step in steps.items():
            began = process_time()
            step()
            taken[name].append((process_time() - began) / COMMANDS * 1_000_000)
        began = process_time()
        await audit._write()
        taken["write to SQLite"].append((process_time() - began) / COMMANDS * 1_000_000)
    return taken


def _steps(header: bytes, authority: Authority, audit: Audit) -> dict[str, Callable[[], None]]:
    """The steps that are done for all commands of a round, in order."""
    headers, scope = {b"authorization": header, b"user-agent": b"bench/1"}, {"client": ("127.0.0.1", 1234)}
    commands, caller = [_command(number) for number in range(COMMANDS)], authority.caller(header)

    def know() -> None:
        for _ in commands:
            authority.caller(header)

    def note() -> None:
        for _ in commands:
            ASKING.set(asking(caller, scope, headers))

    def spend() -> None:
        for one, _ in commands:
            authority.spend(caller, Action.SEND, one.device_id, one.profile, one.method)
            audit.check()

    def tell() -> None:
        for one, pending in commands:
            audit.registered(one, 0.0)
            audit.closed(pending)

    return {
        "know the key": know,
        "note who asks": note,
        "decide, and spend of a limit": spend,
        "tell the audit of it and its outcome": tell,
        "bind and hash": audit._bind,
    }


def _command(number: int) -> tuple[Registration, Pending]:
    command_id, device_id = f"123-{number:026d}", f"dock-{number % 200}"
    pending = Pending(0.0)
    pending.command_id, pending.device_id = command_id, device_id
    pending.registered, pending.state = True, CommandState.SUCCEEDED
    nothing = timedelta()
    return Registration(command_id, device_id, "cover_open", b"{}", "dji", "node-a", (), nothing, nothing), pending
