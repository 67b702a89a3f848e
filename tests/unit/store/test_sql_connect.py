"""Connections to SQLite end, whatever ends them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import aiosqlite

from app.store.sql.connect import open_sql
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
