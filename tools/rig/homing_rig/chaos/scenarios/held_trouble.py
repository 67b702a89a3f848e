"""Held commands are claimed while a store forgets what it had, or nodes are frozen: FORGET, FORGET-ALONE, FREEZE."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from homing_rig.chaos.scenario import Figure, Form, Scenario
from homing_rig.chaos.scenarios.held_race import HELD, race
from homing_rig.chaos.scenarios.nodes import QUICK_LEASE
from homing_rig.chaos.scenarios.redis_trouble import FORGOTTEN, ON_A_REPLICA
from homing_rig.chaos.schedule import REDIS, Fault, Kind
from homing_rig.chaos.shared_figures import (
    DIED,
    HUNG,
    NOBODY_WAITS,
    NOT_BACK,
    PROVOKED,
    REFUSED,
    TRACEBACKS,
    UNREAD,
    WRONG,
)

SHORTEST_FREEZE: Final = 1.0
SLOW_BEFORE: Final = 0.8
"""The time before a freeze in which each way to Redis takes longer, so that it meets claims whose reply is not here
yet."""

STANDS: Final = Figure(
    "stands_s", "<=", 8, "seconds in which no device got anything, at most: lease + 3 s", timing=True
)


def _forgets(_rng: random.Random, form: Form) -> list[Fault]:
    """Kill the primary, which comes back with what it wrote, and have its replica take over, in turn."""
    count = int((form.seconds or 0) / form.every)
    kinds = (Kind.FAIL_OVER, Kind.KILL)
    return [Fault(1.9 + form.every * index, kinds[index % 2], REDIS, form.down) for index in range(count)]


FORGET = Scenario(
    name="FORGET",
    title="the store forgets claims of held commands",
    provoke="commands are held for devices that are away, some are cancelled or lapse; the devices come back one after "
    "the other, while Redis (appendfsync everysec, HOMING_REDIS_WAIT_REPLICAS=1) is killed with kill -9, and in turn "
    "its replica, 0.3 s behind, takes its place",
    figures=(*HELD, STANDS),
    full=Form(
        seconds=300,
        rate=200,
        devices=500,
        share_async=1.0,
        timeout=10.0,
        patience=60.0,
        every=10.0,
        down=1.0,
        settings=ON_A_REPLICA,
    ),
    short=Form(
        commands=100,
        seconds=7,
        rate=50,
        devices=25,
        share_async=1.0,
        timeout=6.0,
        every=3.5,
        down=0.5,
        settings=ON_A_REPLICA | QUICK_LEASE,
    ),
    act=race,
    expects=NOBODY_WAITS,
    plan=_forgets,
    replica=True,
)


FORGET_ALONE = Scenario(
    name="FORGET-ALONE",
    title="the store forgets claims of held commands, and nobody waits for replicas",
    provoke="as in FORGET, but without HOMING_REDIS_WAIT_REPLICAS: nodes tell the store what they had claimed",
    figures=(
        *(WRONG, HUNG, UNREAD, NOT_BACK, DIED, REFUSED, TRACEBACKS, PROVOKED),
        *(one for one in HELD if one.name in ("held_twice", "held_after_end")),
        STANDS,
    ),
    full=replace(FORGET.full, settings={}),
    short=replace(FORGET.short, settings=QUICK_LEASE),
    act=race,
    expects=NOBODY_WAITS,
    plan=_forgets,
    replica=True,
    tolerated=FORGOTTEN,
)


def _freezes(rng: random.Random, form: Form) -> list[Fault]:
    """Freeze a random node for a random time, one after the other, while claims are long under way."""
    names = [f"n{number + 1}" for number in range(form.nodes)]
    faults = list[Fault]()
    for index in range(int((form.seconds or 0) / form.every)):
        at, lasts = 1.0 + form.every * index, round(rng.uniform(SHORTEST_FREEZE, form.down), 2)
        faults += [Fault(at - SLOW_BEFORE, Kind.SLOW, name, SLOW_BEFORE + lasts) for name in names]
        faults.append(Fault(at, Kind.FREEZE, rng.choice(names), lasts))
    return faults


FREEZE = Scenario(
    name="FREEZE",
    title="nodes freeze while they claim held commands",
    provoke="as in R31, but each 13 s a random node gets SIGSTOP for 1 to 12 s: shorter and longer than the time of "
    "the commands (3 s), and than its lease (5 s); meanwhile each way to Redis takes 100 ms more",
    figures=(
        *HELD,
        Figure(
            "past_deadline", "=", 0, "commands that a device got after the deadline that stands in them", timing=True
        ),
    ),
    full=Form(
        seconds=390,
        rate=100,
        devices=500,
        share_async=1.0,
        timeout=3.0,
        patience=60.0,
        every=13.0,
        down=12.0,
    ),
    short=Form(
        commands=160,
        seconds=8,
        rate=50,
        devices=40,
        share_async=1.0,
        timeout=3.0,
        every=4.0,
        down=3.9,
        settings=QUICK_LEASE,
    ),
    act=race,
    expects=NOBODY_WAITS,
    plan=_freezes,
    proxies=True,
)
