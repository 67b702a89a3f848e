"""Nodes that live, and whose ways to Redis, to the broker or to the time of day are broken."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import datetime

from app.core.commands.command import CommandState
from homing_rig.chaos.history import Mode
from homing_rig.chaos.rig import Rig
from homing_rig.chaos.scenario import Figure, Form, Scenario
from homing_rig.chaos.scenarios.nodes import QUICK_LEASE
from homing_rig.chaos.schedule import BROKER, REDIS, Fault, Kind
from homing_rig.chaos.shared_figures import ANSWERED, LOST, SOUND, measure, milliseconds, quantile
from homing_simulator.families import Request

STEP_DOWN_SECONDS = 2.0
"""A node that is cut off from Redis has left its share of the responses to the others by then."""
CALM_SHARE = 0.2
"""The share of the load before the first fault: the rest is compared with it."""


async def _calm_then_storm(rig: Rig) -> None:
    """Load without faults first, then as long as the form says with faults."""
    seconds = rig.form.seconds or 0.0
    await rig.start_fleet()
    rig.phase = "calm"
    calm = await rig.load.run(rig.job(seconds=CALM_SHARE * seconds, group="calm"))
    await rig.load_with_faults(rig.job(group="storm"))
    storm = [call for call in rig.load.calls if call.group == "storm"]
    await rig.settle()
    measure(rig)
    rig.measures |= {
        "calm_p50_ms": milliseconds(calm, 0.50),
        "calm_p99_ms": milliseconds(calm, 0.99),
        "storm_p50_ms": milliseconds(storm, 0.50),
        "storm_p99_ms": milliseconds(storm, 0.99),
        "faults": float(sum(rig.nemesis.counts.values())),
    }
    rig.measures["p50_ratio"] = round(rig.measures["storm_p50_ms"] / max(rig.measures["calm_p50_ms"], 0.1), 2)


def _cuts(_rng: random.Random, form: Form) -> list[Fault]:
    count = int((form.seconds or 0) / form.every)
    return [Fault(form.every * (index + 1), Kind.CUT_PUBSUB, REDIS) for index in range(count)]


R6 = Scenario(
    name="R6",
    title="wake-up loss",
    provoke="CLIENT KILL TYPE pubsub every 250 ms under waiting callers, two responses of three on another node",
    figures=(
        *SOUND,
        ANSWERED,
        Figure("storm_p99_ms", "<=", 1200, "p99 of waiting callers in ms", timing=True),
        Figure("p50_ratio", "<=", 2, "p50 as a multiple of the p50 in calm", timing=True),
    ),
    full=Form(seconds=300, rate=200, share_async=0.0, every=0.25, delay=(0.0, 0.02)),
    short=Form(seconds=6, rate=30, share_async=0.0, every=0.25, delay=(0.0, 0.02), timeout=60.0),
    act=_calm_then_storm,
    plan=_cuts,
)


async def _partition(rig: Rig) -> None:
    seen: dict[str, list[tuple[float, bool]]] = {}
    watching = asyncio.create_task(_watch(rig, seen))
    rig.stack.callback(watching.cancel)
    await _calm_then_storm(rig)
    watching.cancel()
    noticed = [_first_unready(seen.get(fault.target, []), began) for began, fault in rig.nemesis.begun]
    rig.measures["unready_s"] = round(max(noticed, default=0.0), 2)
    calm = max(rig.measures["calm_p99_ms"], 0.1)
    for name, since in (("others", 0.0), ("settled", STEP_DOWN_SECONDS)):
        p99 = round(1000 * quantile(_at_others(rig, since), 0.99), 1)
        rig.measures |= {f"{name}_p99_ms": p99, f"{name}_ratio": round(p99 / calm, 2)}


def _at_others(rig: Rig, since: float) -> list[float]:
    """Return the seconds of calls at nodes that are not cut off, begun so many seconds after a cut, until its end."""
    cuts = [(began + since, began + fault.seconds, fault.target) for began, fault in rig.nemesis.begun]
    return [
        attempt.seconds
        for attempt in rig.load.attempts
        if attempt.mode is Mode.SYNC
        and any(first <= attempt.began <= last and attempt.node != target for first, last, target in cuts)
    ]


async def _watch(rig: Rig, seen: dict[str, list[tuple[float, bool]]]) -> None:
    """Ask every node ten times a second whether it is ready."""
    loop = asyncio.get_running_loop()

    async def watch(name: str) -> None:
        while True:
            asked_at = loop.time()
            ready = await rig.nodes[name].ready()
            seen.setdefault(name, []).append((asked_at if ready else loop.time(), ready))
            await asyncio.sleep(0.1)

    await asyncio.gather(*(watch(name) for name in rig.nodes))


def _first_unready(answers: Sequence[tuple[float, bool]], since: float) -> float:
    """Seconds until the first refusal; a very long time when there was none."""
    return next((at - since for at, ready in answers if at >= since and not ready), 3600.0)


def _blackholes(rng: random.Random, form: Form) -> list[Fault]:
    names = [f"n{number + 1}" for number in range(form.nodes)]
    count = int((form.seconds or 0) / form.every)
    return [Fault(1 + form.every * index, Kind.BLACKHOLE, rng.choice(names), form.down) for index in range(count)]


R10 = Scenario(
    name="R10",
    title="one node cut off from Redis",
    provoke="a proxy lets nothing pass between a random node and Redis for 15 s; callers retry with their key",
    figures=(
        *SOUND,
        ANSWERED,
        Figure("unready_s", "<=", 3, "seconds until the node says that it is not ready", short=60),
        Figure("others_ratio", "<=", 1.5, "p99 at the other nodes meanwhile, as a multiple of calm", timing=True),
        Figure("settled_ratio", "<=", 1.5, "the same, once the node has had 2 s to step down", timing=True),
    ),
    full=Form(seconds=600, rate=100, every=30.0, down=15.0, timeout=30.0, attempt=35.0, patience=60.0),
    short=Form(
        seconds=9,
        rate=25,
        every=8.0,
        down=10.0,
        timeout=30.0,
        attempt=35.0,
        settings=QUICK_LEASE,
    ),
    act=_partition,
    plan=_blackholes,
    proxies=True,
)


async def _broker(rig: Rig) -> None:
    await rig.start_fleet()
    await rig.load_with_faults(rig.job())
    await rig.settle()
    measure(rig)
    # From the moment the broker was started; it needs a part of that itself.
    rig.measures["return_s"] = round(max(rig.nemesis.receiving, default=0.0), 2)


def _restarts(_rng: random.Random, form: Form) -> list[Fault]:
    return _every(form, Kind.RESTART)


def _crashes(_rng: random.Random, form: Form) -> list[Fault]:
    return _every(form, Kind.KILL)


def _every(form: Form, kind: Kind) -> list[Fault]:
    count = int((form.seconds or 0) / form.every)
    return [Fault(1 + form.every * index, kind, BROKER, form.down) for index in range(count)]


RECEIVING = Figure(
    "return_s", "<=", 5, "seconds from the start of the broker until all nodes are ready again", timing=True
)
NOTHING_LATE = Figure("past_deadline", "=", 0, "commands that reached a device after their deadline")

R13 = Scenario(
    name="R13",
    title="broker restart",
    provoke="SIGTERM to Mosquitto, started again after 2 s, under load; callers retry with their key",
    figures=(*SOUND, NOTHING_LATE, RECEIVING),
    full=Form(seconds=300, rate=200, every=15.0, down=2.0, timeout=20.0, attempt=25.0),
    short=Form(seconds=9, rate=30, every=9.0, down=1.5, timeout=30.0, attempt=35.0),
    act=_broker,
    plan=_restarts,
)
R13_KILL = Scenario(
    name="R13-KILL",
    title="broker crash",
    provoke="kill -9 of Mosquitto, started again after 2 s, under load; loss is counted: it keeps a snapshot only",
    figures=(
        *(figure for figure in SOUND if figure is not LOST),
        NOTHING_LATE,
        RECEIVING,
    ),
    full=Form(seconds=300, rate=200, every=15.0, down=2.0, timeout=20.0, attempt=25.0),
    short=Form(seconds=9, rate=30, every=9.0, down=1.5, timeout=10.0, attempt=12.0),
    act=_broker,
    plan=_crashes,
    tolerated=("answer_lost",),
)


async def _skewed(rig: Rig) -> None:
    def plan(_request: Request, rng: random.Random) -> Sequence[float]:
        return () if rng.random() < 0.5 else (rng.uniform(*rig.form.delay),)  # noqa: PLR2004 - half of them

    await rig.start_fleet(plan)
    await rig.load_with_faults(rig.job())
    await rig.settle()
    measure(rig)
    timeout = rig.form.timeout
    ended = [said for said in rig.finals.commands.values() if said.get("state") == CommandState.TIMED_OUT]
    stored = [abs(_lasted(said) - timeout) for said in ended]
    waited = [
        abs(call.seconds - timeout)
        for call in rig.load.calls
        if call.mode is Mode.SYNC and call.state == CommandState.TIMED_OUT
    ]
    rig.measures["timed_out_callers"] = len(waited)
    rig.measures["deadline_error_s"] = round(max([*stored, *waited], default=3600.0), 3)


def _lasted(said: dict[str, str]) -> float:
    finished, created = (datetime.fromisoformat(said[name]) for name in ("finished_at", "created_at"))
    return (finished - created).total_seconds()


R19 = Scenario(
    name="R19",
    title="clock skew",
    provoke="the wall clock of n1 is five minutes fast, that of n2 five minutes slow; half of the devices never answer",
    figures=(
        *SOUND,
        ANSWERED,
        Figure(
            *("deadline_error_s", "<=", 1, "seconds between a deadline and its command's end, or its caller's answer"),
            short=60,
        ),
    ),
    full=Form(seconds=60, rate=100, timeout=3.0, delay=(0.0, 2.0)),
    short=Form(seconds=5, rate=30, timeout=2.0, delay=(0.0, 1.0)),
    act=_skewed,
    skews=(300, -300),
)
