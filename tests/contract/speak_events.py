"""Appends to an event log and reads it, with the version of Homing that is first on the path: test_event_versions.

`python speak_events.py URL append FIRST COUNT`, `… rotate GENERATION`, `… read FILTER…`, `… pick`; says
what it has read as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.core.events.event import Entry
    from app.store.events import EventStore


def _module(*names: str) -> Any:  # noqa: ANN401 - a module
    """The first of these that there is: versions have the same things in other places. As in `speak`."""
    for name in names:
        try:
            return import_module(name)
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError(f"none of {', '.join(names)}")


event = _module("app.core.events.event", "app.core.eventlog.event")
reading = _module("app.core.events.reading", "app.core.eventlog.reading")
system = _module("app.runtime.system", "app.system")
open_events = _module("app.store.engine").open_events

DATABASE = event.Database("events", 1, ("taught/+/x",))
SHARD = event.Shard("events", 0)


def said(number: int) -> Entry:
    """Return entries of a device, and of somebody who makes topics up."""
    topic = f"taught/{number % 7}/x" if number % 2 else f"made/{number % 40}/up{number % 3}"
    entry: Entry = event.Entry(topic, b"%d" % number)
    return entry


async def read(log: EventStore, topic_filter: str) -> list[int]:
    found: list[int] = []
    wanted, more = reading.Reading(topic_filter), True
    while more:
        part = await log.read(SHARD, wanted, 7)
        found += [int(one.entry.value) for one in part.events]
        wanted, more = reading.Reading(topic_filter, part.position), part.more
    return found


async def pick(log: EventStore) -> list[int]:
    """All of them, each by its position."""
    positions: list[int] = []
    wanted, more = reading.Reading(), True
    while more:
        part = await log.read(SHARD, wanted, 7)
        positions += [one.position for one in part.events]
        wanted, more = reading.Reading("#", part.position), part.more
    found: list[int] = []
    for at in range(0, len(positions), reading.MOST_PICKED):
        picked = await log.pick(SHARD, positions[at : at + reading.MOST_PICKED])
        found += [int(event.entry.value) for _, event in sorted(picked.events.items())]
    return found


async def main(url: str, verb: str, *words: str) -> None:
    log = open_events(url, clock=system.SystemClock(), counters=Counter(), new_secret=system.new_secret).open_log(
        [DATABASE]
    )
    await log.start()
    try:
        if verb == "append":
            first, count = map(int, words)
            for begin in range(first, first + count, 10):
                await log.append(SHARD, [said(number) for number in range(begin, begin + 10)])
        elif verb == "rotate":
            await log.rotate("events", int(words[0]))
        elif verb == "pick":
            sys.stdout.write(json.dumps(await pick(log)))
        else:
            found = {one: await read(log, one) for one in words}
            sys.stdout.write(json.dumps([found, len(await log.generations("events"))]))
    finally:
        await log.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
