"""The cluster that is measured, and what is done with it: start it, put load on it, look at the clocks."""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from homing_rig.bench.generator import LoadJob, LoadResult
from homing_rig.bench.options import BenchOptions, ProgressCallback
from homing_rig.bench.processes import Processes, Running, Worker, busy_seconds
from homing_rig.bench.report import Turn
from homing_simulator.options import FleetOptions, device_ids

WARM_UP_SECONDS: Final = 1.0
SILENT_METHOD: Final = "bench_silent"
"""The fleet never answers it."""
METHODS: Final = {"dji": "camera_photo_take", "homing": "photo"}
PARAMS: Final = {"payload_index": "39-0-7", "camera_mode": 1}


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """The running parts: the node that gets the load, and the processes whose CPU counts."""

    host: str
    port: int
    mqtt_url: str
    measured: Sequence[Running]
    load: Worker
    processes: Processes
    """The starter of further processes."""
    node: Running | None = None
    redis: Running | None = None
    redis_port: int = 0


class Steps:
    """Tells the progress, step by step."""

    def __init__(self, progress: ProgressCallback, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def next(self, text: str) -> None:
        """Begin the next step."""
        self._progress(min(1.0, self._done / self._total), text)
        self._done += 1


async def start_cluster(options: BenchOptions, processes: Processes) -> Cluster:
    """Start Redis, Mosquitto, two nodes, fleet and load; only the latter two where there are nodes already."""
    if options.nodes_url is not None and options.mqtt_url is not None:
        host, port = options.host_port
        fleet = await _start_fleet(options, processes, options.mqtt_url)
        load = await processes.worker("load", {})
        return Cluster(
            host=host, port=port, mqtt_url=options.mqtt_url, measured=[fleet, load], load=load, processes=processes
        )
    redis, redis_port = await processes.redis()
    mosquitto, mqtt_port = await processes.mosquitto()
    mqtt_url = f"mqtt://127.0.0.1:{mqtt_port}"
    settings = {
        "HOMING_STORE_URL": f"redis://127.0.0.1:{redis_port}/0",
        "HOMING_MQTT_URL": mqtt_url,
        "HOMING_PROFILE": options.profile,
        "HOMING_LOG_LEVEL": "warning",
        "HOMING_COMMAND_MAX_PENDING": str(2 * max([10_000, *options.pending]) + options.in_flight),
        **({"HOMING_EVENTS_URL": f"redis://127.0.0.1:{redis_port}/0"} if options.events else {}),
        **options.node_settings,
    }
    first, port = await processes.node("node-a", options.node_command, settings)
    second, _ = await processes.node("node-b", options.node_command, settings)
    fleet = await _start_fleet(options, processes, mqtt_url)
    load = await processes.worker("load", {})
    return Cluster(
        host="127.0.0.1",
        port=port,
        mqtt_url=mqtt_url,
        measured=[first, second, redis, mosquitto, fleet, load],
        load=load,
        processes=processes,
        node=first,
        redis=redis,
        redis_port=redis_port,
    )


async def _start_fleet(options: BenchOptions, processes: Processes, mqtt_url: str) -> Worker:
    # A few sessions with many devices each: the fleet shares the machine with what is measured.
    return await processes.worker(
        "fleet",
        {
            "mqtt_url": mqtt_url,
            "profile": options.profile,
            "devices": options.devices,
            "devices_per_session": max(1, options.devices // 4),
            "silent_methods": [SILENT_METHOD],
        },
    )


def job_for(options: BenchOptions, cluster: Cluster, devices: Sequence[str]) -> LoadJob:
    """The closed loop on the first node."""
    return LoadJob(
        host=cluster.host,
        port=cluster.port,
        devices=devices,
        body={
            "method": METHODS[options.profile],
            "params": PARAMS,
            "timeout": "10s",
            "profile": options.profile,
        },
        authorization=options.authorization,
        in_flight=options.in_flight,
        commands=options.commands,
        seconds=None if options.commands is not None else options.seconds,
    )


async def take_turn(load: Worker, job: LoadJob, measured: Sequence[Running]) -> Turn:
    """Run a job, and look at the CPU clocks of the processes before and after it."""
    before = [one.cpu_seconds() for one in measured]
    busy, started = busy_seconds(), time.perf_counter()
    result = await run_job(load, job)
    for one in measured:
        one.check()
    used = {one.name: one.cpu_seconds() - start for one, start in zip(measured, before, strict=True)}
    foreign = busy_seconds() - busy - sum(used.values())
    return Turn(result, used, max(0.0, foreign / (time.perf_counter() - started)))


async def run_job(load: Worker, job: LoadJob) -> LoadResult:
    """Have the load generator run it."""
    answer: dict[str, Any] = await load.ask(asdict(job))
    return LoadResult(**answer)


async def warm_up(load: Worker, job: LoadJob) -> None:
    """Let both sides find their feet before anything counts."""
    await run_job(load, replace(job, seconds=WARM_UP_SECONDS, commands=None))


@asynccontextmanager
async def private_cluster(options: BenchOptions, *, warm: bool = True) -> AsyncIterator[tuple[Cluster, list[str]]]:
    """A fresh cluster, warmed up or not, and the ids of its devices."""
    devices = device_ids(FleetOptions().first_device, options.devices)
    with tempfile.TemporaryDirectory(prefix="homing-bench-") as folder:
        processes = Processes(Path(folder))
        try:
            cluster = await start_cluster(options, processes)
            if warm:
                await warm_up(cluster.load, job_for(options, cluster, devices))
            yield cluster, devices
        finally:
            await processes.stop()
