"""Access on three real nodes: the first key, one database for all of them, a key that is revoked."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from app.audit.verification import verify
from app.core.access.changes import Revoke
from app.core.access.keys import Key, make_key
from homing_rig.directory import add_service, opened
from homing_rig.figures.audit import read_record
from tests.cluster.harness import Cluster, NodeProcess, cluster_of
from tests.services import MosquittoProcess, RedisProcess
from tests.waiting import eventually


@pytest.fixture
def bootstrap() -> Key:
    return make_key(secrets.token_bytes)


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'access.db'}"


@pytest.fixture
def cluster(tmp_path: Path, bootstrap: Key, database: str) -> Iterator[Cluster]:
    """Three nodes that start at once on an empty database, each with the same key for the first administrator."""
    file = tmp_path / "key"
    file.write_text(bootstrap.text + "\n")
    settings = {"HOMING_ACCESS_URL": database, "HOMING_ACCESS_BOOTSTRAP_KEY_FILE": str(file)}
    with MosquittoProcess() as broker, RedisProcess() as redis, cluster_of(3, redis, broker, **settings) as cluster:
        yield cluster


async def status(session: aiohttp.ClientSession, cluster: Cluster, node: int, key: Key | None) -> int:
    headers = {} if key is None else {"Authorization": f"Bearer {key.text}"}
    async with session.get(f"{cluster.nodes[node].url}/v1/nodes", headers=headers) as response:
        return response.status


async def test_the_first_key_counts_on_all_nodes_and_nothing_else_does(
    cluster: Cluster, bootstrap: Key, database: str
) -> None:
    async with aiohttp.ClientSession() as session:
        for node in range(3):
            assert await status(session, cluster, node, bootstrap) == 200
            assert await status(session, cluster, node, None) == 401
            assert await status(session, cluster, node, make_key(secrets.token_bytes)) == 401
    async with opened(database) as directory:
        document = await directory.read()
    assert [one.id for one in document.credentials] == [bootstrap.id]
    assert document.version == 1


async def test_a_key_counts_on_all_nodes_until_it_is_revoked_and_on_none_after(cluster: Cluster, database: str) -> None:
    async with opened(database) as directory, aiohttp.ClientSession() as session:

        async def all_say(key: Key, expected: int) -> None:
            async def said() -> bool:
                return {await status(session, cluster, node, key) for node in range(3)} == {expected}

            await eventually(said)

        for number in range(3):
            key = await add_service(directory, f"admin-{number}", "admin")
            await all_say(key, 200)
            await directory.apply([Revoke(credential_id=key.id, at_us=1)])
            await all_say(key, 401)


async def test_a_caller_that_waits_on_any_node_is_sent_away(cluster: Cluster, database: str) -> None:
    body: dict[str, Any] = {"method": "cover_open", "timeout": "1m", "if_offline": "send"}
    async with opened(database) as directory, aiohttp.ClientSession() as session:
        key = await add_service(directory, "admin-1", "admin")
        headers: dict[str, str] = {"Authorization": f"Bearer {key.text}"}

        async def counts() -> bool:
            return all([await status(session, cluster, node, key) == 200 for node in range(3)])

        await eventually(counts)

        async def wait(node: int) -> int:
            url = f"{cluster.nodes[node].url}/v1/devices/mute-{node}/commands"
            async with session.post(url, json=body, headers=headers) as response:
                return response.status

        waiting = [asyncio.create_task(wait(node)) for node in range(3)]

        async def parked() -> bool:
            return await listed(session, cluster, headers) == 3

        await eventually(parked)
        await directory.apply([Revoke(credential_id=key.id, at_us=1)])
        assert await asyncio.gather(*waiting) == [401, 401, 401]


async def listed(session: aiohttp.ClientSession, cluster: Cluster, headers: dict[str, str]) -> int:
    async with session.get(f"{cluster.nodes[0].url}/v1/commands", headers=headers) as response:
        return len((await response.json())["commands"])


def test_a_node_with_another_database_than_the_others_does_not_start(cluster: Cluster, tmp_path: Path) -> None:
    env = {"HOMING_ACCESS_URL": f"sqlite:///{tmp_path / 'another.db'}"}
    stranger = NodeProcess("n9", cluster.redis, cluster.broker, module="app.cli", **env)
    ended = subprocess.run(stranger._command(), capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2, ended.stderr
    assert "the other nodes on this store have another access directory" in ended.stderr
    assert "give all nodes the same HOMING_ACCESS_URL" in ended.stderr


async def test_a_node_that_is_killed_leaves_an_audit_that_is_whole(
    cluster: Cluster, bootstrap: Key, database: str
) -> None:
    """Kill a node. What it had not written is lost, half a second's worth; what it had is there, and nothing is wrong
    with it.
    """
    headers = {"Authorization": f"Bearer {bootstrap.text}"}
    sent: dict[int, set[str]] = {0: set(), 1: set()}

    async def send(node: int) -> None:
        url = f"{cluster.nodes[node].url}/v1/devices/absent/commands"
        body = {"method": "cover_open", "timeout": "1ms", "if_offline": "send"}
        async with session.post(url, json=body, headers=headers) as response:
            sent[node].add((await response.json())["command_id"])

    async def told() -> set[str]:
        return set((await read_record(directory.audit)).commands)

    async with opened(database) as directory, aiohttp.ClientSession() as session:
        for _ in range(20):
            await asyncio.gather(send(0), send(1))

        async def all_told() -> bool:
            return await told() == sent[0] | sent[1]

        await eventually(all_told)
        before = await told()
        await asyncio.gather(*[send(0) for _ in range(10)])
        cluster.nodes[0].kill()
        await send(1)
        sent[0] &= before  # of the dead node the rest may be there, or not

        async def rest_told() -> bool:
            return sent[0] | sent[1] <= await told()

        await eventually(rest_told)
        verification = await verify(directory.audit)
        assert verification.faults == ()
        assert verification.writers >= 3  # both nodes, and the directory
