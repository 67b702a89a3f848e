"""Measures what an event costs the log in a folder, which it has for itself or shares with sessions of a broker."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from time import process_time
from typing import Annotated, Final

import psutil  # type: ignore[import-untyped] # it comes without types
from typer import Option

from app.core.events.event import Database, Entry
from app.runtime.system import SystemClock
from app.store.rocks.events import RocksEventLog
from app.store.rocks.folder import RocksFolder
from app.store.rocks.sessions import RocksSessions
from homing_rig.figures.kit import Findings
from homing_rig.statistics import median
from homing_rig.turns import in_turns

DATABASE: Final = Database("events", 4)
TOGETHER: Final = 64
"""Events that are appended as one."""
PAYLOAD: Final = b'{"type": "figure", "celsius": 81, "note": "' + b"x" * 76 + b'"}'
ALONE, SHARED = SIDES = ("alone", "shared")


async def event_folder(
    findings: Findings,
    *,
    events: Annotated[int, Option(min=TOGETHER, help="The number of events of a turn.")] = 40_000,
    rounds: Annotated[int, Option(min=1, help="The number of turns of each side.")] = 7,
) -> None:
    """CPU and bytes on the disk for an event of a log in a folder, by itself and beside sessions of a broker."""
    costs: dict[str, list[float]] = {one: [] for one in SIDES}
    written: dict[str, list[float]] = {one: [] for one in SIDES}
    for side in in_turns(SIDES, rounds):
        with tempfile.TemporaryDirectory() as place:
            cost, size = await _turn(Path(place), events, shared=side == SHARED)
        costs[side].append(cost)
        written[side].append(size)
    for side in SIDES:
        findings.spread(f"CPU per event, {side}", costs[side], " µs")
        findings.spread(f"bytes written per event, {side}", written[side], "")
    ratio = median(costs[SHARED]) / median(costs[ALONE])
    findings.figure("CPU of the second to the first, by their medians", ratio, " ×", most=1.03)


async def _turn(place: Path, events: int, *, shared: bool) -> tuple[float, float]:
    """Microseconds and bytes for each event."""
    folder = RocksFolder(place)
    log, sessions = RocksEventLog(folder, [DATABASE], SystemClock()), RocksSessions(folder)
    await log.start()
    if shared:
        await sessions.start()
    disk = psutil.Process()
    began, before, count = process_time(), disk.io_counters().write_bytes, 0
    while count < events:
        appends = []
        for shard in DATABASE.all_shards():
            entries = [Entry(f"homing/dock-{count + one}/event", PAYLOAD) for one in range(TOGETHER)]
            appends.append(log.append(shard, entries))
            count += TOGETHER
        await asyncio.gather(*appends)
    cost, size = (process_time() - began) / count * 1e6, (disk.io_counters().write_bytes - before) / count
    if shared:
        await sessions.close()
    await log.close()
    return cost, size
