"""The time from publishing to an exchange until the consumer of a queue has the message."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Final

import aiohttp
from typer import Option

from homing_rig.figures.kit import FigureError, Findings, p99, paced
from homing_rig.harness import Json, NodeProcess
from homing_rig.patience import eventually
from homing_rig.services import MosquittoProcess

RATE: Final = 100
"""Messages a second."""
KEYS: Final = 500


async def delays(http: aiohttp.ClientSession, first: str, last: str, seconds: float) -> list[float]:
    """Publish over a connection to one node; the ms after which a consumer at the other one has each."""
    await _put(http, f"{first}/v1/exchanges/bench", {"kind": "topic"})
    await _put(http, f"{first}/v1/queues/late", {"routes": [{"exchange": "bench", "key": "#"}]})
    found: list[float] = []
    total = round(RATE * seconds)
    async with http.ws_connect(f"{last}/v1/connect") as consumer, http.ws_connect(f"{first}/v1/connect") as publisher:
        await consumer.send_json({"id": 1, "open": {"channel": 1, "queue": "late", "auto": True}})
        await publisher.send_json({"id": 1, "open": {"channel": 1, "publish": True}})
        await consumer.receive_json()

        async def hear() -> None:
            while len(found) < total:
                frame = await consumer.receive_json()
                now = perf_counter()
                found.extend((now - one["event"]["data"]["at"]) * 1000 for one in frame.get("events", ()))

        hearing = asyncio.create_task(hear())
        async for number in paced(RATE, total):
            said = {"exchange": "bench", "key": f"dock.{number % KEYS}", "data": {"at": perf_counter()}}
            await publisher.send_json({"id": number + 2, "channel": 1, "publish": said})
        for _ in range(total + 1):
            confirmed = await publisher.receive_json()
            if "problem" in confirmed:
                raise FigureError(f"a message was refused: {confirmed['problem']}")
        await hearing
    return found


async def of_one_process(
    findings: Findings,
    *,
    seconds: Annotated[float, Option(min=1, help="For how long delays are measured.")] = 20.0,
) -> None:
    """Delays of a queue on one node that keeps its log in a folder of RocksDB, where temporary files are (TMPDIR)."""
    with TemporaryDirectory() as place, MosquittoProcess() as broker:
        events = f"rocks://{place}/events"
        with NodeProcess("one", None, broker, HOMING_EVENTS_URL=events) as node:
            async with aiohttp.ClientSession() as http:

                async def is_open() -> bool:
                    async with http.get(f"{node.url}/v1/queues") as answer:
                        return answer.ok

                await eventually(is_open)
                found = await delays(http, node.url, node.url, seconds)
    findings.spread("publish to handler, one process with a folder", found, " ms", most=15)
    findings.figure("p99 of that", p99(found), " ms", most=60)


async def _put(http: aiohttp.ClientSession, url: str, body: Json) -> None:
    async with http.put(url, json=body) as answer:
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise FigureError(f"PUT {url}: {await answer.text()}")
