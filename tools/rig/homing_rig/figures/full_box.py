"""Measures what `homing up` takes when all that it bounds is full at once, in the shapes that cost it the most."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from time import perf_counter
from typing import Annotated, Final

from typer import Option

from app.core.broker.bounds import BrokerBounds
from app.core.broker.message import OVERHEAD, Message
from app.core.broker.packets import FilterOptions, Publish, PublishAck, Suback, Subscribe
from app.core.memory import LEAST_MEMORY, MemoryShares
from app.core.sizes import MIB
from app.store.memory.commands.records import RECORD_BYTES
from homing_rig.figures.broker import PlainClient, SmallBox
from homing_rig.figures.kit import FigureError, Findings
from homing_rig.figures.small_box import resident
from homing_rig.patience import PATIENCE

BOUNDS: Final = BrokerBounds()
AT_ONCE: Final = 50
"""Clients that begin together."""
WINDOW: Final = 500
"""Messages that a publisher has under way."""
WEEK: Final = 604_800
SPARE: Final = 20
"""Connections and sessions that are left to the node itself, and to those that measure."""
HEARD: Final = "homing/silent/command"
"""The topic of commands for a device that hears them and never answers."""
COMMAND: Final = b'{"method": "ping", "timeout": "1h"}'
ONE_WAY: Final = b'{"method": "ping", "one_way": true}'


async def full_box(
    findings: Findings,
    *,
    memory: Annotated[int, Option(min=LEAST_MEMORY // MIB, help="The MiB of HOMING_UP_MEMORY.")] = 512,
    share: Annotated[float, Option(min=0.01, max=1, help="The share of each bound that is filled.")] = 1.0,
) -> None:
    """Memory of `homing up` with as many sessions, subscriptions, messages, commands and callers as there may be."""
    shares = MemoryShares.of(memory * MIB)
    async with AsyncExitStack() as stack:
        box = stack.enter_context(SmallBox(within=("env", f"HOMING_UP_MEMORY={memory}MiB")))
        full = _FullBox(box, shares, share, stack)
        findings.figure("memory, idle", resident(box), " MiB")
        for name, fill in (
            ("sessions of clients that are away, and subscriptions", full.sessions),
            ("retained messages", full.retained),
            ("messages of one byte that wait", full.waiting),
            ("finished commands", full.finished),
            ("open commands", full.commands),
            ("callers that wait", full.callers),
            ("connections of clients", full.connections),
        ):
            began = perf_counter()
            count = await fill()
            seconds = perf_counter() - began
            findings.figure(f"memory with {count:,} {name}, after {seconds:.0f} s", resident(box), " MiB")
        findings.figure("memory at its peak", _peak(box), " MiB", most=memory)
        findings.figure("a message of one more client, to the disk and back", await full.one_more() * 1000, " ms")


class _FullBox:
    """Fills one bound after another, each with what costs most for what is counted; says how much that is."""

    def __init__(self, box: SmallBox, shares: MemoryShares, share: float, stack: AsyncExitStack) -> None:
        self._box, self._shares, self._share, self._stack = box, shares, share, stack

    async def sessions(self) -> int:
        """Sessions that are kept; all subscriptions that there may be are theirs."""
        count = self._part(self._shares.sessions - self._shares.broker_connections)
        filters = self._part(self._shares.subscriptions - SPARE) // count

        async def begin(number: int) -> None:
            client = await PlainClient.connect(self._box.mqtt_port, f"away-{number}", expiry=WEEK)
            wanted = [FilterOptions(f"full/{number}/{place}/#", 1) for place in range(filters)]
            client.write(Subscribe(1, tuple(wanted)))
            (answer,) = await client.read()
            if not isinstance(answer, Suback) or any(one.value > 1 for one in answer.reasons):
                raise FigureError(f"a client may not subscribe: {answer}")
            client.close()

        await by_turns(begin, count)
        return count

    async def retained(self) -> int:
        """As many messages as there may be, of a length that fills their bytes as well."""
        most = min(BOUNDS.retained, self._shares.retained_bytes // (2 * OVERHEAD))
        payload = b"x" * (self._shares.retained_bytes // most - _size("kept/99999", b""))
        count = self._part(most - SPARE)
        await self._publish([f"kept/{number}" for number in range(count)], payload, retain=True)
        return count

    async def waiting(self) -> int:
        """Messages with next to nothing in them, each for one session of the first thousand."""
        count = self._part(self._shares.waiting_bytes // (OVERHEAD + _size("full/999/0/x", b"x")))
        await self._publish([f"full/{number % 1000}/0/x" for number in range(count)], b"x")
        return count

    async def finished(self) -> int:
        """Commands that have ended, and whose retention has not."""
        device = await self._client("silent-device")
        device.write(Subscribe(1, (FilterOptions(HEARD, 0),)))
        await device.read()
        listening = asyncio.create_task(listen(device))
        self._stack.callback(listening.cancel)
        count = self._part(self._shares.records_bytes // (RECORD_BYTES + 2) - self._shares.open_commands)
        await self._send(count, ONE_WAY, b" 200 ")
        return count

    async def commands(self) -> int:
        """Commands that nobody waits for, and that no device answers."""
        count = self._part(self._shares.open_commands - self._shares.waiters - SPARE)
        await self._send(count, COMMAND, b" 202 ")
        return count

    async def callers(self) -> int:
        """Callers that wait for a command each."""
        count = self._part(min(self._shares.waiters, self._shares.api_connections) - SPARE)

        async def wait(_number: int) -> None:
            _, writer = await self._caller()
            writer.write(command_request("wait=600", COMMAND))
            await writer.drain()

        await by_turns(wait, count)
        until = perf_counter() + PATIENCE
        while (waiting := await asyncio.to_thread(_waiters, self._box)) < count:
            if perf_counter() > until:
                raise FigureError(f"of {count} callers, {waiting} wait")
            await asyncio.sleep(1)
        return count

    async def connections(self) -> int:
        """Clients that are connected and say nothing."""
        count = self._part(self._shares.broker_connections - SPARE)
        await by_turns(lambda number: self._client(f"silent-{number}"), count)
        return count

    async def one_more(self) -> float:
        """Return the seconds that a message of QoS 1 takes from a client to itself; it is on the disk then."""
        began = perf_counter()
        client = await self._client("away-0")
        client.write(Publish("one/more", b"x", 1, packet_id=1, retain=True))
        while not any(isinstance(one, PublishAck) for one in await client.read()):
            pass
        return perf_counter() - began

    def _part(self, bound: int) -> int:
        return max(1, int(bound * self._share))

    async def _client(self, client_id: str) -> PlainClient:
        client = await PlainClient.connect(self._box.mqtt_port, client_id)
        self._stack.callback(client.close)
        return client

    async def _caller(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._box.port)
        self._stack.callback(writer.close)
        return reader, writer

    async def _send(self, count: int, command: bytes, expected: bytes) -> None:
        async def some(number: int) -> None:
            reader, writer = await self._caller()
            for _ in range(number, count, AT_ONCE):
                writer.write(command_request("respond-async" if command is COMMAND else "wait=60", command))
                await answered(reader, expected)
            writer.close()

        await by_turns(some, min(AT_ONCE, count))

    async def _publish(self, topics: Sequence[str], payload: bytes, *, retain: bool = False) -> None:
        client = await self._client("talker")
        for begin in range(0, len(topics), WINDOW):
            some = topics[begin : begin + WINDOW]
            client.write(
                *(Publish(topic, payload, 1, retain=retain, packet_id=place) for place, topic in enumerate(some, 1))
            )
            left = len(some)
            while left:
                left -= sum(isinstance(one, PublishAck) for one in await client.read())
        client.close()


def _size(topic: str, payload: bytes) -> int:
    """The bytes that a broker counts for a message."""
    return Message(topic=topic, payload=payload, qos=1, retain=False, publisher="").size


async def by_turns(begin: Callable[[int], Awaitable[object]], count: int) -> None:
    """Begin so many, AT_ONCE of them at a time."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await begin(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


async def listen(client: PlainClient) -> None:
    """Read whatever comes, until cancelled."""
    while True:
        await client.read()


def command_request(prefer: str, command: bytes) -> bytes:
    """The request that sends a command to the silent device."""
    head = f"POST /v1/devices/silent/commands HTTP/1.1\r\nHost: localhost\r\nPrefer: {prefer}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(command)}\r\n\r\n".encode() + command


async def answered(reader: asyncio.StreamReader, expected: bytes) -> None:
    """Read an answer with this status; FigureError for another one."""
    head = await reader.readuntil(b"\r\n\r\n")
    if expected not in head.splitlines()[0]:
        raise FigureError(f"a command was refused: {head.splitlines()[0].decode()}")
    lines = {name.lower(): value for name, _, value in (line.partition(b":") for line in head.splitlines())}
    await reader.readexactly(int(lines[b"content-length"]))


def _waiters(box: SmallBox) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{box.port}/metrics", timeout=PATIENCE) as response:
        lines = response.read().decode().splitlines()
    return int(sum(float(line.split()[-1]) for line in lines if line.startswith("homing_waiters")))


def _peak(box: SmallBox) -> float:
    """The most that the process has ever taken, as the kernel remembers it."""
    lines = Path(f"/proc/{box.pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
