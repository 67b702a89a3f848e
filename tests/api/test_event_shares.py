"""One tenant that makes topics up takes no last values away from the others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.test_access import Site, guarded
from tests.api.test_events_access import ask
from tests.waiting import eventually

PUBLISHED = 250


@pytest.fixture(params=["memory://", "rocks://"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    url = request.param if request.param == "memory://" else f"rocks://{tmp_path}/events"
    async with guarded(tmp_path, events={"url": url, "values": 1000, "shards": 1}) as site:
        await eventually(lambda: is_ready(site))
        yield site


async def is_ready(site: Site) -> bool:
    return (await site.rig.http.get("/readyz")).status_code == 200


async def test_new_devices_of_others_get_their_last_values(site: Site) -> None:
    for first in range(0, 2000, PUBLISHED):
        made_up = [{"topic": f"homing/drone-{first + one}/event", "data": 1} for one in range(PUBLISHED)]
        assert (await ask(site, "operator", "POST", "/events", json=made_up)).status_code == 200

    topic = "homing/lamp-77/event"
    said = await ask(site, "neighbour", "POST", "/events", json=[{"topic": topic, "data": 2}])
    assert said.status_code == 200
    assert (await ask(site, "neighbour", "GET", f"/state/{topic}")).status_code == 200
    assert (await ask(site, "neighbour", "PUT", "/state/homing/lamp-78/event", json=3)).status_code == 200
    state = await ask(site, "neighbour", "GET", "/devices/lamp-77/state")
    assert [one["topic"] for one in state.json()["values"]] == [topic]

    assert site.rig.counters["drop.last_value_share"] > 1000
    assert site.rig.counters["drop.last_value"] == 0
    refused = await ask(site, "operator", "PUT", "/state/homing/drone-x/event", json=1)
    assert refused.status_code == 507
    assert "is kept for other tenants" in refused.json()["detail"]
    assert (await ask(site, "operator", "PUT", "/state/homing/drone-0/event", json=1)).status_code == 200
