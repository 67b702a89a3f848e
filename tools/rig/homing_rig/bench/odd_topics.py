"""Measures reading where devices make topics up: `python -m homing_rig.bench.odd_topics rocks:///tmp/new-folder`.

Or the URL of an empty Redis. To compare with another version, its `app` is put in front of this one:
`PYTHONPATH=/its/checkout python -P tools/rig/homing_rig/bench/odd_topics.py …`. Ratios of runs that take turns are what
counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from app.core.events.event import Database, Entry, Shard
from app.core.events.reading import Reading
from app.runtime.system import SystemClock, new_secret
from app.store.engine import open_events
from app.store.events import EventStore
from homing_rig.bench.events import append, timed

TOPICS: Final = 50_000
EVENTS: Final = 200_000
BATCH: Final = 64
DATABASE: Final = Database("odd", 4, ("thing/product/+/osd",))
OFTEN: Final = "thing/product/SN00042/state"
"""One event of a thousand is on it."""

Say = Callable[[str, str], None]


class Question(NamedTuple):
    """The events to read: those that fit, in pages of so many."""

    name: str
    topic_filter: str
    page: int = 1000


QUESTIONS: Final = (
    Question("one topic, 1 of 1,000", OFTEN),
    Question("one topic, a few events", "thing/product/SN00070/osd"),
    Question("no topic", "thing/product/nobody/osd"),
    Question("a branch", "fleet/7/#"),
    Question("one kind, taught", "thing/product/+/osd"),
    Question("one kind, learned", "spBv1.0/+/DDATA/+/+"),
    Question("all", "#"),
    Question("all, pages of 100", "#", 100),
)


def topic_of(number: int) -> str:
    """One of 50,000 topics of seven shapes: those of fleets, and those that nobody would design."""
    chance = blake2b(number.to_bytes(8), digest_size=16).hexdigest()
    match number % 10:
        case 0 | 1:
            return f"thing/product/SN{number:05}/osd"
        case 2:
            return f"spBv1.0/G{number % 50}/DDATA/N{number % 900}/D{number}"
        case 3 | 4 | 5 | 6:
            return f"fleet/{number // 10 % 1000}/SN{number:05}/status"
        case 7:
            return f"{chance[:6]}/{chance[6:12]}/{chance[12:18]}"
        case 8:
            return "/".join(chance[:16])
        case _:
            return f"//{number % 30}//{chance}/"


def odd(number: int) -> Entry:
    """An event of about 100 bytes."""
    value = json.dumps({"n": number, "flight": blake2b(number.to_bytes(8), digest_size=32).hexdigest()}).encode()
    return Entry(OFTEN if number % 1000 == 0 else topic_of(number * 7919 % TOPICS), value)


def batches(count: int) -> Iterator[tuple[Shard, list[Entry]]]:
    """Yield so many events in batches of one shard each."""
    waiting: dict[Shard, list[Entry]] = {}
    for number in range(count):
        one = odd(number)
        lane = waiting.setdefault(shard := DATABASE.shard(one.topic), [])
        lane.append(one)
        if len(lane) == BATCH:
            yield shard, waiting.pop(shard)
    yield from waiting.items()


async def read_all(log: EventStore, question: Question) -> int:
    """Page through all shards, and say how many events there were."""
    found = 0
    for shard in DATABASE.all_shards():
        reading, more = Reading(question.topic_filter), True
        while more:
            part = await log.read(shard, reading, question.page)
            found += len(part.events)
            more, reading = part.more, Reading(question.topic_filter, part.position)
    return found


async def measure(url: str, count: int, say: Say = lambda _what, _how_much: None, skip: str = "") -> dict[str, int]:
    """Append and read, and say what it costs; how many events each question found. A folder goes away."""
    log = open_events(url, clock=SystemClock(), counters=Counter(), new_secret=new_secret).open_log([DATABASE])
    await log.start()
    try:
        work = list(batches(count))
        cost = await timed(lambda: append(log, work))
        say("append", f"{cost.cpu / count * 1e6:.1f} µs CPU per event")
        say("structures", str(len(await log.structures(DATABASE.name))))
        found: dict[str, int] = {}
        for question in QUESTIONS:
            if skip and question.name.startswith(skip):
                continue
            cost = await timed(lambda one=question: _note(found, one, log))  # type: ignore[misc] # of this turn
            events = found[question.name]
            each = f", {cost.cpu / events * 1e6:.1f} µs per event" if events else ""
            say(question.name, f"{events:,} events, {cost.cpu * 1000:,.0f} ms CPU{each}")
        return found
    finally:
        await log.close()
        if url.startswith("rocks://"):
            await asyncio.to_thread(shutil.rmtree, Path(url.removeprefix("rocks://")))


async def _note(found: dict[str, int], question: Question, log: EventStore) -> None:
    found[question.name] = await read_all(log, question)


def _say(what: str, how_much: str) -> None:
    sys.stdout.write(f"{what:<24} {how_much}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--count", type=int, default=EVENTS)
    parser.add_argument("--skip", default="", help="leave questions out whose names begin so")
    given = parser.parse_args()
    asyncio.run(measure(given.url, given.count, _say, given.skip))
