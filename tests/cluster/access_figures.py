"""Figures of access on three real nodes and a real PostgreSQL; docs/performance.md has what they showed.

python -m tests.cluster.access_figures revoke --times 50     from the answer to a revocation to the last accepted call
  … --cut 0.25                                               while Redis ends all Pub/Sub connections so often
python -m tests.cluster.access_figures outage --seconds 600  calls while PostgreSQL is away
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

import aiohttp
from redis.asyncio import Redis

from app.core.access.changes import Put
from app.core.access.keys import Key, make_key
from app.core.access.model import Binding, Credential, Kind, Principal, Scheme
from app.store.directory import AccessDirectory
from app.store.engine import open_directory
from app.system import new_secret
from tests.cluster.harness import Cluster, cluster_of
from tests.services import MosquittoProcess, PostgresProcess, RedisProcess

RATE = 200
"""Commands a second, over all nodes."""


@contextmanager
def site(**env: str) -> Iterator[tuple[Cluster, PostgresProcess, str, Key]]:
    """Three nodes with these settings, their database and its URL, and the first administrator's key."""
    with (
        tempfile.TemporaryDirectory() as folder,
        PostgresProcess() as postgresql,
        MosquittoProcess() as broker,
        RedisProcess() as redis,
    ):
        url, key = postgresql.new_database(), make_key(secrets.token_bytes)
        file = Path(folder) / "key"
        file.write_text(key.text)
        settings = {
            "HOMING_ACCESS_URL": url,
            "HOMING_ACCESS_MIGRATE": "true",
            "HOMING_ACCESS_BOOTSTRAP_KEY_FILE": str(file),
            **env,
        }
        with cluster_of(3, redis, broker, **settings) as cluster:
            yield cluster, postgresql, url, key


def bearer(key: Key) -> dict[str, str]:
    return {"Authorization": f"Bearer {key.text}"}


async def add(directory: AccessDirectory, number: int) -> Key:
    key, name = make_key(secrets.token_bytes), f"service-{number}"
    credential = Credential(id=key.id, principal_id=name, scheme=Scheme.KEY, name=name, digest=key.digest, created_us=0)
    principal = Principal(id=name, tenant_id=None, kind=Kind.SERVICE, name=name)
    binding = Binding(id=name, subject=name, role="operator", tenant_id=None)
    await directory.apply([Put(principal), Put(credential), Put(binding)])
    return key


class Caller:
    """Somebody who calls one node all the time with a key."""

    def __init__(self, session: aiohttp.ClientSession, url: str, key: Key) -> None:
        self._session, self._url, self._key = session, url, key
        self.accepted_at = 0.0
        """When the latest call began that was accepted."""
        self.known = asyncio.Event()

    async def run(self) -> None:
        while True:
            began = perf_counter()
            async with self._session.get(f"{self._url}/v1/me", headers=bearer(self._key)) as response:
                if response.status == 200:
                    self.accepted_at = began
                    self.known.set()
                elif self.known.is_set():
                    return
            await asyncio.sleep(0.005)


async def cut(url: str, every: float) -> None:
    """End all Pub/Sub connections, again and again."""
    async with Redis.from_url(url) as redis:
        while True:
            await redis.client_kill_filter(_type="pubsub")
            await asyncio.sleep(every)


async def revoke(times: int, cut_every: float) -> None:
    with site() as (cluster, _, url, admin):
        directory = open_directory(url, new_cluster_id=new_secret)
        cutting = asyncio.create_task(cut(cluster.redis.url, cut_every)) if cut_every else None
        delays = []
        async with aiohttp.ClientSession() as session:
            for number in range(times):
                key = await add(directory, number)
                callers = [Caller(session, node.url, key) for node in cluster.nodes]
                tasks = [asyncio.create_task(one.run()) for one in callers]
                await asyncio.gather(*[one.known.wait() for one in callers])
                node = cluster.nodes[number % 3].url
                async with session.delete(f"{node}/v1/keys/{key.id}", headers=bearer(admin)) as response:
                    assert response.status in (200, 204), await response.text()
                answered = perf_counter()
                await asyncio.gather(*tasks)
                delays.append(max(0.0, *(one.accepted_at - answered for one in callers)))
        await directory.close()
        if cutting:
            assert not cutting.done(), cutting
            cutting.cancel()
        say(f"{times} revocations, last accepted call after the answer, on any of 3 nodes:")
        say(
            f"  median {median(delays):.2f} s, worst {max(delays):.2f} s, within 1 s: {sum(one <= 1 for one in delays)}"
        )


async def outage(seconds: float) -> None:
    with site() as (cluster, postgresql, url, _):
        directory = open_directory(url, new_cluster_id=new_secret)
        key = await add(directory, 0)
        await directory.close()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            callers = [Caller(session, node.url, key) for node in cluster.nodes]
            tasks = [asyncio.create_task(one.run()) for one in callers]
            await asyncio.gather(*[one.known.wait() for one in callers])
            for one in tasks:
                one.cancel()
            await load(session, cluster, key, 20.0, "PostgreSQL there")
            await asyncio.to_thread(postgresql.stop)
            await load(session, cluster, key, seconds, "PostgreSQL away")
            await asyncio.to_thread(postgresql.start)
            await load(session, cluster, key, 20.0, "PostgreSQL back")


async def load(session: aiohttp.ClientSession, cluster: Cluster, key: Key, seconds: float, name: str) -> None:
    """Commands at a steady rate, whatever becomes of the ones before."""
    statuses: Counter[int] = Counter()
    times: list[float] = []

    async def send(number: int) -> None:
        body = {"method": "cover_open", "timeout": "1s", "if_offline": "send", "profile": "dji"}
        target = f"{cluster.nodes[number % 3].url}/v1/devices/dock-{number % 100}/commands"
        began = perf_counter()
        headers = {**bearer(key), "Prefer": "respond-async"}
        async with session.post(target, json=body, headers=headers) as response:
            await response.read()
            statuses[response.status] += 1
        times.append(perf_counter() - began)

    began = perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(round(seconds * RATE)):
            await asyncio.sleep(max(0.0, began + number / RATE - perf_counter()))
            group.create_task(send(number))
    p99 = quantiles(times, n=100)[98] * 1000
    refused = sum(count for status, count in statuses.items() if status != 202)
    say(f"{name}: {len(times)} commands in {seconds:g} s, {refused} refused, median {median(times) * 1000:.0f} ms, ")
    say(f"  p99 {p99:.0f} ms, statuses {dict(statuses)}")


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("revoke", "outage"))
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--cut", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    asyncio.run(revoke(options.times, options.cut) if options.what == "revoke" else outage(options.seconds))


if __name__ == "__main__":
    main()
