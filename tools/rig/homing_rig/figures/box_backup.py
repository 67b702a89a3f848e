"""Measures what a backup of `homing up` costs those who publish meanwhile."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter
from typing import Final

from app.core.broker.packets import Publish, PublishAck
from homing_rig.figures.broker import PAYLOAD, PlainClient, SmallBox, acknowledge_all
from homing_rig.figures.kit import MIB, FigureError, Findings, p99, paced
from homing_rig.programs import environment

EVENT_BYTES: Final = 120_000
AT_ONCE: Final = 32
"""Events that are under way at a time."""
MOST_TRIES: Final = 4
"""A folder that has not grown after so many times what it should have does not keep events."""
SETTLE_SECONDS: Final = 10.0
"""The time for which RocksDB may go on sorting what was written."""
WINDOW: Final = 1000
"""Messages that may be under way: fewer than the Receive Maximum of the broker."""
HOUR: Final = 3600


async def beside_backup(findings: Findings, box: SmallBox, mib: int, rate: int, seconds: float) -> None:
    """Add the times from PUBLISH to PUBACK of kept messages, alone for so many seconds, and while a backup is taken."""
    data, target = box.folder / "data", box.folder / "backup"
    await _fill(box, data / "store", mib * MIB)
    await asyncio.sleep(SETTLE_SECONDS)
    alone = await _acknowledged(box.mqtt_port, rate, lambda: asyncio.sleep(seconds))
    began = perf_counter()
    beside = await _acknowledged(box.mqtt_port, rate, lambda: _back_up(data, target))
    took = perf_counter() - began
    findings.note(f"A backup of {_size_of(target) // MIB:,} MiB took {took:.1f} s, beside {rate:,} messages a second.")
    findings.figure("p99 from PUBLISH to PUBACK, kept, alone", p99(alone) * 1000, " ms")
    findings.figure("the same beside the backup", p99(beside) * 1000, " ms")
    findings.figure("the second to the first, of the backup", p99(beside) / p99(alone), " ×", most=2)


async def _fill(box: SmallBox, store: Path, size: int) -> None:
    """Publish events that cannot be compressed until the store has so many bytes."""
    talker = await PlainClient.connect(box.mqtt_port, "backup-filler")
    for _ in range(MOST_TRIES * size // (AT_ONCE * EVENT_BYTES) + 1):
        if _size_of(store) >= size:
            talker.close()
            return
        talker.write(
            *(
                Publish("homing/backup/event", os.urandom(EVENT_BYTES), 1, packet_id=one)
                for one in range(1, AT_ONCE + 1)
            )
        )
        left = AT_ONCE
        while left:
            left -= sum(isinstance(one, PublishAck) for one in await talker.read())
    raise FigureError(f"the store has {_size_of(store)} bytes after {MOST_TRIES} times {size} bytes of events")


class _Talker:
    """Publishes at a rate, and takes the time that each message waits for its PUBACK."""

    def __init__(self, client: PlainClient) -> None:
        self.seconds: Final[list[float]] = []
        self._client = client
        self._room = asyncio.Semaphore(WINDOW)
        self._sent: dict[int, float] = {}

    async def say(self, rate: int) -> None:
        """Publish until cancelled."""
        async for number in paced(rate):
            await self._room.acquire()
            packet_id = number % 60_000 + 1
            self._sent[packet_id] = perf_counter()
            self._client.write(Publish("figures/backup", PAYLOAD, 1, packet_id=packet_id))

    async def hear(self) -> None:
        """Read until cancelled."""
        while True:
            for one in await self._client.read():
                if isinstance(one, PublishAck):
                    self.seconds.append(perf_counter() - self._sent.pop(one.packet_id))
                    self._room.release()


async def _acknowledged(port: int, rate: int, meanwhile: Callable[[], Awaitable[None]]) -> list[float]:
    """Publish at a rate for a durable subscriber until `meanwhile` is done; the seconds that each message took."""
    reader = await PlainClient.connect(port, "backup-reader", expiry=HOUR)
    await reader.subscribe("figures/#", 1)
    client = await PlainClient.connect(port, "backup-talker")
    talker = _Talker(client)
    try:
        async with asyncio.TaskGroup() as group:
            parts = (talker.say(rate), talker.hear(), acknowledge_all(reader))
            tasks = [group.create_task(one) for one in parts]
            await meanwhile()
            for task in tasks:
                task.cancel()
    except ExceptionGroup as faults:
        raise faults.exceptions[0] from None
    finally:
        for one in (reader, client):
            one.close()
    if not talker.seconds:
        raise FigureError("no message was acknowledged")
    return talker.seconds


async def _back_up(data: Path, target: Path) -> None:
    words = ("-m", "app.cli", "backup", str(target), "--data", str(data), "--json")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *words), env=environment({}), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    if process.returncode:
        raise FigureError(f"the backup failed: {said.decode(errors='replace').strip()}")


def _size_of(folder: Path) -> int:
    """The bytes of all files below a folder; one that is deleted meanwhile has none."""
    found = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                found += (Path(place) / name).stat().st_size
            except FileNotFoundError:
                continue
    return found
