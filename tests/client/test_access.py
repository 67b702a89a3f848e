"""Keys, and what is on record about devices, on a node that asks who calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.core.access.changes import Put
from app.core.access.model import Kind, Principal
from homing_client import ConflictError, NotAllowedError, NotFoundError
from tests.api.serving import serving
from tests.api.test_access import OTHER, OWN, Site, guarded
from tests.client.conftest import Open
from tests.client.twins import AnyHoming, all_of, done


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path) as site:
        yield site


@pytest.fixture
async def admin(site: Site, open_homing: Open) -> AsyncIterator[AnyHoming]:
    async with serving(site.rig) as served:
        yield open_homing(f"http://127.0.0.1:{served.port}", key=site.keys["admin"].text)


async def test_a_key_says_who_calls(site: Site, open_homing: Open) -> None:
    async with serving(site.rig) as served:
        url = f"http://127.0.0.1:{served.port}"
        me = await done(open_homing(url, key=site.keys["viewer"].text).me)
        assert (me.open, me.principal, me.tenant) == (False, "viewer", "air")
        with pytest.raises(NotAllowedError) as unknown:
            await done(open_homing(url).me)
        assert unknown.value.status == 401
        with pytest.raises(NotAllowedError) as forbidden:
            await done(open_homing(url, key=site.keys["viewer"].text).send, OWN, "ok")
        assert forbidden.value.status == 403


async def test_what_is_on_record_about_a_device(admin: AnyHoming) -> None:
    put = await done(admin.put_device, OWN, profile="dji", labels={"site": "roof"}, note="by the door")
    assert (put.id, put.profile, put.labels, put.note) == (OWN, "dji", {"site": "roof"}, "by the door")
    assert await done(admin.device_record, OWN) == put
    assert [one.id for one in await all_of(admin.devices, labels={"site": "roof"})] == [OWN]
    assert await all_of(admin.devices, "lamp-*") == []
    changed = await done(admin.put_device, OWN, note="moved", if_match=put.tag)
    assert (changed.profile, changed.note) == (None, "moved")
    with pytest.raises(ConflictError):
        await done(admin.put_device, OWN, note="late", if_match=put.tag)
    with pytest.raises(ConflictError):
        await done(admin.remove_device, OWN, if_match=put.tag)
    await done(admin.remove_device, OWN, if_match=changed.tag)
    with pytest.raises(NotFoundError):
        await done(admin.remove_device, OTHER)


async def test_long_lists_are_read_to_their_end(site: Site, admin: AnyHoming) -> None:
    many = [Principal(id=f"p-{n:04}", tenant_id="air", kind=Kind.SERVICE, name=f"p-{n:04}") for n in range(1_050)]
    await site.change(*map(Put, many))
    found = [one["id"] for one in await done(admin.access.principals)]
    assert len(found) == len(set(found))
    assert {one.id for one in many} <= set(found)
