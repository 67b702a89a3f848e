"""Access over HTTP: every operation, asked by everybody, about their own devices and those of others."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from app.api.openapi import FOR_ALL, PUBLIC
from app.core.access.changes import Change, Put
from app.core.access.keys import Key, make_key
from app.core.access.model import Binding, Credential, Device, Kind, Principal, Role, Scheme, Tenant
from app.core.access.rules import Action
from app.core.errors import DirectoryUnavailableError
from app.runtime.system import new_secret
from app.store.engine import open_directory
from app.store.sql.access.directory import SqlDirectory
from tests.api.documents import document_of
from tests.api.rig import Rig, running, until
from tests.directories import put_directory
from tests.waiting import PATIENCE

OWN, OTHER = "drone-1", "lamp-1"
"""Devices of the tenants `air` and `ground`."""
METHODS: Final = ("GET", "POST", "PUT", "DELETE", "PATCH")
HOOK: Final = "wh_01J00000000000000000000001"
LIST_OF_DEVICE: Final = "GET /v1/devices/{device_id}/commands"
BODIES: Final[dict[str, Any]] = {
    "POST /v1/devices/{device_id}/commands": {"method": "ok"},
    "POST /v1/profiles/trial": {"topic": "a/b", "payload": "x"},
    "POST /v1/profiles/draft": {"toml": "x"},
    "PUT /v1/devices/{device_id}": {"note": "by the door"},
}
QUERIES: Final = {"GET /v1/devices/{device_id}/interlocks": "?method=ok", "GET /v1/traffic": "?for=1ms"}
ROLES: Final = {
    "nobody": (),
    "viewer": ("read",),
    "operator": ("read", "send", "cancel"),
    "approver": ("read",),
    "admin": ("read", "send", "cancel", "access", "webhooks"),
}
"""The actions that each may do, of those that operations name; the cluster is no tenant's."""


class Directory(SqlDirectory):
    """A real one, that can be taken away."""

    away = False

    async def version(self) -> int:
        if self.away:
            raise DirectoryUnavailableError("the access directory does not answer")
        return await super().version()


OF_THE_DIRECTORY: Final = frozenset(
    {
        *("GET /v1/keys", "POST /v1/keys", "DELETE /v1/keys/{key_id}", "POST /v1/keys/{key_id}/rotate"),
        *("GET /v1/audit", "GET /v1/audit/verify"),
        *("GET /v1/tenants", *(f"{method} /v1/tenants/{{tenant_id}}" for method in ("GET", "PUT", "DELETE"))),
        *("GET /v1/principals/{subject}/bindings", "PUT /v1/principals/{subject}/bindings"),
        *(f"{method} /v1/principals/{{principal_id}}" for method in ("GET", "PUT", "DELETE")),
        *(f"{method} /v1/roles/{{name}}" for method in ("GET", "PUT", "DELETE")),
        *("GET /v1/principals", "GET /v1/roles", "GET /v1/access", "PUT /v1/access", "POST /v1/access/check"),
    }
)
OF_FLEETS: Final = frozenset(  # test_fleets.py
    {
        *("GET /v1/fleet-runs", "POST /v1/fleet-runs", "GET /v1/fleet-runs/{run_id}"),
        *("GET /v1/fleet-runs/{run_id}/targets", "GET /v1/fleet-runs/{run_id}/explain"),
        *(f"POST /v1/fleet-runs/{{run_id}}/{what}" for what in ("pause", "resume", "abort", "retry")),
    }
)
OF_SCHEDULES: Final = frozenset(  # test_schedules.py
    {"GET /v1/schedules", *(f"{method} /v1/schedules/{{name}}" for method in ("GET", "PUT", "DELETE"))}
)
OF_APPROVALS: Final = frozenset(
    {"GET /v1/commands/{command_id}/approvals", "POST /v1/commands/{command_id}/approvals"}
)  # test_two_persons.py
OF_PROBES: Final = frozenset({"POST /v1/commands/{command_id}/probe"})  # below
OF_QUEUES: Final = frozenset(  # test_queues_access.py
    {
        *("GET /v1/queues", *(f"{method} /v1/queues/{{name}}" for method in ("GET", "PUT", "DELETE"))),
        *(
            f"POST /v1/queues/{{name}}/{what}"
            for what in ("bind", "unbind", "take", "settle", "rewind", "purge", "redrive")
        ),
        *("GET /v1/queues/{name}/dead", "GET /v1/queues/{name}/consumers"),
        "DELETE /v1/queues/{name}/consumers/{consumer}",
    }
)
OF_EXCHANGES: Final = frozenset(  # test_exchanges.py
    {
        *("GET /v1/exchanges", *(f"{method} /v1/exchanges/{{name}}" for method in ("GET", "PUT", "DELETE"))),
        "POST /v1/exchanges/{name}/messages",
    }
)
OF_BROKER: Final = frozenset(  # test_own_broker.py
    {
        *("GET /v1/broker/sessions", *(f"{method} /v1/broker/sessions/{{client_id}}" for method in ("GET", "DELETE"))),
        *("GET /v1/broker/retained", "DELETE /v1/broker/retained"),
    }
)
OF_STREAMS: Final = frozenset({"GET /v1/commands/events", "GET /v1/overview/events"})  # they do not end


