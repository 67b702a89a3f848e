"""The tables. Instants are microseconds since 1970, UTC; lists and labels are JSON.

What stands here must be what the migrations make, which a test compares.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)

metadata: Final = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pk",
        "fk": "%(table_name)s_%(column_0_name)s_fk",
        "uq": "%(table_name)s_%(column_0_N_name)s_uq",
        "ck": "%(table_name)s_%(constraint_name)s_ck",
    }
)

meta: Final = Table(
    "access_meta",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("cluster_id", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    # The oldest schema whose programs may still serve these tables: a migration that takes something away raises it.
    Column("oldest", Integer, nullable=False, server_default=text("1")),
    CheckConstraint("id = 1", name="one_row"),
)

tenants: Final = Table(
    "tenants",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("devices", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)

principals: Final = Table(
    "principals",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id")),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("email", Text),
    Column("password_hash", Text),
    Column("disabled_us", BigInteger),
    Column("not_before_us", BigInteger, nullable=False),
    Column("created_us", BigInteger, nullable=False),
)
Index("principals_tenant_name", func.coalesce(principals.c.tenant_id, text("''")), principals.c.name, unique=True)

credentials: Final = Table(
    "credentials",
    metadata,
    Column("id", Text, primary_key=True),
    Column("principal_id", ForeignKey("principals.id"), nullable=False),
    Column("scheme", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("digest", LargeBinary),
    Column("issuer", Text),
    Column("subject", Text),
    Column("narrow", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("expires_us", BigInteger),
    Column("revoked_us", BigInteger),
    Column("last_used_us", BigInteger),
    UniqueConstraint("digest"),
    UniqueConstraint("issuer", "subject"),
)

roles: Final = Table(
    "roles",
    metadata,
    # The tenant's id, or nothing: a primary key has no NULL.
    Column("scope", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id")),
    Column("rules", Text, nullable=False),
)

bindings: Final = Table(
    "bindings",
    metadata,
    Column("id", Text, primary_key=True),
    # One of the two. A principal that is removed must not leave rights behind for the next one of its id.
    Column("principal_id", ForeignKey("principals.id")),
    Column("group_name", Text),
    Column("role", Text, nullable=False),
    Column("tenant_id", ForeignKey("tenants.id")),
    Column("devices", Text, nullable=False),
    Column("expires_us", BigInteger),
    CheckConstraint("(principal_id IS NULL) <> (group_name IS NULL)", name="one_subject"),
)

devices: Final = Table(
    "devices",
    metadata,
    Column("id", Text, primary_key=True),
    Column("tenant_id", ForeignKey("tenants.id"), nullable=False),
    Column("profile", Text),
    Column("labels", Text, nullable=False),
    Column("note", Text, nullable=False),
    # Of the directory, when the device was put: who knows an earlier one reads the later devices alone.
    Column("version", BigInteger, nullable=False, server_default=text("0")),
)
Index("devices_version", devices.c.version)

removed_devices: Final = Table(
    "removed_devices",
    metadata,
    Column("id", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
)

audit: Final = Table(
    "audit",
    metadata,
    Column("writer", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    # What the line says, so that it can be looked for.
    Column("at_us", BigInteger, nullable=False),
    Column("who", Text),
    Column("device", Text),
    Column("tenant", Text),
    # The bytes that were hashed.
    Column("body", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
)
Index("audit_at", audit.c.at_us)
Index("audit_device", audit.c.device, audit.c.at_us)

audit_heads: Final = Table(
    "audit_heads",
    metadata,
    Column("writer", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column("facts", BigInteger, nullable=False),
)
