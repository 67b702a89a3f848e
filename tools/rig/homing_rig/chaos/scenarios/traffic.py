"""Nothing is broken: much traffic, bursts, doubled and racing answers, hot topics."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import suppress

from app.core import keys
from app.core.commands.command import CommandState
from app.core.identifiers import PARTITIONS, partition_of
from homing_rig.chaos.fleet import Fleet, at_once, hold
from homing_rig.chaos.history import Mode
from homing_rig.chaos.rig import Rig
from homing_rig.chaos.scenario import Figure, Form, Scenario
from homing_rig.chaos.shared_figures import ANSWERED, NOBODY_WAITS, SOUND, measure, milliseconds
from homing_simulator.families import Request

NO_TIMEOUTS = Figure("timed_out", "=", 0, "commands that timed out although their device answered")
MIB = 2**20


async def until(condition: Callable[[], bool], seconds: float) -> bool:
    """True if the condition came true within that time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.01)
            return True
    return False


async def ended(looking: asyncio.Task[None]) -> None:
    """End a task that looks on and on; its error, if it has ended before: what it has not seen was not well."""
    looking.cancel()
    with suppress(asyncio.CancelledError):
        await looking


async def _ledger(rig: Rig) -> None:
    await rig.start_fleet()
    await rig.load_with_faults(rig.job())
    await rig.settle()
    measure(rig)
    succeeded = [said for said in rig.finals.commands.values() if said.get("state") == CommandState.SUCCEEDED]
    forwarded = sum(bool(said["forwarded"]) for said in succeeded)
    rig.measures["forwarded_percent"] = round(100 * forwarded / max(1, len(succeeded)), 1)


R1 = Scenario(
    name="R1",
    title="ledger",
    provoke="no faults; half of the callers wait, half come back; responses land on any node",
    figures=(*SOUND, ANSWERED, NO_TIMEOUTS),
    full=Form(commands=100_000, rate=None, in_flight=64, delay=(0.0, 0.05)),
    short=Form(commands=1_000, rate=None, in_flight=32, delay=(0.0, 0.05), timeout=60.0),
    act=_ledger,
)


async def _burst(rig: Rig) -> None:
    loop = asyncio.get_running_loop()
    fleet = await rig.start_fleet(hold)
    rig.phase = "sending"
    await rig.load.run(rig.job())
    await until(lambda: len(fleet.held) >= len(rig.load.calls), 60)
    before, heard = rig.witness.dropped, rig.witness.rounds
    rig.phase = "burst"
    watching = asyncio.create_task(_most_memory(rig))
    rig.stack.callback(watching.cancel)
    began, answers = loop.time(), len(fleet.held)
    await fleet.release()
    written = loop.time() - began
    await until(lambda: not fleet.open_answers, 60)
    acked = loop.time() - began
    while await _open_commands(rig) and loop.time() - began < ANSWERS_LIMIT:
        await asyncio.sleep(0.1)
    completed = loop.time() - began
    await until(lambda: rig.witness.rounds >= heard + 2, 5)
    await ended(watching)
    rig.measures |= {
        "answers": answers,
        "written_s": round(written, 2),
        "acked_s": round(acked, 2),
        "completed_s": round(completed, 2),
        "dropped": rig.witness.dropped - before,
    }
    await rig.settle()
    measure(rig)


ANSWERS_LIMIT = 120.0


async def _open_commands(rig: Rig) -> int:
    pipeline = rig.redis.pipeline(transaction=False)
    for partition in range(PARTITIONS):
        pipeline.execute_command("ZCARD", keys.due(partition))
    return sum(await pipeline.execute())


async def _most_memory(rig: Rig) -> None:
    """Keep the most memory that a node used, until cancelled."""
    while True:
        used = max(node.usage.memory_info().rss for node in rig.nodes.values())
        rig.measures["rss_mib"] = max(rig.measures.get("rss_mib", 0.0), round(used / MIB, 1))
        await asyncio.sleep(0.1)


R14 = Scenario(
    name="R14",
    title="burst",
    provoke="all devices answer within a second; two nodes take the responses",
    figures=(
        *SOUND,
        NO_TIMEOUTS,
        Figure("dropped", "=", 0, "messages that the broker dropped"),
        Figure("written_s", "<=", 1, "seconds in which the devices wrote all answers", timing=True),
        Figure("completed_s", "<=", 30, "seconds until every command had its outcome", timing=True),
        Figure("rss_mib", "<=", 256, "MiB that a node used at most"),
    ),
    full=Form(commands=10_000, rate=None, in_flight=64, share_async=1.0, nodes=2, timeout=120.0, sessions=20),
    short=Form(commands=1_500, rate=None, in_flight=32, share_async=1.0, nodes=2, timeout=60.0, sessions=5),
    act=_burst,
    expects=NOBODY_WAITS,
)


COPIES = 5
RACE_SECONDS = 0.002
RACE_TIMEOUT = 1.0


async def _races(rig: Rig) -> None:
    """Three parts after one another: five copies, answers at the deadline, instant echoes."""
    part = (rig.form.commands or 0) // 6
    fleet = await rig.start_fleet(_copies)
    rig.phase = "five copies"
    await rig.load.run(rig.job(commands=part, group="copies"))
    fleet.plan = at_once
    rig.phase = "instant echoes"
    await rig.load.run(rig.job(commands=4 * part, group="echoes"))
    fleet.plan = _at_deadline(fleet)
    rig.phase = "answers at the deadline"
    races = await rig.load.run(rig.job(commands=part, group="races", timeout=RACE_TIMEOUT, in_flight=256))
    await rig.settle()
    measure(rig)
    other = [call for call in rig.load.calls if call.group != "races"]
    rig.measures["missed_echoes"] = sum(call.state == CommandState.TIMED_OUT for call in other)
    won = sum(rig.finals.commands.get(call.command_id or "", {}).get("state") == "succeeded" for call in races)
    rig.measures["races_won_percent"] = round(100 * won / max(1, len(races)), 1)
    rig.measures["disagree"] = sum(
        call.answer == "final" and rig.finals.commands.get(call.command_id or "", {}).get("state") != call.state
        for call in rig.load.calls
    )


