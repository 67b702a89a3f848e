"""Measures the cost of the cold tier: `python -m homing_rig.bench.cold rocks:///tmp/new-folder /tmp/new-cold-folder`.

The same events are read from the log, then brought into the cold tier, then read again: ratios within the run count.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.core.errors import ConfigurationError
from app.core.events.event import Event, Shard, size_of
from app.core.events.generation import ColdFile
from app.core.events.reading import EVERYTHING, Reading
from app.runtime.system import SystemClock, new_secret
from app.store.engine import open_events
from app.store.events import EventStore
from homing_rig.bench.events import DATABASE, TURNS, append, batches, entry, read, timed
from homing_rig.statistics import median

STEP: Final = 2048
READINGS: Final = {
    "one topic": ("fleet/SN00042/k3", 10_000),
    "10,000 of one kind": ("fleet/+/k3", 10_000),
    "10,000 of everything": ("#", 10_000),
}
Say = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class ColdCost:
    """Bytes of the files to bytes as a quota counts them, and by reading the seconds of log and cold tier."""

    kept: float
    readings: dict[str, tuple[float, float]]


async def measure(url: str, cold: Path, count: int, say: Say = lambda _what, _how_much: None) -> ColdCost:
    """Write, read, cool, and read again. `cold` is a new folder, and goes away."""
    if await asyncio.to_thread(cold.exists):
        raise ConfigurationError(f"{cold}: is there already; a new folder is needed")
    engine = open_events(url, clock=SystemClock(), counters=Counter(), new_secret=new_secret, cold=str(cold))
    log = engine.open_log([DATABASE])
    await log.start()
    try:
        await append(log, list(batches(0, count // 2, 64)))
        await log.rotate(DATABASE.name, 1)
        await append(log, list(batches(count // 2, count // 2, 64)))
        hot = {name: await _turns(log, *one) for name, one in READINGS.items()}
        assert engine.archive is not None  # noqa: S101 - a cold tier was asked for
        files: list[ColdFile] = []

        async def cool() -> None:
            for shard in DATABASE.all_shards():
                files.extend(await engine.archive.put(shard, 1, _events(log, shard)))  # type: ignore[union-attr]
            await log.cool(DATABASE.name, 1, files)

        cost = await timed(cool)
        events = sum(file.events for file in files)
        say("cooling", f"{cost.cpu / events * 1e6:.1f} µs CPU per event, {events:,} in {len(files)} files")
        raw = sum(size_of(entry(number)) for number in range(1000)) / 1000
        kept = sum(file.size for file in files) / events / raw
        say("in the cold tier", f"{kept * raw:.0f} bytes per event, {kept:.2f} of raw ({raw:.0f})")
        readings = {}
        for name, one in READINGS.items():
            readings[name] = (hot[name], await _turns(log, *one))
            say(name, "log {:.1f} ms, cold {:.1f} ms".format(*(1000 * each for each in readings[name])))
        whole = await timed(lambda: read(log, "#", 0, 2 * count))
        say("all, over the border", f"{whole.cpu / (count // 2 * 2) * 1e6:.1f} µs CPU per event")
        return ColdCost(kept, readings)
    finally:
        await log.close()
        await asyncio.to_thread(shutil.rmtree, cold, ignore_errors=True)


async def _turns(log: EventStore, topic_filter: str, most: int) -> float:
    """The median time of a reading from the beginning."""
    return median([(await timed(lambda: read(log, topic_filter, 0, most))).wall for _ in range(TURNS)])


async def _events(log: EventStore, shard: Shard) -> AsyncIterator[Sequence[Event]]:
    reading, more = Reading(EVERYTHING, generation=1), True
    while more:
        part = await log.read(shard, reading, STEP)
        yield part.events
        reading, more = Reading(EVERYTHING, part.position, generation=1), part.more


def _say(what: str, how_much: str) -> None:
    sys.stdout.write(f"{what:<22} {how_much}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("cold", type=Path)
    parser.add_argument("--count", type=int, default=400_000)
    given = parser.parse_args()
    asyncio.run(measure(given.url, given.cold, given.count, _say))
