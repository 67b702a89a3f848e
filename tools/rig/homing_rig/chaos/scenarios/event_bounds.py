"""Scenarios of what bounds events: too many, and a full log."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import aiohttp

from homing_rig.chaos.kept_events import EVENTS_TAKEN, KEPT, Kept
from homing_rig.chaos.patient_asker import PatientAsker
from homing_rig.chaos.rig import Rig
from homing_rig.chaos.scenario import Figure, Form, Scenario
from homing_rig.chaos.scenarios.events import COMMANDS, LOG, SHORT_LOG, judge_events, talkers_of
from homing_rig.chaos.scenarios.traffic import MIB
from homing_rig.chaos.shared_figures import ANSWERED, SOUND, measure, milliseconds

PATIENCE_SECONDS: Final = 120.0
FULL_BYTES: Final = 10_000_000
"""The smallest quota that there is."""
LARGE: Final = 4000
"""Bytes of an event where a log is to be full soon."""


class Memory:
    """The most memory that a node used while this was looked at, in MiB."""

    def __init__(self, rig: Rig) -> None:
        self._nodes = rig.nodes
        self._most = 0.0
        self._task = asyncio.create_task(self._look())
        rig.stack.callback(self._task.cancel)

    @property
    def most(self) -> float:
        """The most so far; an error when nobody looks any more."""
        if self._task.done():
            self._task.result()
        return max(self._most, self.now())

    def now(self) -> float:
        """The memory of the largest node at this moment, in MiB."""
        return max(float(node.usage.memory_info().rss) for node in self._nodes.values()) / MIB

    async def _look(self) -> None:
        while True:
            self._most = max(self._most, self.now())
            await asyncio.sleep(0.1)


async def _storm(rig: Rig) -> None:
    await rig.start_fleet()
    talkers = await talkers_of(rig)
    calm_seconds = (rig.form.seconds or 0.0) / 2
    rig.phase = "calm"
    await rig.load.run(rig.job(seconds=calm_seconds, group="calm"))
    memory = Memory(rig)
    loop = asyncio.get_running_loop()
    talking = asyncio.create_task(talkers.talk(rig.form.events, rig.form.seconds or 0.0))
    rig.stack.callback(talking.cancel)
    await rig.load_with_faults(rig.job(group="storm"))
    await talking
    over = loop.time()
    rig.phase = "catching up"
    await quiet(rig)
    lag = loop.time() - over
    await rig.settle()
    measure(rig)
    await judge_events(rig, talkers)
    calm, storm = (
        milliseconds([call for call in rig.load.calls if call.group == group], 0.99) for group in ("calm", "storm")
    )
    rig.measures |= {
        "calm_p99_ms": calm,
        "storm_p99_ms": storm,
        "p99_ratio": round(storm / max(calm, 0.1), 2),
        "rss_mib": round(memory.most, 1),
        "caught_up_s": round(lag, 1),
        "events_per_s": round(talkers.total / (rig.form.seconds or 1.0)),
        "lost_here": max(0, rig.measures["events_lost"] - rig.measures["broker_dropped"]),
    }


async def _appended(rig: Rig) -> int:
    total = 0
    for name in rig.nodes:
        with suppress(aiohttp.ClientError, OSError, TimeoutError):
            total += (await rig.counters(name))["self"]["counters"].get("events.appended", 0)
    return total


async def quiet(rig: Rig) -> None:
    """Return when nobody appends any more."""
    before = -1
    async with asyncio.timeout(PATIENCE_SECONDS):
        while before != (before := await _appended(rig)):
            await asyncio.sleep(0.5)


async def _full(rig: Rig) -> None:
    await rig.start_fleet()
    talkers = await talkers_of(rig, LARGE)
    loop = asyncio.get_running_loop()
    talking = asyncio.create_task(talkers.talk(rig.form.events, rig.form.seconds or 0.0))
    rig.stack.callback(talking.cancel)
    await rig.load_with_faults(rig.job())
    await talking
    rig.phase = "full"
    refused = await _until_status(rig, "n1", 507)
    beside = Kept()
    await beside.read(PatientAsker(rig.session, 0.0), rig.nodes["n1"].url)  # reading goes on, or this raises
    held = beside.missing(talkers)
    await talkers.talk(rig.form.events, 2.0)  # and these wait at the broker
    rig.phase = "making room"
    for node in rig.nodes.values():
        await node.stop()
        node.configure({"HOMING_EVENTS_QUOTA_BYTES": str(100 * FULL_BYTES)})
        await node.start()
    began = loop.time()
    resumed = await _until_status(rig, "n1", 200)
    rig.measures |= {
        "refused": float(refused),
        "resumed": float(resumed),
        "resumed_s": round(loop.time() - began, 2),
        "held_back": held,
    }
    await rig.settle()
    measure(rig)
    await judge_events(rig, talkers)


async def _until_status(rig: Rig, name: str, status: int) -> bool:
    """Publish until the node answers with this status; True if it soon does."""
    loop = asyncio.get_running_loop()
    until = loop.time() + PATIENCE_SECONDS
    while loop.time() < until:
        with suppress(aiohttp.ClientError):
            async with rig.session.post(
                f"{rig.nodes[name].url}/v1/events", json=[{"topic": "$rig/asks", "data": 1}]
            ) as answer:
                if answer.status == status:
                    return True
        await asyncio.sleep(0.2)
    return False


E5 = Scenario(
    name="E5",
    title="many more events than can be taken in",
    provoke="devices say five times as many events as a node takes, for 60 s, beside commands",
    figures=(
        *SOUND,
        ANSWERED,
        EVENTS_TAKEN,
        Figure("lost_here", "=", 0, "events that are not in the log, and that the broker has not dropped"),
        Figure("p99_ratio", "<=", 1.5, "p99 of waiting callers, as a multiple of calm", timing=True),
        Figure("rss_mib", "<=", 300, "memory of the largest node, in MiB"),
        Figure("caught_up_s", "<=", 120, "seconds until all that had come was in", timing=True),
    ),
    full=Form(seconds=60, events=25_000, rate=50, settings=LOG),
    short=Form(seconds=4, events=5_000, rate=COMMANDS, timeout=60.0, settings=SHORT_LOG),
    act=_storm,
)

E6 = Scenario(
    name="E6",
    title="a full log",
    provoke="events reach HOMING_EVENTS_QUOTA_BYTES, and more come; then it is raised",
    figures=(
        *SOUND,
        *KEPT,
        ANSWERED,
        Figure("refused", "=", 1, "whether backends were told 507"),
        Figure("resumed", "=", 1, "whether events were taken again when there was room"),
        Figure("resumed_s", "<=", 5, "seconds until they were", timing=True),
    ),
    full=Form(
        seconds=30,
        events=200,
        rate=COMMANDS,
        timeout=30.0,
        attempt=40.0,
        patience=60.0,
        settings=LOG | {"HOMING_EVENTS_QUOTA_BYTES": str(FULL_BYTES)},
    ),
    short=Form(
        seconds=9,
        events=400,
        rate=COMMANDS,
        nodes=2,
        timeout=30.0,
        attempt=40.0,
        settings=SHORT_LOG | {"HOMING_EVENTS_QUOTA_BYTES": str(FULL_BYTES)},
    ),
    act=_full,
)
