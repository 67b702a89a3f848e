"""Access over HTTP: every operation, asked by everybody, about their own devices and those of others."""

from __future__ import annotations

import asyncio
import re
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
from app.core.access.changes import Change, Put, Revoke
from app.core.access.keys import Key, make_key
from app.core.access.model import Binding, Credential, Device, Kind, Principal, Role, Scheme, Tenant
from app.core.access.rules import Action
from app.core.errors import DirectoryUnavailableError
from app.runtime.system import new_secret
from app.store.engine import open_directory
from app.store.sql.access.directory import SqlDirectory
from tests.api.rig import Rig, running, until
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
"""What each may, of the actions that operations name; the cluster is no tenant's."""


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
        *("GET /v1/broker/sessions", "DELETE /v1/broker/sessions/{client_id}"),
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


@dataclass
class Site:
    """A node with its people."""

    rig: Rig
    directory: Directory
    keys: dict[str, Key] = field(default_factory=dict)
    port: int = 0
    """Where it listens, if it does."""

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
        await self.change(*self.service(name, *roles, tenant=tenant, narrow=narrow, **more))

    def service(
        self, name: str, *roles: str, tenant: str | None = "air", narrow: Sequence[str] = (), **more: Any
    ) -> list[Change]:
        """The changes that make a service with a key."""
        self.keys[name] = key = make_key(secrets.token_bytes)
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
    url = f"sqlite:///{folder / 'access.db'}"
    opened = open_directory(url, new_cluster_id=new_secret, budget=timedelta(seconds=PATIENCE))
    assert isinstance(opened, SqlDirectory)
    opened.__class__ = Directory
    directory: Any = opened
    await directory.migrate()
    async with running(directory, access={"refresh": "10ms", "url": url, **(access or {})}, **settings) as rig:
        site = Site(rig, directory)
        await site.change(
            Put(Tenant(id="air", name="air", devices=("drone-*",), created_us=0)),
            Put(Tenant(id="ground", name="ground", devices=("lamp-*",), created_us=0)),
            *[one for role in ROLES for one in site.service(role, *([] if role == "nobody" else [role]))],
            *site.service("neighbour", "admin", tenant="ground"),
            *site.service("watcher", "viewer", tenant=None),
            *site.service("boss", "admin", tenant=None),
        )
        yield site


def actions(document: dict[str, Any]) -> dict[str, str | None]:
    return {
        f"{method.upper()} {path}": operation.get("x-action")
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if method.upper() in METHODS
    }


async def test_every_operation_says_what_its_callers_must_be_allowed_to_do(site: Site) -> None:
    found = actions((await site.rig.http.get("/openapi.json")).json())
    assert {name for name, action in found.items() if action is None} == PUBLIC | FOR_ALL
    assert {action for action in found.values() if action is not None} <= set(Action)


async def test_everybody_gets_what_their_role_allows_at_every_operation(site: Site) -> None:
    operations = actions((await site.rig.http.get("/openapi.json")).json())
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


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("Basic eDp5", "send Authorization: Bearer"),
        ("", "send Authorization: Bearer"),
        ("Bearer", "the API key does not have the form of one"),
        ("Bearer \xff", "the API key does not have the form of one"),
        ("Bearer homing_2F7QW9ZD_" + "a" * 43 + "_000000", "the API key has a wrong checksum: it was mistyped"),
    ],
)
async def test_what_is_no_key_is_refused_with_a_sentence(site: Site, header: str, said: str) -> None:
    refused = await site.rig.http.get("/v1/commands", headers=[(b"authorization", header.encode("latin-1"))])
    assert refused.status_code == 401
    assert said in refused.json()["detail"]
    assert refused.json()["type"] == "urn:homing:problem:unauthenticated"


async def test_a_key_that_was_revoked_or_has_expired_counts_for_nothing_at_once(site: Site) -> None:
    assert (await site.send("operator")).status_code == 200
    await site.change(Revoke(credential_id=site.keys["operator"].id, at_us=1))
    refused = await site.send("operator")
    assert refused.status_code == 401
    assert "revoked" in refused.json()["detail"]
    await site.add("late", "operator", expires_us=1)
    assert "expired" in (await site.send("late")).json()["detail"]


async def test_callers_that_wait_are_sent_away_when_their_key_is_revoked(site: Site) -> None:
    waiting = asyncio.create_task(site.send("operator", method="silent", timeout="1m"))
    staying = asyncio.create_task(site.send("admin", method="silent", timeout="1m"))
    await until(lambda: len(site.rig.application.parking) == 2)
    await site.change(Revoke(credential_id=site.keys["operator"].id, at_us=1))
    assert (await waiting).status_code == 401
    assert not staying.done()
    assert site.rig.counters["caller.unwanted"] == 1
    await end(staying)


