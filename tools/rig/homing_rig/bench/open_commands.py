"""Measures the cost of commands that wait: CPU of those that do not, and memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from homing_rig.bench.cluster import SILENT_METHOD, Cluster, Steps, job_for, private_cluster, run_job, take_turn
from homing_rig.bench.options import BenchError, BenchOptions
from homing_rig.bench.processes import Running, redis_memory
from homing_rig.bench.report import Memory, PendingReport, Turn
from homing_rig.statistics import ratio

ALL_DEVICES: Final = "on all devices"
ONE_DEVICE: Final = "on one device, on its one response topic"
SCENARIOS: Final = (ALL_DEVICES, ONE_DEVICE)

_COMMON_DEVICES: Final = MappingProxyType({ALL_DEVICES: slice(None), ONE_DEVICE: slice(1)})
_REGISTERED_AT_ONCE: Final = 32
_QUIET_CPU: Final = 0.05
"""Part of a CPU that an idle node may use."""
_QUIET_SECONDS: Final = 1.0
_SETTLE_SECONDS: Final = 60.0


async def measure_pending(options: BenchOptions, where: str, steps: Steps) -> PendingReport:
    """Measure beside each number of waiting commands.

    Each number has a cluster of its own, and they take turns: what else the machine does changes CPU per command, too.
    """
    async with AsyncExitStack() as stack:
        clusters = []
        for pending in options.pending:
            steps.next(f"{pending:,} commands wait {where}: registering them")
            cluster, all_devices = await stack.enter_async_context(private_cluster(options))
            devices = all_devices[_COMMON_DEVICES[where]]
            await _add_pending(options, cluster, devices, pending)
            await _settled(cluster.node)
            clusters.append((cluster, job_for(options, cluster, devices)))
        turns: list[list[Turn]] = [[] for _ in clusters]
        for _ in range(options.rounds):
            for pending, (cluster, job), taken in zip(options.pending, clusters, turns, strict=True):
                steps.next(f"{pending:,} commands wait {where}: load beside them")
                taken.append(await take_turn(cluster.load, job, cluster.measured))
    return PendingReport.of(where, options.pending, turns)


async def measure_memory(options: BenchOptions, steps: Steps) -> Memory:
    """Bytes per waiting command, on a fresh cluster without other load.

    Measured over as many again as already wait, as memory that was freed before would hide what the first ones need.
    """
    steps.next("memory of commands that wait")
    async with private_cluster(options, warm=False) as (cluster, devices):
        count = options.pending[-1]
        await _add_pending(options, cluster, devices, count)
        await _settled(cluster.node)
        node, redis = _started(cluster.node).resident_bytes(), await redis_memory(cluster.redis_port)
        await _add_pending(options, cluster, devices, count)
        await _settled(cluster.node)
        node_bytes = ratio(_started(cluster.node).resident_bytes() - node, count)
        return Memory(count, node_bytes, ratio(await redis_memory(cluster.redis_port) - redis, count))


async def _add_pending(options: BenchOptions, cluster: Cluster, devices: Sequence[str], count: int) -> None:
    """Register commands that nobody answers."""
    job = job_for(options, cluster, devices)
    silent = replace(
        job,
        body=job.body | {"method": SILENT_METHOD, "timeout": "1h"},
        in_flight=max(1, min(_REGISTERED_AT_ONCE, count)),
        commands=count,
        seconds=None,
        prefer="respond-async",
        check="accepted",
    )
    result = await run_job(cluster.load, silent)
    if result.good != count:
        raise BenchError(f"{count - result.good} of {count} waiting commands were not accepted: {result.errors}")


async def _settled(node: Running | None) -> None:
    """Wait until the node is idle: a new command has follow-up work, once."""
    node = _started(node)
    for _ in range(round(_SETTLE_SECONDS / _QUIET_SECONDS)):
        before = node.cpu_seconds()
        await asyncio.sleep(_QUIET_SECONDS)
        if node.cpu_seconds() - before <= _QUIET_CPU * _QUIET_SECONDS:
            return
    raise BenchError(f"the node did not come to rest within {_SETTLE_SECONDS:.0f} s")


def _started(node: Running | None) -> Running:
    if node is None:
        raise BenchError("only a node that was started here can be looked into")
    return node
