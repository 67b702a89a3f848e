"""Nodes while their PostgreSQL is away: one that starts meanwhile decides by the rules that the others have kept."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from redis import Redis

from app.core.access.changes import Put, Revoke
from app.core.access.keys import Key, make_key
from app.core.access.model import Binding, Credential, Kind, Principal, Scheme
from app.core.keys import ACCESS
from app.runtime.system import new_secret
from app.store.engine import open_directory
from tests.cluster.harness import Cluster, NodeProcess, cluster_of
from tests.services import MosquittoProcess, PostgresProcess, RedisProcess
from tests.waiting import eventually


@pytest.fixture
def postgresql() -> Iterator[PostgresProcess]:
    with PostgresProcess() as postgresql:
        yield postgresql


@pytest.fixture
def bootstrap() -> Key:
    return make_key(secrets.token_bytes)


@pytest.fixture
def settings(tmp_path: Path, bootstrap: Key, postgresql: PostgresProcess) -> dict[str, str]:
    file = tmp_path / "key"
    file.write_text(bootstrap.text + "\n")
    return {
        "HOMING_ACCESS_URL": postgresql.new_database(),
        "HOMING_ACCESS_MIGRATE": "true",
        "HOMING_ACCESS_BOOTSTRAP_KEY_FILE": str(file),
    }


@pytest.fixture
def cluster(settings: dict[str, str]) -> Iterator[Cluster]:
    with MosquittoProcess() as broker, RedisProcess() as redis, cluster_of(2, redis, broker, **settings) as cluster:
        yield cluster


async def ask(
    session: aiohttp.ClientSession,
    node: NodeProcess,
    key: Key,
    path: str,
    method: str = "GET",
    body: dict[str, Any] | None = None,
) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {key.text}"}
    async with session.request(method, f"{node.url}{path}", json=body, headers=headers) as response:
        return response.status, await response.json(content_type=None)


async def revoked(url: str, cluster: Cluster, session: aiohttp.ClientSession) -> Key:
    """A key of somebody who could do everything, until just now."""
    key, directory = make_key(secrets.token_bytes), open_directory(url, new_cluster_id=new_secret)
    credential = Credential(id=key.id, principal_id="x", scheme=Scheme.KEY, name="", digest=key.digest, created_us=0)
    await directory.apply(
        [
            Put(Principal(id="x", tenant_id=None, kind=Kind.SERVICE, name="x")),
            Put(credential),
            Put(Binding(id="x", subject="x", role="admin", tenant_id=None)),
        ]
    )

    async def counts() -> bool:
        return [(await ask(session, node, key, "/v1/me"))[0] for node in cluster.nodes] == [200, 200]

    await eventually(counts)
    await directory.apply([Revoke(credential_id=key.id, at_us=1)])

    async def counts_no_more() -> bool:
        return [(await ask(session, node, key, "/v1/me"))[0] for node in cluster.nodes] == [401, 401]

    await eventually(counts_no_more)
    await directory.close()
    return key


@pytest.mark.parametrize("how", ["stopped", "frozen"])
async def test_a_node_that_starts_while_the_database_is_away_serves_by_the_copy(
    cluster: Cluster, postgresql: PostgresProcess, settings: dict[str, str], bootstrap: Key, how: str
) -> None:
    one, other = cluster.nodes
    command = {"method": "cover_open", "timeout": "1ms", "if_offline": "send"}
    async with aiohttp.ClientSession() as session:
        former = await revoked(settings["HOMING_ACCESS_URL"], cluster, session)

        async def copied() -> bool:
            """The revocation is in the copy that the nodes share; they ask for a version twice a second."""
            with Redis.from_url(cluster.redis.url) as redis:
                found = redis.hget(ACCESS, "version")
            return bool(found == str(await newest(settings["HOMING_ACCESS_URL"])).encode())

        await eventually(copied)
        if how == "stopped":
            postgresql.kill()
        else:
            postgresql.pause()
        one.kill()
        one.start()  # it answers 200 at /readyz
        assert "access_rules_borrowed" in one.log_text
        for node in (one, other):
            assert (await ask(session, node, bootstrap, "/v1/me"))[0] == 200
            assert (await ask(session, node, former, "/v1/me"))[0] == 401
            assert (await ask(session, node, make_key(secrets.token_bytes), "/v1/me"))[0] == 401
            path = "/v1/devices/absent/commands"
            assert (await ask(session, node, bootstrap, path, "POST", command))[0] == 504
            for path in ("/v1/principals", "/v1/keys", "/v1/audit"):
                status, told = await ask(session, node, bootstrap, path)
                assert (status, told["type"]) == (503, "urn:homing:problem:access-store-away"), path
        login = {"name": "ann", "password": "correct horse battery"}
        assert (await ask(session, one, bootstrap, "/v1/login", "POST", login))[0] == 503
        if how == "stopped":
            postgresql.start()
        else:
            postgresql.resume()

        async def back() -> bool:
            return (await ask(session, one, bootstrap, "/v1/principals"))[0] == 200

        await eventually(back)
        assert (await ask(session, one, bootstrap, "/v1/login", "POST", login))[0] == 401


async def newest(url: str) -> int:
    directory = open_directory(url, new_cluster_id=new_secret)
    try:
        return await directory.version()
    finally:
        await directory.close()


async def test_the_first_node_ever_waits_for_the_database_and_says_so(
    postgresql: PostgresProcess, settings: dict[str, str], bootstrap: Key
) -> None:
    postgresql.kill()
    with MosquittoProcess() as broker, RedisProcess() as redis:
        node = NodeProcess("n1", redis, broker, module="app.cli", **settings)
        process = subprocess.Popen(node._command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            async with aiohttp.ClientSession() as session:

                async def says() -> bool:
                    try:
                        status, told = await ask(session, node, bootstrap, "/readyz")
                    except aiohttp.ClientError:
                        return False
                    said = str(told.get("checks", told).get("access", ""))
                    return status == 503 and "no node has kept a copy of the rules" in said

                await eventually(says)
                assert (await ask(session, node, bootstrap, "/v1/me"))[0] == 503
                postgresql.start()

                async def serves() -> bool:
                    return (await ask(session, node, bootstrap, "/v1/me"))[0] == 200

                await eventually(serves)
        finally:
            process.kill()
            process.wait()
