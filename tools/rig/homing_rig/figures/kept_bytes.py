"""Measures how many bytes `homing up` writes to its disk for each message that it keeps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Final

import psutil  # type: ignore[import-untyped] # it comes without types
from typer import Option

from app.core.broker.codes import ReasonCode
from app.core.broker.packets import Publish, PublishAck
from homing_rig.figures.broker import LEAD, PUBLISHERS, WINDOW, PlainClient, SmallBox, acknowledge_all, cpu_seconds
from homing_rig.figures.kit import FigureError, Findings

TOPICS: Final = 100
"""Topics of each talker, in turn."""
HOUR: Final = 3600
MOST_IDS: Final = 60_000
LEAST_PAYLOAD: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Messages of QoS 1. `reader` is a client that subscribes to them: it is `there`, or `away`."""

    name: str
    talkers: int = PUBLISHERS
    window: int = WINDOW
    reader: str = ""
    retain: bool = False
    topic: str = "kept/{talker}/{number}"


TRAFFIC: Final = (
    Traffic(name="one at a time, to a client that acknowledges it", talkers=1, window=1, reader="there"),
    Traffic(name="400 at a time, to a client that acknowledges them", reader="there"),
    Traffic(name="400 at a time, for a client that is away", reader="away"),
    Traffic(name="400 at a time, retained", retain=True),
    Traffic(name="400 at a time, events of devices", topic="homing/kept-{talker}/event"),
)


async def kept_bytes(
    findings: Findings,
    *,
    messages: Annotated[int, Option(min=PUBLISHERS, help="The number of messages of each kind.")] = 90_000,
    payload: Annotated[int, Option(min=LEAST_PAYLOAD, help="The bytes of a payload.")] = 120,
) -> None:
    """Bytes on the disk and CPU for each message of QoS 1 that one process keeps, by what it is kept for."""
    findings.note("Bytes are those that the system counts for the process (write_bytes), in whole pages of 4 KiB.")
    body = json.dumps({"type": "x" * (payload - len('{"type": ""}'))}).encode()
    for traffic in TRAFFIC:
        with SmallBox() as box:
            async with _read(box, traffic):
                await _measure(findings, box, traffic, messages, body)


@asynccontextmanager
async def _read(box: SmallBox, traffic: Traffic) -> AsyncIterator[None]:
    """Inside the block the messages have their reader, if they have one."""
    if not traffic.reader:
        yield
        return
    reader = await PlainClient.connect(box.mqtt_port, "kept-reader", expiry=HOUR)
    await reader.subscribe("kept/#", 1)
    if traffic.reader == "away":
        reader.close()
        yield
        return
    reading = asyncio.create_task(acknowledge_all(reader))
    try:
        yield
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        reader.close()


async def _measure(findings: Findings, box: SmallBox, traffic: Traffic, messages: int, body: bytes) -> None:
    # Messages that nobody else shares a sync with take so long that there are fewer of them.
    each = max(1, messages // (PUBLISHERS if traffic.window > 1 else PUBLISHERS * WINDOW // 4))
    clients = [await PlainClient.connect(box.mqtt_port, f"kept-{number}") for number in range(traffic.talkers)]
    await asyncio.sleep(LEAD)
    cpu, written = cpu_seconds(box.pid), _written(box.pid)
    said = sum(await asyncio.gather(*(_talk(one, number, traffic, each, body) for number, one in enumerate(clients))))
    await asyncio.sleep(LEAD)  # what is said is written for a while yet: as events, and as tables
    count, used = each * traffic.talkers, cpu_seconds(box.pid) - cpu
    disk = _written(box.pid) - written
    for one in clients:
        one.close()
    findings.figure(f"bytes written for a message of {said / count:.0f} bytes, {traffic.name}", disk / count, "")
    findings.figure(f"the first to the second, {traffic.name}", disk / said, " ×", most=4)
    findings.figure(f"CPU per message, {traffic.name}", used / count * 1e6, " µs")


async def _talk(client: PlainClient, talker: int, traffic: Traffic, count: int, body: bytes) -> int:
    """Say so many messages, a window of them at a time; return the bytes of their topics and payloads."""
    said = sent = done = 0
    while done < count:
        packets = []
        while sent < min(count, done + traffic.window):
            topic = traffic.topic.format(talker=talker, number=sent % TOPICS)
            packets.append(Publish(topic, body, 1, retain=traffic.retain, packet_id=sent % MOST_IDS + 1))
            said += len(topic) + len(body)
            sent += 1
        client.write(*packets)
        answers = [one for one in await client.read() if isinstance(one, PublishAck)]
        if any(one.reason >= ReasonCode.UNSPECIFIED_ERROR for one in answers):
            raise FigureError(f"the broker refused a message: {answers[0]}")
        done += len(answers)
    return said


def _written(pid: int) -> int:
    """The bytes that a process has had written to disks so far."""
    return int(psutil.Process(pid).io_counters().write_bytes)
