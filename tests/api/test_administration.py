"""People, keys and rights over HTTP: who may change what, and what nobody may."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from app.core.access.changes import Change, Put
from app.core.access.model import Kind, Principal, Role, Tenant
from app.core.errors import EntryConflictError, EntryNotFoundError
from tests.api.documents import document_of
from tests.api.rig import Rig
from tests.api.test_access import OF_THE_DIRECTORY, OTHER, OWN, ROLES, Site, actions, guarded

WHO: Final = (None, "unknown", *ROLES, "neighbour", "watcher", "boss")
ADMINISTERS: Final = {"admin": ("air",), "neighbour": ("ground",), "boss": ("air", "ground", None)}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path) as site:
        yield site


async def ask(site: Site, who: str | None, method: str, path: str, json: object = None, **more: Any) -> httpx.Response:
    headers = {"Authorization": "Bearer homing_x"} if who == "unknown" else site.headers(who)
    return await site.rig.http.request(
        method, f"/v1{path}", headers={**headers, **more.pop("headers", {})}, json=json, **more
    )


async def again(site: Site, *changes: Change) -> None:
    """Make what is missing."""
    for change in changes:
        try:
            await site.directory.apply([change])
        except (EntryConflictError, EntryNotFoundError):
            continue


async def target(site: Site, tenant: str) -> dict[str, str]:
    """Somebody, a role and an empty tenant, as they were before the last question that was obeyed."""
    name = f"target-{tenant}"
    await again(
        site,
        Put(Principal(id=name, tenant_id=tenant, kind=Kind.SERVICE, name=name)),
        Put(Role(name="target", tenant_id=tenant, rules=())),
        Put(Tenant(id="empty", name="empty", devices=(), created_us=0)),
    )
    return {"principal_id": name, "subject": name, "name": "target", "tenant_id": "empty"}


async def own_key(site: Site, who: str | None) -> str:
    if who in (None, "unknown"):
        return "00000000"
    return str((await ask(site, who, "POST", "/keys", {})).json()["id"])


async def test_everybody_gets_what_they_administer_at_every_operation_of_the_directory(site: Site) -> None:
    operations = actions(await document_of(site.rig))
    assert operations.keys() >= OF_THE_DIRECTORY
    cells, obeyed = 0, True
    targets: dict[str, dict[str, str]] = {}
    for name in sorted(OF_THE_DIRECTORY):
        method, _, path = name.partition(" /v1")
        for who in WHO:
            for tenant in ("air", "ground"):
                if obeyed:
                    targets = {each: await target(site, each) for each in ("air", "ground")}
                places = {**targets[tenant], "key_id": await own_key(site, who) if "{key_id}" in path else ""}
                bodies: dict[str, object] = {
                    "PUT /v1/tenants/{tenant_id}": {"devices": []},
                    "PUT /v1/principals/{principal_id}": {"name": places["principal_id"]},
                    "PUT /v1/principals/{subject}/bindings": {"bindings": [{"role": "viewer"}]},
                    "PUT /v1/roles/{name}": {"tenant": tenant, "rules": []},
                    "PUT /v1/access": {},
                    "POST /v1/access/check": {"principal": places["principal_id"], "action": "read"},
                }
                query = f"?tenant={tenant}" if "/roles/" in path and method != "PUT" else ""
                body = bodies.get(name, {} if method == "POST" else None)
                answer = await ask(site, who, method, path.format(**places) + query, body)
                assert answer.status_code in expected(name, who, tenant), (name, who, tenant, answer.text)
                obeyed = answer.is_success and method != "GET"
                cells += 1
    assert cells == len(OF_THE_DIRECTORY) * len(WHO) * 2


def expected(name: str, who: str | None, tenant: str) -> tuple[int, ...]:
    done = (200, 201, 204)
    if who in (None, "unknown"):
        return (401,)
    if "/keys" in name:
        return done
    if who not in ADMINISTERS:
        return (403,)
    if name in ("GET /v1/tenants", "GET /v1/principals", "GET /v1/roles", "GET /v1/audit"):
        return done
    if name == "GET /v1/tenants/{tenant_id}":
        return done if who == "boss" else (404,)
    if "/tenants/" in name or name.endswith(("/v1/access", "/v1/audit/verify")):
        return done if who == "boss" else (403,)
    if name == "PUT /v1/principals/{principal_id}" and tenant not in ADMINISTERS[who]:
        return (403, 422)  # whether there is such an id or not
    return done if tenant in ADMINISTERS[who] else (403, 404)


async def test_lists_have_what_one_administers(site: Site) -> None:
    async def names(who: str, what: str, of: str = "id") -> set[str]:
        return {one[of] for one in (await ask(site, who, "GET", f"/{what}")).json()[what]}

    assert await names("neighbour", "principals") == {"neighbour"}
    assert await names("boss", "principals") == {*ROLES, "neighbour", "watcher", "boss"}
    assert await names("admin", "tenants") == {"air"}
    assert await names("viewer", "keys", "principal") == {"viewer"}
    assert await names("admin", "keys", "principal") == set(ROLES)
    assert await names("neighbour", "roles", "name") == {"viewer", "operator", "approver", "admin"}


async def test_a_service_is_made_from_nothing_to_a_key_that_may_open_one_dock(site: Site) -> None:
    assert (await ask(site, "admin", "PUT", "/principals/air%2Fci", {})).status_code == 201
    role = {"rules": ["allow send *:ok on drone-1", "allow read *:* on *"]}
    assert (await ask(site, "admin", "PUT", "/roles/opener", role)).json() == {
        "name": "opener",
        "tenant": "air",
        "rules": role["rules"],
    }
    given = await ask(site, "admin", "PUT", "/principals/air%2Fci/bindings", {"bindings": [{"role": "opener"}]})
    assert given.json()["bindings"][0] == {
        "id": "air/ci:opener@air",
        "subject": "air/ci",
        "role": "opener",
        "tenant": "air",
        "devices": ["*"],
        "expires": None,
    }
    made = await ask(site, "admin", "POST", "/keys", {"principal": "air/ci", "label": "build server", "days": 30})
    assert made.status_code == 201
    assert made.headers["cache-control"] == "no-store"
    headers = {"Authorization": f"Bearer {made.json()['key']}"}
    sent = await site.rig.http.post("/v1/devices/drone-1/commands", json={"method": "ok"}, headers=headers)
    assert sent.status_code == 200
    refused = await site.rig.http.post("/v1/devices/drone-2/commands", json={"method": "ok"}, headers=headers)
    assert refused.status_code == 403
    checked = await ask(
        site,
        "admin",
        "POST",
        "/access/check",
        {"principal": "air/ci", "action": "send", "device": "drone-2", "profile": "homing", "method": "ok"},
    )
    assert checked.json() == {
        "allowed": False,
        "reason": "no_rule",
        "rule": None,
        "requires": 1,
        "limits": [],
        "nearest": checked.json()["nearest"],
    }
    assert "opener.1 allow send *:ok on drone-1: device does not fit" in checked.json()["nearest"]
    assert (await ask(site, "admin", "DELETE", "/principals/air%2Fci")).status_code == 204
    gone = await site.rig.http.get("/v1/me", headers=headers)
    assert gone.status_code == 401


async def test_who_administers_a_device_gives_it_keys(site: Site) -> None:
    made = await ask(site, "admin", "POST", "/keys", {"device": OWN, "label": "in the box", "never": True})
    assert made.status_code == 201, made.text
    assert (made.json()["principal"], made.json()["label"]) == (f"device:{OWN}", "in the box")
    for who, body, status in (
        ("admin", {"device": OWN}, 201),
        ("admin", {"device": OTHER}, 404),
        ("operator", {"device": OWN}, 403),
        ("admin", {"device": "a/../b"}, 422),
        ("admin", {"device": OWN, "principal": "viewer"}, 422),
        ("admin", {"device": OWN, "narrow": ["allow read *:* on *"]}, 422),
    ):
        assert (await ask(site, who, "POST", "/keys", body)).status_code == status, (who, body)
    of_device = {"Authorization": f"Bearer {made.json()['key']}"}
    assert (await site.rig.http.get("/v1/me", headers=of_device)).json()["principal"] == f"device:{OWN}"
    sent = await site.rig.http.post(f"/v1/devices/{OWN}/commands", json={"method": "ok"}, headers=of_device)
    assert sent.status_code == 404, "it has no rights over HTTP"
    for path, body in (("", {}), ("", {"device": OWN}), (f"/{made.json()['id']}/rotate", {})):
        answer = await site.rig.http.post(f"/v1/keys{path}", json=body, headers=of_device)
        assert answer.status_code == 403, "a stolen key makes no others"


async def test_keys_are_made_replaced_and_revoked_by_their_owner(site: Site) -> None:
    made = (await ask(site, "viewer", "POST", "/keys", {"label": "laptop"})).json()
    assert (made["principal"], made["label"], made["revoked_at"]) == ("viewer", "laptop", None)
    rotated = (await ask(site, "viewer", "POST", f"/keys/{made['id']}/rotate", {"grace": "0s"})).json()
    assert rotated["old"]["id"] == made["id"]
    for key, status in ((made["key"], 401), (rotated["key"], 200)):
        answer = await site.rig.http.get("/v1/me", headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == status
    assert (await ask(site, "viewer", "POST", f"/keys/{made['id']}/rotate", {})).status_code == 409
    assert (await ask(site, "viewer", "POST", f"/keys/{rotated['id']}/rotate", {"grace": "5"})).status_code == 422
    assert (await ask(site, "operator", "DELETE", f"/keys/{rotated['id']}")).status_code == 404
    assert (await ask(site, "viewer", "DELETE", f"/keys/{rotated['id']}")).status_code == 204
    assert (await ask(site, "viewer", "DELETE", f"/keys/{rotated['id']}")).status_code == 204
    answer = await site.rig.http.get("/v1/me", headers={"Authorization": f"Bearer {rotated['key']}"})
    assert "revoked" in answer.json()["detail"]
    shown = (await ask(site, "viewer", "GET", "/keys")).text
    assert rotated["key"] not in shown
    assert "digest" not in shown


async def test_nobody_gives_what_they_do_not_have(site: Site) -> None:
    await site.change(
        Put(Role(name="people", tenant_id="air", rules=("allow access *:* on *", "allow read *:* on *"))),
        Put(Role(name="hands", tenant_id="air", rules=("allow send *:* on *",))),
    )
    await site.add("clerk", "people")
    await site.add("half", "operator", narrow=["allow read *:* on *"])

    async def refused(who: str, method: str, path: str, body: object) -> None:
        answer = await ask(site, who, method, path, body)
        assert (answer.status_code, answer.json()["type"]) == (403, "urn:homing:problem:forbidden"), answer.text

    mine = {"bindings": [{"role": "people"}, {"role": "hands"}]}
    await refused("clerk", "PUT", "/principals/clerk/bindings", mine)
    await refused("clerk", "PUT", "/roles/people", {"rules": ["allow * *:* on *"]})
    await refused("clerk", "POST", "/keys", {"principal": "operator"})
    await refused("half", "POST", "/keys", {"narrow": ["allow send *:* on *"]})
    await refused("admin", "PUT", "/principals/admin", {"tenant": None})
    await refused("admin", "PUT", "/principals/admin/bindings", {"bindings": [{"role": "admin", "tenant": None}]})
    await refused("admin", "PUT", "/principals/new", {"tenant": "ground"})
    await refused("admin", "PUT", "/principals/group:x/bindings", {"bindings": [{"role": "admin", "tenant": "ground"}]})
    assert (await ask(site, "clerk", "PUT", "/principals/air%2Fnew", {})).status_code == 201
    reader = {"bindings": [{"id": "air/new", "role": "people"}]}
    assert (await ask(site, "clerk", "PUT", "/principals/air%2Fnew/bindings", reader)).status_code == 200
    own = (await ask(site, "half", "POST", "/keys", {})).json()
    assert own["narrow"] == ["allow read *:* on *"]
    taken = await ask(
        site, "admin", "PUT", "/principals/viewer/bindings", {"bindings": [{"id": "air/new", "role": "viewer"}]}
    )
    assert taken.status_code == 409


@pytest.mark.parametrize(
    ("section", "entry", "name"),
    [
        ("tenants", {"id": "x", "devices": []}, "x"),
        ("principals", {"id": "x"}, "x"),
        ("roles", {"name": "x", "rules": []}, "x"),
        ("bindings", {"subject": "boss", "role": "viewer"}, "boss:viewer@*"),
        ("devices", {"id": "drone-1", "tenant": "air"}, "drone-1"),
    ],
)
async def test_two_entries_of_one_id_are_named(site: Site, section: str, entry: dict[str, Any], name: str) -> None:
    answer = await ask(site, "boss", "PUT", "/access", {section: [entry, entry]})
    assert answer.status_code == 422, answer.text
    (error,) = answer.json()["errors"]
    assert error["field"] == section
    assert error["reason"].startswith(f"two of them are {name!a}")


async def test_somebody_goes_on_to_administer(site: Site) -> None:
    boss = site.keys["boss"]
    for method, path, body in (
        ("DELETE", "/principals/boss", None),
        ("DELETE", f"/keys/{boss.id}", None),
        ("PUT", "/principals/boss", {"tenant": None, "disabled": True}),
        ("PUT", "/principals/boss/bindings", {"bindings": []}),
        ("PUT", "/access", {"principals": [], "bindings": []}),
    ):
        answer = await ask(site, "boss", method, path, body)
        assert answer.status_code == 409, (path, answer.text)
        assert "nobody could administer access any more" in answer.json()["detail"]


async def test_the_document_is_read_changed_and_written_back(site: Site) -> None:
    read = await ask(site, "boss", "GET", "/access")
    document, tag = read.json(), read.headers["etag"]
    document["roles"] = [{"name": "pilot", "tenant": "air", "rules": ["allow send dji:* on *"]}]
    tried = await ask(site, "boss", "PUT", "/access?dry_run=true", document, headers={"If-Match": tag})
    assert tried.json() == {"changes": ["+ role 'pilot' of tenant 'air'"]}
    put = await ask(site, "boss", "PUT", "/access", document, headers={"If-Match": tag})
    assert put.json() == tried.json()
    assert (await ask(site, "boss", "PUT", "/access", document, headers={"If-Match": tag})).status_code == 412
    assert (await ask(site, "boss", "PUT", "/access", document)).json() == {"changes": []}
    assert (await ask(site, "boss", "GET", "/access")).json()["roles"] == document["roles"]
    assert (await ask(site, "boss", "PUT", "/access?dryrun=true", document)).status_code == 422
    faulty = {"roles": [{"name": "pilot", "rules": ["allow fly *:* on *"]}]}
    refused = await ask(site, "boss", "PUT", "/access", faulty)
    assert refused.status_code == 422
    assert "role 'pilot', line 1: action 'fly' is unknown" in refused.json()["detail"]
    text = json.dumps(document)
    assert "digest" not in text
    assert "password" not in text


async def test_entries_have_states_that_a_change_may_ask_for(site: Site) -> None:
    entries: tuple[tuple[str, dict[str, list[str]]], ...] = (
        ("/roles/pilot", {"rules": []}),
        ("/principals/air%2Fci", {}),
    )
    for path, body in entries:
        made = await ask(site, "admin", "PUT", path, body, headers={"If-None-Match": "*"})
        assert made.status_code == 201
        tag = (await ask(site, "admin", "GET", f"{path}?tenant=air" if "role" in path else path)).headers["etag"]
        assert tag == made.headers["etag"]
        assert (await ask(site, "admin", "PUT", path, body, headers={"If-Match": tag})).status_code == 200
        assert (await ask(site, "admin", "PUT", path, body, headers={"If-Match": '"x"'})).status_code == 412
    both = [{"bindings": [{"role": role}]} for role in ("viewer", "operator")]
    tag = (await ask(site, "admin", "GET", "/principals/air%2Fci/bindings")).headers["etag"]
    answers = await asyncio.gather(
        *[ask(site, "admin", "PUT", "/principals/air%2Fci/bindings", one, headers={"If-Match": tag}) for one in both]
    )
    assert sorted(one.status_code for one in answers) == [200, 412]


async def test_changes_of_many_at_once_are_all_made(site: Site) -> None:
    made = await asyncio.gather(*[ask(site, "admin", "PUT", f"/principals/air%2Fp{number}", {}) for number in range(6)])
    assert [one.status_code for one in made] == [201] * 6


async def test_while_the_directory_is_away_nothing_is_read_or_changed(site: Site) -> None:
    site.directory.away = True
    asked: tuple[tuple[str, str, object], ...] = (
        ("GET", "/keys", None),
        ("POST", "/keys", {}),
        ("GET", "/principals", None),
        ("PUT", "/roles/x", {"rules": []}),
        ("GET", "/access", None),
        ("POST", "/access/check", {"principal": "ci", "action": "read"}),
    )
    for method, path, body in asked:
        answer = await ask(site, "admin", method, path, body)
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:homing:problem:access-store-away"), path
    site.directory.away = False


async def test_without_a_directory_there_is_a_sentence(rig: Rig) -> None:
    for path in ("keys", "principals", "roles", "tenants", "access"):
        answer = await rig.http.get(f"/v1/{path}")
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:homing:problem:no-access-directory")
