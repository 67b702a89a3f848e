"""The access directory in SQLite or PostgreSQL, through SQLAlchemy's Core."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Row,
    bindparam,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.access.changes import Change, Entry, Put, Remove, Revoke, identity_of, named
from app.core.access.model import Binding, Credential, Device, Document, Principal, Role, Tenant
from app.core.audit.chain import Author
from app.core.errors import EntryConflictError, EntryNotFoundError, SchemaTooOldError, VersionConflictError
from app.store.audit import AuditStore
from app.store.sql.access.rows import MAPPED, row_of
from app.store.sql.audit.lines import SqlAudit, note_changes
from app.store.sql.driver import schema
from app.store.sql.driver.calls import Calls
from app.store.sql.driver.connect import WRITES, open_blocking, open_sql
from app.store.sql.driver.visits import Visits
from app.store.sql.tables import credentials, devices, meta, removed_devices, tenants

_PER_BUDGET: Final = 2_500
"""Changes for which a call may take another budget."""
_BATCH: Final = 500
"""Rows that are read before the event loop turns."""
_SNAPSHOT: Final[dict[str, Any]] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}


class SqlDirectory:
    """An AccessDirectory. `new_cluster_id` names a directory when its tables are made."""

    def __init__(self, url: str, *, budget: timedelta, new_cluster_id: Callable[[], str]) -> None:
        self._engine = open_sql(url, budget)
        blocking = open_blocking(url, budget)
        self._calls = Calls(self._engine, budget, None if blocking is None else Visits(blocking))
        self._audit = SqlAudit(self._calls)
        self._new_cluster_id = new_cluster_id
        self._snapshot = _SNAPSHOT if self._engine.dialect.name == "postgresql" else {}

    async def migrate(self) -> bool:
        return await schema.migrate(self._engine, self._new_cluster_id)

    async def start(self) -> None:
        async def look(connection: AsyncConnection) -> None:
            schema.check(await connection.run_sync(schema.look))

        await self._calls.transaction(look)

    async def read(self, since: Document | None = None) -> Document:
        return await self._calls.transaction(partial(_read, since=since), **self._snapshot)

    async def version(self) -> int:
        return await self._calls.brief(lambda connection: int(_meta_of(connection).version))

    @property
    def audit(self) -> AuditStore:
        return self._audit

    async def apply(
        self, changes: Sequence[Change], *, expected_version: int | None = None, author: Author | None = None
    ) -> int:
        async def apply(connection: AsyncConnection) -> int:
            # First of all, as it locks the row: one writer at a time, whose version is the next one.
            found = await _raise_version(connection)
            self._as_expected(found, expected_version)
            for of_devices, group in groupby(changes, _puts_device):
                if of_devices:
                    await _put_devices(connection, [one for one in group if isinstance(one, Put)], found + 1)
                else:
                    for change in group:
                        await _make(connection, change, found + 1)
            if author is not None:
                await note_changes(connection, changes, found + 1, author)
            return found + 1

        if not changes:
            return self._as_expected(await self.version(), expected_version)
        return await self._calls.transaction(apply, budgets=1 + len(changes) / _PER_BUDGET, **{WRITES: True})

    async def touch(self, used: Mapping[str, int]) -> None:
        async def touch(connection: AsyncConnection) -> None:
            await _meta(connection, lock=True)  # changes lock it first, too: nobody waits crosswise
            at: BindParameter[int] = bindparam("at")
            last = credentials.c.last_used_us
            newer = update(credentials).where(credentials.c.id == bindparam("of"), or_(last.is_(None), last < at))
            batch = [{"of": identity, "at": instant} for identity, instant in used.items()]
            await connection.execute(newer.values(last_used_us=at), batch)

        if used:
            await self._calls.transaction(touch, **{WRITES: True})

    async def close(self) -> None:
        await self._calls.close()

    @staticmethod
    def _as_expected(found: int, expected: int | None) -> int:
        if expected is not None and found != expected:
            raise VersionConflictError(expected, found)
        return found


async def _meta(connection: AsyncConnection, *, lock: bool = False) -> Row[str, int, int]:
    return await connection.run_sync(_meta_of, lock=lock)


def _meta_of(connection: Connection, *, lock: bool = False) -> Row[str, int, int]:
    """The one row that tells of all others; SchemaError when they cannot be served."""
    query = select(meta.c.cluster_id, meta.c.version, meta.c.oldest)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise SchemaTooOldError("the access directory was not set up to its end: run homing access migrate")
    schema.check_oldest(row.oldest)
    return row


async def _raise_version(connection: AsyncConnection) -> int:
    """Raise the version by one; the one before."""
    await connection.execute(update(meta).values(version=meta.c.version + 1))
    return int((await _meta(connection)).version) - 1


async def _read(connection: AsyncConnection, since: Document | None) -> Document:
    row = await _meta(connection)
    sections = {kind: await _entries(connection, kind) for kind in MAPPED if kind is not Device}
    return Document(
        cluster_id=row.cluster_id,
        version=row.version,
        tenants=sections[Tenant],
        principals=sections[Principal],
        credentials=sections[Credential],
        roles=sections[Role],
        bindings=sections[Binding],
        devices=await _devices(connection, _known(since, row.cluster_id, row.version)),
    )


async def _entries(connection: AsyncConnection, kind: type[Entry], *only: ColumnElement[bool]) -> tuple[Any, ...]:
    """All of a kind, in their order: databases sort text each in its own way."""
    mapped = MAPPED[kind]
    rows = (await connection.execute(select(mapped.table).where(*only))).mappings()
    found = []
    for batch in rows.partitions(_BATCH):
        found += [([one[key.name] for key in mapped.table.primary_key], mapped.from_row(one)) for one in batch]
        await asyncio.sleep(0)  # the loop has commands to carry
    return tuple([entry for _, entry in sorted(found, key=itemgetter(0))])


def _known(since: Document | None, cluster_id: str, version: int) -> Document | None:
    """The part of an earlier reading that is still true: none, if it is of another directory, or of a restored copy."""
    same = since is not None and since.cluster_id == cluster_id and since.version <= version
    return since if same else None


async def _devices(connection: AsyncConnection, known: Document | None) -> tuple[Device, ...]:
    if known is None:
        return await _entries(connection, Device)
    changed = await _entries(connection, Device, devices.c.version > known.version)
    removed = select(removed_devices.c.id).where(removed_devices.c.version > known.version)
    gone = set((await connection.execute(removed)).scalars())
    if not changed and not gone:
        return known.devices
    found = {one.id: one for one in (*known.devices, *changed) if one.id not in gone}
    return tuple([found[identity] for identity in sorted(found)])


async def _make(connection: AsyncConnection, change: Change, version: int) -> None:
    """Make a change, which will be part of this version."""
    try:
        match change:
            case Put():
                await _put(connection, change)
            case Remove():
                mapped = MAPPED[change.kind]
                gone = await connection.execute(delete(mapped.table).where(*mapped.is_at(change.id, change.tenant_id)))
                _on_record(change, gone.rowcount)
                if change.kind is Device:
                    await connection.execute(delete(removed_devices).where(removed_devices.c.id == change.id))
                    await connection.execute(insert(removed_devices).values(id=change.id, version=version))
            case Revoke():
                first = func.coalesce(credentials.c.revoked_us, change.at_us)
                revoke = update(credentials).where(credentials.c.id == change.credential_id).values(revoked_us=first)
                _on_record(change, (await connection.execute(revoke)).rowcount)
    except IntegrityError as error:
        raise EntryConflictError(f"{named(change)}: {_contradiction(change, error)}") from None


def _puts_device(change: Change) -> bool:
    return isinstance(change, Put) and isinstance(change.entry, Device)


async def _put_devices(connection: AsyncConnection, puts: Sequence[Put], version: int) -> None:
    """All at once, as there may be 100,000 of them."""
    known = set((await connection.execute(select(tenants.c.id))).scalars())
    rows = {}
    for put in puts:
        row = row_of(put)
        if row["tenant_id"] not in known:
            raise EntryConflictError(f"{named(put)}: names what is not on record")
        rows[row["id"]] = {**row, "version": version}
    names = [{"of": identity} for identity in rows]
    for table in (removed_devices, devices):
        await connection.execute(delete(table).where(table.c.id == bindparam("of")), names)
    await connection.execute(insert(devices), list(rows.values()))


async def _put(connection: AsyncConnection, change: Put) -> None:
    row = row_of(change)
    mapped = MAPPED[type(change.entry)]
    here = mapped.is_at(*identity_of(change.entry))
    values = row
    if isinstance(change.entry, Credential):
        await _refuse_revival(connection, change, change.entry)
        values = {name: value for name, value in row.items() if name != "last_used_us"}
    replaced = await connection.execute(update(mapped.table).where(*here).values(**values))
    if not replaced.rowcount:
        await connection.execute(insert(mapped.table).values(**row))


async def _refuse_revival(connection: AsyncConnection, change: Put, entry: Credential) -> None:
    revoked = await connection.scalar(select(credentials.c.revoked_us).where(credentials.c.id == entry.id))
    if revoked is not None and entry.revoked_us != revoked:
        raise EntryConflictError(f"{named(change)}: was revoked, which is final: make a new one")


def _on_record(change: Change, rows: int) -> None:
    if not rows:
        raise EntryNotFoundError(f"{named(change)} is not on record")


def _contradiction(change: Change, error: IntegrityError) -> str:
    """The contradiction that the database found. Its own words may hold values, and are not repeated."""
    kind = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "sqlite_errorname", "")
    if kind in _TAKEN:
        return _TAKEN_BY.get(type(change.entry), "is taken") if isinstance(change, Put) else "is taken"
    if kind in _DANGLING:
        return "is still named by others" if isinstance(change, Remove) else "names what is not on record"
    return "is not allowed as it is"


_TAKEN: Final = {"23505", "SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY"}
"""SQLSTATE 23505 is unique_violation, 23503 foreign_key_violation (PostgreSQL, Appendix A)."""
_DANGLING: Final = {"23503", "SQLITE_CONSTRAINT_FOREIGNKEY", "SQLITE_CONSTRAINT_TRIGGER"}
_TAKEN_BY: Final = {
    Principal: "its name is taken in its tenant",
    Credential: "its digest, or its issuer and subject, belong to another one",
}