def _copies(_request: Request, _rng: random.Random) -> Sequence[float]:
    return (0.0,) * COPIES


def _at_deadline(fleet: Fleet) -> Callable[[Request, random.Random], Sequence[float]]:
    def plan(request: Request, rng: random.Random) -> Sequence[float]:
        left = (request.deadline or 0.0) - fleet.clock.wall()
        # The way through broker and store takes one or two milliseconds.
        return (left - 1.5 * RACE_SECONDS / 2 + rng.uniform(-RACE_SECONDS, RACE_SECONDS),)

    return plan


R15 = Scenario(
    name="R15",
    title="duplicates and races",
    provoke="five copies of each answer; instant echoes; answers at the deadline ± 2 ms",
    figures=(
        *SOUND,
        ANSWERED,
        Figure("missed_echoes", "=", 0, "commands that timed out although they were answered at once"),
        Figure("disagree", "=", 0, "callers who were told something else than the store has"),
    ),
    full=Form(commands=60_000, rate=None, in_flight=64, share_async=0.0),
    short=Form(commands=1_500, rate=None, in_flight=32, share_async=0.0, timeout=60.0),
    act=_races,
)


async def _same_topic(rig: Rig) -> None:
    """First correlated: answers to one topic shuffled. Then without ids: one command at a time per device."""
    commands = rig.form.commands or 0
    fleet = await rig.start_fleet(hold)
    shuffling = asyncio.create_task(_shuffle(fleet, random.Random(rig.options.seed)))
    rig.stack.callback(shuffling.cancel)
    rig.phase = "shuffled answers"
    await rig.load.run(rig.job(commands=commands, group="shuffled"))
    await rig.start_fleet(at_once, profile="ordered")
    rig.phase = "answers without ids"
    callers = min(rig.form.devices, 16)
    ordered = rig.job(commands=commands // 10, group="ordered", profile="ordered", turns=True, in_flight=callers)
    await rig.load.run(ordered)
    await until(lambda: not fleet.held, 10)
    await rig.settle()
    measure(rig)


async def _shuffle(fleet: Fleet, rng: random.Random) -> None:
    """Answer what has piled up, in any order, again and again."""
    while True:
        await asyncio.sleep(0.1)
        await fleet.release(rng)


R16 = Scenario(
    name="R16",
    title="same-topic ambiguity",
    provoke="100 commands at a time wait on each topic and are answered in any order; then devices that echo no id",
    figures=(*SOUND, ANSWERED, NO_TIMEOUTS),
    full=Form(commands=100_000, rate=None, in_flight=800, devices=8, share_async=0.0, timeout=20.0),
    short=Form(commands=1_000, rate=None, in_flight=200, devices=2, share_async=0.0, timeout=60.0),
    act=_same_topic,
)


async def _hot_topic(rig: Rig) -> None:
    loop = asyncio.get_running_loop()
    hot, *others = rig.devices

    def plan(request: Request, _rng: random.Random) -> Sequence[float] | None:
        return None if request.device_id == hot else (0.0,)

    fleet = await rig.start_fleet(plan)
    rig.phase = "sending"
    waiting = await rig.load.run(rig.job(devices=(hot,), group="hot"))
    await until(lambda: len(fleet.held) >= len(waiting), 30)
    await rig.redis.config_set("slowlog-log-slower-than", 1000)
    await rig.redis.slowlog_reset()
    traffic = rig.job(
        rate=OTHER_RATE, commands=None, seconds=OTHER_SECONDS, share_async=0.0, devices=others, group="other"
    )
    beside = asyncio.create_task(rig.load.run(traffic))
    await asyncio.sleep(OTHER_SECONDS / 4)
    rig.phase = "answers to one topic"
    began, due = loop.time(), keys.due(partition_of(hot))
    await fleet.release()
    while await rig.redis.zcard(due) > len(others) and loop.time() - began < ANSWERS_LIMIT:
        await asyncio.sleep(0.02)
    rig.measures["done_s"] = round(loop.time() - began, 2)
    other = await beside
    slow = await rig.redis.slowlog_get(128)
    scripts = [entry["duration"] for entry in slow if entry["command"].upper().startswith(b"EVAL")]
    rig.measures["script_ms"] = round(max(scripts, default=1000) / 1000, 1)
    await rig.settle()
    measure(rig)
    rig.measures["other_p99_ms"] = milliseconds([call for call in other if call.mode is Mode.SYNC], 0.99)


OTHER_RATE = 50.0
OTHER_SECONDS = 4.0

R17 = Scenario(
    name="R17",
    title="hot topic",
    provoke="10,000 commands wait on one topic and are answered at once, each by its id, beside other traffic",
    figures=(
        *SOUND,
        ANSWERED,
        NO_TIMEOUTS,
        Figure("script_ms", "<=", 20, "ms of the longest Redis script", timing=True),
        Figure("done_s", "<=", 5, "seconds until all have their outcome", timing=True),
        Figure("other_p99_ms", "<=", 100, "p99 of the other traffic in ms", timing=True),
    ),
    full=Form(commands=10_000, rate=None, in_flight=64, share_async=1.0, devices=9, sessions=9, timeout=120.0),
    short=Form(commands=1_000, rate=None, in_flight=32, share_async=1.0, devices=9, sessions=9, timeout=60.0),
    act=_hot_topic,
)
