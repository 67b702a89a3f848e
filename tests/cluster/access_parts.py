"""What access does for a command, part by part: processor time of this process, without a node (A2)."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from statistics import median
from time import process_time

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
from app.runtime.system import SystemClock, new_secret
from app.runtime.telemetry import Counters
from app.store.directory import AccessDirectory
from app.store.engine import open_directory
from homing_rig.guard import Guard
from tests.cluster.stream_rig import judge, say

COMMANDS = 1_000
"""Of one round: what a busy node has in half a second."""
QUESTIONS = 200


@asynccontextmanager
async def directory_of(guard: Guard) -> AsyncIterator[AccessDirectory]:
    directory = open_directory(
        guard.settings["HOMING_ACCESS_URL"], new_cluster_id=new_secret, budget=timedelta(minutes=1)
    )
    try:
        yield directory
    finally:
        await directory.close()


async def nothing() -> None:
    """Nothing is to be prepared."""


async def agreed(cluster_id: str) -> str:
    return cluster_id


async def parts(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        guard = Guard(Path(folder))
        await guard.set_up()
        async with directory_of(guard) as directory:
            taken = await _rounds(guard, directory, rounds)
            await directory.version()
            began = process_time()
            for _ in range(QUESTIONS):
                await directory.version()
            question = (process_time() - began) / QUESTIONS * 1_000_000
    for name, times in taken.items():
        say(f"{name}: median {median(times):.2f} µs, best {min(times):.2f} µs")
    say(f"whether the directory has changed: {question:.0f} µs, twice a second")
    judge("all parts, medians", sum(median(times) for times in taken.values()), " µs", most=5)


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
    """What is done for all commands of a round, in order."""
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
