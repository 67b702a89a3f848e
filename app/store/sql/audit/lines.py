"""The audit in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Row, and_, delete, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.access.changes import Change
from app.core.audit.chain import (
    DIRECTORY,
    REMOVALS,
    Author,
    Chain,
    ChainHead,
    ChainLine,
    Columns,
    body_of,
    changes_body,
    columns_of,
    listed,
)
from app.store.audit import AuditQuery, AuditSlice, StoredLine
from app.store.sql.audit.pages import MOST_ROWS, read_page
from app.store.sql.driver.calls import Calls
from app.store.sql.driver.connect import WRITES
from app.store.sql.tables import audit, audit_heads, meta

_SHOWN = (*(audit.c[name] for name in Columns._fields), audit.c.writer, audit.c.seq, audit.c.body, audit.c.hash)

_LINE: Final = (*ChainLine._fields, *Columns._fields)
_HEAD: Final = ("writer", "seq", "hash", "at_us", "facts")
_AGAIN: Final = "ON CONFLICT (writer, seq) DO NOTHING"
_LATER: Final = (
    "ON CONFLICT (writer) DO UPDATE SET seq = excluded.seq, hash = excluded.hash, at_us = excluded.at_us, "
    "facts = excluded.facts WHERE excluded.seq > audit_heads.seq"
)
MOST_REMOVED: Final = 5_000
"""Lines of one call."""


class SqlAudit:
    """An AuditStore."""

    def __init__(self, calls: Calls) -> None:
        self.most_removed = MOST_REMOVED
        self.most_rows = MOST_ROWS
        self._calls = calls

    async def append(self, lines: Sequence[StoredLine], facts: int) -> None:
        if lines:
            await self._calls.brief(partial(_keep, lines=lines, facts=facts), writes=True)

    async def heads(self) -> Sequence[tuple[ChainHead, int]]:
        async def heads(connection: AsyncConnection) -> list[tuple[ChainHead, int]]:
            rows = await connection.execute(select(audit_heads).order_by(audit_heads.c.at_us.desc()))
            return [(ChainHead(row.writer, row.seq, bytes(row.hash)), row.facts) for row in rows]

        return await self._calls.transaction(heads)

    async def page(self, query: AuditQuery) -> AuditSlice:
        async def page(connection: AsyncConnection) -> AuditSlice:
            return await read_page(connection, query, self.most_rows)

        return await self._calls.transaction(page)

    async def read(self, after: tuple[str, int], limit: int) -> Sequence[StoredLine]:
        async def read(connection: AsyncConnection) -> list[StoredLine]:
            writer, seq = after
            later = or_(audit.c.writer > writer, and_(audit.c.writer == writer, audit.c.seq > seq))
            asked = select(*_SHOWN).where(later).order_by(audit.c.writer, audit.c.seq).limit(limit)
            return [_kept(row) for row in await connection.execute(asked)]

        return await self._calls.transaction(read)

    async def remove(self, before_us: int, author: Author) -> int:
        async def remove(connection: AsyncConnection) -> int:
            # One at a time: whoever changes the directory locks it, too.
            await connection.execute(select(meta.c.version).with_for_update())
            removed: list[ChainHead] = []
            count = 0
            for writer, last in await _old(connection, before_us):
                ended, lines = await _cut(connection, writer, last, self.most_removed - count)
                removed.append(ended)
                count += lines
                if count == self.most_removed:
                    break
            if removed:
                body = body_of("removed", author.at_us, {**author.said(), "lines": count, "removed": listed(removed)})
                await _append(connection, REMOVALS, body)
            return count

        return await self._calls.transaction(remove, **{WRITES: True})


async def _old(connection: AsyncConnection, before_us: int) -> list[tuple[str, int]]:
    """The chains that begin with old lines, and the number of the last of these."""
    of = audit.c.writer
    young = select(of, func.min(audit.c.seq).label("first")).where(audit.c.at_us >= before_us).group_by(of).subquery()
    newest = select(func.max(audit.c.seq)).where(of == DIRECTORY).scalar_subquery()  # the next one is linked to it
    asked = (
        select(of, func.max(audit.c.seq))
        .outerjoin(young, young.c.writer == of)
        .where(audit.c.at_us < before_us, of != REMOVALS)
        .where(or_(young.c.first.is_(None), audit.c.seq < young.c.first))
        .where(or_(of != DIRECTORY, audit.c.seq < newest))
        .group_by(of)
        .order_by(of)
    )
    return [(writer, last) for writer, last in await connection.execute(asked)]


async def _cut(connection: AsyncConnection, writer: str, last: int, most: int) -> tuple[ChainHead, int]:
    """Remove the first lines of a chain up to `last`; where it was cut, and how many there were."""
    of = audit.c.writer == writer
    first = select(audit.c.seq, audit.c.hash).where(of, audit.c.seq <= last).order_by(audit.c.seq).limit(most)
    rows = (await connection.execute(first)).all()
    cut = ChainHead(writer, rows[-1].seq, bytes(rows[-1].hash))
    await connection.execute(delete(audit).where(of, audit.c.seq <= cut.seq))
    if await connection.scalar(select(audit.c.seq).where(of).limit(1)) is None:
        await connection.execute(delete(audit_heads).where(audit_heads.c.writer == writer))
    return cut, len(rows)


async def note_changes(connection: AsyncConnection, changes: Sequence[Change], version: int, author: Author) -> None:
    """The line of a change, in its transaction, which has the directory for itself: so its chain has no forks."""
    await _append(connection, DIRECTORY, changes_body(changes, version, author), version)


async def _append(connection: AsyncConnection, writer: str, body: bytes, seq: int | None = None) -> None:
    """The next line of a writer that has no process of its own; of this number, or the next one."""
    last = select(audit.c.seq, audit.c.hash).where(audit.c.writer == writer).order_by(audit.c.seq.desc()).limit(1)
    row = (await connection.execute(last)).one_or_none()
    head = None if row is None else ChainHead(writer, row.seq, bytes(row.hash))
    line = Chain(writer, head).append(body, seq)
    await connection.run_sync(_keep, [StoredLine(line, columns_of(line.body))], line.seq)


def _keep(connection: Connection, lines: Sequence[StoredLine], facts: int) -> None:
    """Keep lines of one writer, and their head; those that are kept already, and a head of later ones, stay."""
    last = lines[-1]
    head = (*last.line[:2], last.line.hash, last.columns.at_us, facts)
    # As the driver takes it: there are thousands in a second, and each would cost twice as much otherwise.
    mark = "?" if connection.dialect.paramstyle == "qmark" else "%s"
    connection.exec_driver_sql(_into("audit", _LINE, mark, _AGAIN), [(*one.line, *one.columns) for one in lines])
    connection.exec_driver_sql(_into("audit_heads", _HEAD, mark, _LATER), head)


def _into(table: str, columns: Sequence[str], mark: str, otherwise: str) -> str:
    marks = ", ".join([mark] * len(columns))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) {otherwise}"  # noqa: S608 - names of our own


def _kept(row: Row[Any]) -> StoredLine:
    line = ChainLine(row.writer, row.seq, bytes(row.body), bytes(row.hash))
    return StoredLine(line, Columns(**{name: getattr(row, name) for name in Columns._fields}))
