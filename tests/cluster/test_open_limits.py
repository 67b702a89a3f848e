"""A limit of open commands over two nodes: together they keep to it, and a node that dies gives its places back."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from app.core.access.changes import Put
from app.core.access.keys import Key, make_key
from app.core.access.model import Binding, Credential, Kind, Principal, Role, Scheme
from app.runtime.system import new_secret
from app.store.engine import open_directory
from tests.cluster.harness import Cluster, cluster_of
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import eventually

MOST = 6
RULES = ("allow * *:* on *", f"limit send *:* on * concurrent {MOST}")


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'access.db'}"


@pytest.fixture
def cluster(tmp_path: Path, database: str) -> Iterator[Cluster]:
    file = tmp_path / "key"
    file.write_text(make_key(secrets.token_bytes).text + "\n")
    settings = {"HOMING_ACCESS_URL": database, "HOMING_ACCESS_BOOTSTRAP_KEY_FILE": str(file)}
    with MosquittoProcess() as broker, RedisProcess() as redis, cluster_of(2, redis, broker, **settings) as cluster:
        yield cluster


async def limited(database: str) -> Key:
    """Somebody who may do everything, with so many commands open."""
    directory, key = open_directory(database, new_cluster_id=new_secret), make_key(secrets.token_bytes)
    await directory.apply(
        [
            Put(Role(name="few", tenant_id=None, rules=RULES)),
            Put(Principal(id="ci", tenant_id=None, kind=Kind.SERVICE, name="ci")),
            Put(Credential(id=key.id, principal_id="ci", scheme=Scheme.KEY, name="", digest=key.digest, created_us=0)),
            Put(Binding(id="ci", subject="ci", role="few", tenant_id=None)),
        ]
    )
    await directory.close()
    return key


class Caller:
    """Somebody with a limit."""

    def __init__(self, session: aiohttp.ClientSession, cluster: Cluster, key: Key) -> None:
        self._session, self._cluster = session, cluster
        self._headers = {"Authorization": f"Bearer {key.text}", "Prefer": "respond-async"}

    async def begin(self, node: int) -> str | None:
        """The id of a command to a device that is not there; None when it was refused for the limit."""
        url = f"{self._cluster.nodes[node].url}/v1/devices/mute/commands"
        body = {"method": "cover_open", "timeout": "10m", "if_offline": "send"}
        async with self._session.post(url, json=body, headers=self._headers) as response:
            told = await response.json()
        if response.status == 202:
            return str(told["id"])
        assert (response.status, told["type"]) == (429, "urn:homing:problem:too-many-open"), told
        assert response.headers["Retry-After"] == "1"
        return None

    async def end(self, node: int, identity: str) -> None:
        url = f"{self._cluster.nodes[node].url}/v1/commands/{identity}"
        async with self._session.delete(url, headers=self._headers) as response:
            assert response.status == 200

    async def limit(self, node: int) -> dict[str, Any]:
        """Return what the node tells of the limit; empty while it does not know the caller."""
        async with self._session.get(f"{self._cluster.nodes[node].url}/v1/me", headers=self._headers) as response:
            found = (await response.json()).get("limits") if response.status == 200 else None
        return dict(found[0]) if found else {}


@asynccontextmanager
async def calling(cluster: Cluster, database: str) -> AsyncIterator[Caller]:
    key = await limited(database)
    async with aiohttp.ClientSession() as session:
        caller = Caller(session, cluster, key)

        async def known() -> bool:
            return all([await caller.limit(node) for node in range(2)])

        await eventually(known)
        yield caller


async def test_two_nodes_keep_to_a_limit_of_open_commands_together(cluster: Cluster, database: str) -> None:
    async with calling(cluster, database) as caller:
        begun: list[str] = []

        async def all_open() -> bool:
            """One node alone gets all of it, when the nodes have told each other."""
            found = await caller.begin(0)
            begun.extend([] if found is None else [found])
            return len(begun) == MOST

        await eventually(all_open)
        assert (await caller.limit(0))["open"] == MOST

        async def other_knows() -> bool:
            return int((await caller.limit(1))["left"]) == 0

        await eventually(other_knows)
        assert await asyncio.gather(*[caller.begin(node) for node in (0, 1) * 5]) == [None] * 10

        await caller.end(1, begun[0])  # whichever node is asked, its home gives the place back

        async def begun_on_the_other() -> bool:
            return await caller.begin(1) is not None

        await eventually(begun_on_the_other)
        assert (await caller.limit(1))["open"] == 1


async def test_the_places_of_a_node_that_dies_are_free_again(cluster: Cluster, database: str) -> None:
    async with calling(cluster, database) as caller:

        async def full() -> bool:
            await caller.begin(0)
            return int((await caller.limit(0))["open"]) == MOST

        await eventually(full)

        async def other_knows() -> bool:
            return int((await caller.limit(1))["left"]) == 0

        await eventually(other_knows)
        assert await caller.begin(1) is None
        cluster.nodes[0].kill()

        async def free() -> bool:
            return await caller.begin(1) is not None

        await eventually(free)
