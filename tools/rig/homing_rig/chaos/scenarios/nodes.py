"""Nodes that die, drain and freeze."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from homing_rig.chaos.balancers import RoundRobin, StaleView
from homing_rig.chaos.rig import Rig
from homing_rig.chaos.scenario import Figure, Form, Scenario
from homing_rig.chaos.schedule import Fault, Kind
from homing_rig.chaos.shared_figures import ANSWERED, NOBODY_WAITS, SOUND, measure
from homing_simulator.families import Request

QUICK_LEASE = {"HOMING_CLUSTER_LEASE": "5s"}
"""The lease in short forms, as long as in life: a busy machine keeps nodes waiting for longer than a quick one
lasts."""


def kills_of_any(rng: random.Random, form: Form) -> list[Fault]:
    """A kill of a random node in the middle of each interval of the form."""
    names = [f"n{number + 1}" for number in range(form.nodes)]
    count = int((form.seconds or 0) / form.every)
    return [Fault(form.every * (index + 0.5), Kind.KILL, rng.choice(names), form.down) for index in range(count)]


async def _home_dies(rig: Rig) -> None:
    low, high = rig.form.delay

    def plan(_request: Request, rng: random.Random) -> Sequence[float]:
        return () if rng.random() < SILENT_SHARE else (rng.uniform(low, high),)

    await rig.start_fleet(plan)
    rig.load.choose = RoundRobin(rig.places[:1])
    rig.phase = "sending"
    await rig.load.run(rig.job(rate=None))
    said = await rig.counters("n1")
    rig.measures["in_flight"] = said["self"]["pending"]
    await rig.nemesis.run(rig.schedule)
    rig.phase = "the home node is dead"
    await rig.nemesis.heal()
    await rig.settle()
    measure(rig)
    expected = rig.measures["succeeded"] + rig.measures["timed_out"]
    rig.measures["accounted_for"] = expected - rig.measures["callers"]


SILENT_SHARE = 0.1
"""The share of devices that never answer, so that the deadlines of a dead node's commands are tested as well."""

R2 = Scenario(
    name="R2",
    title="the home node dies",
    provoke="kill -9 of the home node of all commands, all in flight; it stays dead; one device in ten never answers",
    figures=(
        *SOUND,
        Figure("accounted_for", "=", 0, "commands that neither succeeded nor timed out"),
        Figure("in_flight", ">=", 10_000, "commands in flight when the node died", short=1),
    ),
    full=Form(commands=10_000, in_flight=64, share_async=1.0, timeout=60.0, delay=(20.0, 40.0), devices=500),
    short=Form(
        commands=600,
        in_flight=32,
        share_async=1.0,
        timeout=8.0,
        delay=(2.5, 5.0),
        devices=50,
        settings=QUICK_LEASE,
    ),
    act=_home_dies,
    expects=NOBODY_WAITS,
    plan=lambda _rng, _form: [Fault(0.0, Kind.KILL, "n1")],
)


async def _load_and_faults(rig: Rig) -> None:
    await rig.start_fleet()
    await rig.load_with_faults(rig.job())
    await rig.settle()
    measure(rig)


def random_kills(rng: random.Random, form: Form) -> list[Fault]:
    """In the middle of each interval a random node."""
    names = [f"n{number + 1}" for number in range(form.nodes)]
    count = int((form.seconds or 0) / form.every)
    return [Fault(form.every * (index + 0.5), Kind.KILL, rng.choice(names), form.down) for index in range(count)]


R3 = Scenario(
    name="R3",
    title="receiver death loop",
    provoke="kill -9 of a random node every 5 s, started again after 2 s, under load; callers retry with their key",
    figures=(
        *SOUND,
        ANSWERED,
        Figure("callers_refused", "=", 0, "callers whose command was never sent, and who were told so"),
        Figure(
            "callers_timed_out", "=", 0, "waiting callers who got 504, retries with their key included", timing=True
        ),
        Figure("p99_ms", "<=", 1500, "p99 of waiting callers in ms, retries with their key included", timing=True),
    ),
    full=Form(seconds=600, rate=200, timeout=30.0, patience=45.0, attempt=40.0),
    short=Form(seconds=10, rate=30, timeout=30.0, attempt=40.0, every=4.0, down=1.0, settings=QUICK_LEASE),
    act=_load_and_faults,
    plan=random_kills,
)


