"""The directory: tenants, principals, credentials, roles, bindings and devices."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make all tables. They are written out here, as those of the program will go on changing."""
    op.create_table(
        "access_meta",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("cluster_id", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("oldest", sa.Integer, nullable=False, server_default=sa.text("1")),
        sa.CheckConstraint("id = 1", name="one_row"),
    )
    op.create_table(
        "tenants",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("devices", sa.Text, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "principals",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant_id", sa.Text, sa.ForeignKey("tenants.id")),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("email", sa.Text),
        sa.Column("password_hash", sa.Text),
        sa.Column("disabled_us", sa.BigInteger),
        sa.Column("not_before_us", sa.BigInteger, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
    )
    op.create_index(
        "principals_tenant_name", "principals", [sa.text("coalesce(tenant_id, '')"), sa.text("name")], unique=True
    )
    op.create_table(
        "credentials",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("principal_id", sa.Text, sa.ForeignKey("principals.id"), nullable=False),
        sa.Column("scheme", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary),
        sa.Column("issuer", sa.Text),
        sa.Column("subject", sa.Text),
        sa.Column("narrow", sa.Text, nullable=False),
        sa.Column("created_us", sa.BigInteger, nullable=False),
        sa.Column("expires_us", sa.BigInteger),
        sa.Column("revoked_us", sa.BigInteger),
        sa.Column("last_used_us", sa.BigInteger),
        sa.UniqueConstraint("digest"),
        sa.UniqueConstraint("issuer", "subject"),
    )
    op.create_table(
        "roles",
        sa.Column("scope", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("tenant_id", sa.Text, sa.ForeignKey("tenants.id")),
        sa.Column("rules", sa.Text, nullable=False),
    )
    op.create_table(
        "bindings",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("principal_id", sa.Text, sa.ForeignKey("principals.id")),
        sa.Column("group_name", sa.Text),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("tenant_id", sa.Text, sa.ForeignKey("tenants.id")),
        sa.Column("devices", sa.Text, nullable=False),
        sa.Column("expires_us", sa.BigInteger),
        sa.CheckConstraint("(principal_id IS NULL) <> (group_name IS NULL)", name="one_subject"),
    )
    op.create_table(
        "devices",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant_id", sa.Text, sa.ForeignKey("tenants.id"), nullable=False),
        sa.Column("profile", sa.Text),
        sa.Column("labels", sa.Text, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
    )