OF_EVENTS: Final = frozenset(
    {
        *(
            "GET /v1/events",
            "GET /v1/events/stream",
            "POST /v1/events",
            "GET /v1/events/{database}/{shard}/{position}",
            "GET /v1/topics",
            "GET /v1/streams",
            "GET /v1/databases",
        ),
        *("GET /v1/state/{topic}", "PUT /v1/state/{topic}", "GET /v1/devices/{device_id}/state"),
        "POST /v1/transactions",
        "GET /v1/cursors",
        *(f"{method} /v1/cursors/{{name}}" for method in ("GET", "PUT", "DELETE")),
    }
)


def service(
    name: str, key: Key, *roles: str, tenant: str | None = "air", narrow: Sequence[str] = (), **more: Any
) -> list[Change]:
    """The changes that make a service with a key."""
    credential = Credential(
        id=key.id,
        principal_id=name,
        scheme=Scheme.KEY,
        name=name,
        digest=key.digest,
        narrow=tuple(narrow),
        created_us=0,
        **more,
    )
    return [
        Put(Principal(id=name, tenant_id=tenant, kind=Kind.SERVICE, name=name)),
        Put(credential),
        *[Put(Binding(id=f"{name}-{role}", subject=name, role=role, tenant_id=tenant)) for role in roles],
    ]


KEYS: Final = {name: make_key(secrets.token_bytes) for name in (*ROLES, "neighbour", "watcher", "boss")}
PEOPLE: Final[tuple[Change, ...]] = (
    Put(Tenant(id="air", name="air", devices=("drone-*",), created_us=0)),
    Put(Tenant(id="ground", name="ground", devices=("lamp-*",), created_us=0)),
    *[one for role in ROLES for one in service(role, KEYS[role], *([] if role == "nobody" else [role]))],
    *service("neighbour", KEYS["neighbour"], "admin", tenant="ground"),
    *service("watcher", KEYS["watcher"], "viewer", tenant=None),
    *service("boss", KEYS["boss"], "admin", tenant=None),
)
"""Two tenants, and one service for each role."""


@dataclass
class Site:
    """A node with its people."""

    rig: Rig
    directory: Directory
    keys: dict[str, Key] = field(default_factory=dict)
    port: int = 0
    """The port on which it listens, if it does."""

    async def change(self, *changes: Change) -> None:
        """Make changes, and return when the node decides by them."""
        version = await self.directory.apply(changes)
        await until(lambda: self.version >= version)

    @property
    def version(self) -> int:
        authority: Any = self.rig.application.ports.access
        return int(authority.view.document.version) if authority.following.known else 0

    def headers(self, who: str | None) -> dict[str, str]:
        return {} if who is None else {"Authorization": f"Bearer {self.keys[who].text}"}

    async def add(
        self, name: str, *roles: str, tenant: str | None = "air", narrow: Sequence[str] = (), **more: Any
    ) -> None:
        """A service with a key."""
        self.keys[name] = key = make_key(secrets.token_bytes)
        await self.change(*service(name, key, *roles, tenant=tenant, narrow=narrow, **more))

    async def send(self, who: str | None, device: str = OWN, method: str = "ok", **members: Any) -> httpx.Response:
        return await self.rig.http.post(
            f"/v1/devices/{device}/commands", json={"method": method, **members}, headers=self.headers(who)
        )


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path) as site:
        yield site


