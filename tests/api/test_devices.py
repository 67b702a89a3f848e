"""The records of devices over HTTP: who may read and write them, and what commands take from them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.core.access.changes import Put
from app.core.access.model import Device, Role
from tests.api.rig import Rig, until
from tests.api.test_access import OTHER, OWN, Site, guarded


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path) as site:
        yield site


async def ask(site: Site, who: str, method: str, path: str, **more: Any) -> httpx.Response:
    headers = {**site.headers(who), **more.pop("headers", {})}
    return await site.rig.http.request(method, f"/v1/devices{path}", headers=headers, **more)


async def put(site: Site, device: str = OWN, who: str = "admin", /, **members: Any) -> httpx.Response:
    headers = members.pop("headers", {})
    return await ask(site, who, "PUT", f"/{device}", json=members, headers=headers)


async def test_what_is_put_is_read_by_everybody_who_may(site: Site) -> None:
    made = await put(site, profile="dji", labels={"site": "roof"}, note="by the door")
    assert made.status_code == 201
    expected = {"id": OWN, "tenant": "air", "profile": "dji", "labels": {"site": "roof"}, "note": "by the door"}
    assert made.json() == expected
    read = await ask(site, "viewer", "GET", f"/{OWN}")
    assert (read.status_code, read.json(), read.headers["etag"]) == (200, expected, made.headers["etag"])
    assert (await put(site, note="")).json() == {**expected, "profile": None, "labels": {}, "note": ""}
    assert (await ask(site, "admin", "DELETE", f"/{OWN}")).status_code == 204
    assert (await ask(site, "admin", "DELETE", f"/{OWN}")).status_code == 404


async def test_a_device_of_others_is_as_one_that_never_was(site: Site) -> None:
    await put(site, OTHER, "neighbour")
    never, foreign = [
        (await ask(site, "admin", method, f"/{device}", json={})) for device in ("lamp-2", OTHER) for method in ("PUT",)
    ]
    assert never.status_code == foreign.status_code == 404
    assert never.text.replace("lamp-2", OTHER) == foreign.text
    never, foreign = [await ask(site, "viewer", "GET", f"/{device}") for device in ("drone-9", OTHER)]
    assert never.text.replace("drone-9", OTHER) == foreign.text


async def test_only_operators_move_a_device_to_another_tenant(site: Site) -> None:
    assert (await put(site, tenant="ground")).status_code == 403
    assert (await put(site, "free-1", "admin", tenant="air")).status_code == 404
    refused = await put(site, "free-1", "boss")
    assert refused.json()["errors"] == [
        {"field": "tenant", "reason": "is missing: no tenant's patterns fit this device"}
    ]
    assert (await put(site, "free-1", "boss", tenant="air")).json()["tenant"] == "air"
    assert (await put(site, "free-1", note="mine")).status_code == 200
    assert (await put(site, "free-1", "neighbour")).status_code == 404
    assert (await put(site, "free-2", "boss", tenant="nowhere")).status_code == 409


async def test_a_change_is_made_only_to_what_was_read(site: Site) -> None:
    tag = (await put(site, headers={"If-None-Match": "*"})).headers["etag"]
    assert (await put(site, headers={"If-None-Match": "*"})).status_code == 412
    changed = await put(site, note="1", headers={"If-Match": f'"x", {tag}'})
    assert changed.status_code == 200
    refused = await put(site, note="2", headers={"If-Match": tag})
    assert refused.status_code == 412
    assert refused.json()["type"] == "urn:homing:problem:precondition-failed"
    assert changed.headers["etag"] in refused.json()["detail"]
    assert (await ask(site, "admin", "DELETE", f"/{OWN}", headers={"If-Match": tag})).status_code == 412
    assert (await put(site, headers={"If-Match": "nonsense"})).status_code == 422
    assert (await ask(site, "admin", "DELETE", f"/{OWN}", headers={"If-Match": "*"})).status_code == 204
    assert (await put(site, headers={"If-Match": "*"})).status_code == 412


async def test_of_two_that_change_the_same_state_one_wins(site: Site) -> None:
    tag = (await put(site)).headers["etag"]
    both = await asyncio.gather(*[put(site, note=note, headers={"If-Match": tag}) for note in ("one", "other")])
    assert sorted(one.status_code for one in both) == [200, 412]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"profile": "nonsense"}, "profile"),
        ({"labels": {"a b": ""}}, "body.labels.a b.[key]"),
        ({"labels": {"a": "x" * 257}}, "body.labels.a"),
        ({"labels": {str(number): "" for number in range(33)}}, "body.labels"),
        ({"note": "x" * 1001}, "body.note"),
        ({"colour": "red"}, "body.colour"),
        ([], "body"),
    ],
)
async def test_what_cannot_be_kept_is_refused_by_name(site: Site, body: object, field: str) -> None:
    refused = await ask(site, "admin", "PUT", f"/{OWN}", json=body)
    assert refused.status_code == 422
    assert [one["field"] for one in refused.json()["errors"]] == [field]


async def listed(site: Site, who: str, query: str = "") -> list[str]:
    """The ids of all pages."""
    found: list[str] = []
    cursor = ""
    while True:
        page = await ask(site, who, "GET", f"?{query}{cursor}")
        assert page.status_code == 200, page.text
        found += [one["id"] for one in page.json()["devices"]]
        if page.json()["cursor"] is None:
            return found
        cursor = f"&cursor={page.json()['cursor']}"


async def test_lists_are_filtered_and_in_pages(site: Site) -> None:
    drones = [Device(id=f"drone-{n:02}", tenant_id="air", labels={"n": str(n % 3)}) for n in range(12)]
    await site.change(*map(Put, drones), Put(Device(id=OTHER, tenant_id="ground", profile="dji")))
    ids = [one.id for one in drones]
    assert await listed(site, "viewer", "limit=5") == ids
    assert await listed(site, "boss", "limit=1") == [*ids, OTHER]
    assert await listed(site, "neighbour") == [OTHER]
    assert await listed(site, "nobody") == []
    assert await listed(site, "viewer", "label=n=1&limit=2") == ids[1::3]
    assert await listed(site, "viewer", "label=n=1&label=m=") == []
    assert await listed(site, "boss", "profile=dji") == await listed(site, "boss", "tenant=ground") == [OTHER]
    assert await listed(site, "viewer", "id=*1") == ["drone-01", "drone-11"]
    for wrong in ("label=x", "limit=0", "nonsense=1", "id=a%2Bb", "cursor=%2B", "id=a&id=b"):
        assert (await ask(site, "viewer", "GET", f"?{wrong}")).status_code == 422, wrong


async def test_a_page_looks_at_so_many_records_and_no_more(site: Site) -> None:
    many = [Device(id=f"drone-{n:05}", tenant_id="air", profile="dji" if n == 4500 else None) for n in range(4501)]
    await site.change(*map(Put, many))
    page = (await ask(site, "viewer", "GET", "?profile=dji")).json()
    assert page["devices"] == []
    assert page["cursor"].startswith("s1.")  # sealed: it may be of a device that the caller may not know of
    assert await listed(site, "viewer", "profile=dji") == ["drone-04500"]


async def test_a_command_that_names_no_profile_has_that_on_record(site: Site) -> None:
    await site.change(Put(Role(name="dji", tenant_id="air", rules=("allow send dji:* on *", "allow read *:* on *"))))
    await site.add("pilot", "dji")
    assert (await site.send("pilot", method="silent", timeout="1ms")).status_code == 403
    await put(site, profile="dji")
    sent = await site.send("pilot", method="silent", timeout="1ms", if_offline="send")
    assert sent.json()["command"]["profile"] == "dji"
    named = await site.send("operator", method="ok", profile="homing")
    assert named.json()["profile"] == "homing"


async def test_while_the_directory_is_away_devices_are_read_and_not_changed(site: Site) -> None:
    await put(site, profile="dji")
    site.directory.away = True
    assert (await ask(site, "viewer", "GET", f"/{OWN}")).status_code == 200
    assert await listed(site, "viewer") == [OWN]
    refused = await put(site)
    assert (refused.status_code, refused.json()["type"]) == (503, "urn:homing:problem:access-store-away")
    site.directory.away = False


async def test_a_change_that_is_made_counts_though_nobody_can_look_at_it(site: Site) -> None:
    apply = site.directory.apply

    async def then_away(*arguments: Any, **more: Any) -> int:
        version = await apply(*arguments, **more)
        site.directory.away = True
        return version

    site.directory.apply = then_away  # type: ignore[method-assign]
    assert (await put(site, note="kept")).json()["note"] == "kept"
    site.directory.away = False
    version = await site.directory.version()
    await until(lambda: site.version == version)
    assert (await ask(site, "viewer", "GET", f"/{OWN}")).json()["note"] == "kept"


async def test_without_a_directory_there_is_a_sentence_about_what_is_possible(rig: Rig) -> None:
    for method, path in (("GET", ""), ("GET", "/drone-1"), ("PUT", "/drone-1"), ("DELETE", "/drone-1")):
        answer = await rig.http.request(method, f"/v1/devices{path}", json={})
        assert answer.status_code == 404
        assert answer.json()["type"] == "urn:homing:problem:no-access-directory"
        assert "a command may go to any device" in answer.json()["detail"]
    assert (await rig.send("ok")).json()["profile"] == "homing"
