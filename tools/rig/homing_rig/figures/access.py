"""Measures how soon a revoked key is refused everywhere, and how soon the first key is of use."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from time import perf_counter
from typing import Annotated, Final

import aiohttp
from redis.asyncio import Redis
from typer import Option

from app.core.access.keys import Key
from homing_rig.directory import add_service, bearer, guarded_site, opened
from homing_rig.figures.kit import FigureError, Findings
from homing_rig.harness import Device, NodeProcess, devices
from homing_rig.services import MosquittoProcess, RedisProcess

HOMING: Final = (sys.executable, "-m", "app.cli")


class Caller:
    """Calls one node all the time with a key."""

    def __init__(self, session: aiohttp.ClientSession, url: str, key: Key) -> None:
        self._session, self._url, self._key = session, url, key
        self.accepted_at = 0.0
        """The instant at which the latest call began that was accepted."""
        self.known = asyncio.Event()

    async def run(self) -> None:
        """Call until the key is refused that was accepted before."""
        while True:
            began = perf_counter()
            async with self._session.get(f"{self._url}/v1/me", headers=bearer(self._key)) as response:
                if response.status == HTTPStatus.OK:
                    self.accepted_at = began
                    self.known.set()
                elif self.known.is_set():
                    return
            await asyncio.sleep(0.005)


async def cut(url: str, every: float) -> None:
    """End all Pub/Sub connections of a Redis, again and again."""
    async with Redis.from_url(url) as redis:
        while True:
            await redis.client_kill_filter(_type="pubsub")
            await asyncio.sleep(every)


async def revocation(
    findings: Findings,
    *,
    times: Annotated[int, Option(min=1, help="The number of keys to revoke.")] = 50,
    cut_every: Annotated[
        float, Option("--cut", metavar="SECONDS", help="End all Pub/Sub connections of Redis so often; 0 for never.")
    ] = 0.0,
) -> None:
    """From the answer to a revocation to the last call that one of three nodes on a PostgreSQL accepts."""
    with guarded_site() as (cluster, _, url, admin):
        cutting = asyncio.create_task(cut(cluster.redis.url, cut_every)) if cut_every else None
        delays = []
        async with opened(url) as directory, aiohttp.ClientSession() as session:
            for number in range(times):
                key = await add_service(directory, f"service-{number}")
                callers = [Caller(session, node.url, key) for node in cluster.nodes]
                tasks = [asyncio.create_task(caller.run()) for caller in callers]
                await asyncio.gather(*(caller.known.wait() for caller in callers))
                node = cluster.nodes[number % len(cluster.nodes)].url
                async with session.delete(f"{node}/v1/keys/{key.id}", headers=bearer(admin)) as response:
                    if not response.ok:
                        raise FigureError(f"a key could not be revoked: {await response.text()}")
                answered = perf_counter()
                await asyncio.gather(*tasks)
                delays.append(max(0.0, *(caller.accepted_at - answered for caller in callers)))
        if cutting is not None:
            if cutting.done():
                cutting.result()
            cutting.cancel()
            with suppress(asyncio.CancelledError):
                await cutting
    findings.spread("the last accepted call after the answer", delays, " s")
    findings.figure("the longest of them", max(delays), " s", most=1)


async def first(
    findings: Findings,
    *,
    times: Annotated[int, Option(min=1, help="The number of installations.")] = 5,
) -> None:
    """From `homing access init` to the first command with a key, and from a start to the refusal to be open."""
    found = [await _first_command() for _ in range(times)]
    findings.spread("from `homing access init` to the first command with a key", found, " s")
    findings.figure("the longest of them", max(found), " s", most=60)
    refusals = [_refusal() for _ in range(times)]
    findings.spread("a node that would be open to others says so after", refusals, " s")
    findings.figure("the longest of them", max(refusals), " s", most=1)


async def _first_command() -> float:
    with tempfile.TemporaryDirectory() as folder, MosquittoProcess() as broker, RedisProcess() as redis:
        env = {"HOMING_ACCESS_URL": f"sqlite:///{Path(folder) / 'access.db'}"}
        node = NodeProcess("n1", redis, broker, module="app.cli", **env)
        async with devices(broker, Device.answer):
            began = perf_counter()
            await asyncio.to_thread(_homing, env, "access", "init")
            key = await asyncio.to_thread(_homing, env, "keys", "create", "ci", "--role", "operator")
            with node:
                caller = env | {"HOMING_KEY": key.strip(), "HOMING_URL": node.url}
                sent = await asyncio.to_thread(_homing, caller, "send", "dock-1", "cover_open")
                took = perf_counter() - began
    if "succeeded" not in sent:
        raise FigureError(f"the first command did not succeed: {sent}")
    return took


def _refusal() -> float:
    """The seconds after which a node refuses an address that others can reach."""
    began = perf_counter()
    words = ("serve", "--host", "0.0.0.0", "--port", "0")  # noqa: S104 - it refuses
    done = subprocess.run([*HOMING, *words], capture_output=True, check=False)
    seconds = perf_counter() - began
    if b"this node does not authenticate its callers" not in done.stderr:
        raise FigureError(f"the node did not refuse to be open: {done}")
    return seconds


def _homing(env: dict[str, str], *words: str) -> str:
    return subprocess.run([*HOMING, *words], env=os.environ | env, capture_output=True, check=True, text=True).stdout