async def end(task: asyncio.Task[httpx.Response]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_narrowed_key_may_do_less(site: Site) -> None:
    await site.add("narrow", "operator", narrow=["allow read *:* on *", "allow send *:ok on *"])
    assert (await site.send("narrow")).status_code == 200
    refused = await site.send("narrow", method="refuse")
    assert refused.status_code == 403
    assert refused.json()["detail"] == "send on 'drone-1' is not among what this key was narrowed to"


async def test_a_limit_is_kept_and_says_when_there_is_more(site: Site) -> None:
    await site.change(Put(Role(name="slow", tenant_id="air", rules=("limit send *:* on * 1/h burst 3",))))
    await site.add("limited", "operator", "slow")
    assert [(await site.send("limited")).status_code for _ in range(4)] == [200, 200, 200, 429]
    refused = await site.send("limited")
    assert 3500 < int(refused.headers["retry-after"]) <= 3600
    assert refused.json()["detail"] == "limited by limit send *:* on * 1/h burst 3"
    assert (await site.send("operator")).status_code == 200


async def test_the_rules_go_on_while_the_directory_is_away_until_they_are_too_old(tmp_path: Path) -> None:
    async with guarded(tmp_path, {"stale": "6s"}) as site:
        site.directory.away = True
        assert (await site.send("operator")).status_code == 200
        assert (await site.rig.http.get("/readyz")).status_code == 200
        authority: Any = site.rig.application.ports.access
        await until(lambda: bool("ok" not in authority.health))
        refused = await site.send("operator")
        assert refused.status_code == 503
        assert refused.json()["detail"] == (
            "the access rules are too old to act on: the access directory does not answer"
        )
        assert (await site.rig.http.get("/v1/commands", headers=site.headers("viewer"))).status_code == 200
        assert (await site.rig.http.get("/readyz")).json()["checks"]["access"] == "the access directory does not answer"
        site.directory.away = False
        await until(lambda: bool(authority.health == "ok"))
        assert (await site.send("operator")).status_code == 200


async def test_a_node_that_cannot_read_the_directory_serves_and_says_so(tmp_path: Path) -> None:
    async with guarded(tmp_path, {}) as site:
        authority: Any = site.rig.application.ports.access
        site.directory.away = True
        await until(lambda: bool(authority.health != "ok"))
        ready = await site.rig.http.get("/readyz")
        assert ready.status_code == 200
        said = ready.json()["checks"]["access"]
        assert re.fullmatch(r"ok, but by the rules of \d+ s ago: the access directory does not answer", said)
        assert (
            'homing_dependency_up{dependency="access"} 1'
            in (await site.rig.http.get("/metrics", headers=site.headers("boss"))).text
        )
        site.directory.away = False
        await until(lambda: bool(authority.health == "ok"))


async def test_who_waits_while_the_rules_are_too_old_is_judged_when_they_are_new_again(tmp_path: Path) -> None:
    async with guarded(tmp_path, {"stale": "1s"}) as site:
        waiting = asyncio.create_task(site.send("operator", method="silent", timeout="1m"))
        await until(lambda: len(site.rig.application.parking) == 1)
        site.directory.away = True
        authority: Any = site.rig.application.ports.access
        await until(lambda: bool("ok" not in authority.health))
        await site.directory.apply([Revoke(credential_id=site.keys["operator"].id, at_us=1)])
        site.directory.away = False
        await until(lambda: bool(authority.health == "ok"))
        async with asyncio.timeout(PATIENCE):
            assert (await waiting).status_code == 401


async def test_an_open_node_asks_nobody(rig: Rig) -> None:
    assert (await rig.http.get("/v1/me")).json() == {"open": True}
    for headers in ({}, {"Authorization": "Bearer homing_x"}):
        assert (await rig.send("ok", headers=headers)).status_code == 200


async def test_who_is_limited_is_told_by_the_fields_of_the_draft(site: Site) -> None:
    await site.change(Put(Role(name="slow", tenant_id="air", rules=("limit send *:* on * 2/min burst 1",))))
    await site.add("limited", "operator", "slow")
    assert "ratelimit" not in (await site.send("limited")).headers
    refused = await site.send("limited")
    assert refused.headers["ratelimit-policy"] == '"send";q=2;w=60'
    assert refused.headers["ratelimit"] == f'"send";r=0;t={refused.headers["retry-after"]}'


@pytest.mark.parametrize(
    ("per", "expected"),
    [("principal", [200, 429, 200, 429]), ("tenant", [200, 429, 429, 429]), ("device", [200, 200, 429, 429])],
)
async def test_a_limit_is_shared_by_those_whom_the_rule_names(site: Site, per: str, expected: list[int]) -> None:
    rule = f"limit send *:* on * 1/h burst 1 per {per}"
    await site.change(Put(Role(name="slow", tenant_id="air", rules=(rule,))))
    for name in ("one", "two"):
        await site.add(name, "operator", "slow")
    asked = [("one", "drone-1"), ("one", "drone-2"), ("two", "drone-1"), ("two", "drone-2")]
    answers = [await site.send(who, device, "ok", one_way=True) for who, device in asked]
    assert [one.status_code for one in answers] == expected


async def test_all_keys_of_a_principal_share_its_limit(site: Site) -> None:
    await site.change(Put(Role(name="slow", tenant_id="air", rules=("limit send *:* on * 1/h burst 1",))))
    await site.add("limited", "operator", "slow")
    assert (await site.send("limited")).status_code == 200
    again = make_key(secrets.token_bytes)
    credential = Credential(
        id=again.id, principal_id="limited", scheme=Scheme.KEY, name="", digest=again.digest, created_us=0
    )
    await site.change(Put(credential))
    site.keys["limited"] = again
    assert (await site.send("limited")).status_code == 429


async def test_a_node_that_stops_spends_nothing_of_a_limit(site: Site) -> None:
    await site.change(Put(Role(name="slow", tenant_id="air", rules=("limit send *:* on * 1/h burst 1",))))
    await site.add("limited", "operator", "slow")
    node: Any = site.rig.node
    node._closed = True
    assert (await site.send("limited")).status_code == 503
    node._closed = False
    assert (await site.send("limited")).status_code == 200


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
