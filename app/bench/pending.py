"""What commands that wait cost: CPU of those that do not, and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from app.bench.options import BenchError, BenchOptions
from app.bench.processes import redis_memory
from app.bench.report import PendingReport, PendingStep, Side
from app.bench.run import SILENT_METHOD, Cluster, Steps, job_for, private_cluster, run_job, take_turn
from app.bench.statistics import ratio

ALL_DEVICES: Final = "on all devices"
ONE_DEVICE: Final = "on one device, on its one response topic"
SCENARIOS: Final = (ALL_DEVICES, ONE_DEVICE)

_COMMON_DEVICES: Final = MappingProxyType({ALL_DEVICES: slice(None), ONE_DEVICE: slice(1)})
_REGISTERED_AT_ONCE: Final = 32


async def measure_pending(options: BenchOptions, where: str, steps: Steps) -> PendingReport:
    """Measure beside each number of waiting commands, on a fresh cluster."""
    async with private_cluster(options) as (cluster, all_devices):
        devices = all_devices[_COMMON_DEVICES[where]]
        found = []
        waiting = 0
        for pending in options.pending:
            steps.next(f"{pending:,} commands wait {where}: registering them")
            memory = await _add_pending(options, cluster, devices, pending - waiting)
            waiting = pending
            found.append(await _measure(options, cluster, devices, pending, memory, steps))
        return PendingReport(where, found)


async def _measure(
    options: BenchOptions,
    cluster: Cluster,
    devices: Sequence[str],
    pending: int,
    memory: tuple[float, float],
    steps: Steps,
) -> PendingStep:
    job = job_for(options, cluster, devices)
    turns = []
    for _ in range(options.rounds):
        steps.next(f"{pending:,} commands wait: load beside them")
        turns.append(await take_turn(cluster.load, job, cluster.measured))
    side = Side.of(turns)
    return PendingStep(pending, side.per_second, side.cpu, *memory, side.wrong, side.lost, side.errors)


async def _add_pending(
    options: BenchOptions, cluster: Cluster, devices: Sequence[str], count: int
) -> tuple[float, float]:
    """Register commands that nobody answers; bytes of node and of Redis for each."""
    if cluster.node is None:
        raise BenchError("the memory of a node that was not started here cannot be measured")
    job = job_for(options, cluster, devices)
    silent = replace(
        job,
        body=job.body | {"method": SILENT_METHOD, "timeout": "1h"},
        in_flight=min(_REGISTERED_AT_ONCE, count),
        commands=count,
        seconds=None,
        prefer="respond-async",
        check="accepted",
    )
    node_before, redis_before = cluster.node.resident_bytes(), await redis_memory(cluster.redis_port)
    result = await run_job(cluster.load, silent)
    if result.good != count:
        raise BenchError(f"{count - result.good} of {count} waiting commands were not accepted: {result.errors}")
    node_after, redis_after = cluster.node.resident_bytes(), await redis_memory(cluster.redis_port)
    return ratio(node_after - node_before, count), ratio(redis_after - redis_before, count)