@asynccontextmanager
async def guarded(folder: Path, access: Mapping[str, Any] | None = None, **settings: Any) -> AsyncIterator[Site]:
    """A node that asks who calls, with two tenants and one service for each role."""
    file = folder / "access.db"
    if not file.exists():
        await put_directory(file, PEOPLE)
    url = f"sqlite:///{file}"
    opened = open_directory(url, new_cluster_id=new_secret, budget=timedelta(seconds=PATIENCE))
    assert isinstance(opened, SqlDirectory)
    opened.__class__ = Directory
    directory: Any = opened
    async with running(directory, access={"refresh": "10ms", "url": url, **(access or {})}, **settings) as rig:
        site = Site(rig, directory, dict(KEYS))
        await until(lambda: site.version > 0)
        yield site


def actions(document: dict[str, Any]) -> dict[str, str | None]:
    return {
        f"{method.upper()} {path}": operation.get("x-action")
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if method.upper() in METHODS
    }


async def test_every_operation_says_what_its_callers_must_be_allowed_to_do(site: Site) -> None:
    found = actions(await document_of(site.rig))
    assert {name for name, action in found.items() if action is None} == PUBLIC | FOR_ALL
    assert {action for action in found.values() if action is not None} <= set(Action)


async def test_everybody_gets_what_their_role_allows_at_every_operation(site: Site) -> None:
    operations = actions(await document_of(site.rig))
    listed = {OWN: Device(id=OWN, tenant_id="air"), OTHER: Device(id=OTHER, tenant_id="ground")}
    await site.change(*map(Put, listed.values()))
    commands = {device: await an_open_command(site, device) for device in listed}
    for name, named in operations.items():
        elsewhere = (
            OF_THE_DIRECTORY | OF_EVENTS | OF_EXCHANGES | OF_FLEETS | OF_SCHEDULES | OF_QUEUES | OF_BROKER | OF_STREAMS
        )
        if name in elsewhere | OF_APPROVALS | OF_PROBES:
            continue
        action = "known" if name in FOR_ALL else named
        method, _, path = name.partition(" ")
        for who in (None, "unknown", *ROLES, "neighbour", "watcher", "boss"):
            for device in (OWN, OTHER):
                about = {"device_id": device, "command_id": commands[device]}
                url = path.format(**about, name="dji", lane="flight", webhook_id=HOOK, event_id="evt_x") + QUERIES.get(
                    name, ""
                )
                headers = {"Authorization": "Bearer homing_x"} if who == "unknown" else site.headers(who)
                response = await site.rig.http.request(method, url, headers=headers, json=BODIES.get(name))
                about_device = "_id}" in path and name != LIST_OF_DEVICE and action != "webhooks"
                expected = expectation(action, who, device, about_device=about_device)
                assert response.status_code in expected, (name, who, device, response.text)
                if response.status_code == 401:
                    assert response.headers["www-authenticate"] == 'Bearer realm="homing"'
                if method != "GET" and response.is_success:  # it may have ended the command or removed the device
                    commands[device] = await an_open_command(site, device)
                    await site.change(Put(listed[device]))


