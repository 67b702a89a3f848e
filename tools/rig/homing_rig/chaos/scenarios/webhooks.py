"""Outcomes that a receiver is told of, while the nodes that tell it are killed."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from aiohttp import web

from homing_rig.chaos.rig import Rig
from homing_rig.chaos.scenario import Figure, Form, Scenario
from homing_rig.chaos.scenarios.nodes import QUICK_LEASE, kills_of_any
from homing_rig.chaos.schedule import Kind
from homing_rig.chaos.shared_figures import SOUND, measure

SETTINGS: Final = {
    "HOMING_WEBHOOKS_SECRET_KEY": "for-the-rig-only-0123456789abcdef",
    "HOMING_WEBHOOKS_NETWORKS": "127.0.0.0/8",
    "HOMING_WEBHOOKS_PLAIN_HTTP": "true",
}
TOLD_SECONDS: Final = 120.0
"""The time after the last outcome: a claim of a dead node comes back after 30 s, a failed attempt after 5 s."""
KNOWN_SECONDS: Final = 2.0
"""The time after which all nodes know a new webhook."""
REFUSED_SHARE: Final = 20
"""One in so many events is answered 503 the first time."""

_EVENT: Final = re.compile(r"evt_(.+)_([12])")


@dataclass
class Receiver:
    """A receiver of webhooks, and what came in."""

    url: str = ""
    ids: Counter[str] = field(default_factory=Counter)
    """The number of times that each event was delivered."""
    refused: set[str] = field(default_factory=set)
    late_first: int = 0
    """Late answers that came before the outcome."""

    async def take(self, request: web.Request) -> web.Response:
        """A delivery."""
        await request.read()
        event_id = request.headers["webhook-id"]
        if event_id not in self.ids and event_id not in self.refused and crc32(event_id.encode()) % REFUSED_SHARE == 0:
            self.refused.add(event_id)
            return web.Response(status=503)
        found = _EVENT.fullmatch(event_id)
        if found is not None and found[2] == "2" and f"evt_{found[1]}_1" not in self.ids:
            self.late_first += 1
        self.ids[event_id] += 1
        return web.Response(status=204)


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """A server of its own, on a port that the system gives."""
    receiver = Receiver()
    application = web.Application()
    application.router.add_post("/hook", receiver.take)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield receiver
    finally:
        await runner.cleanup()


async def _tell(rig: Rig) -> None:
    async with receiving() as receiver:
        events = [f"command.{one}" for one in ("succeeded", "failed", "timed_out", "cancelled", "unsent", "late")]
        async with rig.session.post(
            f"{rig.nodes['n1'].url}/v1/webhooks", json={"url": receiver.url, "events": events}
        ) as response:
            response.raise_for_status()
        await asyncio.sleep(KNOWN_SECONDS)
        await rig.start_fleet()
        await rig.load_with_faults(rig.job())
        await rig.settle()
        measure(rig)
        rig.phase = "telling"
        expected = {f"evt_{one}_1" for one in rig.finals.commands}
        expected |= {f"evt_{one}_2" for one, said in rig.finals.commands.items() if said.get("late")}
        loop = asyncio.get_running_loop()
        until = loop.time() + TOLD_SECONDS
        while expected - receiver.ids.keys() and loop.time() < until:
            await asyncio.sleep(0.1)
        repeated = sum(receiver.ids.values()) - len(receiver.ids)
        kills = sum(fault.kind is Kind.KILL for fault in rig.schedule)
        rig.measures |= {
            "told": len(receiver.ids),
            "untold": len(expected - receiver.ids.keys()),
            "unexpected": len(receiver.ids.keys() - expected),
            "late_first": receiver.late_first,
            "repeated_per_kill": round(repeated / max(1, kills), 2),
        }


R30 = Scenario(
    name="R30",
    title="webhooks while nodes die",
    provoke="a receiver is told of every outcome; kill -9 of a random node every 10 s; one event in twenty fails once",
    figures=(
        *SOUND,
        Figure("untold", "=", 0, "outcomes and late answers that the receiver was not told of"),
        Figure("unexpected", "=", 0, "events of no outcome, or under a second id"),
        Figure("late_first", "=", 0, "late answers that came before the outcome"),
        Figure("repeated_per_kill", "<=", 16, "events that came twice, for each kill"),
    ),
    full=Form(seconds=100, rate=100, timeout=30.0, patience=45.0, attempt=40.0, every=10.0, settings=SETTINGS),
    short=Form(
        seconds=10,
        rate=30,
        timeout=30.0,
        attempt=40.0,
        every=4.0,
        down=1.0,
        settings=SETTINGS | QUICK_LEASE,
    ),
    act=_tell,
    plan=kills_of_any,
)
