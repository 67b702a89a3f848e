"""The processes that the benchmark starts: `python -m homing_rig.bench.worker ROLE ARGUMENT`, with the roles below.

Apart from `no-op`, which is a server, they read one JSON object per line from standard input, answer each with one on
standard output, and end with the input. The first line they write says that they are ready.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any, Final

import orjson
import uvloop

from app.mqtt.options import MqttOptions
from app.profiles.loader import load_profiles
from app.runtime.system import SystemClock
from app.runtime.telemetry import configure_logging
from homing_rig.bench.generator import LoadJob, run_load
from homing_rig.bench.publisher import Publisher
from homing_rig.bench.reference import PahoRoundTrip, serve_no_op
from homing_rig.talkers import Talkers, topics_of
from homing_simulator.fleet import Fleet
from homing_simulator.options import FleetOptions
from homing_simulator.run import Connector

Handler = Callable[[dict[str, Any]], Awaitable[Any]]

MAX_LINE: Final = 64 * 1024 * 1024
"""Bytes; a request names all devices."""


async def fleet(argument: dict[str, Any]) -> None:
    """Answers commands; every line asks for its counts."""
    options = FleetOptions(
        profile=argument["profile"],
        devices=argument["devices"],
        devices_per_session=argument["devices_per_session"],
        silent_methods=frozenset(argument["silent_methods"]),
    )
    devices = Fleet(options, Connector(argument["mqtt_url"]).client, clock=SystemClock())
    await devices.start()

    async def count(_request: dict[str, Any]) -> dict[str, int]:
        stats = devices.stats
        return {"received": stats.received, "unsent": stats.unsent, "sessions": devices.connected}

    try:
        await answer(count)
    finally:
        await devices.stop()


async def load(_argument: dict[str, Any]) -> None:
    """Runs a job of the load generator per line."""

    async def run(request: dict[str, Any]) -> dict[str, Any]:
        return asdict(await run_load(LoadJob(**request)))

    await answer(run)


async def paho(argument: dict[str, Any]) -> None:
    """Measures bare round trips per line."""
    profile = load_profiles()[argument["profile"]]

    async def run(request: dict[str, Any]) -> list[int]:
        with PahoRoundTrip(argument["mqtt_url"], profile) as round_trip:
            return round_trip.measure(request["devices"], request["method"], request["params"], request["count"])

    await answer(run)


async def talkers(argument: dict[str, Any]) -> None:
    """Devices that say events; every line has the rate and for how long."""
    talking = Talkers(
        lambda client_id: MqttOptions.from_url(argument["mqtt_url"], client_id=client_id),
        topics_of(argument["devices"]),
    )
    await talking.start()

    async def talk(request: dict[str, Any]) -> dict[str, int]:
        before = talking.total
        await talking.talk(request["rate"], request["seconds"])
        return {"taken": talking.total - before}

    try:
        await answer(talk)
    finally:
        await talking.stop()


async def publisher(argument: dict[str, Any]) -> None:
    """Publishes as many events per line as it says, as fast as the broker takes them."""
    one = await Publisher.connected(argument["port"])

    async def publish(request: dict[str, Any]) -> dict[str, int]:
        await one.publish(request["count"])
        return {"taken": request["count"]}

    await answer(publish)


async def answer(handle: Handler) -> None:
    """Say ready, then answer line by line until the input ends."""
    reader = asyncio.StreamReader(limit=MAX_LINE)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    _write({"ready": True})
    while line := await reader.readline():
        _write(await handle(orjson.loads(line)))


def _write(value: object) -> None:
    sys.stdout.buffer.write(orjson.dumps(value) + b"\n")
    sys.stdout.buffer.flush()


def main(role: str, argument: str) -> None:
    """Play the role until the input ends."""
    if role == "no-op":
        serve_no_op(int(argument))
        return
    configure_logging("warning", "console")
    roles = {"fleet": fleet, "load": load, "paho": paho, "talkers": talkers, "publisher": publisher}
    uvloop.run(roles[role](orjson.loads(argument)))


if __name__ == "__main__":
    main(*sys.argv[1:])
