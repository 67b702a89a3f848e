"""The first steps of a node with its access directory: tables, and somebody who may let others in."""

from __future__ import annotations

import structlog

from app.core.access.admins import ADMIN, admins
from app.core.access.changes import Put
from app.core.access.keys import Key
from app.core.access.model import Binding, Credential, Document, Kind, Principal, Scheme
from app.core.audit.chain import Author
from app.core.errors import VersionConflictError
from app.store.directory import AccessDirectory


async def prepare(directory: AccessDirectory, *, migrate: bool, key: Key | None, now_us: int) -> None:
    """Make the tables where that is meant, and put the bootstrap key on record where nobody may administer (any more).

    May be done again, and by several nodes at once.
    """
    if migrate:
        await directory.migrate()
    await directory.start()
    while key is not None:
        document = await directory.read()
        if admins(document, now_us):
            return
        if any(one.id == key.id for one in document.credentials):
            structlog.get_logger().warning("access_not_bootstrapped", key=key.id)
            return  # it was revoked, or has expired, and does not come back
        try:
            author = Author(principal="bootstrap", key=key.id, via="bootstrap", at_us=now_us)
            await directory.apply(_first_admin(document, key, now_us), expected_version=document.version, author=author)
        except VersionConflictError:  # another node was faster
            continue
        structlog.get_logger().info("access_bootstrapped", key=key.id)
        return


def _first_admin(document: Document, key: Key, now_us: int) -> list[Put]:
    """The principal, the key and the binding, all of the id of the role where no tenant has taken it."""
    taken = any(one.id == ADMIN and one.tenant_id is not None for one in document.principals)
    name = f"{ADMIN}-{key.id}" if taken else ADMIN
    principal = Principal(id=name, tenant_id=None, kind=Kind.SERVICE, name="bootstrap", created_us=now_us)
    credential = Credential(
        id=key.id, principal_id=name, scheme=Scheme.KEY, name="bootstrap", digest=key.digest, created_us=now_us
    )
    return [Put(principal), Put(credential), Put(Binding(id=name, subject=name, role=ADMIN, tenant_id=None))]