async def _rolling_restart(rig: Rig) -> None:
    low, high = rig.form.delay

    def plan(_request: Request, rng: random.Random) -> Sequence[float]:
        # One in twenty takes so long that its caller is parked when the node stops.
        return (rng.uniform(low, high) if rng.random() < 0.95 else rng.uniform(20, 30) * high,)  # noqa: PLR2004

    await rig.start_fleet(plan)
    view = StaleView(rig.places, lambda name: rig.nodes[name].ready(), behind=rig.form.down)
    looking = asyncio.create_task(view.look())
    rig.stack.callback(looking.cancel)
    rig.load.choose = view
    await rig.load_with_faults(rig.job(attempts=1))
    await rig.settle()
    measure(rig)
    rig.measures["stop_s"] = round(max(rig.nemesis.stop_seconds, default=0.0), 1)
    rig.measures["restarts"] = len(rig.nemesis.stop_seconds)


def _in_turn(_rng: random.Random, form: Form) -> list[Fault]:
    count = int((form.seconds or 0) / form.every)
    return [Fault(1 + form.every * index, Kind.RESTART, f"n{index % form.nodes + 1}") for index in range(count)]


R4 = Scenario(
    name="R4",
    title="rolling restart",
    provoke="SIGTERM to each node in turn under waiting callers whose list of nodes is 3 s old; nobody retries",
    figures=(
        *SOUND,
        Figure("callers_failed", "=", 0, "failed requests; parked callers got 200 or 202"),
        Figure("callers_refused", "=", 0, "callers whose command was never sent"),
        Figure("stop_s", "<=", 15, "seconds from SIGTERM to the end of the process, at most", timing=True),
    ),
    full=Form(
        seconds=162,
        rate=200,
        share_async=0.0,
        every=18.0,
        down=3.0,
        timeout=30.0,
        settings={"HOMING_CLUSTER_DRAIN_DELAY": "4s"},
    ),
    short=Form(
        seconds=20,
        rate=25,
        share_async=0.0,
        every=10.0,
        down=1.0,
        timeout=30.0,
        settings={"HOMING_CLUSTER_DRAIN_DELAY": "4s"} | QUICK_LEASE,
    ),
    act=_rolling_restart,
    plan=_in_turn,
)


async def _frozen(rig: Rig) -> None:
    await _load_and_faults(rig)
    rig.measures["freezes"] = rig.nemesis.counts[Kind.FREEZE]
    rig.measures["return_s"] = round(max(rig.nemesis.returns, default=0.0), 2)
    lost = [(await rig.counters(name))["self"]["counters"].get("lease.lost", 0) for name in rig.nodes]
    rig.measures["not_reborn"] = rig.measures["freezes"] - sum(lost)


def _freezes(rng: random.Random, form: Form) -> list[Fault]:
    names = [f"n{number + 1}" for number in range(form.nodes)]
    count = int((form.seconds or 0) / form.every)
    return [Fault(1 + form.every * index, Kind.FREEZE, rng.choice(names), form.down) for index in range(count)]


R5 = Scenario(
    name="R5",
    title="pause",
    provoke="SIGSTOP of a random node for 20 s (its lease: 5 s) under load; callers retry with their key",
    figures=(
        *SOUND,
        ANSWERED,
        Figure("not_reborn", "<=", 0, "pauses after which a node went on as the incarnation that lost its lease"),
        Figure("return_s", "<=", 2, "seconds from SIGCONT until the node serves as a new incarnation", timing=True),
    ),
    full=Form(seconds=900, rate=100, every=30.0, down=20.0, timeout=30.0, attempt=3.0, patience=60.0),
    short=Form(
        seconds=10,
        rate=25,
        every=9.0,
        down=8.0,
        timeout=15.0,
        attempt=2.0,
        settings=QUICK_LEASE,
    ),
    act=_frozen,
    plan=_freezes,
)
