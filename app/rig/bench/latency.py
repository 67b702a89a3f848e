"""What the latency log costs: CPU per command and the callers' p99, with it and without."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from app.rig.bench.cluster import Steps, job_for, private_cluster, take_turn
from app.rig.bench.options import BenchOptions
from app.rig.bench.report import LogReport, Turn


async def measure_latency_log(options: BenchOptions, folder: Path, steps: Steps) -> LogReport:
    """Two clusters take turns, one of which writes its log into the folder; who begins changes from round to round."""
    logging = {"HOMING_LATENCY_LOG_DIR": str(folder)}
    async with AsyncExitStack() as stack:
        clusters = []
        for settings in ({}, logging):
            steps.next(f"latency log {'on' if settings else 'off'}: starting")
            chosen = replace(options, node_settings={**options.node_settings, **settings})
            cluster, devices = await stack.enter_async_context(private_cluster(chosen))
            clusters.append((cluster, job_for(options, cluster, devices)))
        turns: list[list[Turn]] = [[], []]
        for number in range(options.rounds):
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                steps.next(f"latency log {'on' if which else 'off'}: load")
                cluster, job = clusters[which]
                turns[which].append(await take_turn(cluster.load, job, cluster.measured))
    return LogReport.of(*turns)