def expectation(action: str | None, who: str | None, device: str, *, about_device: bool) -> tuple[int, ...]:
    """The status, or several, with which an operation must answer."""
    if action is None:
        return (200, 422)  # what it takes to log in is another body
    if who in (None, "unknown"):
        return (401,)
    allowed = ROLES.get(str(who), ROLES["admin"])
    if who in ("watcher", "boss"):
        allowed = ("read", "nodes", "metrics") if who == "watcher" else tuple(Action)
    if about_device:
        foreign = (who in ROLES and device == OTHER) or (who == "neighbour" and device == OWN)
        if foreign or "read" not in allowed:
            return (404,)
        return (200, 201, 202, 204) if action in allowed else (403,)
    if action == "known":
        return (200, 409)  # no login has given these keys
    if action == "webhooks":
        return (404,) if action in allowed else (403,)  # this node has no secret for them
    if action == "read":
        return (200,)  # a list of what one may read, and be it empty
    return (200,) if action in allowed else (403,)


async def an_open_command(site: Site, device: str) -> str:
    """A command that goes on."""
    who = "operator" if device == OWN else "neighbour"
    sent = await site.rig.http.post(
        f"/v1/devices/{device}/commands",
        json={"method": "silent"},
        headers={**site.headers(who), "Prefer": "respond-async"},
    )
    assert sent.status_code == 202, sent.text
    return str(sent.json()["id"])


async def test_everybody_may_know_who_they_are(site: Site) -> None:
    found = await site.rig.http.get("/v1/me", headers=site.headers("operator"))
    assert found.json() == {
        "open": False,
        "principal": "operator",
        "tenant": "air",
        "key": site.keys["operator"].id,
        "expires_at": None,
        "session": False,
        "roles": ["operator"],
        "may": ["fleet"],
        "limits": [],
    }


@pytest.mark.parametrize(
    ("who", "expected"),
    [
        ("viewer", []),
        ("nobody", []),
        ("admin", ["fleet", "webhooks", "queues", "access", "audit"]),
        ("watcher", ["nodes", "metrics"]),
        ("boss", ["fleet", "webhooks", "queues", "access", "audit", "nodes", "metrics", "trace"]),
    ],
)
async def test_menus_are_told_what_one_may_do_that_is_about_no_device(
    site: Site, who: str, expected: list[str]
) -> None:
    found = await site.rig.http.get("/v1/me", headers=site.headers(who))
    assert found.json()["may"] == expected


async def test_lists_have_what_one_may_read(site: Site) -> None:
    own, other = await an_open_command(site, OWN), await an_open_command(site, OTHER)
    for who, expected in (("viewer", {own}), ("neighbour", {other}), ("nobody", set()), ("boss", {own, other})):
        page = (await site.rig.http.get("/v1/commands", headers=site.headers(who))).json()
        assert {one["id"] for one in page["commands"]} == expected


async def test_an_open_node_asks_nobody(rig: Rig) -> None:
    assert (await rig.http.get("/v1/me")).json() == {"open": True}
    for headers in ({}, {"Authorization": "Bearer homing_x"}):
        assert (await rig.send("ok", headers=headers)).status_code == 200


async def test_who_joins_a_command_by_its_idempotency_key_must_be_allowed_to_read_it(site: Site) -> None:
    await site.change(Put(Role(name="sender", tenant_id="air", rules=("allow send *:* on *",))))
    await site.add("blind", "sender")

    async def send(who: str) -> httpx.Response:
        headers = {**site.headers(who), "Idempotency-Key": "k"}
        return await site.rig.http.post(f"/v1/devices/{OWN}/commands", json={"method": "ok"}, headers=headers)

    first = await send("operator")
    assert first.status_code == 200
    assert (await send("operator")).headers["idempotent-replayed"] == "true"
    refused = await send("blind")
    assert refused.status_code == 404
    assert first.json()["id"] not in refused.text


async def test_who_may_send_a_command_may_have_a_probe_look_for_it(site: Site) -> None:
    sent = await site.rig.http.post(
        f"/v1/devices/{OWN}/commands",
        json={"method": "silent"},
        headers={**site.headers("operator"), "Prefer": "respond-async"},
    )
    path = f"/v1/commands/{sent.json()['id']}/probe"
    asked = {
        who: await site.rig.http.post(path, headers=site.headers(who)) for who in ("viewer", "neighbour", "operator")
    }
    assert {who: reply.status_code for who, reply in asked.items()} == {
        "viewer": 403,
        "neighbour": 404,
        "operator": 422,
    }
