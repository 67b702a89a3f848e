"""The benchmark itself: takes turns between cluster and references, and sums up."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, replace
from pathlib import Path

from homing_rig.bench.cluster import PARAMS, Steps, job_for, run_job, start_cluster, take_turn, warm_up
from homing_rig.bench.cost import measure_cost
from homing_rig.bench.open_commands import SCENARIOS, measure_memory, measure_pending
from homing_rig.bench.options import BenchOptions, ProgressCallback
from homing_rig.bench.processes import Processes
from homing_rig.bench.report import BenchReport, Side, Single, turn_ratios
from homing_rig.guard import Guard
from homing_simulator.options import FleetOptions, device_ids


async def run_bench(options: BenchOptions, progress: ProgressCallback) -> BenchReport:
    """Measure; BenchError when something cannot be started or ends on its own."""
    total = 3 + 4 * options.rounds + len(SCENARIOS) * len(options.pending) * (options.rounds + 1)
    comparisons = (options.latency_log is not None) + options.access
    steps = Steps(progress, total + comparisons * (2 + 2 * options.rounds))
    with tempfile.TemporaryDirectory(prefix="homing-bench-") as folder:
        processes = Processes(Path(folder))
        try:
            report = await _compare(options, processes, steps)
        finally:
            await processes.stop()
    if options.pending:
        pending = [await measure_pending(options, one, steps) for one in SCENARIOS]
        report = replace(report, pending=pending, memory=await measure_memory(options, steps))
    if options.latency_log is not None:
        logging = {"HOMING_LATENCY_LOG_DIR": str(options.latency_log)}
        report = replace(report, latency_log=await measure_cost("latency log", options, logging, steps))
    if options.access:
        with tempfile.TemporaryDirectory(prefix="homing-bench-") as folder:
            guard = Guard(Path(folder))
            await guard.set_up()
            cost = await measure_cost("access", options, guard.settings, steps, guard.authorization)
        report = replace(report, access=cost)
    progress(1.0, "done")
    return report


async def _compare(options: BenchOptions, processes: Processes, steps: Steps) -> BenchReport:
    steps.next("starting")
    cluster = await start_cluster(options, processes)
    no_op, no_op_port = await processes.no_op()
    devices = device_ids(FleetOptions().first_device, options.devices)
    paho = await processes.worker("paho", {"mqtt_url": cluster.mqtt_url, "profile": options.profile})

    job = job_for(options, cluster, devices)
    no_op_job = replace(job, host="127.0.0.1", port=no_op_port, check="ok")
    steps.next("warming up")
    await warm_up(cluster.load, no_op_job)
    await warm_up(cluster.load, job)

    ours, its, singles = [], [], []
    for number in range(1, options.rounds + 1):
        turn = f"round {number} of {options.rounds}"
        steps.next(f"{turn}: no-op reference")
        its.append(await take_turn(cluster.load, no_op_job, [no_op, cluster.load]))
        steps.next(f"{turn}: cluster, {options.in_flight} in flight")
        ours.append(await take_turn(cluster.load, job, cluster.measured))
        steps.next(f"{turn}: bare paho, one at a time")
        bare = await paho.ask(
            {"devices": devices, "method": job.body["method"], "params": PARAMS, "count": options.singles}
        )
        steps.next(f"{turn}: cluster, one at a time")
        one_by_one = replace(job, in_flight=1, commands=options.singles, seconds=None)
        singles.append((bare, (await run_job(cluster.load, one_by_one)).latencies))
    ratios = turn_ratios(ours, its)
    return BenchReport(
        options=asdict(options),
        cluster=Side.of(ours),
        no_op=Side.of(its),
        ratio=sorted(ratios)[len(ratios) // 2],
        ratios=ratios,
        single=Single.of(singles),
    )
