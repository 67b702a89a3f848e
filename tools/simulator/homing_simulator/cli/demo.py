"""`homing demo`: a broker, a store, a node and a small fleet in one process, and a round of commands to look at."""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.cli.output import Stop, err, out
from app.runtime.exits import Exit

if TYPE_CHECKING:
    import socket

    from rich.table import Table

    from app.core.payload import JsonValue
    from app.server.run import NodeServer
    from app.settings import Settings
    from homing_client import AsyncHoming

PROFILE: Final = "dji"
FIRST_DEVICE: Final = "dock-1"
NODE_ID: Final = "demo-node"
TIMEOUT: Final = "10s"
MQTT_PORT: Final = 1883
READY_SECONDS: Final = 10.0
LOG_INTERVAL: Final = "5s"
"""After so long a command is in the latency log for others to see."""

MOST_AT_ONCE: Final = 32
"""Commands in flight."""

ROUND: Final[tuple[tuple[str, dict[str, JsonValue]], ...]] = (
    ("device_reboot", {}),
    ("cover_open", {}),
    ("drone_open", {}),
    ("flighttask_execute", {"flight_id": "demo-flight"}),
    ("takeoff_to_point", {"flight_id": "demo-takeoff", "target_latitude": 47.37, "target_longitude": 8.54}),
    ("cover_close", {}),
)
"""The commands that the docks get in turn: quick ones, and jobs that report progress before they end."""


@dataclass(slots=True)
class Row:
    """One command of the round; the fields below `params` are filled in when its outcome is there."""

    device: str
    method: str
    params: dict[str, JsonValue]
    outcome: str = ""
    milliseconds: float | None = None
    home_node: str = ""


def demo(
    *,
    once: Annotated[bool, typer.Option("--once", help="End after the first round of commands.")] = False,
    devices: Annotated[
        int, typer.Option("--devices", "-n", min=1, max=200, help="The number of simulated DJI docks.")
    ] = 5,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port of the API. If it is taken, another one is used.")
    ] = 8080,
    latency_log: Annotated[
        Path | None,
        typer.Option(
            "--latency-log", metavar="DIR", help="The folder for the latency log. By default, a temporary one."
        ),
    ] = None,
) -> None:
    """Run a demonstration, which needs no broker, Redis or settings. It keeps serving until Ctrl-C.

    Exit code: 0 all commands of the first round succeeded (and later Ctrl-C), 1 one did not.
    """
    from app.runtime.telemetry import configure_logging
    from app.server.run import bridge_logging

    configure_logging("error", "console")
    bridge_logging()
    match asyncio.run(_until_signal(_demo(_listener(port), devices, _log_folder(latency_log), once=once))):
        case None:
            raise Stop("", Exit.INTERRUPTED)
        case False:
            raise Stop("not every command succeeded", Exit.FAILED)


async def _until_signal(work: Coroutine[Any, Any, bool]) -> bool | None:
    """The result of the work, or None when a signal came first. uvicorn raises the signal that ended it again."""
    task = asyncio.ensure_future(work)
    interrupted = False

    def interrupt() -> None:
        nonlocal interrupted
        if not interrupted:
            interrupted = True
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupt)
    await asyncio.wait((task,))
    return None if task.cancelled() else task.result()


def _listener(port: int) -> socket.socket:
    from app.core.errors import ConfigurationError
    from app.runtime.sockets import listen
    from app.server.sockets import url_of

    try:
        return listen("127.0.0.1", port)
    except ConfigurationError:
        listener = listen("127.0.0.1", 0)
        err.line(f"Port {port} is taken, so the API is at {url_of(listener)}")
        return listener


def _log_folder(given: Path | None) -> str:
    """The folder of the latency log; empty when nobody asked for it and what it needs is not installed."""
    if given is not None:
        return str(given.absolute())
    if find_spec("pyarrow") is None or find_spec("fsspec") is None:
        return ""
    return tempfile.mkdtemp(prefix="homing-demo-latency-")


