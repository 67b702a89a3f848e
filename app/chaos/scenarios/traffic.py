"""Nothing is broken: much traffic, doubled and racing answers, hot topics, and what remains afterwards."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress

from app.chaos.fleet import Fleet, at_once, between, hold
from app.chaos.history import REDIS_KEYS_AFTER_TTL, REDIS_KEYS_BASELINE
from app.chaos.measuring import ANSWERED, DUPLICATES, HUNG, SOUND, WRONG, measure, quantile
from app.chaos.nemesis import Fault, Kind
from app.chaos.processes import NodeService
from app.chaos.rig import Rig
from app.chaos.scenario import Figure, Form, Scenario
from app.core import keys
from app.core.command import CommandState
from app.core.identifiers import partition_of
from app.simulator.families import Request

NO_TIMEOUTS = Figure("timed_out", "=", 0, "commands that timed out although their device answered")


async def _ledger(rig: Rig) -> None:
    await rig.start_fleet()
    await rig.load_with_faults(rig.job())
    await rig.settle()
    measure(rig)
    await _note_forwarded(rig)


async def _note_forwarded(rig: Rig) -> None:
    finals = [said for said in rig.finals.commands.values() if said.get("state") == CommandState.SUCCEEDED]
    forwarded = sum(bool(said["forwarded"]) for said in finals)
    rig.measures["forwarded_percent"] = round(100 * forwarded / max(1, len(finals)), 1)


R1 = Scenario(
    name="R1",
    title="ledger",
    provoke="no faults; half of the callers wait, half come back; responses land on any node",
    figures=(*SOUND, ANSWERED, NO_TIMEOUTS),
    full=Form(commands=100_000, rate=None, in_flight=64, delay=(0.0, 0.05)),
    short=Form(commands=1_000, rate=None, in_flight=32, delay=(0.0, 0.05)),
    act=_ledger,
)


async def _burst(rig: Rig) -> None:
    fleet = await rig.start_fleet(hold)
    rig.phase = "sending"
    await rig.load.run(rig.job())
    await _until(lambda: len(fleet.held) >= len(rig.load.calls), 60)
    before, heard = rig.witness.dropped, rig.witness.rounds
    loop = asyncio.get_running_loop()
    began = loop.time()
    rig.phase = "burst"
    answers = len(fleet.held)
    fleet.release()
    rig.measures["written_s"] = round(loop.time() - began, 2)
    largest = asyncio.create_task(_largest(list(rig.nodes.values())))
    await _until(lambda: not fleet.open_answers, 60)
    rig.measures["acked_s"] = round(loop.time() - began, 2)
    await _until_settled(rig, answers, 60)
    rig.measures["completed_s"] = round(loop.time() - began, 2)
    largest.cancel()
    with suppress(asyncio.CancelledError):
        await largest
    await _until(lambda: rig.witness.rounds >= heard + 2, 5)
    rig.measures["dropped"] = rig.witness.dropped - before
    await rig.settle()
    measure(rig)
    rig.measures["rss_mib"] = round(_LARGEST["bytes"] / 2**20)


_LARGEST = {"bytes": 0}


async def _largest(nodes: Sequence[NodeService]) -> None:
    """Keep the most memory that any node used, until cancelled."""
    _LARGEST["bytes"] = 0
    while True:
        _LARGEST["bytes"] = max(_LARGEST["bytes"], *(node.usage.memory_info().rss for node in nodes))
        await asyncio.sleep(0.05)


async def _until(condition: object, seconds: float) -> None: ...
