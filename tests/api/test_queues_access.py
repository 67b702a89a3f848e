"""Access to queues: who may declare and consume them, and whose events a queue of a tenant gets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from app.core.access.changes import Put
from app.core.access.model import Role
from tests.api.documents import document_of
from tests.api.test_access import OF_QUEUES, OTHER, OWN, ROLES, Site, actions, guarded
from tests.api.test_events import say
from tests.waiting import eventually

BODY: Final = {"routes": [{"database": "events", "topic": "homing/+/event"}]}
MORE: Final = {"routes": [{"database": "events", "topic": "homing/+/other"}]}
OPERATIONS: Final[dict[str, tuple[str, str, dict[str, Any] | None]]] = {
    "PUT /v1/queues/{name}": ("PUT", "/alarms", BODY),
    "POST /v1/queues/{name}/bind": ("POST", "/alarms/bind", MORE),
    "POST /v1/queues/{name}/unbind": ("POST", "/alarms/unbind", MORE),
    "GET /v1/queues": ("GET", "", None),
    "GET /v1/queues/{name}": ("GET", "/alarms", None),
    "POST /v1/queues/{name}/take": ("POST", "/alarms/take", {}),
    "POST /v1/queues/{name}/settle": ("POST", "/alarms/settle", {}),
    "POST /v1/queues/{name}/rewind": ("POST", "/alarms/rewind", {"to": "now"}),
    "POST /v1/queues/{name}/purge": ("POST", "/alarms/purge", {}),
    "POST /v1/queues/{name}/redrive": ("POST", "/alarms/redrive", {}),
    "GET /v1/queues/{name}/dead": ("GET", "/alarms/dead", None),
    "GET /v1/queues/{name}/consumers": ("GET", "/alarms/consumers", None),
    "DELETE /v1/queues/{name}/consumers/{consumer}": ("DELETE", "/alarms/consumers/w1", None),
    "DELETE /v1/queues/{name}": ("DELETE", "/alarms", None),
}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path, events={"url": "memory://"}) as site:
        yield site


async def ask(
    site: Site, who: str | None, method: str, path: str, body: dict[str, Any] | None = None
) -> httpx.Response:
    return await site.rig.http.request(method, f"/v1/queues{path}", headers=site.headers(who), json=body)


async def declared(site: Site, who: str = "admin") -> None:
    async def is_there() -> bool:
        return (await ask(site, who, "PUT", "/alarms", BODY)).is_success

    await eventually(is_there)


async def test_every_operation_of_queues_is_asked_here(site: Site) -> None:
    document = await document_of(site.rig)
    assert (
        OPERATIONS.keys()
        == OF_QUEUES
        == {name for name in actions(document) if name.partition(" ")[2].startswith("/v1/queues")}
    )


@pytest.mark.parametrize("who", [None, *ROLES])
async def test_everybody_may_what_their_role_says(site: Site, who: str | None) -> None:
    await declared(site)
    named = actions(await document_of(site.rig))
    may = {"admin": {"queues", "consume"}, "operator": {"consume"}}.get(who or "", set())
    for operation, (method, path, body) in OPERATIONS.items():
        found = await ask(site, who, method, path, body)
        if who is None:
            assert found.status_code == 401, operation
        else:
            assert found.is_success == (named[operation] in may), (operation, found.text)
            assert found.is_success or found.status_code == 403, (operation, found.text)


async def test_a_right_may_be_for_one_queue(site: Site) -> None:
    await declared(site)
    assert (await ask(site, "admin", "PUT", "/other", BODY)).is_success
    await site.change(Put(Role(name="worker", tenant_id="air", rules=("allow consume *:* on queue/al*",))))
    await site.add("worker", "worker")
    assert (await ask(site, "worker", "POST", "/alarms/take", {})).status_code == 200
    assert (await ask(site, "worker", "POST", "/other/take", {})).status_code == 403
    assert (await ask(site, "worker", "POST", "/alarms/purge")).status_code == 403


async def test_a_tenant_has_queues_of_its_own_with_events_of_its_devices(site: Site) -> None:
    await declared(site)
    await declared(site, "neighbour")
    for device in (OWN, OTHER):
        say(site.rig, f"homing/{device}/event", {"of": device})
    for who, device in (("admin", OWN), ("neighbour", OTHER)):
        found = (await ask(site, who, "POST", "/alarms/take", {"wait": "30s", "max": 5})).json()["events"]
        assert [one["event"]["data"] for one in found] == [{"of": device}]
        assert (await ask(site, who, "POST", "/alarms/take", {"wait": "100ms", "max": 5})).json()["events"] == []
        listed = (await ask(site, who, "GET", "")).json()["queues"]
        assert len(listed) == 1
    lent = (await ask(site, "admin", "POST", "/alarms/rewind", {"to": "-10m"})).status_code
    assert lent == 204
    (mine,) = (await ask(site, "admin", "POST", "/alarms/take", {"wait": "30s"})).json()["events"]
    stolen = (await ask(site, "neighbour", "POST", "/alarms/settle", {"done": [mine["loan"]]})).json()
    assert stolen == {"settled": 0, "over": [mine["loan"]]}
