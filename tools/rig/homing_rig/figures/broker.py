"""Measures what a message of QoS 1 costs the broker of `homing up`, beside Mosquitto that persists."""

from __future__ import annotations

import asyncio
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from http import HTTPStatus
from typing import Annotated, Final

import psutil  # type: ignore[import-untyped] # it comes without types
from typer import Option

from app.core.broker.codes import PacketType, Property, ProtocolVersion, ReasonCode
from app.core.broker.decoder import decode
from app.core.broker.encoder import encode
from app.core.broker.packets import Connack, Connect, FilterOptions, Packet, Publish, PublishAck, Suback, Subscribe
from app.core.broker.properties import Properties
from app.core.broker.wire import Framing
from homing_rig.figures.kit import FigureError, Findings
from homing_rig.ports import lasting_port
from homing_rig.services import MosquittoProcess, ServiceProcess

V5: Final = ProtocolVersion.V5
PUBLISHERS: Final = 20
WINDOW: Final = 20
PAYLOAD: Final = b"x" * 120
LEAD: Final = 2.0
"""Seconds before a turn is measured."""


class SmallBox(ServiceProcess):
    """`homing up` in a process of its own, which asks nobody for a key unless it shall.

    `within` is a command that starts the one behind it, such as `taskset -c 0`.
    """

    def __init__(self, *, within: Sequence[str] = (), authenticate: bool = False) -> None:
        super().__init__(sys.executable)
        self.mqtt_port = lasting_port()
        self._within = within
        self._open = [] if authenticate else ["--open"]

    def _command(self) -> Sequence[str]:
        data = ["--data", str(self.folder / "data"), *self._open]
        places = ["--mqtt", f"127.0.0.1:{self.mqtt_port}", "--api", f"127.0.0.1:{self.port}"]
        return [*self._within, self.binary, "-m", "app.cli", "up", *data, *places]

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as response:
                return bool(response.status == HTTPStatus.OK)
        except (urllib.error.URLError, OSError):
            return False


class PlainClient:
    """A client that packs and counts, and does nothing else."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._framing = Framing()
        self._ahead: list[Packet] = []

    @classmethod
    async def connect(
        cls, port: int, client_id: str, *, expiry: int = 0, clean: bool = True, key: str | None = None
    ) -> PlainClient:
        """A client that the broker has accepted; its session, a new one if `clean`, lives for so many seconds.

        With a `key` it is the device of its client id.
        """
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        said = Properties({Property.SESSION_EXPIRY_INTERVAL: expiry, Property.RECEIVE_MAXIMUM: 1024})
        user, password = (None, None) if key is None else (client_id, key.encode())
        client.write(Connect(V5, client_id, clean_start=clean, user_name=user, password=password, properties=said))
        answer, *client._ahead = await client.read()
        if not isinstance(answer, Connack) or answer.reason is not ReasonCode.SUCCESS:
            client.close()
            raise FigureError(f"the broker refused a client: {answer}")
        return client

    async def subscribe(self, topic_filter: str, qos: int) -> None:
        """Have the messages of a filter; FigureError where the broker refuses it."""
        self.write(Subscribe(1, (FilterOptions(topic_filter, qos),)))
        answer, *self._ahead = await self.read()
        if not isinstance(answer, Suback) or answer.reasons[0] > qos:
            raise FigureError(f"a client may not subscribe: {answer}")

    def write(self, *packets: Packet) -> None:
        """Send these together."""
        self._writer.write(b"".join(encode(one, V5) for one in packets))

    def close(self) -> None:
        """End the connection."""
        self._writer.close()

    async def read(self) -> list[Packet]:
        """Return what has come, at least one packet; FigureError when the connection has ended."""
        if self._ahead:
            ahead, self._ahead = self._ahead, []
            return ahead
        while True:
            data = await self._reader.read(65_536)
            if not data:
                raise FigureError("the broker closed a connection")
            if found := [decode(first, body, V5) for first, body in self._framing.feed(data)]:
                return found


async def acknowledge_all(client: PlainClient) -> None:
    """Read and acknowledge whatever comes, until cancelled."""
    while True:
        heard = [one for one in await client.read() if isinstance(one, Publish)]
        client.write(*(PublishAck(PacketType.PUBACK, one.packet_id) for one in heard if one.qos))


async def _publish(client: PlainClient, number: int, counts: Counter[str]) -> None:
    room, packet_id = WINDOW, 0
    while True:
        packets = []
        for _ in range(room):
            packet_id = packet_id % 60_000 + 1
            packets.append(Publish(f"figures/{number}/x", PAYLOAD, 1, packet_id=packet_id))
        client.write(*packets)
        room = sum(isinstance(one, PublishAck) for one in await client.read())
        counts["acknowledged"] += room


def cpu_seconds(pid: int) -> float:
    """The time of the processor that a process has used so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


async def one_turn(port: int, pid: int, seconds: float, *, expiry: int = 3600) -> tuple[float, float]:
    """Microseconds of CPU for each message that was acknowledged, and how many these were in a second.

    `expiry`: for so many seconds the session of the subscriber is kept; with 0, nobody keeps anything.
    """
    counts: Counter[str] = Counter()
    durable = await PlainClient.connect(port, "figures-reader", expiry=expiry)
    talkers = [await PlainClient.connect(port, f"figures-{number}") for number in range(PUBLISHERS)]
    await durable.subscribe("figures/#", 1)
    tasks = [asyncio.create_task(acknowledge_all(durable))]
    tasks += [asyncio.create_task(_publish(one, number, counts)) for number, one in enumerate(talkers)]
    try:
        await asyncio.sleep(LEAD)
        before, cpu = counts["acknowledged"], cpu_seconds(pid)
        await asyncio.sleep(seconds)
        count = counts["acknowledged"] - before
        used = cpu_seconds(pid) - cpu
    finally:
        for one in tasks:
            one.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        for client in (durable, *talkers):
            client.close()
    for fault in ended:
        if isinstance(fault, FigureError):
            raise fault
    if not count:
        raise FigureError("no message was acknowledged")
    return used / count * 1e6, count / seconds


async def broker(
    findings: Findings,
    *,
    rounds: Annotated[int, Option(min=1, help="The number of turns with each broker.")] = 5,
    seconds: Annotated[float, Option(min=0.5, help="The length of a turn.")] = 5.0,
) -> None:
    """CPU per message of QoS 1 from 20 publishers with a window of 20 to one durable subscriber, beside Mosquitto."""
    with ExitStack() as stack:
        box = stack.enter_context(SmallBox())
        mosquitto = stack.enter_context(MosquittoProcess())
        parts = {"homing": (box.mqtt_port, box.pid), "mosquitto": (mosquitto.port, mosquitto.pid)}
        costs: dict[str, list[float]] = {"homing": [], "mosquitto": []}
        rates: dict[str, list[float]] = {"homing": [], "mosquitto": []}
        for _ in range(rounds):
            for name, (port, pid) in parts.items():
                cost, rate = await one_turn(port, pid, seconds)
                costs[name].append(cost)
                rates[name].append(rate)
    for name, values in costs.items():
        findings.spread(f"CPU per message, {name}", values, " µs")
        findings.spread(f"messages a second, {name}", rates[name], "/s")
    ratios = [own / other for own, other in zip(costs["homing"], costs["mosquitto"], strict=True)]
    findings.spread("CPU per message to Mosquitto's", ratios, " ×", most=3)
