"""The audit: lines of chains, and the heads that were told."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make its two tables."""
    op.create_table(
        "audit",
        sa.Column("writer", sa.Text, primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at_us", sa.BigInteger, nullable=False),
        sa.Column("who", sa.Text),
        sa.Column("device", sa.Text),
        sa.Column("tenant", sa.Text),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
    )
    op.create_index("audit_at", "audit", ["at_us"])
    op.create_index("audit_device", "audit", ["device", "at_us"])
    op.create_table(
        "audit_heads",
        sa.Column("writer", sa.Text, primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("at_us", sa.BigInteger, nullable=False),
        sa.Column("facts", sa.BigInteger, nullable=False),
    )
