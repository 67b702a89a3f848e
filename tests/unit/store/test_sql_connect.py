"""Connections to SQLite end, whatever ends them."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import aiosqlite
import pytest

from app.store.sql.driver.connect import _connect_sqlite, open_blocking, open_sql
from tests.waiting import PATIENCE


async def test_a_connection_that_is_closed_and_stopped_at_once_ends(tmp_path: Path) -> None:
    """As when a statement is cancelled while the node stops: its process could not end."""
    engine = open_sql(f"sqlite:///{tmp_path}/access.db", timedelta(seconds=5))
    async with engine.connect() as connection:
        driver = (await connection.get_raw_connection()).driver_connection
        assert isinstance(driver, aiosqlite.Connection)
        closing = asyncio.create_task(driver.close())
        await asyncio.sleep(0)  # it has asked its thread
        driver.stop()
        async with asyncio.timeout(PATIENCE):
            await closing
        await connection.invalidate()
    await engine.dispose()


@pytest.mark.parametrize("stopped", [False, True], ids=["statement", "end"])
def test_a_connection_whose_loop_is_closed_meanwhile_ends_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stopped: bool
) -> None:
    """As when a node stops while a statement takes its time: nobody is left to be told."""
    faults: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda fault: faults.append(fault.exc_value))
    asked, closed = threading.Event(), threading.Event()

    def slow() -> int:
        asked.set()
        return int(closed.wait(PATIENCE))

    async def leave() -> aiosqlite.Connection:
        connection = await _connect_sqlite(str(tmp_path / "access.db"))
        await connection.create_function("slow", 0, slow)
        statement = asyncio.ensure_future(connection.execute("SELECT slow()"))
        await asyncio.to_thread(asked.wait, PATIENCE)
        statement.cancel()
        if stopped:
            connection.stop()
        return connection

    connection = asyncio.run(leave())
    closed.set()
    connection.stop()
    connection._thread.join(PATIENCE)
    assert not connection._thread.is_alive()
    assert faults == []


def test_the_path_of_a_url_may_be_quoted(tmp_path: Path) -> None:
    folder = tmp_path / "my data"
    folder.mkdir()
    engine = open_blocking(f"sqlite:///{quote(str(folder / 'a%b.db'))}", timedelta(seconds=1))
    assert engine is not None
    with engine.connect():
        pass
    engine.dispose()
    assert [one.name for one in folder.iterdir()] == ["a%b.db"]
