"""The access directory in SQLite or PostgreSQL, through SQLAlchemy's Core."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from sqlalchemy import BindParameter, Row, bindparam, delete, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.access.changes import Change, Put, Remove, Revoke, identity_of, named
from app.core.access.model import Binding, Credential, Device, Document, Principal, Role, Tenant
from app.core.errors import EntryConflictError, EntryNotFoundError, SchemaTooOldError, VersionConflictError
from app.store.sql import schema
from app.store.sql.calls import Calls
from app.store.sql.connect import WRITES, open_sql
from app.store.sql.rows import MAPPED, row_of
from app.store.sql.tables import credentials, meta

_SNAPSHOT: Final = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}


class SqlDirectory:
    """An AccessDirectory. `new_cluster_id` names a directory when its tables are made."""

    def __init__(self, url: str, *, budget: timedelta, new_cluster_id: Callable[[], str]) -> None:
        self._engine = open_sql(url, budget)
        self._calls = Calls(self._engine, budget)
        self._new_cluster_id = new_cluster_id
        self._snapshot = _SNAPSHOT if self._engine.dialect.name == "postgresql" else {}

    async def migrate(self) -> bool:
        return await schema.migrate(self._engine, self._new_cluster_id)

    async def start(self) -> None:
        async def look(connection: AsyncConnection) -> None:
            schema.check(await connection.run_sync(schema.look))

        await self._calls.transaction(look)

    async def read(self) -> Document:
        return await self._calls.transaction(_read, **self._snapshot)

    async def version(self) -> int:
        async def version(connection: AsyncConnection) -> int:
            return int((await _meta(connection)).version)

        return await self._calls.transaction(version)

    async def apply(self, changes: Sequence[Change], *, expected_version: int | None = None) -> int:
        async def apply(connection: AsyncConnection) -> int:
            # First of all, as it locks the row: one writer at a time, whose version is the next one.
            found = await _raise_version(connection)
            self._as_expected(found, expected_version)
            for change in changes:
                await _make(connection, change)
            return found + 1

        if not changes:
            return self._as_expected(await self.version(), expected_version)
        return await self._calls.transaction(apply, **{WRITES: True})

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
    """The one row that tells of all others; SchemaError when they cannot be served."""
    query = select(meta.c.cluster_id, meta.c.version, meta.c.oldest)
    row = (await connection.execute(query.with_for_update() if lock else query)).one_or_none()
    if row is None:
        raise SchemaTooOldError("the access directory was not set up to its end: run homing access migrate")
    schema.check_oldest(row.oldest)
    return row


async def _raise_version(connection: AsyncConnection) -> int:
    """Raise the version by one; the one before."""
    await connection.execute(update(meta).values(version=meta.c.version + 1))
    return int((await _meta(connection)).version) - 1


async def _read(connection: AsyncConnection) -> Document:
    row = await _meta(connection)

    async def entries(kind: type[Any]) -> tuple[Any, ...]:
        mapped = MAPPED[kind]
        found = (await connection.execute(select(mapped.table))).mappings()
        # Databases sort text each in its own way.
        in_order = sorted(found, key=lambda one: [one[key.name] for key in mapped.table.primary_key])
        return tuple(mapped.from_row(one) for one in in_order)

    return Document(
        cluster_id=row.cluster_id,
        version=row.version,
        tenants=await entries(Tenant),
        principals=await entries(Principal),
        credentials=await entries(Credential),
        roles=await entries(Role),
        bindings=await entries(Binding),
        devices=await entries(Device),
    )


async def _make(connection: AsyncConnection, change: Change) -> None:
    try:
        match change:
            case Put():
                await _put(connection, change)
            case Remove():
                mapped = MAPPED[change.kind]
                gone = await connection.execute(delete(mapped.table).where(*mapped.is_at(change.id, change.tenant_id)))
                _on_record(change, gone.rowcount)
            case Revoke():
                first = func.coalesce(credentials.c.revoked_us, change.at_us)
                revoke = update(credentials).where(credentials.c.id == change.credential_id).values(revoked_us=first)
                _on_record(change, (await connection.execute(revoke)).rowcount)
    except IntegrityError as error:
        raise EntryConflictError(f"{named(change)}: {_contradiction(change, error)}") from None


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
    """What the database found. Its own words may hold values, and are not repeated."""
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
