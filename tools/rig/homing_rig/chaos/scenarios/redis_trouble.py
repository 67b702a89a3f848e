"""Redis that crashes, freezes, gets slow, has no room left or forgets its scripts, and callers who hang up."""

from __future__ import annotations

import random

from homing_rig.chaos.load import SHARED
from homing_rig.chaos.rig import Rig
from homing_rig.chaos.scenario import Figure, Form, Scenario
from homing_rig.chaos.scenarios.nodes import QUICK_LEASE
from homing_rig.chaos.schedule import REDIS, Fault, Kind
from homing_rig.chaos.shared_figures import (
    ANSWERED,
    DIED,
    HUNG,
    NOT_BACK,
    PROVOKED,
    REFUSED,
    SOUND,
    TRACEBACKS,
    UNREAD,
    WRONG,
    measure,
    quantile,
)
from homing_rig.rights import NODE_USER


async def _trouble(rig: Rig) -> None:
    await rig.start_fleet()
    await rig.load_with_faults(rig.job())
    await rig.settle()
    measure(rig)
    measure_trouble(rig)


def measure_trouble(rig: Rig) -> None:
    """Measure how callers got through it, and how soon all was well."""
    refusals = [seconds for reason, seconds in rig.load.refused_in if reason == SHARED]
    rig.measures |= {
        "refusals": len(refusals),
        "refused_p99_ms": round(1000 * quantile(refusals, 0.99), 1),
        "return_s": round(max(rig.nemesis.returns, default=0.0), 2),
        "faults": len(rig.nemesis.begun),
        "faults_left_out": rig.nemesis.counts["left out"],
        "failed_share": round(1 - rig.measures["succeeded"] / rig.measures["callers"], 5),
    }


def _on_redis(kind: Kind, form: Form) -> list[Fault]:
    count = int((form.seconds or 0) / form.every)
    return [Fault(1 + form.every * index, kind, REDIS, form.down) for index in range(count)]


REFUSED_SOON = Figure("refused_p99_ms", "<=", 500, "p99 of 503 store-unavailable in ms", timing=True)
SUCCEEDED = Figure("not_succeeded", "=", 0, "callers whose command did not succeed, retries with their key included")
MOST_SUCCEEDED = Figure("failed_share", "<=", 0.001, "share of callers whose command did not succeed", timing=True)
"""A caller whose node could record a command and not send it gets `unsent`, and so do repetitions with that key."""

R7 = Scenario(
    name="R7",
    title="Redis crashes",
    provoke="kill -9 of Redis, started again after 3 s, under load; callers retry with their key",
    figures=(*SOUND, ANSWERED, MOST_SUCCEEDED, REFUSED_SOON),
    full=Form(seconds=300, rate=200, every=15.0, down=3.0, timeout=30.0, attempt=35.0, patience=45.0),
    short=Form(seconds=8, rate=30, every=7.0, down=1.5, timeout=60.0, attempt=65.0, patience=60.0),
    act=_trouble,
    plan=lambda _rng, form: _on_redis(Kind.KILL, form),
)


def _stalls(rng: random.Random, form: Form) -> list[Fault]:
    """Freezes of Redis, and in between slow ways to it from all nodes."""
    names = [f"n{number + 1}" for number in range(form.nodes)]
    frozen = _on_redis(Kind.FREEZE, form)
    gap = form.every - form.down
    slow = [
        Fault(fault.at + form.down + rng.uniform(0, gap / 4), Kind.SLOW, name, gap / 2)
        for fault in frozen
        for name in names
    ]
    return [*frozen, *slow]


R8 = Scenario(
    name="R8",
    title="Redis freezes and is slow",
    provoke="SIGSTOP of Redis for 10 s, then 100 ms more each way; callers retry with their key",
    figures=(*SOUND, ANSWERED, MOST_SUCCEEDED, REFUSED_SOON),
    full=Form(seconds=300, rate=100, every=30.0, down=10.0, timeout=30.0, attempt=35.0, patience=45.0),
    short=Form(
        seconds=8,
        rate=25,
        every=7.0,
        down=2.0,
        timeout=60.0,
        attempt=65.0,
        patience=60.0,
        settings=QUICK_LEASE,
    ),
    act=_trouble,
    plan=_stalls,
    proxies=True,
)


