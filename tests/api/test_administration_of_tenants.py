"""Tenants over HTTP: which names are theirs, who reads one of them, and what is left when one goes."""

from __future__ import annotations

from typing import Any

from app.core.access.changes import Put, Remove
from app.core.access.model import Binding, Device, Kind, Principal
from tests.api.test_access import Site
from tests.api.test_administration import ask, site

__all__ = ["site"]  # fixtures


async def test_a_tenant_names_principals_and_bindings_as_its_own_and_learns_of_no_others(site: Site) -> None:
    async def refused(path: str, body: object, field: str) -> dict[str, Any]:
        answer = await ask(site, "admin", "PUT", path, body)
        assert answer.status_code == 422, answer.text
        (error,) = answer.json()["errors"]
        assert error["field"] == field
        assert "does not begin with 'air/', as ids of a tenant do" in error["reason"]
        return {name: value for name, value in answer.json().items() if name not in ("detail", "errors", "instance")}

    # Whose it is, or nobody's, makes no difference.
    ids = ("boss", "neighbour", "nobody-yet", "ground%2Fci", "airy%2Fci")
    said = [await refused(f"/principals/{one}", {}, "id") for one in ids]
    assert all(one == said[0] for one in said)
    for one in ("neighbour-admin", "boss-admin", "free", "ground/x"):
        bindings = {"bindings": [{"id": one, "role": "viewer"}]}
        await refused("/principals/viewer/bindings", bindings, "bindings")
    # Those that have other names keep them.
    assert (await ask(site, "admin", "PUT", "/principals/viewer", {"email": "v@example.org"})).status_code == 200
    theirs = {"bindings": [{"id": "viewer-viewer", "role": "viewer", "devices": ["drone-1"]}]}
    assert (await ask(site, "admin", "PUT", "/principals/viewer/bindings", theirs)).status_code == 200
    # Who operates Homing names whom they like.
    assert (await ask(site, "boss", "PUT", "/principals/ci", {"tenant": "ground"})).status_code == 201
    token = await ask(site, "boss", "PUT", "/principals/oidc:https:%2F%2Flogin.example%23ada", {})
    assert token.status_code == 422
    assert "begins with oidc:" in token.text


async def test_who_wants_a_key_for_a_device_learns_of_no_devices_of_others(site: Site) -> None:
    await site.change(Put(Device(id="x-77", tenant_id="ground")))
    said = []
    for device in ("lamp-1", "x-77", "x-78"):
        answer = await ask(site, "admin", "POST", "/keys", {"device": device})
        assert answer.status_code == 404, answer.text
        said.append(answer.text.replace(device, "DEVICE"))
    assert len(set(said)) == 1
    assert (await ask(site, "boss", "POST", "/keys", {"device": "x-77"})).status_code == 201
    nobodys = await ask(site, "boss", "POST", "/keys", {"device": "x-78"})
    assert (nobodys.status_code, "belongs to no tenant" in nobodys.text) == (409, True)


async def test_one_tenant_is_read_by_who_administers_it(site: Site) -> None:
    known = (await ask(site, "admin", "GET", "/tenants")).json()["tenants"]
    found = await ask(site, "admin", "GET", "/tenants/air")
    assert [found.json()] == known
    assert found.headers["etag"]
    assert (await ask(site, "admin", "GET", "/tenants/ground")).status_code == 404
    assert (await ask(site, "boss", "GET", "/tenants/ground")).status_code == 200
    assert (await ask(site, "viewer", "GET", "/tenants/air")).status_code == 403


async def test_the_tenant_of_a_role_may_stand_in_the_query(site: Site) -> None:
    role = {"rules": ["allow read *:* on *"]}
    made = await ask(site, "boss", "PUT", "/roles/reader?tenant=air", role)
    assert (made.status_code, made.json()["tenant"]) == (201, "air")
    same = await ask(site, "boss", "PUT", "/roles/reader?tenant=air", {**role, "tenant": "air"})
    assert same.status_code == 200
    other = await ask(site, "boss", "PUT", "/roles/reader?tenant=air", {**role, "tenant": "ground"})
    assert (other.status_code, other.json()["errors"][0]["field"]) == (422, "tenant")
    assert (await ask(site, "admin", "PUT", "/roles/reader?tenant=ground", role)).status_code in (403, 404)


async def test_what_is_bound_or_owned_is_not_removed(site: Site) -> None:
    await ask(site, "admin", "PUT", "/roles/pilot", {"rules": []})
    await ask(site, "admin", "PUT", "/principals/nobody/bindings", {"bindings": [{"role": "pilot"}]})
    assert (await ask(site, "admin", "DELETE", "/roles/pilot?tenant=air")).status_code == 409
    assert (await ask(site, "boss", "DELETE", "/tenants/ground")).status_code == 409
    overlapping = await ask(site, "boss", "PUT", "/tenants/third", {"devices": ["lamp-1*"]})
    assert overlapping.status_code == 422
    assert "overlap" in overlapping.json()["detail"]
    assert (await ask(site, "admin", "PUT", "/roles/admin", {"rules": []})).status_code == 422


async def test_a_tenant_that_loses_its_key_to_a_removal_is_gone_at_once(site: Site) -> None:
    await site.change(
        Put(Principal(id="north/bob", tenant_id="air", kind=Kind.USER, name="bob")),
        Put(Binding(id="b", subject="north/bob", role="viewer", tenant_id="air")),
    )
    assert (await ask(site, "admin", "GET", "/principals/north/bob")).json()["kind"] == "user"
    assert (await ask(site, "admin", "GET", "/principals/north/bob/bindings")).json()["bindings"][0]["id"] == "b"
    await site.change(Remove(kind=Binding, id="b"))
    assert (await ask(site, "admin", "GET", "/principals/north/bob/bindings")).json() == {"bindings": []}
