"""What figures of access have in common: three nodes on a real PostgreSQL, and somebody with a key."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp

from app.core.access.changes import Put
from app.core.access.keys import Key, make_key
from app.core.access.model import Binding, Credential, Kind, Principal, Scheme
from app.store.directory import AccessDirectory
from tests.cluster.harness import Cluster, cluster_of
from tests.services import MosquittoProcess, PostgresProcess, RedisProcess


@contextmanager
def site(size: int = 3, /, **env: str) -> Iterator[tuple[Cluster, PostgresProcess, str, Key]]:
    """So many nodes with these settings, their database and its URL, and the first administrator's key."""
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
        with cluster_of(size, redis, broker, **settings) as cluster:
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


async def until_known(session: aiohttp.ClientSession, cluster: Cluster, key: Key) -> None:
    """Return when all nodes know the key."""
    for node in cluster.nodes:
        while True:
            async with session.get(f"{node.url}/v1/me", headers=bearer(key)) as response:
                if response.status == 200:
                    break
            await asyncio.sleep(0.1)
