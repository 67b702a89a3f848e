"""The access directory of nodes, opened beside them."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.core.access.changes import Put
from app.core.access.keys import Key, make_key
from app.core.access.model import Binding, Credential, Kind, Principal, Scheme
from app.core.audit.chain import Author
from app.runtime.system import new_secret
from app.store.directory import AccessDirectory
from app.store.engine import open_directory


@asynccontextmanager
async def opened(database: str) -> AsyncIterator[AccessDirectory]:
    directory = open_directory(database, new_cluster_id=new_secret)
    try:
        yield directory
    finally:
        await directory.close()


async def add_service(directory: AccessDirectory, name: str, role: str, devices: str = "*") -> Key:
    """The key of a new service that has this role on these devices."""
    key = make_key(secrets.token_bytes)
    credential = Credential(id=key.id, principal_id=name, scheme=Scheme.KEY, name=name, digest=key.digest, created_us=0)
    await directory.apply(
        [
            Put(Principal(id=name, tenant_id=None, kind=Kind.SERVICE, name=name)),
            Put(credential),
            Put(Binding(id=name, subject=name, role=role, tenant_id=None, devices=(devices,))),
        ],
        author=Author(via="test"),
    )
    return key
