"""A limit over three real nodes; docs/performance.md has what came out.

python -m tests.cluster.limit_figures --seconds 20     300/s offered at a limit of 100/s, 70:20:10 over three nodes
  … --limit 25                                         500/s in the second part: 2,000/s keep two processors busy alone
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import secrets
from collections import Counter
from statistics import mean, quantiles
from time import perf_counter

import aiohttp

from app.core.access.changes import Put
from app.core.access.keys import Key, make_key
from app.core.access.model import Binding, Credential, Kind, Principal, Role, Scheme
from app.runtime.system import new_secret
from app.store.directory import AccessDirectory
from app.store.engine import open_directory
from tests.cluster.access_rig import add, bearer, site, until_known
from tests.cluster.flood import Spec, flood, request
from tests.cluster.harness import Cluster
from tests.cluster.stream_rig import judge, say

SPREAD = (7, 2, 1)
OTHERS = 30
"""Commands a second of somebody who has no limit."""
FROM = 3
"""From this second on the shares have to follow."""


async def limited(directory: AccessDirectory, name: str, limit: int) -> Key:
    """Somebody who may send, so often."""
    key = make_key(secrets.token_bytes)
    rules = ("allow * *:* on *", f"limit send *:* on * {limit}/s burst {limit}")
    credential = Credential(id=key.id, principal_id=name, scheme=Scheme.KEY, name=name, digest=key.digest, created_us=0)
    principal = Principal(id=name, tenant_id=None, kind=Kind.SERVICE, name=name)
    role = Role(name=f"{name}-limited", tenant_id=None, rules=rules)
    binding = Binding(id=name, subject=name, role=role.name, tenant_id=None)
    await directory.apply([Put(role), Put(principal), Put(credential), Put(binding)])
    return key


class Load:
    """Calls with one key, at a steady rate."""

    def __init__(self, session: aiohttp.ClientSession, cluster: Cluster, key: Key) -> None:
        self._session, self._cluster, self._key = session, cluster, key
        self.statuses: Counter[int] = Counter()
        self.times: list[float] = []

    async def send(self, node: int) -> tuple[int, float]:
        """The status, and after how many seconds to try again."""
        body = {"method": "cover_open", "timeout": "1s", "if_offline": "send", "profile": "dji"}
        target = f"{self._cluster.nodes[node].url}/v1/devices/dock-{random.randrange(100)}/commands"
        began, headers = perf_counter(), {**bearer(self._key), "Prefer": "respond-async"}
        async with self._session.post(target, json=body, headers=headers) as response:
            await response.read()
        self.times.append(perf_counter() - began)
        self.statuses[response.status] += 1
        return response.status, float(response.headers.get("Retry-After", "0"))

    async def run(self, rate: float, seconds: float, spread: tuple[int, ...]) -> None:
        began = perf_counter()
        nodes = random.choices(range(len(spread)), spread, k=round(rate * seconds))
        async with asyncio.TaskGroup() as group:
            for number, node in enumerate(nodes):
                await asyncio.sleep(max(0.0, began + number / rate - perf_counter()))
                group.create_task(self.send(node))

    @property
    def p99(self) -> float:
        """Milliseconds."""
        return quantiles(self.times, n=100)[98] * 1000


def offered(cluster: Cluster, key: Key, rate: float, seconds: float) -> Spec:
    """Commands with one key, spread over the nodes."""
    body = json.dumps({"method": "cover_open", "timeout": "1s", "if_offline": "send", "profile": "dji"})
    headers = [*(f"{name}: {value}" for name, value in bearer(key).items()), "Prefer: respond-async"]
    nodes = random.choices(cluster.nodes, SPREAD, k=round(rate * seconds))
    paths = [f"/v1/devices/dock-{number % 100}/commands" for number in range(len(nodes))]
    return Spec(
        [(node.port, request("POST", path, headers, body)) for node, path in zip(nodes, paths, strict=True)],
        rate,
        seconds,
    )


async def limits(seconds: float, limit: int) -> None:
    with site() as (cluster, _, url, _):
        directory = open_directory(url, new_cluster_id=new_secret)
        key, polite, other = (
            await limited(directory, "greedy", limit),
            await limited(directory, "polite", limit),
            await add(directory, 0),
        )
        await directory.close()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            for one in (key, polite, other):
                await until_known(session, cluster, one)
            for rate in (3 * limit, 20 * limit):
                before, beside = Load(session, cluster, other), Load(session, cluster, other)
                await before.run(OTHERS, seconds / 2, (1, 1, 1))
                load, _ = await asyncio.gather(
                    flood(offered(cluster, key, rate, seconds)), beside.run(OTHERS, seconds, (1, 1, 1))
                )
                rates = load.admitted[FROM : int(seconds) - 1]
                say(f"{rate}/s offered at {limit}/s, {':'.join(map(str, SPREAD))}: statuses {dict(load.statuses)}")
                say(f"  sent in {load.seconds:.1f} s; mean admitted from second {FROM} on: {mean(rates):.1f}")
                judge("admitted in the second with the fewest", min(rates), "/s", least=0.95 * limit)
                judge("admitted in the second with the most", max(rates), "/s", most=1.1 * limit)
                say(f"  p99 of somebody else: {before.p99:.0f} ms before, {beside.p99:.0f} ms beside it")
                judge("that is", beside.p99 / before.p99, " x", most=2)
            await retry(Load(session, cluster, polite), seconds)


async def retry(load: Load, seconds: float) -> None:
    """Callers on each node who wait as long as they are told, and come again."""
    enough: Counter[bool] = Counter()
    until = perf_counter() + seconds

    async def caller(node: int) -> None:
        wait = 0.0
        while perf_counter() < until:
            status, again = await load.send(node)
            if wait:
                enough[status == 202] += 1
            wait = again if status == 429 else 0.0
            await asyncio.sleep(wait)

    await asyncio.gather(*[caller(node) for node in (0, 0, 0, 0, 1, 1, 2) for _ in range(4)])
    total = max(1, enough.total())
    judge(f"Retry-After was enough, of {total} cases", enough[True] / total * 100, " %", least=95)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--limit", type=int, default=100, help="commands a second")
    arguments = parser.parse_args()
    asyncio.run(limits(arguments.seconds, arguments.limit))


if __name__ == "__main__":
    main()
