"""The first administrator of a directory, and the next one when nobody may administer any more."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.access.bootstrap import prepare
from app.core.access.admins import admins
from app.core.access.changes import Put, Revoke
from app.core.access.keys import Key, make_key
from app.core.access.model import Binding, Kind, Principal, Tenant
from app.runtime.system import new_secret
from app.store.directory import AccessDirectory
from app.store.engine import open_directory

pytest.importorskip("sqlalchemy")


@pytest.fixture
async def directory(tmp_path: Path) -> AsyncIterator[AccessDirectory]:
    directory = open_directory(f"sqlite:///{tmp_path / 'access.db'}", new_cluster_id=new_secret)
    yield directory
    await directory.close()


async def administer(directory: AccessDirectory, key: Key, now_us: int) -> list[str]:
    """The keys by which somebody may, after the start of a node with this one."""
    await prepare(directory, migrate=True, key=key, now_us=now_us)
    document = await directory.read()
    who = {one.id for one in admins(document, now_us)}
    return sorted(one.id for one in document.credentials if one.principal_id in who and one.revoked_us is None)


async def test_a_key_is_put_on_record_where_there_is_no_administrator_and_only_then(directory: AccessDirectory) -> None:
    first, second = make_key(secrets.token_bytes), make_key(secrets.token_bytes)
    assert await administer(directory, first, 1) == [first.id]
    assert await administer(directory, first, 2) == [first.id]
    assert await administer(directory, second, 3) == [first.id]
    assert await directory.version() == 1


async def test_another_key_counts_where_the_administrators_have_expired(directory: AccessDirectory) -> None:
    first, second = make_key(secrets.token_bytes), make_key(secrets.token_bytes)
    await administer(directory, first, 1)
    await directory.apply([Put(Binding(id="admin", subject="admin", role="admin", tenant_id=None, expires_us=10))])
    assert await administer(directory, second, 9) == [first.id]
    assert second.id in await administer(directory, second, 10)


async def test_a_key_that_was_revoked_does_not_come_back(directory: AccessDirectory) -> None:
    first, second = make_key(secrets.token_bytes), make_key(secrets.token_bytes)
    await administer(directory, first, 1)
    await directory.apply([Revoke(credential_id=first.id, at_us=5)])
    assert await administer(directory, first, 6) == []
    assert await administer(directory, second, 7) == [second.id]


async def test_a_principal_of_a_tenant_that_has_taken_the_name_does_not_become_the_administrator(
    directory: AccessDirectory,
) -> None:
    await prepare(directory, migrate=True, key=None, now_us=1)
    taken = Principal(id="admin", tenant_id="default", kind=Kind.SERVICE, name="admin")
    await directory.apply([Put(Tenant(id="default", name="default", devices=("*",), created_us=0)), Put(taken)])
    key = make_key(secrets.token_bytes)
    assert await administer(directory, key, 2) == [key.id]
    assert taken in (await directory.read()).principals
