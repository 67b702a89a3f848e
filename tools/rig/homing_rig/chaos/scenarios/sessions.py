"""The nodes' MQTT sessions: a store that forgets them or mistakes the time, and strangers who take from them.

What counts is what comes afterwards: a session that is subscribed and looked after by nobody takes its share of all
answers for ever, and says nothing. So each scenario ends with commands that are sent when all is said to be well again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable

from app.core.commands.command import CommandState
from homing_rig.chaos import broker_log
from homing_rig.chaos.load import Call
from homing_rig.chaos.rig import Rig
from homing_rig.chaos.scenario import Figure, Form, Scenario
from homing_rig.chaos.scenarios.nodes import QUICK_LEASE
from homing_rig.chaos.scenarios.traffic import ended
from homing_rig.chaos.schedule import BROKER, REDIS, Fault, Kind
from homing_rig.chaos.shared_figures import (
    DIED,
    DUPLICATES,
    HUNG,
    LOST,
    NOT_BACK,
    PROVOKED,
    REFUSED,
    TRACEBACKS,
    WRONG,
    measure,
)
from homing_rig.chaos.watcher import OK, Watcher

NOTICING_SECONDS = 5.0
"""The time after the last fault before anybody is asked whether all is well: until then nodes may not know of it."""
RECOVERY_SECONDS = 60.0
"""A bound against hanging."""
AFTER_COMMANDS = 120
GHOST_SECONDS = 30.0
"""The broker counts once a second, and the session of a dead node takes some seconds."""
NEVER = 3600.0
OUTLASTING = 7200
"""Seconds: longer than sessions and leases are kept, and shorter than records are here."""
LONG_RECORDS = {"HOMING_STORE_RETENTION": "86400s"}
UNLIMITED = 1e12

SURVIVED = (WRONG, HUNG, NOT_BACK, DIED, REFUSED, TRACEBACKS, PROVOKED)
"""The figures that hold whatever is forgotten or taken away."""
AFTERWARDS = Figure("after_unanswered", "=", 0, "commands that were not answered though all nodes were ready again")
GHOSTS = Figure("ghosts", "=", 0, "shared subscriptions at the broker that belong to no node")
READY_AGAIN = Figure("return_s", "<=", 5, "seconds from a fault until all nodes were ready again", timing=True)


async def _break(rig: Rig) -> Watcher:
    """Load with faults, recovery, and load without faults; what nodes said meanwhile."""
    watcher = Watcher(rig.session, rig.nodes)
    watching = asyncio.create_task(watcher.run())
    rig.stack.callback(watching.cancel)
    await rig.start_fleet()
    await rig.load_with_faults(rig.job(group="storm"))
    rig.phase = "recovery"
    await asyncio.sleep(NOTICING_SECONDS)
    await asyncio.gather(*(node.until_ready(RECOVERY_SECONDS) for node in rig.nodes.values()))
    rig.phase = "afterwards"
    after = await rig.load.run(rig.job(group="after", seconds=None, commands=AFTER_COMMANDS, share_async=0.0))
    await rig.settle()
    await ended(watching)
    measure(rig)
    rig.measures["after_unanswered"] = unanswered(after)
    rig.measures["ghosts"] = await _ghosts(rig)
    rig.measures["return_s"] = round(
        max((_return(rig, watcher, fault) for _, fault in rig.nemesis.begun), default=0), 2
    )
    return watcher


async def _break_and_look(rig: Rig) -> None:
    await _break(rig)


def unanswered(calls: Iterable[Call]) -> int:
    """Count the callers who got no answer of their device."""
    return sum(call.state != CommandState.SUCCEEDED for call in calls)


async def _ghosts(rig: Rig) -> int:
    log = rig.broker.log_text
    expected = len(rig.nodes) * len({one.topic_filter for one in broker_log.shared(log)})
    loop = asyncio.get_running_loop()
    until = loop.time() + GHOST_SECONDS
    while rig.witness.shared != expected and loop.time() < until:
        await asyncio.sleep(0.1)
    return rig.witness.shared - expected


def _return(rig: Rig, watcher: Watcher, fault: Fault) -> float:
    """Seconds from the beginning of a fault until the last node was ready again that it made unready."""
    starts = [at for at, one in rig.nemesis.begun if one is fault or at > _begun(rig, fault)]
    first, last = (*sorted(starts)[:2], float("inf"))[:2]
    unready = [one.at for name in rig.nodes for one in watcher.between(name, first, last) if not one.ready]
    return max(unready, default=first) - first


def _begun(rig: Rig, fault: Fault) -> float:
    return next(at for at, one in rig.nemesis.begun if one is fault)


def _forgetting(_rng: random.Random, form: Form) -> list[Fault]:
    kinds = (Kind.FLUSH, Kind.WIPE)
    count = int((form.seconds or 0) / form.every)
    return [
        Fault(1 + form.every * index, kinds[index % 2], REDIS, form.down if kinds[index % 2] is Kind.WIPE else 0.0)
        for index in range(count)
    ]


FORGOTTEN = ("command_lost", "never_final", "answer_lost", "answer_differs", "executed_twice", "left_outcome")
"""The breaches that cannot be avoided without a memory of records, outcomes and idempotency keys from before."""

R24 = Scenario(
    name="R24",
    title="the store loses its memory",
    provoke="FLUSHALL, and kill -9 of Redis that comes back without its data, in turn, under load",
    figures=(*SURVIVED, AFTERWARDS, GHOSTS, READY_AGAIN),
    full=Form(seconds=120, rate=100, every=15.0, down=2.0, timeout=10.0, patience=20.0),
    short=Form(seconds=10, rate=40, every=5.0, down=1.0, timeout=5.0, patience=10.0),
    act=_break_and_look,
    plan=_forgetting,
    limits={"unread": UNLIMITED},
    tolerated=FORGOTTEN,
)


def _outages(_rng: random.Random, form: Form) -> list[Fault]:
    count = int((form.seconds or 0) / form.every)
    return [Fault(1 + form.every * index, Kind.OUTAGE, REDIS, OUTLASTING) for index in range(count)]


R25 = Scenario(
    name="R25",
    title="long outage of the store",
    provoke="Redis stops and is back with its data, two hours later as its clock tells; sessions are kept for one",
    figures=(LOST, DUPLICATES, *SURVIVED, AFTERWARDS, GHOSTS, READY_AGAIN),
    full=Form(seconds=120, rate=100, every=20.0, timeout=10.0, patience=20.0, settings=LONG_RECORDS),
    short=Form(seconds=6, rate=40, every=6.0, timeout=5.0, patience=10.0, settings=LONG_RECORDS | QUICK_LEASE),
    act=_break_and_look,
    plan=_outages,
    steps=True,
    limits={"late_finals": UNLIMITED},
)


def _clock_steps(rng: random.Random, form: Form) -> list[Fault]:
    """Forward; then a node dies, and back: its lease, of a few seconds, lasts two hours longer."""
    names = [f"n{number + 1}" for number in range(form.nodes)]
    faults = []
    for index in range(int((form.seconds or 0) / form.every)):
        at = 1 + form.every * index
        back = at + form.every / 2
        faults += [
            Fault(at, Kind.CLOCK_FORWARD, REDIS, OUTLASTING),
            Fault(back, Kind.KILL, rng.choice(names), form.down),
            Fault(back + 0.1, Kind.CLOCK_BACK, REDIS, OUTLASTING),
        ]
    return faults


R26 = Scenario(
    name="R26",
    title="clock steps of the store",
    provoke="Redis's clock goes two hours forward (sessions are kept for one), and back after kill -9 of a node",
    figures=(LOST, DUPLICATES, *SURVIVED, AFTERWARDS, GHOSTS, READY_AGAIN),
    full=Form(seconds=120, rate=100, every=30.0, timeout=10.0, patience=20.0, settings=LONG_RECORDS),
    short=Form(
        seconds=10, rate=40, every=10.0, down=1.0, timeout=5.0, patience=10.0, settings=LONG_RECORDS | QUICK_LEASE
    ),
    act=_break_and_look,
    plan=_clock_steps,
    steps=True,
    limits={"late_finals": UNLIMITED},
)


async def _stolen(rig: Rig) -> None:
    watcher = await _break(rig)
    began, theft = rig.nemesis.begun[0]
    noticed = [_first(watcher, name, began, began + theft.seconds) for name in rig.nodes]
    rig.measures |= {
        "unnoticed": sum(one == NEVER for one in noticed),
        "noticed_s": round(min(noticed), 2),
        "all_noticed_s": round(max(noticed), 2),
        "recovered_s": round(max(0.0, rig.measures["return_s"] - theft.seconds), 2),
    }


def _first(watcher: Watcher, name: str, began: float, ended: float) -> float:
    """Seconds until a node was unready because of canaries."""
    looks = watcher.between(name, began, ended)
    return next((one.at - began for one in looks if not one.ready and one.canary != OK), NEVER)


R27 = Scenario(
    name="R27",
    title="a thief in the group",
    provoke="somebody who knows the name of the share group subscribes to it and swallows its share, then leaves",
    figures=(
        DUPLICATES,
        *SURVIVED,
        Figure("unnoticed", "=", 0, "nodes that did not say that canaries are missing while the thief was there"),
        AFTERWARDS,
        GHOSTS,
        Figure("noticed_s", "<=", 10, "seconds until the first node was unready and named the canary", timing=True),
        Figure("all_noticed_s", "<=", 10, "seconds until the last node did", timing=True),
        Figure("recovered_s", "<=", 15, "seconds from the end of the theft until all nodes were ready", timing=True),
    ),
    full=Form(seconds=60, rate=50, every=60.0, down=40.0, timeout=10.0, patience=15.0, share_async=0.0),
    short=Form(seconds=16, rate=30, every=16.0, down=14.0, timeout=5.0, patience=6.0, share_async=0.0),
    act=_stolen,
    plan=lambda _rng, form: [Fault(1.0, Kind.THIEF, BROKER, form.down)],
    tolerated=("answer_lost",),
)


async def _taken_over(rig: Rig) -> None:
    watcher = await _break(rig)
    began_again = [_another(watcher, fault.target, at, at + fault.seconds) for at, fault in rig.nemesis.begun]
    zero = asyncio.get_running_loop().time() - rig.recorder.now()
    beside = [
        call
        for (at, fault), seconds in zip(rig.nemesis.begun, began_again, strict=True)
        for call in rig.load.calls
        if at + seconds <= zero + call.began < at + fault.seconds
    ]
    rig.measures |= {
        "not_begun_again": sum(one == NEVER for one in began_again),
        "begun_again_s": round(max(began_again), 2),
        "beside": len(beside),
        "beside_unanswered": unanswered(beside),
    }


def _another(watcher: Watcher, name: str, began: float, ended: float) -> float:
    """Seconds until a node was ready as another incarnation than before."""
    before = {one.incarnation for one in watcher.between(name, 0.0, began)}
    looks = (one for one in watcher.between(name, began, ended) if one.incarnation not in before | {""})
    return next((one.at - began for one in looks if one.ready), NEVER)


def _take_overs(rng: random.Random, form: Form) -> list[Fault]:
    names = [f"n{number + 1}" for number in range(form.nodes)]
    count = int((form.seconds or 0) / form.every)
    return [Fault(1 + form.every * index, Kind.TAKE_OVER, rng.choice(names), form.down) for index in range(count)]


R28 = Scenario(
    name="R28",
    title="a stranger takes a node's session",
    provoke="somebody connects with the client id of a random node, comes back whenever he is thrown out, and stays",
    figures=(
        DUPLICATES,
        *SURVIVED,
        Figure("not_begun_again", "=", 0, "nodes that were not ready as another incarnation while he was there"),
        Figure("beside_unanswered", "=", 0, "commands not answered, sent after that and while he was there"),
        AFTERWARDS,
        GHOSTS,
        Figure("begun_again_s", "<=", 5, "seconds until the node was ready as another incarnation", timing=True),
    ),
    full=Form(seconds=120, rate=50, every=30.0, down=20.0, timeout=10.0, patience=15.0, share_async=0.0),
    short=Form(seconds=10, rate=30, every=10.0, down=8.0, timeout=5.0, patience=6.0, share_async=0.0),
    act=_taken_over,
    plan=_take_overs,
    tolerated=("answer_lost",),
)
