"""The audit in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, delete, func, insert, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.access.changes import Change
from app.core.audit import DIRECTORY, Author, Chain, Columns, Head, Line, changes_body, columns_of
from app.store.audit import AuditQuery, Kept
from app.store.sql.calls import Calls
from app.store.sql.connect import WRITES
from app.store.sql.tables import audit, audit_heads

_SHOWN = (*(audit.c[name] for name in Columns._fields), audit.c.writer, audit.c.seq, audit.c.body, audit.c.hash)

_WRITTEN = (*Line._fields, *Columns._fields)


class SqlAudit:
    """An AuditStore."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def append(self, lines: Sequence[Kept], facts: int) -> None:
        async def append(connection: AsyncConnection) -> None:
            writer = lines[0].line.writer
            kept = await connection.scalar(select(func.max(audit.c.seq)).where(audit.c.writer == writer))
            new = [one for one in lines if one.line.seq > (kept or 0)]
            if new:
                await _keep(connection, new, facts)

        if lines:
            await self._calls.transaction(append, **{WRITES: True})

    async def heads(self) -> Sequence[tuple[Head, int]]:
        async def heads(connection: AsyncConnection) -> list[tuple[Head, int]]:
            rows = await connection.execute(select(audit_heads).order_by(audit_heads.c.at_us.desc()))
            return [(Head(row.writer, row.seq, bytes(row.hash)), row.facts) for row in rows]

        return await self._calls.transaction(heads)

    async def page(self, query: AuditQuery) -> Sequence[Kept]:
        async def page(connection: AsyncConnection) -> list[Kept]:
            newest = (audit.c.at_us.desc(), audit.c.writer.desc(), audit.c.seq.desc())
            asked = select(*_SHOWN).where(*_conditions(query)).order_by(*newest).limit(query.limit)
            return [_kept(row) for row in await connection.execute(asked)]

        return await self._calls.transaction(page)

    async def read(self, after: tuple[str, int], limit: int) -> Sequence[Kept]:
        async def read(connection: AsyncConnection) -> list[Kept]:
            writer, seq = after
            later = or_(audit.c.writer > writer, and_(audit.c.writer == writer, audit.c.seq > seq))
            asked = select(*_SHOWN).where(later).order_by(audit.c.writer, audit.c.seq).limit(limit)
            return [_kept(row) for row in await connection.execute(asked)]

        return await self._calls.transaction(read)


async def note_changes(connection: AsyncConnection, changes: Sequence[Change], version: int, author: Author) -> None:
    """The line of a change, in its transaction, which has the directory for itself: so its chain has no forks."""
    last = select(audit.c.seq, audit.c.hash).where(audit.c.writer == DIRECTORY).order_by(audit.c.seq.desc()).limit(1)
    row = (await connection.execute(last)).one_or_none()
    head = None if row is None else Head(DIRECTORY, row.seq, bytes(row.hash))
    line = Chain(DIRECTORY, head).append(changes_body(changes, version, author), version)
    await _keep(connection, [Kept(line, columns_of(line.body))], version)


async def _keep(connection: AsyncConnection, lines: Sequence[Kept], facts: int) -> None:
    mark = "?" if connection.dialect.paramstyle == "qmark" else "%s"
    # As the driver takes it: there are thousands in a second, and each would cost twice as much otherwise.
    marks = ", ".join([mark] * len(_WRITTEN))
    statement = f"INSERT INTO audit ({', '.join(_WRITTEN)}) VALUES ({marks})"  # noqa: S608 - names of our own
    await connection.exec_driver_sql(statement, [(*one.line, *one.columns) for one in lines])
    last = lines[-1]
    await connection.execute(delete(audit_heads).where(audit_heads.c.writer == last.line.writer))
    head = {"writer": last.line.writer, "seq": last.line.seq, "hash": last.line.hash, "at_us": last.columns.at_us}
    await connection.execute(insert(audit_heads).values(facts=facts, **head))


def _conditions(query: AuditQuery) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = [audit.c.at_us >= query.since_us]
    asked = {"who": query.who, "device": query.device, "tenant": query.tenant}
    found += [audit.c[name] == value for name, value in asked.items() if value is not None]
    if query.before is not None:
        at, writer, seq = audit.c.at_us, audit.c.writer, audit.c.seq
        before = query.before
        found.append(
            or_(
                at < before.at_us,
                and_(at == before.at_us, or_(writer < before.writer, and_(writer == before.writer, seq < before.seq))),
            )
        )
    return found


def _kept(row: Row[Any]) -> Kept:
    line = Line(row.writer, row.seq, bytes(row.body), bytes(row.hash))
    return Kept(line, Columns(**{name: getattr(row, name) for name in Columns._fields}))
