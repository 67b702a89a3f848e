"""The script that Alembic runs for each command, in the transaction that homing's own code has begun."""

from __future__ import annotations

from alembic import context

from app.store.sql.driver.schema import VERSION_TABLE
from app.store.sql.tables import metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, version_table=VERSION_TABLE
)
with context.begin_transaction():
    context.run_migrations()