async def _hang_up(rig: Rig) -> None:
    await rig.start_fleet()
    await rig.load_with_faults(rig.job(share_hung_up=0.5))
    await rig.settle()
    measure(rig)
    rig.measures |= {
        "hung_up": float(rig.load.problems["timeout"]),
        "connections": await _connections(rig) / len(rig.nodes),
        "not_succeeded": rig.measures["callers"] - rig.measures["succeeded"],
    }


async def _connections(rig: Rig) -> int:
    """Count the connections of the nodes to Redis."""
    return sum(one["user"] == NODE_USER for one in await rig.redis.client_list())


R9 = Scenario(
    name="R9",
    title="callers hang up",
    provoke="100 ms more each way to Redis; every other request is broken off within 0.3 s and sent again with its key",
    figures=(
        *SOUND,
        ANSWERED,
        SUCCEEDED,
        Figure("connections", "<=", 24, "connections of a node to Redis"),
        Figure("hung_up", ">=", 50_000, "requests that were broken off", short=1),
    ),
    full=Form(seconds=600, rate=100, timeout=30.0, down=600.0, delay=(0.0, 0.3)),
    short=Form(seconds=6, rate=40, timeout=60.0, attempt=65.0, patience=60.0, down=6.0, delay=(0.0, 0.3)),
    act=_hang_up,
    plan=lambda _rng, form: [Fault(0.0, Kind.SLOW, f"n{number + 1}", form.down) for number in range(form.nodes)],
    proxies=True,
)


ON_A_REPLICA = {"HOMING_REDIS_WAIT_REPLICAS": "1"}
FORGOTTEN = ("command_lost", "answer_lost", "left_outcome", "outcome_changed", "answer_differs", "executed_twice")
"""The breaches that may follow where the store forgets what it has acknowledged."""

R11 = Scenario(
    name="R11",
    title="Redis fails over",
    provoke="kill -9 of the primary, its replica, 0.3 s behind, is promoted; HOMING_REDIS_WAIT_REPLICAS=1",
    figures=(*SOUND, ANSWERED, MOST_SUCCEEDED),
    full=Form(
        seconds=600, rate=100, every=6.0, down=0.5, timeout=30.0, attempt=35.0, patience=45.0, settings=ON_A_REPLICA
    ),
    short=Form(
        seconds=8,
        rate=30,
        every=4.0,
        down=0.5,
        timeout=60.0,
        attempt=65.0,
        patience=60.0,
        settings=ON_A_REPLICA,
    ),
    act=_trouble,
    plan=lambda _rng, form: _on_redis(Kind.FAIL_OVER, form),
    replica=True,
)
R11_ALONE = Scenario(
    name="R11-ALONE",
    title="Redis fails over, nobody waits for replicas",
    provoke="kill -9 of the primary, its replica, 0.3 s behind, is promoted; loss is counted",
    figures=(WRONG, HUNG, UNREAD, NOT_BACK, DIED, REFUSED, TRACEBACKS, PROVOKED),
    full=Form(seconds=600, rate=100, every=6.0, down=0.5, timeout=30.0, attempt=35.0, patience=45.0),
    short=Form(seconds=6, rate=30, every=6.0, down=0.5, timeout=10.0, attempt=12.0, patience=20.0),
    act=_trouble,
    plan=lambda _rng, form: _on_redis(Kind.FAIL_OVER, form),
    replica=True,
    tolerated=FORGOTTEN,
)


def _full(_rng: random.Random, form: Form) -> list[Fault]:
    """Full for a while; and scripts forgotten before, meanwhile and after."""
    full = _on_redis(Kind.FULL, form)
    return [
        *full,
        *(Fault(fault.at + part * form.down, Kind.FORGET_SCRIPTS, REDIS) for fault in full for part in PARTS),
    ]


PARTS = (-0.2, 0.5, 1.2)

R12 = Scenario(
    name="R12",
    title="Redis is full",
    provoke="Redis may take no more memory, for 10 s, and forgets its scripts; devices answer what was sent before",
    figures=(*SOUND, ANSWERED, MOST_SUCCEEDED, REFUSED_SOON),
    full=Form(
        seconds=300, rate=200, every=30.0, down=10.0, delay=(2.0, 8.0), timeout=30.0, attempt=35.0, patience=45.0
    ),
    short=Form(
        seconds=8,
        rate=30,
        every=7.0,
        down=3.0,
        delay=(1.0, 3.0),
        timeout=60.0,
        attempt=65.0,
        patience=60.0,
    ),
    act=_trouble,
    plan=_full,
)
