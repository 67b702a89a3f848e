"""A queue is pushed to four receivers, of which three fail while nodes die: E9."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from aiohttp import web

from homing_rig.chaos.kept_events import KEPT, Kept
from homing_rig.chaos.rig import Rig
from homing_rig.chaos.scenario import Figure, Form, Scenario
from homing_rig.chaos.scenarios.events import COMMANDS, LOG, SHORT_LOG, judge_events, talkers_of
from homing_rig.chaos.scenarios.nodes import kills_of_any
from homing_rig.chaos.scenarios.webhooks import SETTINGS
from homing_rig.chaos.shared_figures import ANSWERED, SOUND, measure

FINE: Final = "fine"
FAILING: Final = ("hangs", "breaks", "gone")
DECLARED: Final = {
    "routes": [{"database": "events", "topic": "#"}, {"database": "telemetry", "topic": "#"}],
    "loan": "5s",
    "retry": ["1s"],
    "max_deliveries": 0,
    "start": "-1h",
}
"""Nothing is ever put aside: whatever a receiver does not get was lost."""
TOLD_SECONDS: Final = 120.0
"""The time that a receiver may take to get the rest: a node waits up to a minute for one that has failed for long."""
LOOK_SECONDS: Final = 0.2

Place = tuple[str, int, int]
"""Topic, number and position of an event."""


@dataclass
class Target:
    """A receiver of batches, which fails in its own way until it is well."""

    way: str
    url: str = ""
    got: set[Place] = field(default_factory=set)
    repeated: int = 0
    well: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, request: web.Request) -> web.Response:
        """A batch."""
        batch: list[dict[str, Any]] = await request.json()
        if not self.well.is_set():
            return await self._fail(request)
        for one in batch:
            event = one["data"]
            place = event["topic"], event["data"]["n"], event["position"]
            self.repeated += place in self.got
            self.got.add(place)
        return web.Response(status=204)

    async def _fail(self, request: web.Request) -> web.Response:
        if self.way == "hangs":
            await self.well.wait()
        elif self.way == "gone" and request.transport is not None:
            request.transport.abort()
        return web.Response(status=500)

    def missing(self, logged: set[Place]) -> int:
        """The number of these events that have not come."""
        return len(logged - self.got)


@asynccontextmanager
async def _targets() -> AsyncIterator[dict[str, Target]]:
    """The receivers by their ways, each a server of its own."""
    async with AsyncExitStack() as stack:
        targets = {way: Target(way) for way in (FINE, *FAILING)}
        targets[FINE].well.set()
        for target in targets.values():
            application = web.Application()
            application.router.add_post("/hook", target.take)
            runner = web.AppRunner(application, shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            target.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
        yield targets


async def _push(rig: Rig) -> None:
    await rig.start_fleet()
    talkers = await talkers_of(rig)
    url = rig.nodes["n1"].url
    async with _targets() as targets, aiohttp.ClientSession(headers=rig.session.headers) as http:
        for way, target in targets.items():
            async with http.put(f"{url}/v1/queues/{way}", json=DECLARED) as answer:
                answer.raise_for_status()
            async with http.post(f"{url}/v1/webhooks", json={"url": target.url, "queue": way}) as answer:
                answer.raise_for_status()
        talking = asyncio.create_task(talkers.talk(rig.form.events, rig.form.seconds or 0.0))
        rig.stack.callback(talking.cancel)
        await rig.load_with_faults(rig.job())
        await talking
        await rig.settle()
        measure(rig)
        logged = _places(await judge_events(rig, talkers))
        rig.phase = "telling the one that is well"
        held_up = await _told([targets[FINE]], logged)
        rig.phase = "telling those that failed"
        for target in targets.values():
            target.well.set()
        lost = await _told(list(targets.values()), logged)
        left = [await _left(http, url, way) for way in targets]
    rig.measures |= {
        "queue_events": len(logged),
        "pushed_held_up": held_up,
        "pushed_lost": lost,
        "pushed_unknown": sum(len(one.got - logged) for one in targets.values()),
        "pushed_again": sum(one.repeated for one in targets.values()),
        "queue_left": sum(left),
    }


def _places(kept: Kept) -> set[Place]:
    return {
        (topic, number, position)
        for topic in kept.numbers
        for number, position in zip(kept.numbers[topic], kept.positions[topic], strict=True)
    }


async def _told(targets: list[Target], logged: set[Place]) -> int:
    """Wait until they have got everything; how much they have not when the time is over."""
    loop = asyncio.get_running_loop()
    until = loop.time() + TOLD_SECONDS
    while (missing := sum(one.missing(logged) for one in targets)) and loop.time() < until:
        await asyncio.sleep(LOOK_SECONDS)
    return missing


async def _left(http: aiohttp.ClientSession, url: str, queue: str) -> int:
    """The events that the queue has still: nodes settle what was told a moment ago."""
    loop = asyncio.get_running_loop()
    until = loop.time() + TOLD_SECONDS
    while True:
        async with http.get(f"{url}/v1/queues/{queue}") as answer:
            answer.raise_for_status()
            counts: dict[str, int] = (await answer.json())["counts"]
        left = sum(counts[name] for name in ("ready", "lent", "later", "held_back"))
        if not left or loop.time() >= until:
            return left
        await asyncio.sleep(LOOK_SECONDS)


E9 = Scenario(
    name="E9",
    title="queues are pushed to receivers that hang, break and are gone",
    provoke="four queues over all events, each pushed to a receiver of its own: one hangs, one answers 500, one closes "
    "each connection, until the load is over; kill -9 of a random node every 5 s",
    figures=(
        *SOUND,
        *KEPT,
        ANSWERED,
        Figure("pushed_held_up", "=", 0, "events that the receiver that is well did not get while the others failed"),
        Figure("pushed_lost", "=", 0, "events that a receiver never got, once it was well"),
        Figure("pushed_unknown", "=", 0, "events that a receiver got, and that are not in the log"),
        Figure("queue_left", "=", 0, "events that a queue has still, though its receiver has got them"),
    ),
    full=Form(
        seconds=300, events=200, rate=COMMANDS, timeout=30.0, patience=45.0, attempt=40.0, settings=LOG | SETTINGS
    ),
    short=Form(
        seconds=12,
        events=40,
        rate=COMMANDS,
        every=6.0,
        down=1.0,
        timeout=30.0,
        attempt=40.0,
        settings=SHORT_LOG | SETTINGS,
    ),
    act=_push,
    plan=kills_of_any,
)
