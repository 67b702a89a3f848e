"""Measures what three primaries of a Redis Cluster carry, and what their wake-ups cost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from time import perf_counter
from typing import Annotated, Final

import psutil  # type: ignore[import-untyped] # it comes without types
from redis.asyncio import Redis
from redis.crc import key_slot
from typer import Option

from app.core import keys
from app.core.commands.callback import Answer, Expectation, Registration
from app.core.commands.command import CommandState
from app.core.identifiers import command_id
from app.core.profiles.correlation import Correlation
from app.runtime.system import SystemClock, new_secret, new_wake_key
from app.runtime.tasks import end
from app.store.redis.commands.store import RedisStateStore
from homing_rig.figures.kit import Findings
from homing_rig.redis_members import SLOTS, MemberRedis, members_url, three_primaries
from homing_rig.services import RedisProcess
from homing_rig.statistics import median
from homing_rig.turns import in_turns

CALLERS: Final = 64
DEVICES: Final = 1000
AIM: Final = 1.6
WAKE_UP: Final = b"x" * 600
AT_ONCE: Final = 16
_MINUTE: Final = timedelta(minutes=1)
_ids = count()
_turns = count()


@dataclass(frozen=True, slots=True)
class Side:
    """Servers that take turns, and what each turn cost them: microseconds of CPU for each command, by server."""

    servers: Sequence[RedisProcess]
    url: str
    costs: list[Sequence[float]] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    def fullest(self) -> list[float]:
        """The cost of the server that has the most to do, by turn."""
        return [max(one) for one in self.costs]

    async def take_turn(self, seconds: float) -> None:
        """Register commands of many devices, and answer them."""
        store = RedisStateStore(
            self.url, clock=SystemClock(), counters=Counter(), wake_key=new_wake_key(), new_secret=new_secret
        )
        await store.start()
        done = Counter[str]()
        callers = [asyncio.create_task(_call(store, done)) for _ in range(CALLERS)]
        try:
            await asyncio.sleep(0.5)
            before, began, known = self._cpu(), perf_counter(), done["commands"]
            await asyncio.sleep(seconds)
            commands, lasted = done["commands"] - known, perf_counter() - began
            used = [after - at for after, at in zip(self._cpu(), before, strict=True)]
        finally:
            await end(callers)
            await store.close()
        self.costs.append([one * 1e6 / commands for one in used])
        self.rates.append(commands / lasted)

    def _cpu(self) -> list[float]:
        return [_cpu_seconds(one) for one in self.servers]


async def primaries(
    findings: Findings,
    *,
    rounds: Annotated[int, Option(min=1, help="The number of turns of each side.")] = 5,
    seconds: Annotated[float, Option(min=0.1, help="The length of a turn.")] = 4.0,
) -> None:
    """CPU of Redis for a command on three primaries against that on one, and so how much more three can carry."""
    with ExitStack() as stack:
        alone = stack.enter_context(RedisProcess())
        members = stack.enter_context(three_primaries())
        one, three = Side([alone], alone.node_url), Side(members, members_url(members))
        for side in in_turns([one, three], rounds):
            await side.take_turn(seconds)
    findings.note("A command is its registration and its answer, as a node sends them; one process sends all of them.")
    findings.spread("CPU of one Redis for a command", one.fullest(), " µs")
    findings.spread("CPU of the fullest of three primaries for a command of any", three.fullest(), " µs")
    findings.spread("CPU of all three", [sum(turn) for turn in three.costs], " µs")
    for name, side in (("one Redis", one), ("three primaries", three)):
        full = [1e6 / cost for cost in side.fullest()]
        findings.spread(f"commands/s at which {name} is the bound", full)
        findings.spread(f"commands/s of this process with {name}", side.rates)
    ratio = median(one.fullest()) / median(three.fullest())
    findings.figure("what three primaries can carry, against one", ratio, " ×", least=AIM)


async def channels(
    findings: Findings,
    *,
    messages: Annotated[int, Option(min=100, help="The number of wake-ups of each kind.")] = 20_000,
    rounds: Annotated[int, Option(min=1, help="The number of turns of each kind.")] = 3,
) -> None:
    """CPU of three primaries for a wake-up by PUBLISH and by SPUBLISH, and how soon it is heard."""
    costs: dict[str, list[Sequence[float]]] = {"PUBLISH": [], "SPUBLISH": []}
    soon: dict[str, list[float]] = {kind: [] for kind in costs}
    with three_primaries() as members:
        for kind in in_turns(list(costs), rounds):
            used, seconds = await _wake(members, kind, messages)
            costs[kind].append(used)
            soon[kind] += seconds
    for kind, turns in costs.items():
        findings.spread(f"{kind}: CPU of the member that is asked", [turn[0] for turn in turns], " µs")
        findings.spread(f"{kind}: CPU of each other one, the dearer", [max(turn[1:]) for turn in turns], " µs")
        findings.spread(f"{kind}: CPU of all three", [sum(turn) for turn in turns], " µs")
        findings.spread(f"{kind}: from sent to heard, one at a time", [one * 1000 for one in soon[kind]], " ms")


async def _wake(members: Sequence[MemberRedis], kind: str, messages: int) -> tuple[Sequence[float], list[float]]:
    """Microseconds of CPU for each, of the publisher's member first; and seconds from sent to heard."""
    channel = keys.node_channel("node-a")
    place = key_slot(channel.encode()) * len(members) // SLOTS
    servers = [members[place], *(one for number, one in enumerate(members) if number != place)]
    # A node listens by SUBSCRIBE at another member than it publishes to; SSUBSCRIBE works at the slot's own alone.
    at = servers[0] if kind == "SPUBLISH" else servers[1]
    async with Redis(port=servers[0].port) as saying, Redis(port=at.port) as hearing, hearing.pubsub() as listener:
        subscribe = listener.ssubscribe if kind == "SPUBLISH" else listener.subscribe
        await subscribe(channel)
        await listener.get_message(timeout=1.0)
        seconds = []
        for _ in range(100):
            began = perf_counter()
            await saying.execute_command(kind, channel, WAKE_UP)  # type: ignore[no-untyped-call]
            await listener.get_message(timeout=1.0)
            seconds.append(perf_counter() - began)
        before = [_cpu_seconds(one) for one in servers]
        for _ in range(messages // AT_ONCE):
            async with saying.pipeline(transaction=False) as pipeline:
                for _ in range(AT_ONCE):
                    pipeline.execute_command(kind, channel, WAKE_UP)
                await pipeline.execute()
            for _ in range(AT_ONCE):
                await listener.get_message(timeout=1.0)
        sent = messages // AT_ONCE * AT_ONCE
        used = [_cpu_seconds(one) - was for one, was in zip(servers, before, strict=True)]
    return [one * 1e6 / sent for one in used], seconds


async def send_and_answer(store: RedisStateStore, number: int) -> None:
    """Register a command of a device that has a number, and its answer. StoreUnavailableError."""
    device = f"dock-{number}"
    name, topic = command_id(device, f"01J{next(_ids):023d}"), f"thing/product/{device}/services_reply"
    await store.register(
        Registration(
            *(name, device, "takeoff", b'{"height":30}', "dji", "node-a"),
            *((Expectation(topic, Correlation.ID),), _MINUTE, timedelta(seconds=5)),
        )
    )
    said = Answer(topic, device, Correlation.ID, name, CommandState.SUCCEEDED, b'{"code":0}', None)
    await store.respond(said, "node-a")


async def _call(store: RedisStateStore, done: Counter[str]) -> None:
    while True:
        await send_and_answer(store, next(_turns) % DEVICES)
        done["commands"] += 1


def _cpu_seconds(server: RedisProcess) -> float:
    times = psutil.Process(server.pid).cpu_times()
    return float(times.user + times.system)
