"""Adds the devices that have changed since a version, so that nobody has to read 100,000 of them because of one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Note with each device the version that put it, and with each one that was removed the version that did so."""
    op.add_column("devices", sa.Column("version", sa.BigInteger, nullable=False, server_default=sa.text("0")))
    op.create_index("devices_version", "devices", ["version"])
    op.create_table(
        "removed_devices",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
    )
