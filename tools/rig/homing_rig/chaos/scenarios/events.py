"""Scenarios of events that are kept, in order, while nodes and Redis die: E1 to E4, E12, and one node with RocksDB."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Final

import aiohttp

from app.mqtt.options import MqttOptions
from homing_rig.chaos.kept_events import DISAGREE, KEPT, Kept, stale_values
from homing_rig.chaos.patient_asker import PatientAsker
from homing_rig.chaos.rig import Rig
from homing_rig.chaos.scenario import Figure, Form, Scenario
from homing_rig.chaos.scenarios.nodes import QUICK_LEASE
from homing_rig.chaos.schedule import INTAKE, REDIS, Fault, Kind
from homing_rig.chaos.shared_figures import (
    ANSWERED,
    DIED,
    NOT_BACK,
    PROVOKED,
    REFUSED,
    SOUND,
    TRACEBACKS,
    measure,
    quantile,
)
from homing_rig.chaos.strangers import login
from homing_rig.rights import DEVICE_USER
from homing_rig.talkers import Talkers, topics_of

LOG: Final = {"HOMING_EVENTS_URL": "{redis}"}
SHORT_LOG: Final = LOG | QUICK_LEASE
DRAIN_SECONDS: Final = 120.0
"""The time that the last events may take to be in."""
TALKING_DEVICES: Final = 25
COMMANDS: Final = 10.0
"""The commands per second, beside the events."""

REPEATED: Final = Figure("repeated_per_fault", "<=", 1024, "events that are in the log twice, for each fault")
REPEATED_UNASKED: Final = Figure(
    "repeated_unasked", "=", 0, "events that are in the log twice, and came from the broker once"
)
GAP: Final = Figure("gap_s", "<=", 7, "seconds in which nothing was appended, at most: lease + 2", timing=True)
TAKEOVER: Final = Figure(
    "takeover_s", "<=", 5, "seconds from a kill until another node brought events in, at most: the lease", timing=True
)
KEPT_BY_BROKER: Final = Figure(
    "broker_dropped", "=", 0, "messages that the broker dropped as its queue was full: of those nobody else can know"
)


async def talkers_of(rig: Rig, padding: int = 120) -> Talkers:
    """Devices that talk, connected."""
    talkers = Talkers(partial(_login, rig.mqtt_port), topics_of(rig.devices[:TALKING_DEVICES]), padding)
    rig.stack.push_async_callback(talkers.stop)
    await talkers.start()
    await rig.nemesis.intake()
    return talkers


def _login(port: int, client_id: str) -> MqttOptions:
    return login(DEVICE_USER, client_id, port)


async def judge_events(rig: Rig, talkers: Talkers) -> Kept:
    """Read all of it on one node, until it is whole; then on another one; and measure."""
    rig.phase = "reading events"
    async with aiohttp.ClientSession(headers=rig.session.headers) as http:
        (_, first), *others = [(node.name, node.url) for node in rig.nodes.values()]
        kept, asker = Kept(), PatientAsker(http, DRAIN_SECONDS)
        await kept.read_all(asker, first, talkers, DRAIN_SECONDS)
        differ = 0
        for _, url in others[:1]:
            again = Kept()
            await again.read(asker, url)
            differ += (again.numbers, again.positions) != (kept.numbers, kept.positions)
        stale = await stale_values(asker, first, talkers)
    nemesis, repeated = rig.nemesis, kept.repeated()
    for number, seconds in enumerate(nemesis.takeovers, start=1):
        rig.recorder.metric("rig", f"takeover.{number}", round(seconds, 3))
    rig.measures |= {
        "events_taken": talkers.total,
        "events_lost": kept.missing(talkers),
        "events_jumped": kept.jumped(talkers),
        "events_repeated": repeated,
        "asked_again": asker.again,
        "repeated_per_fault": round(repeated / max(1, len(nemesis.begun)), 1),
        "faults": len(nemesis.begun),
        "faults_left_out": nemesis.counts["left out"],
        "takeovers": len(nemesis.takeovers),
        "takeover_s": round(quantile(nemesis.takeovers, 1.0), 2),
        "takeover_p50_s": round(quantile(nemesis.takeovers, 0.5), 2),
        "broker_dropped": rig.witness.dropped,
        "broker_kept_most": rig.witness.kept,
        "positions_fell": kept.fell(),
        "stale_values": stale,
        "readers_differ": differ,
        "gap_s": round(kept.longest_silence(), 2),
    }
    return kept


async def talk(rig: Rig, padding: int = 120) -> None:
    """Devices talk, with so many bytes more an event, while there are commands and faults; then all is judged."""
    await rig.start_fleet()
    talkers = await talkers_of(rig, padding)
    talking = asyncio.create_task(talkers.talk(rig.form.events, rig.form.seconds or 0.0))
    rig.stack.callback(talking.cancel)
    await rig.load_with_faults(rig.job())
    await talking
    await rig.settle()
    measure(rig)
    await judge_events(rig, talkers)


async def _talk_alone(rig: Rig) -> None:
    """Commands first: a node alone forgets them when it is killed, and that is not what is judged here."""
    await rig.start_fleet()
    await rig.load.run(rig.job(seconds=2.0, timeout=5.0))
    await rig.settle()
    measure(rig)
    talkers = await talkers_of(rig)
    rig.phase = "load and faults"
    talking = asyncio.create_task(talkers.talk(rig.form.events, math.inf))
    rig.stack.callback(talking.cancel)
    for fault in rig.schedule:
        await asyncio.sleep(rig.form.every)
        await rig.nemesis.run([replace(fault, at=0.0)])
        await rig.nemesis.heal()  # it serves again, however long that takes here
    talkers.stop_talking()
    await talking
    await judge_events(rig, talkers)


async def talk_and_try_again(rig: Rig) -> None:
    """An append whose answer Redis took with it is made again, and is known.

    What has no PUBACK the broker sends again to who brings events in next, as a Redis that is away ends the lease.
    """
    await talk(rig)
    counters = Counter[str]()
    for name in rig.nodes:
        counters.update((await rig.counters(name))["self"]["counters"])
    rig.measures |= {
        "appends_made_again": counters["events.retried"] + counters["store.retried"],
        "events_redelivered": counters["events.redelivered"],
        "repeated_unasked": max(0, rig.measures["events_repeated"] - counters["events.redelivered"]),
    }


def _kills(_rng: random.Random, form: Form) -> list[Fault]:
    count = int((form.seconds or 0) / form.every)
    return [Fault(form.every * (index + 0.5), Kind.KILL, INTAKE, form.down) for index in range(count)]


def _freezes(_rng: random.Random, form: Form) -> list[Fault]:
    count = int((form.seconds or 0) / form.every)
    return [Fault(2.0 + form.every * index, Kind.FREEZE, INTAKE, form.down) for index in range(count)]


def _redis_dies(_rng: random.Random, form: Form) -> list[Fault]:
    count = int((form.seconds or 0) / form.every)
    return [Fault(2.0 + form.every * index, Kind.KILL, REDIS, form.down) for index in range(count)]


E1 = Scenario(
    name="E1",
    title="a million events",
    provoke="no faults; 50 topics in two databases, and a few commands beside",
    figures=(
        *SOUND,
        *KEPT,
        ANSWERED,
        Figure("events_repeated", "=", 0, "events that are in the log twice"),
    ),
    full=Form(seconds=400, events=2500, rate=COMMANDS, settings=LOG),
    short=Form(seconds=5, events=500, rate=COMMANDS, nodes=2, timeout=60.0, settings=SHORT_LOG),
    act=talk,
)

E2 = Scenario(
    name="E2",
    title="the intake dies again and again",
    provoke="kill -9 of the node that brings events in, every 5 s, or as soon as another one is there; started again "
    "after 2 s",
    figures=(*SOUND, *KEPT, ANSWERED, REPEATED, GAP, TAKEOVER, KEPT_BY_BROKER),
    full=Form(seconds=300, events=2000, rate=COMMANDS, timeout=30.0, patience=45.0, attempt=40.0, settings=LOG),
    short=Form(
        seconds=12, events=400, rate=COMMANDS, every=6.0, down=1.0, timeout=30.0, attempt=40.0, settings=SHORT_LOG
    ),
    act=talk,
    plan=_kills,
)

E3 = Scenario(
    name="E3",
    title="the intake is frozen, and wakes up as another one has its place",
    provoke="SIGSTOP of the node that brings events in, for 20 s",
    figures=(*SOUND, *KEPT, ANSWERED, REPEATED, GAP),
    full=Form(
        seconds=120,
        events=2000,
        rate=COMMANDS,
        every=30.0,
        down=20.0,
        timeout=30.0,
        patience=45.0,
        attempt=40.0,
        settings=LOG,
    ),
    short=Form(
        seconds=20,
        events=500,
        rate=COMMANDS,
        every=20.0,
        down=12.0,
        timeout=30.0,
        attempt=40.0,
        settings=SHORT_LOG,
    ),
    act=talk,
    plan=_freezes,
)

E4 = Scenario(
    name="E4",
    title="Redis dies beside events",
    provoke="kill -9 of Redis, which comes back with its data after 10 s",
    figures=(*SOUND, *KEPT, ANSWERED, REPEATED_UNASKED),
    full=Form(
        seconds=125,
        events=2000,
        rate=COMMANDS,
        every=25.0,
        down=10.0,
        timeout=30.0,
        patience=60.0,
        attempt=40.0,
        settings=LOG,
    ),
    short=Form(
        seconds=8, events=400, rate=COMMANDS, every=8.0, down=3.0, timeout=30.0, attempt=40.0, settings=SHORT_LOG
    ),
    act=talk_and_try_again,
    plan=_redis_dies,
)

E12 = Scenario(
    name="E12",
    title="clocks that are wrong, beside events",
    provoke="the clocks of two nodes are five minutes ahead and behind, and each brings events in after a kill",
    figures=(*SOUND, *KEPT, ANSWERED, REPEATED),
    full=Form(
        seconds=60, events=1000, rate=COMMANDS, every=10.0, timeout=30.0, patience=45.0, attempt=40.0, settings=LOG
    ),
    short=Form(
        seconds=12, events=300, rate=COMMANDS, every=6.0, down=1.0, timeout=30.0, attempt=40.0, settings=SHORT_LOG
    ),
    act=talk,
    plan=_kills,
    skews=(300, -300),
)

E13 = Scenario(
    name="E13",
    title="one node with RocksDB dies again and again",
    provoke="kill -9 of a node that keeps events in a folder, 20 times, each 20 s after it serves again, while a "
    "million events come",
    figures=(*(one for one in KEPT if one is not DISAGREE), DIED, NOT_BACK, REFUSED, TRACEBACKS, PROVOKED, REPEATED),
    full=Form(
        seconds=400,
        events=2500,
        rate=COMMANDS,
        nodes=1,
        every=20.0,
        down=1.0,
        settings={"HOMING_STORE_URL": "memory://", "HOMING_EVENTS_URL": "rocks://{folder}/events"},
    ),
    short=Form(
        seconds=9,
        events=500,
        rate=COMMANDS,
        nodes=1,
        every=3.0,
        down=0.5,
        timeout=30.0,
        settings={"HOMING_STORE_URL": "memory://", "HOMING_EVENTS_URL": "rocks://{folder}/events"},
    ),
    act=_talk_alone,
    plan=_kills,
)
