"""The access directory of nodes: opened beside them, and services in it with their keys."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Final

import aiohttp

from app.core.access.changes import Put
from app.core.access.keys import Key, make_key
from app.core.access.model import Binding, Credential, Kind, Principal, Role, Scheme
from app.core.audit.chain import Author
from app.runtime.system import new_secret
from app.store.directory import AccessDirectory
from app.store.engine import open_directory
from homing_rig.harness import Cluster, cluster_of
from homing_rig.postgres import PostgresProcess
from homing_rig.services import MosquittoProcess, RedisProcess

BUDGET: Final = timedelta(minutes=1)
"""The time that a call may take: other programs use the machine as well."""


@asynccontextmanager
async def opened(database: str) -> AsyncIterator[AccessDirectory]:
    """The directory at this URL."""
    directory = open_directory(database, new_cluster_id=new_secret, budget=BUDGET)
    try:
        yield directory
    finally:
        await directory.close()


async def add_service(
    directory: AccessDirectory, name: str, role: str = "operator", devices: str = "*", rules: Sequence[str] = ()
) -> Key:
    """The key of a new service that has this role on these devices; with `rules` the role is new and has these."""
    key = make_key(secrets.token_bytes)
    credential = Credential(id=key.id, principal_id=name, scheme=Scheme.KEY, name=name, digest=key.digest, created_us=0)
    await directory.apply(
        [
            *([Put(Role(name=role, tenant_id=None, rules=tuple(rules)))] if rules else []),
            Put(Principal(id=name, tenant_id=None, kind=Kind.SERVICE, name=name)),
            Put(credential),
            Put(Binding(id=name, subject=name, role=role, tenant_id=None, devices=(devices,))),
        ],
        author=Author(via="rig"),
    )
    return key


def bearer(key: Key) -> dict[str, str]:
    """The header by which a caller shows its key."""
    return {"Authorization": f"Bearer {key.text}"}


async def until_known(session: aiohttp.ClientSession, cluster: Cluster, key: Key) -> None:
    """Return when all nodes know the key."""
    for node in cluster.nodes:
        while True:
            async with session.get(f"{node.url}/v1/me", headers=bearer(key)) as response:
                if response.status == HTTPStatus.OK:
                    break
            await asyncio.sleep(0.1)


@contextmanager
def guarded_settings(database: str | None = None) -> Iterator[tuple[dict[str, str], Key]]:
    """The settings of nodes that know their callers, and the key of the first administrator.

    Without `database` the directory is in a file of SQLite.
    """
    with tempfile.TemporaryDirectory() as folder:
        key, file = make_key(secrets.token_bytes), Path(folder) / "key"
        file.write_text(key.text)
        yield (
            {
                "HOMING_ACCESS_URL": database or f"sqlite:///{folder}/access.db",
                "HOMING_ACCESS_MIGRATE": "true",
                "HOMING_ACCESS_BOOTSTRAP_KEY_FILE": str(file),
            },
            key,
        )


@contextmanager
def guarded_site(size: int = 3, /, **env: str) -> Iterator[tuple[Cluster, PostgresProcess, str, Key]]:
    """Run so many nodes; yield them, their PostgreSQL, the URL of its database, and the administrator's key."""
    with PostgresProcess() as postgresql, MosquittoProcess() as broker, RedisProcess() as redis:
        url = postgresql.new_database()
        with (
            guarded_settings(url) as (settings, key),
            cluster_of(size, redis, broker, **settings, **env) as cluster,
        ):
            yield cluster, postgresql, url, key
