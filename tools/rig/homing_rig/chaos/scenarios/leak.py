"""A scenario of what remains when all is over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

from homing_rig.chaos.history import REDIS_KEYS_AFTER_TTL, REDIS_KEYS_BASELINE
from homing_rig.chaos.rig import Rig
from homing_rig.chaos.scenario import Figure, Form, Scenario
from homing_rig.chaos.scenarios.nodes import QUICK_LEASE
from homing_rig.chaos.schedule import Fault, Kind
from homing_rig.chaos.servers import NodeProcess
from homing_rig.chaos.shared_figures import ANSWERED, DUPLICATES, HUNG, PROVOKED, TRACEBACKS, WRONG, measure
from homing_rig.guard import DATABASE
from homing_simulator.families import Request

RETENTION = 2.0
UNLIMITED = 1e12
SILENT = 0.2
WARM_UP = 0.25
"""The share of the load after which the memory of a node is compared."""
IDLE_SECONDS = 30.0
POOL = 4
"""Connections to Redis that leases, listening and adoption keep open besides, once they were needed."""


async def _leak(rig: Rig) -> None:
    def plan(_request: Request, rng: random.Random) -> Sequence[float]:
        return () if rng.random() < SILENT else (rng.uniform(*rig.form.delay),)

    await rig.start_fleet(plan)
    keys_before = await rig.redis.dbsize()
    rig.recorder.metric("redis", REDIS_KEYS_BASELINE, keys_before)
    rig.phase = "warming up"
    whole = rig.job()
    warm_up = {
        "commands": None if whole.commands is None else round(WARM_UP * whole.commands),
        "seconds": None if whole.seconds is None else WARM_UP * whole.seconds,
    }
    await rig.load.run(rig.job(**warm_up, group="warm-up"))
    others = [node for node in rig.nodes.values() if node.name != VICTIM]
    before = [(node, _memory(node), _files(node)) for node in others]
    await rig.load_with_faults(whole)
    rig.phase = "idle until everything has run out"
    loop = asyncio.get_running_loop()
    idle_until = loop.time() + rig.form.timeout + RETENTION + IDLE_SECONDS
    while (left := await rig.redis.dbsize()) != keys_before and loop.time() < idle_until:
        await asyncio.sleep(0.2)
    await asyncio.sleep(1)
    rig.recorder.metric("redis", REDIS_KEYS_AFTER_TTL, left)
    measure(rig)
    held = [(await rig.counters(node.name))["self"] for node in others]
    rig.measures |= {
        "keys_left": left - keys_before,
        "files_left": max(_files(node) - files for node, _, files in before),
        "rss_growth_percent": round(max(100 * (_memory(node) - memory) / memory for node, memory, _ in before), 1),
        "waiters_left": sum(one["waiters"] + one["pending"] for one in held),
    }


VICTIM = "n3"
"""The only node that is killed: memory and files are those of the others."""


def _memory(node: NodeProcess) -> int:
    return int(node.usage.memory_info().rss)


def _files(node: NodeProcess) -> int:
    """Open files but for connections that stay open for what comes next: of callers, and of the access directory."""
    callers = sum(one.laddr.port == node.port and bool(one.raddr) for one in node.usage.net_connections())
    directory = sum(DATABASE in Path(one.path).name for one in node.usage.open_files())
    return int(node.usage.num_fds()) - int(callers) - int(directory)


def _kills(_rng: random.Random, form: Form) -> list[Fault]:
    seconds = form.seconds or 0.0
    return [
        Fault(form.every * (index + 0.5), Kind.KILL, VICTIM, form.down) for index in range(int(seconds / form.every))
    ]


R18 = Scenario(
    name="R18",
    title="leak",
    provoke="one command in five times out, a node is killed again and again; then nothing until all records ran out",
    figures=(
        WRONG,
        DUPLICATES,
        HUNG,
        ANSWERED,
        TRACEBACKS,
        PROVOKED,
        Figure("keys_left", "=", 0, "keys in Redis more than before"),
        Figure("files_left", "<=", POOL, "open files of a node more than after the first quarter"),
        Figure("waiters_left", "=", 0, "callers and open commands that a node still holds"),
        Figure(
            "rss_growth_percent", "<=", 5, "growth of a node's memory after the first quarter, in per cent", timing=True
        ),
    ),
    full=Form(
        seconds=300,
        rate=200,
        timeout=5.0,
        every=20.0,
        settings={"HOMING_STORE_RETENTION": f"{RETENTION:g}s"},
    ),
    short=Form(
        seconds=5,
        rate=40,
        timeout=2.0,
        delay=(0.0, 0.1),
        every=5.0,
        down=1.0,
        settings={"HOMING_STORE_RETENTION": "8s"} | QUICK_LEASE,  # on a busy machine a retry takes long to come
    ),
    act=_leak,
    limits={"unread": UNLIMITED},
    expects=("I1", "I3", "I7", "I8", "F5"),  # records run out before anybody could read them again
    plan=_kills,
)
