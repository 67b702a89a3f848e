"""Pages of the audit in SQL: what lines tell of, by time, though one line may tell of many things.

Lines of several writers overlap in time, by SPAN_US at most. So what a line tells of waits until the next line ends
before it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import orjson
from sqlalchemy import ColumnElement, Row, and_, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.core.audit.chain import MANY
from app.core.audit.lines import things_of
from app.store.audit import SPAN_US, AuditEntry, AuditPosition, AuditQuery, AuditSlice
from app.store.sql.tables import audit

ROWS: Final = 16
"""The rows of one statement: a line that tells of many things has some 80 KB."""
MOST_ROWS: Final = 1_600
"""The rows that one page looks at."""
_LAST: Final = 2**62
"""More than any index."""
_COLUMNS: Final = tuple(audit.c[name] for name in ("at_us", "who", "device", "tenant", "writer", "seq", "hash", "body"))


async def read_page(connection: AsyncConnection, query: AuditQuery, most_rows: int) -> AuditSlice:
    """As AuditStore.page; it looks at this many rows at most."""
    if any("\0" in value for value in _asked(query).values()):
        return AuditSlice([], None)  # no text on record has it, and PostgreSQL refuses to look for one
    waiting: list[AuditEntry] = []
    found: list[AuditEntry] = []
    looked = 0
    async for row in _rows(connection, query):
        upto = AuditPosition(row.at_us, row.writer, row.seq, _LAST)
        found += _newer(waiting, upto)
        if len(found) >= query.limit:
            break
        if looked == most_rows:
            return AuditSlice(found, upto)
        # Those that end after where the page begins come again with each page.
        looked += query.before is None or upto < query.before
        waiting += _entries(row, query)
        waiting.sort()  # what waited is in order already
    else:
        found += _newer(waiting, None)
    page = found[: query.limit]
    return AuditSlice(page, page[-1].place if len(page) == query.limit else None)


async def _rows(connection: AsyncConnection, query: AuditQuery) -> AsyncIterator[Row[Any]]:
    """Lines that may tell of it, the newest first."""
    at, writer, seq = audit.c.at_us, audit.c.writer, audit.c.seq
    asked = select(*_COLUMNS).where(*_conditions(query)).order_by(at.desc(), writer.desc(), seq.desc()).limit(ROWS)
    rows = (await connection.execute(asked)).all()
    while rows:
        for row in rows:
            yield row
        last = rows[-1]
        same = and_(at == last.at_us, or_(writer < last.writer, and_(writer == last.writer, seq < last.seq)))
        rows = (await connection.execute(asked.where(at <= last.at_us, or_(at < last.at_us, same)))).all()


def _conditions(query: AuditQuery) -> Iterator[ColumnElement[bool]]:
    yield audit.c.at_us >= query.since_us
    if query.before is not None:
        at, before_us = audit.c.at_us, query.before.at_us
        yield or_(at <= before_us, and_(at <= before_us + SPAN_US, audit.c.device == MANY))
    for name, value in _asked(query).items():
        yield audit.c[name].in_((value, MANY))


def _asked(query: AuditQuery) -> dict[str, str]:
    asked = {"who": query.who, "device": query.device, "tenant": query.tenant}
    return {name: value for name, value in asked.items() if value is not None}


def _entries(row: Row[Any], query: AuditQuery) -> Iterator[AuditEntry]:
    """The facts in a line that the query asks for."""
    body, asked = bytes(row.body), _asked(query)
    if not all(orjson.dumps(value) in body for value in asked.values()):
        return  # most lines end here, unread
    for index, (at_us, told) in enumerate(_told(row, body)):
        place = AuditPosition(at_us, row.writer, row.seq, index)
        if (
            at_us >= query.since_us
            and (query.before is None or place < query.before)
            and all(told.get(name) == value for name, value in asked.items())
        ):
            yield AuditEntry(place, bytes(row.hash), orjson.dumps(told) if told else body)


def _told(row: Row[Any], body: bytes) -> list[tuple[int, dict[str, Any]]]:
    """Times, and what happened; what cannot be read is one thing that nobody knows."""
    try:
        return [(int(one["at"]), one) for one in things_of(orjson.loads(body))]
    except (ValueError, LookupError, TypeError):
        return [(row.at_us, {})]


def _newer(waiting: list[AuditEntry], than: AuditPosition | None) -> Iterator[AuditEntry]:
    """Take what nothing that comes later can be newer than."""
    while waiting and (than is None or waiting[-1].place > than):
        yield waiting.pop()
