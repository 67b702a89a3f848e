"""Streams of nodes: their events, and commands that get through while nodes die."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from random import Random
from typing import Final

import aiohttp

from homing_rig.figures.kit import FigureError
from homing_rig.harness import Caller, Cluster, Json, cluster_of
from homing_rig.services import MosquittoProcess, RedisProcess

ALL: Final = "/v1/commands/events"
"""The path at which the events of all commands are read."""
REPORTS: Final = 20
"""The number that a device makes of each command."""


@contextmanager
def site(nodes: int, **settings: str) -> Iterator[Cluster]:
    """Run so many nodes with these settings, on services of their own."""
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
                await demand_accepted(response)
                if response.ok:
                    return str((await response.json())["id"])
        await asyncio.sleep(0.2)


async def demand_accepted(response: aiohttp.ClientResponse) -> None:
    """FigureError that tells what is wrong when asking again would not help."""
    client_error = HTTPStatus.BAD_REQUEST <= response.status < HTTPStatus.INTERNAL_SERVER_ERROR
    if client_error and response.status != HTTPStatus.TOO_MANY_REQUESTS:
        raise FigureError(
            f"{response.method} {response.url} was refused with {response.status}: {await response.text()}"
        )
