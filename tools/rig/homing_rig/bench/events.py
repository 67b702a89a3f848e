"""Measures an event log: `python -m homing_rig.bench.events rocks:///tmp/new-folder`, or the URL of an empty Redis.

Ratios within one run are what counts: other programs use the machine as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

from app.core.events.event import Database, Entry, Position, Shard, size_of
from app.core.events.reading import Reading
from app.runtime.system import SystemClock, new_secret
from app.store.engine import open_events
from app.store.events import EventStore
from homing_rig.statistics import median

DEVICES: Final = 2500
KINDS: Final = 4
WINDOW: Final = 8
"""Appends under way."""
MERGED: Final = 250
"""Topics that are read one by one, of DEVICES; the time is scaled."""
TURNS: Final = 5
"""The turns of readings that are compared."""
DATABASE: Final = Database("bench", 4, tuple(f"fleet/+/k{kind}" for kind in range(KINDS)))


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of some work: seconds that passed, and seconds of CPU of this process."""

    wall: float
    cpu: float


@dataclass(frozen=True, slots=True)
class LogCost:
    """Seconds of reading, and what is kept against what was said."""

    wild: float
    """10,000 events of one kind, from the middle."""
    merged: float
    """The same, topic by topic."""
    exact: float
    """All events of one topic."""
    scan: float
    """All there are."""
    kept: float | None
    """Bytes on the disk to bytes as a quota counts them; None where that is not known here."""


def entry(number: int) -> Entry:
    """An event of about 200 bytes."""
    device = f"SN{number % DEVICES:05d}"
    chance = blake2b(number.to_bytes(8), digest_size=32).digest()  # as in real positions, little of it comes again
    places = {
        name: int.from_bytes(chance[4 * place : 4 * place + 4]) / 1e6
        for place, name in enumerate(("latitude", "longitude", "height", "speed", "heading"))
    }
    value = json.dumps({"n": number, "battery": number % 100, **places, "flight": chance[20:].hex()}).encode()
    return Entry(f"fleet/{device}/k{number // DEVICES % KINDS}", value, device, "bench:k")


async def timed(work: Callable[[], Awaitable[object]]) -> Cost:
    """Do it and take the time."""
    clock = SystemClock()
    wall, cpu = clock.monotonic(), time.process_time()
    await work()
    return Cost(clock.monotonic() - wall, time.process_time() - cpu)


def batches(first: int, count: int, size: int) -> Iterator[tuple[Shard, list[Entry]]]:
    """Yield so many events in batches of one shard each."""
    waiting: dict[Shard, list[Entry]] = {}
    for number in range(first, first + count):
        one = entry(number)
        shard = DATABASE.shard(one.device)
        lane = waiting.setdefault(shard, [])
        lane.append(one)
        if len(lane) == size:
            yield shard, waiting.pop(shard)
    yield from ((shard, left) for shard, left in waiting.items())


async def append(log: EventStore, work: list[tuple[Shard, list[Entry]]]) -> None:
    """Append batches, several at once."""
    left = iter(work)

    async def lane() -> None:
        for shard, entries in left:
            await log.append(shard, entries)

    await asyncio.gather(*(lane() for _ in range(WINDOW)))


async def read(log: EventStore, topic_filter: str, after: Position, most: int) -> int:
    """Read so many events of all shards, and say how many there were."""
    found = 0
    for shard in DATABASE.all_shards():
        reading, more = Reading(topic_filter, after), True
        while more and found < most:
            part = await log.read(shard, reading, min(1000, most - found))
            found += len(part.events)
            more, reading = part.more, Reading(topic_filter, part.position)
    return found


async def measure(url: str, count: int, say: Callable[[str, str], None] = lambda _what, _how_much: None) -> LogCost:
    """Append and read, and say what it costs."""
    log = open_events(url, clock=SystemClock(), counters=Counter(), new_secret=new_secret).open_log([DATABASE])
    await log.start()
    first = 0
    for size, share in ((1, 100), (16, 10), (512, 10), (64, 1)):
        work = list(batches(first, count // share, size))
        first += count // share
        cost = await timed(lambda work=work: append(log, work))  # type: ignore[misc] # the work of this turn
        events = count // share
        say(f"append, {size} at once", f"{cost.cpu / events * 1e6:.1f} µs CPU, {events / cost.wall:,.0f}/s")
    (about,) = await log.generations(DATABASE.name)
    middle = (about.first + about.last) // 2
    wild, merged = await _alternating(
        lambda: read(log, "fleet/+/k3", middle, 10_000), lambda: _merge(log, middle, round(10_000 / DEVICES))
    )
    say(
        "10,000 of one kind",
        f"{wild * 1000:.1f} ms; topic by topic {merged * DEVICES / MERGED * 1000:.0f} ms",
    )
    exact, _ = await _alternating(lambda: read(log, "fleet/SN00042/k3", 0, 10_000), None)
    scan = await timed(lambda: read(log, "#", 0, first))
    say("one topic", f"{exact * 1000:.2f} ms; all of the log {scan.wall * 1000:.0f} ms")
    say("replay", f"{scan.cpu / first * 1e6:.1f} µs CPU per event")
    await log.close()
    raw = sum(size_of(entry(number)) for number in range(1000)) / 1000
    say("raw", f"{raw:.0f} bytes per event")
    kept = None
    if url.startswith("rocks://"):
        size = await asyncio.to_thread(_removed, Path(url.removeprefix("rocks://")))
        kept = size / first / raw
        say("on the disk", f"{size / first:.0f} bytes per event, {kept:.2f} of raw")
    return LogCost(wild, merged * DEVICES / MERGED, exact, scan.wall, kept)


async def _alternating(
    one: Callable[[], Awaitable[object]], other: Callable[[], Awaitable[object]] | None
) -> tuple[float, float]:
    """The median time of each, in turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(TURNS):
        times[0].append((await timed(one)).wall)
        if other is not None:
            times[1].append((await timed(other)).wall)
    return median(times[0]), median(times[1])


def _removed(folder: Path) -> int:
    """The bytes of its tables, which are gone then."""
    size = sum(one.stat().st_size for one in folder.iterdir() if one.suffix in (".sst", ".log"))
    shutil.rmtree(folder)
    return size


async def _merge(log: EventStore, after: Position, most: int) -> None:
    for device in range(MERGED):
        await read(log, f"fleet/SN{device:05d}/k3", after, most)


def _say(what: str, how_much: str) -> None:
    sys.stdout.write(f"{what:<22} {how_much}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--count", type=int, default=200_000)
    given = parser.parse_args()
    asyncio.run(measure(given.url, given.count, _say))
