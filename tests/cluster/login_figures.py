"""What a flood of logins with made-up names costs commands and people: python -m tests.cluster.login_figures."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from statistics import median, quantiles

import aiohttp

from app.core.access.keys import Key, make_key
from tests.cluster.harness import Device, cluster_of, devices
from tests.services import MosquittoProcess, RedisProcess

COMMANDS = 300
FLOODS = (0, 2, 20)
"""Connections."""
ROUNDS = 2


def bearer(key: Key) -> dict[str, str]:
    return {"Authorization": f"Bearer {key.text}"}


async def flood(url: str, told: Counter[int]) -> None:
    """One connection that tries one made-up name after the other."""
    async with aiohttp.ClientSession() as session:
        while True:
            body = {"name": secrets.token_hex(8), "password": "correct horse battery"}
            async with session.post(f"{url}/v1/login", json=body) as response:
                told[response.status] += 1


async def commands(session: aiohttp.ClientSession, url: str, key: Key) -> list[float]:
    """How long each took, in milliseconds."""
    taken = []
    for _ in range(COMMANDS):
        began = time.perf_counter()
        body = {"method": "cover_open", "if_offline": "send"}
        async with session.post(f"{url}/v1/devices/dock-1/commands", json=body, headers=bearer(key)) as response:
            assert response.status == 200, await response.text()
        taken.append((time.perf_counter() - began) * 1000)
    return taken


async def measure(url: str, key: Key, broker: MosquittoProcess) -> None:
    taken: dict[int, list[float]] = {count: [] for count in FLOODS}
    told: dict[int, Counter[int]] = {count: Counter() for count in FLOODS}
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(devices(broker, Device.answer))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        await commands(session, url, key)
        for _ in range(ROUNDS):
            for count in FLOODS:
                tasks = [asyncio.create_task(flood(url, told[count])) for _ in range(count)]
                taken[count] += await commands(session, url, key)
                for task in tasks:
                    task.cancel()
                with suppress(asyncio.CancelledError):
                    await asyncio.gather(*tasks)
    for count in FLOODS:
        p95 = quantiles(taken[count], n=20)[-1]
        print(  # noqa: T201
            f"{count} connections: commands p50 {median(taken[count]):.1f} ms, p95 {p95:.1f} ms; "
            f"answers of logins {dict(told[count])}"
        )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, MosquittoProcess() as broker, RedisProcess() as redis:
        key = make_key(secrets.token_bytes)
        file = Path(folder) / "key"
        file.write_text(key.text)
        settings = {
            "HOMING_ACCESS_URL": f"sqlite:///{folder}/access.db",
            "HOMING_ACCESS_BOOTSTRAP_KEY_FILE": str(file),
        }
        with cluster_of(1, redis, broker, **settings) as cluster:
            asyncio.run(measure(cluster.nodes[0].url, key, broker))


if __name__ == "__main__":
    main()
