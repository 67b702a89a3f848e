"""The primaries of a Redis Cluster fail over one after the other, planned and killed, beside commands and events."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from typing import Final

from homing_rig.chaos.kept_events import KEPT
from homing_rig.chaos.rig import Rig
from homing_rig.chaos.scenario import Figure, Form, Scenario
from homing_rig.chaos.scenarios.events import GAP, KEPT_BY_BROKER, LOG, REPEATED_UNASKED, talk_and_try_again
from homing_rig.chaos.scenarios.nodes import QUICK_LEASE
from homing_rig.chaos.scenarios.redis_trouble import MOST_SUCCEEDED, ON_A_REPLICA, measure_trouble
from homing_rig.chaos.schedule import THIRDS, Fault, Kind
from homing_rig.chaos.shared_figures import ANSWERED, SOUND, quantile
from homing_rig.redis_members import third_of

_STEPS: Final = (Kind.SWITCH, Kind.FAIL_OVER)


async def _talk_over_fail_overs(rig: Rig) -> None:
    await talk_and_try_again(rig)
    measure_trouble(rig)
    thirds = rig.nemesis.thirds
    until = max((one.began for one in rig.load.attempts), default=0.0)
    met = [(fault.target, fault.kind) for at, fault in rig.nemesis.begun if at < until]
    rig.measures |= {
        "promoted_s": round(max(thirds.promoted if thirds else [], default=0.0), 2),
        "switched_s": round(max(rig.nemesis.switches, default=0.0), 2),
        "third_stands_s": _stands_of_a_third(rig),
        "third_back_s": _third_is_back(rig),
        "thirds_failed_over": sum(all((third, kind) in met for kind in _STEPS) for third in THIRDS),
    }


def _got(rig: Rig) -> dict[str, list[float]]:
    """The instants at which devices of each third got something, in seconds of the run."""
    got: dict[str, list[float]] = {third: [] for third in THIRDS}
    for fleet in rig.fleets:
        for device, commands in fleet.got.items():
            got[THIRDS[third_of(device)]] += [at for at, _ in commands]
    return {third: sorted(instants) for third, instants in got.items()}


def _stands_of_a_third(rig: Rig) -> float:
    """Return for how many seconds at most no device of one third got anything, from its first command to its last."""
    gaps = [later - earlier for instants in _got(rig).values() for earlier, later in pairwise(instants)]
    return round(quantile(gaps, 1.0), 2)


def _third_is_back(rig: Rig) -> float:
    """Return the seconds at most from the moment when replicas were in step until a device of the third got something.

    Before that moment no write of it could be on a replica. Fail-overs behind which nothing came do not count.
    """
    got, since = _got(rig), asyncio.get_running_loop().time() - rig.recorder.now()
    ends = [] if rig.nemesis.thirds is None else rig.nemesis.thirds.ends
    waits = [next((at + since - end for at in got[third] if at + since >= end), None) for end, third in ends]
    return round(quantile((one for one in waits if one is not None), 1.0), 2)


def _one_after_the_other(_rng: random.Random, form: Form) -> list[Fault]:
    """Let each third switch to its replica, and then fail over as its new primary dies."""
    count = int((form.seconds or 0) / form.every)
    return [
        Fault(1 + form.every * index, _STEPS[index % 2], THIRDS[index // 2 % len(THIRDS)], form.down * (index % 2))
        for index in range(count)
    ]


R11_CLUSTER = Scenario(
    name="R11-CLUSTER",
    title="the primaries of a Redis Cluster fail over, one after the other",
    provoke="CLUSTER FAILOVER, and then kill -9 of the new primary, whose replica is 0.3 s behind, for each third of "
    "the slots in turn, beside commands and events; HOMING_REDIS_WAIT_REPLICAS=1",
    figures=(
        *SOUND,
        *KEPT,
        ANSWERED,
        MOST_SUCCEEDED,
        REPEATED_UNASKED,
        KEPT_BY_BROKER,
        GAP,
        Figure(
            "third_stands_s",
            "<=",
            8,
            "seconds in which no device of one third got anything, at most: lease + 3 s",
            timing=True,
        ),
        Figure(
            "third_back_s",
            "<=",
            2,
            "seconds from when replicas were in step until a device of that third got something, at most",
            timing=True,
        ),
        Figure("thirds_failed_over", ">=", 3, "thirds that were switched and lost their primary under load", short=1),
    ),
    full=Form(
        seconds=300,
        rate=200,
        events=1000,
        every=10.0,
        down=0.5,
        timeout=30.0,
        attempt=35.0,
        patience=45.0,
        settings=LOG | ON_A_REPLICA,
    ),
    short=Form(
        seconds=15,
        rate=30,
        events=150,
        every=2.5,
        down=0.5,
        timeout=60.0,
        attempt=65.0,
        patience=60.0,
        settings=LOG | ON_A_REPLICA | QUICK_LEASE,
    ),
    act=_talk_over_fail_overs,
    plan=_one_after_the_other,
    cluster=True,
)
