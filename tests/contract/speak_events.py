"""Appends to an event log and reads it, with the version of Homing that is first on the path: test_event_versions.

`python speak_events.py URL append FIRST COUNT`, `… rotate GENERATION`, `… read FILTER…`; says what it has read as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter

from app.core.events.event import Database, Entry, Shard
from app.core.events.reading import Reading
from app.runtime.system import SystemClock, new_secret
from app.store.engine import open_events
from app.store.events import EventStore

DATABASE = Database("events", 1, ("taught/+/x",))
SHARD = Shard("events", 0)


def said(number: int) -> Entry:
    """Of a device, and of somebody who makes topics up."""
    topic = f"taught/{number % 7}/x" if number % 2 else f"made/{number % 40}/up{number % 3}"
    return Entry(topic, b"%d" % number)


async def read(log: EventStore, topic_filter: str) -> list[int]:
    found: list[int] = []
    reading, more = Reading(topic_filter), True
    while more:
        part = await log.read(SHARD, reading, 7)
        found += [int(event.entry.value) for event in part.events]
        reading, more = Reading(topic_filter, part.position), part.more
    return found


async def main(url: str, verb: str, *words: str) -> None:
    log = open_events(url, clock=SystemClock(), counters=Counter(), new_secret=new_secret).open_log([DATABASE])
    await log.start()
    try:
        if verb == "append":
            first, count = map(int, words)
            for begin in range(first, first + count, 10):
                await log.append(SHARD, [said(number) for number in range(begin, begin + 10)])
        elif verb == "rotate":
            await log.rotate("events", int(words[0]))
        else:
            found = {one: await read(log, one) for one in words}
            sys.stdout.write(json.dumps([found, len(await log.generations("events"))]))
    finally:
        await log.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
