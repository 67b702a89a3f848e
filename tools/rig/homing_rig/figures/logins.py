"""Commands of a caller with a key beside a flood of logins with made-up names."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from contextlib import AsyncExitStack, suppress
from time import perf_counter
from typing import Annotated, Final

import aiohttp
from typer import Option

from app.core.access.keys import Key
from homing_rig.directory import bearer, guarded_settings
from homing_rig.figures.kit import FigureError, Findings
from homing_rig.harness import Device, cluster_of, devices
from homing_rig.services import MosquittoProcess, RedisProcess
from homing_rig.statistics import percentile
from homing_rig.turns import in_turns

FLOODS: Final = (0, 2, 20)
"""Connections."""


async def flood(url: str, told: Counter[int]) -> None:
    """One connection that tries one made-up name after the other."""
    async with aiohttp.ClientSession() as session:
        while True:
            body = {"name": secrets.token_hex(8), "password": "correct horse battery"}
            async with session.post(f"{url}/v1/login", json=body) as response:
                told[response.status] += 1


async def times_of(session: aiohttp.ClientSession, url: str, key: Key, commands: int) -> list[float]:
    """Return the time that each command took, in milliseconds."""
    taken, body = [], {"method": "cover_open", "if_offline": "send"}
    for _ in range(commands):
        began = perf_counter()
        async with session.post(f"{url}/v1/devices/dock-1/commands", json=body, headers=bearer(key)) as response:
            if not response.ok:
                raise FigureError(f"a command was refused: {await response.text()}")
        taken.append((perf_counter() - began) * 1000)
    return taken


async def logins(
    findings: Findings,
    *,
    commands: Annotated[int, Option(min=1, help="The number of commands of a turn.")] = 300,
    rounds: Annotated[int, Option(min=1, help="The number of turns of each flood.")] = 2,
) -> None:
    """Commands one at a time, beside 0, 2 and 20 connections that log in with made-up names, in turns on one node."""
    taken: dict[int, list[float]] = {connections: [] for connections in FLOODS}
    told: dict[int, Counter[int]] = {connections: Counter() for connections in FLOODS}
    async with AsyncExitStack() as stack:
        settings, key = stack.enter_context(guarded_settings())
        broker, redis = stack.enter_context(MosquittoProcess()), stack.enter_context(RedisProcess())
        url = stack.enter_context(cluster_of(1, redis, broker, **settings)).nodes[0].url
        await stack.enter_async_context(devices(broker, Device.answer))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        await times_of(session, url, key, commands)
        for connections in in_turns(FLOODS, rounds):
            tasks = [asyncio.create_task(flood(url, told[connections])) for _ in range(connections)]
            taken[connections].extend(await times_of(session, url, key, commands))
            for task in tasks:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks)
    for connections in FLOODS:
        findings.spread(f"{connections} connections: a command", taken[connections], " ms")
        findings.figure(f"{connections} connections: p95", percentile(sorted(taken[connections]), 0.95), " ms")
        findings.note(f"{connections} connections: answers to logins {dict(told[connections])}")
