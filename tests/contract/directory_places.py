"""The databases of the access directory behind one face, and entries to fill them with."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from app.core.access.changes import Put
from app.core.access.model import Binding, Credential, Device, Kind, Principal, Role, Scheme, Tenant
from app.store.directory import AccessDirectory
from app.store.engine import open_directory
from tests.services import PostgresProcess

BUDGET = timedelta(seconds=20)
"""Longer than any call takes here: what a test of budgets asks for is much less."""


class Place:
    """An empty database, and the directories that were opened in it."""

    def __init__(self, url: str, run_statement: Callable[[str], Any]) -> None:
        self.url = url
        self.execute = run_statement
        """Do something to the database past the code under test."""
        self._open: list[AccessDirectory] = []

    def open(self, budget: timedelta = BUDGET, cluster_id: str = "cluster-1") -> AccessDirectory:
        """One more node's view of it, not started; closed with the place."""
        directory = open_directory(self.url, new_cluster_id=lambda: cluster_id, budget=budget)
        self._open.append(directory)
        return directory

    async def close(self) -> None:
        await asyncio.gather(*(one.close() for one in self._open))


def sqlite_place(folder: Path) -> Place:
    path = folder / "access.db"

    def execute(statement: str) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement)

    return Place(f"sqlite:///{path}", execute)


def postgresql_place(server: PostgresProcess) -> Place:
    url = server.new_database()
    database = urlsplit(url).path.removeprefix("/")
    return Place(url, lambda statement: server.execute(statement, database))


TENANT = Tenant(id="north", name="Site North", devices=("dock-*", "cam-1"), created_us=1_700_000_000_000_001)
PERSON = Principal(
    id="01J-ann",
    tenant_id="north",
    kind=Kind.USER,
    name="ann",
    email="ann@example.org",
    password_hash="$argon2id$v=19$m=1,t=1,p=1$c2FsdA$aGFzaA",
    disabled_us=1_700_000_000_000_002,
    not_before_us=1_700_000_000_000_003,
    created_us=1_700_000_000_000_004,
)
OPERATOR = Principal(id="01J-root", tenant_id=None, kind=Kind.SERVICE, name="root")
KEY = Credential(
    id="2F7QW9ZD",
    principal_id="01J-ann",
    scheme=Scheme.KEY,
    name="laptop",
    digest=bytes(range(32)),
    narrow=("allow read *:* on *", "deny send *:* on cam-*"),
    created_us=1_700_000_000_000_005,
    expires_us=1_800_000_000_000_006,
    last_used_us=1_700_000_000_000_007,
)
IDENTITY = Credential(
    id="3G8RX0AE",
    principal_id="01J-root",
    scheme=Scheme.OIDC,
    name="single sign-on",
    issuer="https://login.example.org",
    subject="abc|123",
    created_us=8,
)
ROLE = Role(name="pilot", tenant_id="north", rules=("allow send dji:* on dock-*", "deny send *:firmware_* on *"))
SHARED_ROLE = Role(name="pilot", tenant_id=None, rules=())
BINDING = Binding(
    id="b1", subject="01J-ann", role="pilot", tenant_id="north", devices=("dock-1", "cam-*"), expires_us=9
)
GROUP_BINDING = Binding(id="b2", subject="group:night shift", role="pilot", tenant_id=None)
DEVICE = Device(id="dock-1", tenant_id="north", profile="dji", labels={"site": "roof", "a": ""}, note="by the door")
PLAIN_DEVICE = Device(id="dock-2", tenant_id="north")

ENTRIES = (
    *(TENANT, PERSON, OPERATOR, KEY, IDENTITY),
    *(SHARED_ROLE, ROLE, BINDING, GROUP_BINDING, DEVICE, PLAIN_DEVICE),
)
ALL = [Put(entry) for entry in ENTRIES]
"""The entries: of each kind one with all that it can have, and one with as little as it can."""
