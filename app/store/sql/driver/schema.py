"""The version of the tables: which ones this program can serve, and how they are brought to its own.

Schemas are numbered from 1. A migration first only adds, so that programs of the schema before go on (expand); what
they needed is taken away by a later one (contract), which raises `access_meta.oldest`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import Connection, column, insert, inspect, select, table, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.core.errors import DirectoryUnavailableError, SchemaTooNewError, SchemaTooOldError
from app.store.sql import tables
from app.store.sql.driver.calls import unavailable
from app.store.sql.driver.connect import UNBOUNDED, WRITES

SCHEMA: Final = 3
"""The last migration, which a test compares with the folder of them."""
VERSION_TABLE: Final = "access_schema"
"""The table in which Alembic keeps the number of the last migration that was made."""
PATIENCE: Final = timedelta(minutes=10)
"""The time that a migration may take, the wait for that of another process included."""
MIGRATIONS: Final = Path(__file__).parent / "migrations"
_LOCK: Final = int.from_bytes(b"homing", "big")
"""The advisory lock of PostgreSQL whose holder migrates."""


class StoredSchema(NamedTuple):
    """The schema of the tables, as they name it themselves."""

    schema: int
    """0: there are none."""
    oldest: int
    """The oldest schema whose programs may serve them."""


def look(connection: Connection) -> StoredSchema:
    """Read the version of the tables, without a lock."""
    names = inspect(connection)
    if not names.has_table(VERSION_TABLE) or not names.has_table(tables.meta.name):
        return StoredSchema(0, 0)
    number = connection.execute(select(table(VERSION_TABLE, column("version_num")))).scalar_one_or_none()
    oldest = connection.execute(select(tables.meta.c.oldest)).scalar_one_or_none()
    return StoredSchema(int(number or 0), oldest or 0)


def check(found: StoredSchema, needed: int = SCHEMA) -> None:
    """SchemaTooOldError or SchemaTooNewError when a program that needs this version cannot serve these tables."""
    if found.schema == 0 or found.oldest == 0:
        raise SchemaTooOldError("the access directory has no tables yet: run homing access migrate")
    if found.schema < needed:
        raise SchemaTooOldError(
            f"the tables of the access directory have version {found.schema}, and this program needs {needed}: "
            "run homing access migrate"
        )
    check_oldest(found.oldest)


def check_oldest(oldest: int) -> None:
    """SchemaTooNewError when the tables have lost what this program needs."""
    if oldest > SCHEMA:
        raise SchemaTooNewError(
            f"the tables of the access directory serve programs from version {oldest} on, and this one knows {SCHEMA}: "
            "run a later version of Homing"
        )


async def migrate(engine: AsyncEngine, new_cluster_id: Callable[[], str]) -> bool:
    """As AccessDirectory.migrate."""
    try:
        async with asyncio.timeout(PATIENCE.total_seconds()), engine.connect() as plain:
            connection = await plain.execution_options(**{UNBOUNDED: True})
            async with connection.begin():
                if _is_done(await connection.run_sync(look)):
                    return False
            return await _migrate_alone(await connection.execution_options(**{WRITES: True}), new_cluster_id)
    except TimeoutError:
        raise DirectoryUnavailableError(f"the migration did not end within {PATIENCE}") from None
    except (SQLAlchemyError, OSError) as error:
        raise unavailable(error, engine) from None


def _is_done(found: StoredSchema) -> bool:
    return found.schema >= SCHEMA and found.oldest > 0


async def _migrate_alone(connection: AsyncConnection, new_cluster_id: Callable[[], str]) -> bool:
    if connection.dialect.name == "sqlite":
        # The transaction is the lock.
        return await _migrate(connection, new_cluster_id)
    # The lock is the session's, so that a migration may come to have several transactions.
    await connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
    await connection.commit()
    try:
        return await _migrate(connection, new_cluster_id)
    finally:
        await connection.rollback()
        await connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _LOCK})
        await connection.commit()


async def _migrate(connection: AsyncConnection, new_cluster_id: Callable[[], str]) -> bool:
    async with connection.begin():
        if _is_done(await connection.run_sync(look)):
            return False
        await connection.run_sync(_upgrade)
        if (await connection.execute(select(tables.meta.c.id))).first() is None:
            await connection.execute(insert(tables.meta).values(id=1, cluster_id=new_cluster_id(), version=0))
    return True


def _upgrade(connection: Connection) -> None:
    from alembic import command  # noqa: PLC0415 - half a second, which only a migration costs
    from alembic.config import Config  # noqa: PLC0415 - likewise

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    command.upgrade(config, "head")