async def _demo(listener: socket.socket, devices: int, log_dir: str, *, once: bool) -> bool:
    from app.server.run import NodeServer
    from app.server.sockets import url_of
    from homing_client import NO_RETRY, AsyncHoming

    url, broker = url_of(listener), _broker_url()
    server = NodeServer(settings_for(broker, log_dir), listener)
    serving = asyncio.create_task(server.serve())
    async with _fleet(broker, devices), AsyncHoming(url, retry=NO_RETRY) as homing:
        working = asyncio.create_task(_show_round(homing, server, devices))
        try:
            await asyncio.wait((serving, working), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
                return False
            succeeded = working.result()
            if log_dir:
                out.console.print(f"\nLog       {log_dir}", markup=False, soft_wrap=True)
            if not once:
                _explain(url, broker)
                with suppress(asyncio.CancelledError):
                    await asyncio.shield(serving)
        finally:
            working.cancel()
            server.stop()
            await asyncio.gather(serving, working, return_exceptions=True)
    return succeeded


def _broker_url() -> str:
    """The URL of the broker to be, at the usual port if that is free."""
    from app.core.errors import ConfigurationError
    from app.runtime.sockets import listen

    try:
        taken = listen("127.0.0.1", MQTT_PORT)
    except ConfigurationError:
        taken = listen("127.0.0.1", 0)
    with taken:
        return f"mqtt://127.0.0.1:{taken.getsockname()[1]}"


def settings_for(broker_url: str, log_dir: str = "") -> Settings:
    """The settings of the demo's node: nothing of the environment that leads out of this process."""
    from app.core.durations import parse_duration
    from app.settings import (
        BrokerSettings,
        EventsSettings,
        LatencySettings,
        MqttSettings,
        NodeSettings,
        ProfilesSettings,
        StoreSettings,
        load_settings,
    )

    return load_settings(
        profile=PROFILE,
        node=NodeSettings(id=NODE_ID),
        store=StoreSettings(),
        broker=BrokerSettings(url=broker_url),
        mqtt=MqttSettings(url=broker_url),
        events=EventsSettings(url="memory://"),
        profiles=ProfilesSettings(),
        latency=LatencySettings(log_dir=log_dir, log_interval=parse_duration(LOG_INTERVAL)),
    )


@asynccontextmanager
async def _fleet(mqtt_url: str, devices: int) -> AsyncIterator[None]:
    from homing_simulator.options import FleetOptions, parse_range
    from homing_simulator.run import run_simulation

    options = FleetOptions(
        profile=PROFILE, devices=devices, first_device=FIRST_DEVICE, delay=parse_range("20ms..250ms")
    )
    ready = asyncio.Event()
    running = asyncio.create_task(run_simulation(options, mqtt_url, ready=ready))
    waiting = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED, timeout=READY_SECONDS)
        if running.done():
            running.result()
        yield
    finally:
        waiting.cancel()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def _show_round(homing: AsyncHoming, server: NodeServer, devices: int) -> bool:
    from rich.live import Live

    from homing_simulator.options import device_ids

    names = device_ids(FIRST_DEVICE, devices)
    rows = [
        Row(names[number % devices], method, params)
        for number, (method, params) in enumerate(ROUND * -(-devices // len(ROUND)))
    ]
    await _until_ready(homing, server)
    places = asyncio.Semaphore(MOST_AT_ONCE)
    with Live(console=out.console, refresh_per_second=10, get_renderable=lambda: table_of(rows)):
        await asyncio.gather(*(_send(homing, row, places) for row in rows))
    return all(row.outcome == "succeeded" for row in rows)


async def _until_ready(homing: AsyncHoming, server: NodeServer) -> None:
    from homing_client import UnreachableError

    try:
        async with asyncio.timeout(READY_SECONDS):
            while True:
                if server.uvicorn.started:
                    with suppress(UnreachableError):
                        if (await homing.ready()).ready:
                            return
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise Stop(f"the node was not ready after {READY_SECONDS:g} s") from None


async def _send(homing: AsyncHoming, row: Row, places: asyncio.Semaphore) -> None:
    """One command with its outcome."""
    from app.runtime.system import SystemClock
    from homing_client import HomingError

    clock = SystemClock()
    async with places:
        began = clock.monotonic()
        try:
            command = await homing.send(row.device, row.method, row.params, timeout=TIMEOUT)
            row.home_node, row.outcome = command.home_node or "", command.state
        except HomingError as error:
            row.outcome = str(error)
        row.milliseconds = (clock.monotonic() - began) * 1000


def table_of(rows: list[Row]) -> Table:
    """The round as it stands."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in ("device", "method", "outcome"):
        table.add_column(name)
    table.add_column("ms", justify="right")
    table.add_column("home node")
    for row in rows:
        style = "green" if row.outcome == "succeeded" else "bold red"
        milliseconds = "" if row.milliseconds is None else f"{row.milliseconds:.0f}"
        outcome = Text(row.outcome, style) if row.outcome else Text("…", "dim")
        table.add_row(row.device, row.method, outcome, milliseconds, row.home_node)
    return table


def _explain(url: str, broker: str) -> None:
    port = broker.rpartition(":")[2]
    where = "" if url.endswith(":8080") else f" --url {url}"
    program = "homing" if which("homing") else shlex.quote(sys.argv[0])
    lines = (
        ("Console", f"{url}/console/"),
        ("Command", f"{program} send {FIRST_DEVICE} cover_open{where}"),
        ("By HTTP", f'curl -s {url}/v1/devices/{FIRST_DEVICE}/commands --json \'{{"method": "cover_open"}}\''),
        ("Message", f"mosquitto_pub -p {port} -t thing/product/{FIRST_DEVICE}/events -m '{{\"n\": 1}}'"),
        ("Events", f"{program} events read --from -10m{where}"),
        ("Listen", f"mosquitto_sub -p {port} -v -t '#'"),
        ("Docs", f"{url}/docs"),
    )
    said = "\n".join(f"{name:<9} {line}" for name, line in lines)
    out.console.print(f"\n{said}\nCtrl-C ends it.", markup=False, soft_wrap=True)
