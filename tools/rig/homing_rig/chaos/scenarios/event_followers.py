"""Scenarios of readers who follow events: while generations come and go, and one who hardly reads."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Final

import aiohttp
import orjson

from app.core.events import keys
from app.core.events.event import Shard
from homing_rig.chaos.kept_events import EVENTS_JUMPED, EVENTS_LOST, EVENTS_TAKEN, KEPT, Kept
from homing_rig.chaos.rig import Rig
from homing_rig.chaos.scenario import Figure, Form, Scenario
from homing_rig.chaos.scenarios.event_bounds import FULL_BYTES, LARGE, Memory, quiet
from homing_rig.chaos.scenarios.events import COMMANDS, LOG, REPEATED, SHORT_LOG, judge_events, talkers_of
from homing_rig.chaos.schedule import Fault, Kind
from homing_rig.chaos.shared_figures import ANSWERED, SOUND, measure
from homing_rig.talkers import Talkers

GENERATION_BYTES: Final = 1_000_000
CATCH_UP_SECONDS: Final = 120.0
_SLAB: Final = re.compile(r"mqtt:slab:\{([^}]+)\.(\d+)\}:(\d+)")


async def _turnover(rig: Rig) -> None:
    """A stream hears everything, as generations are dropped before anybody could read them at the end."""
    await rig.start_fleet()
    talkers = await talkers_of(rig, LARGE)
    heard = Kept()
    ended = asyncio.Event()
    handlers = [asyncio.create_task(_hear(rig, database, heard, ended)) for database in ("events", "telemetry")]
    for task in handlers:
        rig.stack.callback(task.cancel)
    talking = asyncio.create_task(talkers.talk(rig.form.events, rig.form.seconds or 0.0))
    rig.stack.callback(talking.cancel)
    await rig.load_with_faults(rig.job())
    await talking
    rig.phase = "hearing the rest"
    loop = asyncio.get_running_loop()
    until = loop.time() + CATCH_UP_SECONDS
    while heard.missing(talkers) and loop.time() < until:
        await asyncio.sleep(0.2)
    ended.set()
    rig.measures |= {
        "events_taken": talkers.total,
        "events_lost": heard.missing(talkers),
        "events_jumped": heard.jumped(talkers),
        "events_repeated": heard.repeated(),
        "gaps": heard.gaps,
        "generations": await _generations_ended(rig),
        "slabs_left": await _slabs_left(rig),
    }
    await rig.settle()
    measure(rig)


async def _hear(rig: Rig, database: str, heard: Kept, ended: asyncio.Event) -> None:
    """Follow a database on one node after the other, each from the last event on."""
    last, turn = "", 0
    names = [*rig.nodes]
    while not ended.is_set():
        node = rig.nodes[names[turn % len(names)]]
        turn += 1
        ask: dict[str, Any] = {"params": {"database": database, **({} if last else {"from": "-1h"})}}
        headers = {"Last-Event-ID": last} if last else {}
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            async with rig.session.get(f"{node.url}/v1/events/stream", headers=headers, **ask) as stream:
                stream.raise_for_status()
                async for name, identity, data in _told(stream.content):
                    last = identity or last
                    _take(heard, name, data)
        await asyncio.sleep(0.2)


def _take(heard: Kept, name: str, data: dict[str, Any]) -> None:
    if name == "event":
        heard.take(data["topic"], data["data"]["n"], data["position"])
    elif name == "gap":
        heard.gaps += 1


async def _told(stream: aiohttp.StreamReader) -> AsyncIterator[tuple[str, str, dict[str, Any]]]:
    """Server-sent events as they come: name, id and data."""
    fields: dict[str, str] = {}
    async for line in stream:
        text = line.decode().rstrip("\r\n")
        if text:
            name, _, value = text.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield fields.get("event", ""), fields.get("id", ""), orjson.loads(fields["data"])
            fields = {}


async def _generations_ended(rig: Rig) -> int:
    async with rig.session.get(f"{rig.nodes['n1'].url}/v1/databases") as answer:
        said = await answer.json()
    numbers: list[int] = [one["number"] for database in said["databases"] for one in database["generations"]]
    return max(numbers) - 1


async def _slabs_left(rig: Rig) -> int:
    """Blocks in Redis that no catalogue has: they would stay there for ever."""
    left = 0
    async for name in rig.redis.scan_iter("mqtt:slab:*", count=1000):
        found = _SLAB.fullmatch(name.decode())
        if found is None:
            continue
        cuts = keys.cuts(Shard(found[1], int(found[2])))
        if not await rig.redis.hexists(cuts, found[3]):
            left += await rig.redis.exists(name)  # a node may have dropped both since
    return left


async def _slow_reader(rig: Rig) -> None:
    await rig.start_fleet()
    talkers = await talkers_of(rig, 1000)
    memory_before = Memory(rig).now()
    memory = Memory(rig)
    heard = Kept()
    talking = asyncio.create_task(talkers.talk(rig.form.events, rig.form.seconds or 0.0))
    rig.stack.callback(talking.cancel)
    url, ask = f"{rig.nodes['n1'].url}/v1/events/stream", {"database": "events", "from": "-1h"}
    async with rig.session.get(url, params=ask, read_bufsize=1024) as stream:
        # Nothing is read: what the library and the kernel buffer, and then the node, which hangs up after 30 s.
        await rig.load_with_faults(rig.job())
        await talking
        await quiet(rig)
        rig.measures["rss_growth_mib"] = round(memory.most - memory_before, 1)
        rig.phase = "catching up"
        last = await _read_up(stream.content, heard, talkers)
    if _unheard(heard, talkers):
        params = {"database": "events"}
        async with rig.session.get(url, params=params, headers={"Last-Event-ID": last}) as stream:
            await _read_up(stream.content, heard, talkers)
    await rig.settle()
    measure(rig)
    await judge_events(rig, talkers)
    counters = (await rig.counters("n1"))["self"]["counters"]
    rig.measures |= {
        "heard_lost": _unheard(heard, talkers),
        "heard_jumped": heard.jumped(talkers),
        "heard_repeated": heard.repeated(),
        "gaps": heard.gaps,
        "fell_behind": counters.get("events.follower_behind", 0),
    }


async def _read_up(stream: aiohttp.StreamReader, heard: Kept, talkers: Talkers) -> str:
    """Read until nothing is missing, or the stream ends; where the next one has to go on."""
    last = ""
    with suppress(TimeoutError, aiohttp.ClientPayloadError):
        async with asyncio.timeout(CATCH_UP_SECONDS):
            async for name, identity, data in _told(stream):
                last = identity or last
                _take(heard, name, data)
                if data.get("data", {}).get("n", -1) + 1 == talkers.said[data.get("topic", "")] and not _unheard(
                    heard, talkers
                ):
                    break
    return last


def _unheard(heard: Kept, talkers: Talkers) -> int:
    """Count what is missing of the one database that was followed."""
    return sum(
        talkers.said[topic] - len(talkers.unsure[topic]) - len(set(heard.numbers[topic]) - talkers.unsure[topic])
        for topic in talkers.said
        if topic.startswith("homing/")
    )


def _random_kills(rng: random.Random, form: Form) -> list[Fault]:
    names = [f"n{number + 1}" for number in range(form.nodes)]
    count = int((form.seconds or 0) / form.every)
    return [
        Fault(round(form.every * (index + rng.random()), 3), Kind.KILL, rng.choice(names), form.down)
        for index in range(count)
    ]


_TURNOVER: Final = {
    "HOMING_EVENTS_GENERATION_BYTES": str(GENERATION_BYTES),
    "HOMING_EVENTS_QUOTA_BYTES": str(FULL_BYTES),
    "HOMING_EVENTS_DISCARD": "old",
}

E7 = Scenario(
    name="E7",
    title="generations come and go while nodes die",
    provoke="generations end every second or two and the oldest go; kill -9 of a random node meanwhile; streams follow",
    figures=(
        *SOUND,
        ANSWERED,
        EVENTS_TAKEN,
        EVENTS_LOST,
        EVENTS_JUMPED,
        Figure("slabs_left", "=", 0, "blocks of events that no catalogue has"),
        Figure("generations", ">=", 3, "generations that ended"),
    ),
    full=Form(
        seconds=120, events=400, rate=COMMANDS, timeout=30.0, patience=45.0, attempt=40.0, settings=LOG | _TURNOVER
    ),
    short=Form(
        seconds=14,
        events=250,
        rate=COMMANDS,
        every=6.0,
        down=1.0,
        timeout=30.0,
        attempt=40.0,
        settings=SHORT_LOG | _TURNOVER,
    ),
    act=_turnover,
    plan=_random_kills,
)

E11 = Scenario(
    name="E11",
    title="a reader who hardly reads",
    provoke="somebody follows all events and reads next to nothing while they come, then all of it",
    figures=(
        *SOUND,
        *KEPT,
        ANSWERED,
        REPEATED,
        Figure("heard_lost", "=", 0, "events that the slow reader has missed"),
        Figure("heard_jumped", "=", 0, "events that it got too early"),
        Figure("heard_repeated", "=", 0, "events that it got twice"),
        Figure("gaps", "=", 0, "gaps that it was told of"),
        Figure("fell_behind", ">=", 1, "how often it lost its place at the tail", timing=True),
        Figure("rss_growth_mib", "<=", 100, "by how much the largest node grew meanwhile, in MiB"),
    ),
    full=Form(seconds=60, events=1000, rate=COMMANDS, settings=LOG),
    short=Form(seconds=6, events=500, rate=COMMANDS, nodes=2, timeout=60.0, settings=SHORT_LOG),
    act=_slow_reader,
)
