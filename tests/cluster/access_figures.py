"""Figures of access on three real nodes and a real PostgreSQL; docs/performance.md has what they showed.

python -m tests.cluster.access_figures revoke --times 50     from the answer to a revocation to the last accepted call
  … --cut 0.25                                               while Redis ends all Pub/Sub connections so often
python -m tests.cluster.access_figures outage --seconds 600  calls while PostgreSQL is away (A4)
  … --frozen                                                 while it answers nothing, and connections stay open
python -m tests.cluster.access_figures first --times 5       from nothing to a command that a key allows (A6)
python -m tests.cluster.access_figures parts --times 12      what access does for a command, part by part (A2)
"""

from __future__ import annotations

import argparse
import asyncio
from statistics import median
from time import perf_counter

import aiohttp
from redis.asyncio import Redis

from app.core.access.keys import Key
from app.runtime.system import new_secret
from app.store.engine import open_directory
from tests.cluster.access_parts import parts
from tests.cluster.access_rig import add, bearer, site
from tests.cluster.first_figures import first
from tests.cluster.outage_figures import outage
from tests.cluster.stream_rig import say


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("revoke", "outage", "first", "parts"))
    parser.add_argument("--times", type=int, default=50, help="of revoke and first")
    parser.add_argument("--cut", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--frozen", action="store_true")
    options = parser.parse_args()
    if options.what == "revoke":
        asyncio.run(revoke(options.times, options.cut))
    elif options.what == "parts":
        asyncio.run(parts(options.times))
    elif options.what == "first":
        asyncio.run(first(options.times))
    else:
        asyncio.run(outage(options.seconds, frozen=options.frozen))


if __name__ == "__main__":
    main()
