"""Measures the cost of the latency log, or of access: CPU per command and the callers' p99, with it and without."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace

from homing_rig.bench.cluster import Steps, job_for, private_cluster, take_turn
from homing_rig.bench.options import BenchOptions
from homing_rig.bench.report import CostReport, Turn
from homing_rig.turns import in_turns


async def measure_cost(
    what: str, options: BenchOptions, settings: Mapping[str, str], steps: Steps, authorization: str = ""
) -> CostReport:
    """Two clusters take turns, one of which has these settings; who begins changes from round to round.

    Callers of that one send `authorization`.
    """
    async with AsyncExitStack() as stack:
        clusters = []
        for more, header in (({}, ""), (settings, authorization)):
            steps.next(f"{what} {'on' if more else 'off'}: starting")
            node_settings = {**options.node_settings, **more}
            chosen = replace(options, node_settings=node_settings, authorization=header)
            cluster, devices = await stack.enter_async_context(private_cluster(chosen))
            clusters.append((cluster, job_for(chosen, cluster, devices)))
        turns: list[list[Turn]] = [[], []]
        for which in in_turns((0, 1), options.rounds):
            steps.next(f"{what} {'on' if which else 'off'}: load")
            cluster, job = clusters[which]
            turns[which].append(await take_turn(cluster.load, job, cluster.measured))
    return CostReport.of(*turns)
