"""Calls of SQLite in one go on another thread: who reads waits for nobody, and who is late is not waited for."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Connection

from app.core.errors import DirectoryUnavailableError
from app.store.sql.driver.calls import Calls
from app.store.sql.driver.connect import open_blocking, open_sql
from app.store.sql.driver.visits import Visits
from tests.waiting import PATIENCE

PATIENT = timedelta(seconds=PATIENCE)


def ask(statement: str, connection: Connection) -> int:
    return connection.exec_driver_sql(statement).rowcount


COUNT = partial(ask, "SELECT count(*) FROM t")
WRITE = partial(ask, "INSERT INTO t VALUES (1)")


@pytest.fixture
async def visits(tmp_path: Path) -> AsyncIterator[Visits]:
    engine = open_blocking(f"sqlite:///{tmp_path}/access.db", PATIENT)
    assert engine is not None
    made = Visits(engine)
    await made.make(partial(ask, "CREATE TABLE t (n INTEGER)"), writes=True)
    yield made
    made.close()


def test_another_database_has_none() -> None:
    assert open_blocking("postgresql://homing@localhost/homing", PATIENT) is None


async def test_who_reads_does_not_wait_for_who_writes(visits: Visits, tmp_path: Path) -> None:
    """Somebody else, as an operator with a shell of SQLite, keeps the file locked."""
    other = sqlite3.connect(tmp_path / "access.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.ensure_future(visits.make(WRITE, writes=True))
    await asyncio.sleep(0)  # it has asked its thread
    async with asyncio.timeout(PATIENCE):
        await visits.make(COUNT, writes=False)
    assert not writing.done()
    other.execute("COMMIT")
    other.close()
    async with asyncio.timeout(PATIENCE):
        await writing


async def test_a_call_that_is_late_is_not_waited_for_and_never_begins(visits: Visits, tmp_path: Path) -> None:
    let, began, done = threading.Event(), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hang(_: Connection) -> None:
        loop.call_soon_threadsafe(began.set)
        let.wait(PATIENCE)

    hanging = asyncio.ensure_future(visits.make(hang, writes=True))
    await began.wait()
    calls = Calls(open_sql(f"sqlite:///{tmp_path}/access.db", PATIENT), timedelta(milliseconds=20), visits)
    with pytest.raises(DirectoryUnavailableError, match="did not answer within"):
        await calls.brief(lambda _: done.set(), writes=True)  # it stands behind the other one
    let.set()
    async with asyncio.timeout(PATIENCE):
        await hanging
        await visits.make(WRITE, writes=True)
    assert not done.is_set()
    await calls.close()


async def test_what_fails_is_undone_and_told_without_what_was_sent(visits: Visits, tmp_path: Path) -> None:
    def fail(connection: Connection) -> None:
        WRITE(connection)
        connection.exec_driver_sql("INSERT INTO nowhere VALUES ('secret')")

    calls = Calls(open_sql(f"sqlite:///{tmp_path}/access.db", PATIENT), PATIENT, visits)
    with pytest.raises(DirectoryUnavailableError, match="no such table: nowhere") as told:
        await calls.brief(fail, writes=True)
    assert "secret" not in str(told.value)
    rows = await calls.brief(lambda connection: connection.exec_driver_sql("SELECT n FROM t").all())
    assert rows == []
    await calls.close()
