"""Measures what `homing up` takes on one core, when it may have no more memory than a small box has."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
from collections.abc import Sequence
from time import perf_counter
from typing import Annotated, Final

import psutil  # type: ignore[import-untyped] # it comes without types
from typer import Option

from homing_rig.figures.broker import PlainClient, SmallBox, cpu_seconds, one_turn
from homing_rig.figures.kit import FigureError, Findings

MIB: Final = 2**20
SETTLE_SECONDS: Final = 6.0
"""The time for which a node that is ready may go on loading what it needs."""
MOST_OF_BOX: Final = 4_000
"""Connections that a node of 512 MiB may have."""
SPARE: Final = 100
"""Connections and files beside those that say nothing."""


async def small_box(
    findings: Findings,
    *,
    memory: Annotated[int, Option(min=128, help="The MiB that the node may have.")] = 512,
    connections: Annotated[int, Option(min=1, help="The number of connections that say nothing.")] = 500,
    seconds: Annotated[float, Option(min=0.5, help="The length of each measurement.")] = 10.0,
) -> None:
    """Memory and CPU of `homing up` on one core: idle, with connections that say nothing, and under load."""
    within = _within(memory)
    findings.note(f"The node runs under `{' '.join(within)}`: one core, and {memory} MiB that are its own.")
    with SmallBox(within=within, authenticate=True) as box:
        await _idle(findings, box, "first start", seconds)
        await asyncio.to_thread(box.restart)
        await _idle(findings, box, "second start", seconds)
    open_files(connections + SPARE)
    room = [f"HOMING_BROKER_MAX_{one}={max(MOST_OF_BOX, connections + SPARE)}" for one in ("CONNECTIONS", "SESSIONS")]
    with SmallBox(within=(*within, "env", *room)) as box:
        await _idle(findings, box, "without access (--open)", seconds)
        before, began = resident(box), perf_counter()
        clients = [await PlainClient.connect(box.mqtt_port, f"idle-{number}") for number in range(connections)]
        findings.figure("connections begun a second, one by one", len(clients) / (perf_counter() - began), "")
        findings.figure("memory of one connection", (resident(box) - before) * 1024 / len(clients), " KiB")
        await _idle(findings, box, f"with {connections:,} connections", seconds)
        for one in clients:
            one.close()
        cost, rate = await one_turn(box.mqtt_port, box.pid, seconds)
        findings.figure("messages of QoS 1 a second, kept", rate, "/s")
        findings.figure("CPU per message", cost, " µs")
        findings.figure("memory after them", resident(box), " MiB", most=memory)


def open_files(wanted: int) -> None:
    """Let this process open as many; FigureError where the system does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != hard < wanted:
        raise FigureError(f"{wanted} files must be open at once, and the system allows {hard}")
    if resource.RLIM_INFINITY != soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _within(memory: int) -> Sequence[str]:
    """The command that gives what runs behind it one core, and so many MiB. FigureError where this system has none."""
    if not (shutil.which("taskset") and shutil.which("prlimit")):
        raise FigureError("taskset and prlimit are not installed; they are in the package util-linux")
    core = min(os.sched_getaffinity(0))
    return ("taskset", "-c", str(core), "prlimit", f"--data={memory * MIB}")


async def _idle(findings: Findings, box: SmallBox, name: str, seconds: float) -> None:
    await asyncio.sleep(SETTLE_SECONDS)
    findings.figure(f"memory, idle, {name}", resident(box), " MiB")
    before = cpu_seconds(box.pid)
    await asyncio.sleep(seconds)
    findings.figure(f"CPU, idle, {name}", (cpu_seconds(box.pid) - before) / seconds * 100, " % of a core")


def resident(box: SmallBox) -> float:
    """Return the MiB of memory that a node has now."""
    return float(psutil.Process(box.pid).memory_info().rss / MIB)
