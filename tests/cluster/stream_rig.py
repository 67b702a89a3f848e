"""What figures of streams have in common: a cluster, a reader of events, and a command that gets through."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from random import Random

import aiohttp

from tests.cluster.harness import Caller, Cluster, Json, cluster_of
from tests.services import MosquittoProcess, RedisProcess

REPORTS = 20
"""How many each command's device makes."""


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@contextmanager
def site(nodes: int, **settings: str) -> Iterator[Cluster]:
    with MosquittoProcess() as broker, RedisProcess() as redis, cluster_of(nodes, redis, broker, **settings) as cluster:
        yield cluster


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[Json]:
    """Each event with its `event`, `id` and `data`; a `retry` by itself."""
    fields: Json = {}
    async for line in response.content:
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        elif fields:
            if "data" in fields:
                fields["data"] = json.loads(fields["data"])
            yield fields
            fields = {}


async def sent(client: Caller, number: int, chance: Random) -> str:
    """The id of a command that is on its way, whatever becomes of nodes meanwhile."""
    while True:
        url = f"{chance.choice(client.cluster.nodes).url}/v1/devices/dock-{number % 500}/commands"
        params = {"flight_id": f"figure-{number}"}
        body = {"method": "flighttask_prepare", "params": params, "timeout": "20s", "if_offline": "send"}
        headers = {"Idempotency-Key": f"figure-{number}", "Prefer": "respond-async"}
        with suppress(aiohttp.ClientError, TimeoutError, ConnectionError):
            async with client.session.post(url, json=body, headers=headers) as response:
                await not_refused(response)
                if response.ok:
                    return str((await response.json())["id"])
        await asyncio.sleep(0.2)


async def not_refused(response: aiohttp.ClientResponse) -> None:
    """End the tool with what is wrong when asking again would not help."""
    if 400 <= response.status < 500 and response.status != HTTPStatus.TOO_MANY_REQUESTS:
        raise SystemExit(
            f"{response.method} {response.url} was refused with {response.status}: {await response.text()}"
        )


def judge(what: str, value: float, unit: str = "", *, most: float | None = None, least: float | None = None) -> None:
    """A figure, what it should be, and whether it is."""
    reached = (most is None or value <= most) and (least is None or value >= least)
    bounds = " and ".join(
        f"{word} {bound:g}{unit}" for word, bound in (("at least", least), ("at most", most)) if bound is not None
    )
    say(f"  {what}: {value:.4g}{unit}; aim: {bounds}: {'reached' if reached else 'MISSED'}")
