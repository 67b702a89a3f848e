"""Tokens with unknown keys against a real node, and what others notice; docs/performance.md has what came out.

python -m tests.cluster.token_figures --rate 1000 --rounds 5     turns of 10 s with and without 1,000 such tokens/s
"""

from __future__ import annotations

import argparse
import asyncio
import math
import secrets
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

import aiohttp

from app.core.access.keys import Key
from app.runtime.system import new_secret
from app.store.engine import open_directory
from tests.cluster.access_rig import add, bearer, until_known
from tests.cluster.flood import Spec, flood, request
from tests.cluster.harness import Cluster, cluster_of
from tests.cluster.stream_rig import judge, say
from tests.services import MosquittoProcess, RedisProcess
from tests.unit.access.issuer import Issuer, serving
from tests.unit.access.signing import part

OTHERS = 100
"""Commands a second of somebody with a key."""
LEAD = 2.0
"""Seconds for which tokens come before and after commands are timed: their process has to start."""


@dataclass
class Turn:
    """What was seen in one of them."""

    times: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)


@asynccontextmanager
async def site() -> AsyncIterator[tuple[Cluster, Issuer, Key]]:
    """A node that believes an issuer, and the key of somebody who may send."""
    with tempfile.TemporaryDirectory() as folder, MosquittoProcess() as broker, RedisProcess() as redis:
        url = f"sqlite:///{Path(folder) / 'access.db'}"
        directory = open_directory(url, new_cluster_id=new_secret)
        await directory.migrate()
        key = await add(directory, 0)
        await directory.close()
        async with serving() as issuer:
            settings = {"HOMING_ACCESS_URL": url, "HOMING_OIDC_ISSUER": issuer.url, "HOMING_OIDC_AUDIENCE": "homing"}
            cluster = cluster_of(1, redis, broker, **settings)
            opened = await asyncio.to_thread(cluster.__enter__)
            try:
                yield opened, issuer, key
            finally:
                await asyncio.to_thread(cluster.__exit__, None, None, None)


def unknown_token(issuer: str) -> str:
    """A token whose key nobody has heard of."""
    head = {"alg": "ES256", "kid": secrets.token_hex(8)}
    body = {"iss": issuer, "aud": "homing", "sub": "x", "iat": 1, "exp": 2**33}
    return f"{part(head)}.{part(body)}.{secrets.token_urlsafe(64)}"


async def command(session: aiohttp.ClientSession, url: str, key: Key, number: int, turn: Turn) -> None:
    body = {"method": "cover_open", "timeout": "1s", "if_offline": "send", "profile": "dji"}
    headers = {**bearer(key), "Prefer": "respond-async"}
    began = perf_counter()
    async with session.post(f"{url}/v1/devices/dock-{number % 100}/commands", json=body, headers=headers) as response:
        await response.read()
    turn.times.append(perf_counter() - began)
    turn.statuses[response.status] += 1


async def turn_of(cluster: Cluster, issuer: Issuer, key: Key, seconds: float, rate: float) -> Turn:
    turn, url = Turn(), cluster.nodes[0].url
    sent = tokens(cluster, issuer, rate, seconds + 2 * LEAD)  # whoever times does nothing else then
    unlimited = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=unlimited) as session, asyncio.TaskGroup() as group:
        flooding = group.create_task(flood(sent)) if rate else None
        await asyncio.sleep(LEAD)
        began = perf_counter()
        for number in range(round(seconds * OTHERS)):
            await asyncio.sleep(max(0.0, began + number / OTHERS - perf_counter()))
            group.create_task(command(session, url, key, number, turn))
    if flooding is not None:
        turn.refused = flooding.result().statuses
    return turn


def tokens(cluster: Cluster, issuer: Issuer, rate: float, seconds: float) -> Spec:
    """Calls with tokens of unknown keys, each of its own."""
    port = cluster.nodes[0].port
    made = [f"Authorization: Bearer {unknown_token(issuer.url)}" for _ in range(round(rate * seconds))]
    return Spec([(port, request("GET", "/v1/me", [one])) for one in made], rate, seconds)


async def measure(rate: float, rounds: int, seconds: float) -> None:
    async with site() as (cluster, issuer, key):
        async with aiohttp.ClientSession() as session:
            await until_known(session, cluster, key)
        await turn_of(cluster, issuer, key, seconds, 0)  # nobody begins cold
        asked, begun = issuer.asked, perf_counter()
        ratios = []
        for _ in range(rounds):
            without = await turn_of(cluster, issuer, key, seconds, 0)
            during = await turn_of(cluster, issuer, key, seconds, rate)
            ratios.append(p99(during) / p99(without))
            say(
                f"p99 {p99(without) * 1000:.1f} ms without, {p99(during) * 1000:.1f} ms with "
                f"{sum(during.refused.values()) / (seconds + 2 * LEAD):.0f} tokens/s ({ratios[-1]:.2f} x); "
                f"answers to tokens {dict(during.refused)}, to others {dict(without.statuses + during.statuses)}"
            )
        fetches, minutes = issuer.asked - asked, (perf_counter() - begun) / 60
        judge(f"p99 of others, median of {rounds} rounds", median(ratios), " x", most=1.2)
        judge(f"fetches in {minutes:.1f} min", fetches, most=math.ceil(minutes * 6))


def p99(turn: Turn) -> float:
    return quantiles(turn.times, n=100)[98]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    asyncio.run(measure(options.rate, options.rounds, options.seconds))


if __name__ == "__main__":
    main()
