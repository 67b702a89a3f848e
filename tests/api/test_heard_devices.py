"""`GET /v1/devices?heard=true`: devices by their records, presence, last values and commands, each once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.core.access.changes import Put
from app.core.access.model import Device
from app.core.messages import ReceivedMessage
from tests.api.rig import Rig, running
from tests.api.test_access import OTHER, OWN, Site, guarded
from tests.waiting import eventually

EVENTS = {"url": "memory://"}
BY_PRESENCE, BY_VALUE, BY_COMMAND = "drone-4", "drone-3", "drone-2"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """A device of each kind: the first one is known in all four ways, and has failed."""
    async with guarded(tmp_path, events=EVENTS) as site:
        await site.change(Put(Device(id=OWN, tenant_id="air", labels={"site": "roof"})))
        await say(site.rig, OWN, BY_PRESENCE)
        await fail(site.rig, OWN, BY_PRESENCE, BY_VALUE, BY_COMMAND, headers=site.headers("boss"))
        await send_values(site.rig, OWN, BY_PRESENCE, BY_VALUE, OTHER)
        yield site


async def say(rig: Rig, *devices: str) -> None:
    """Have devices say that they are there, once somebody listens."""
    await eventually(lambda: rig.broker.has_session("homing-intake"))
    for one in devices:
        rig.broker.publish(ReceivedMessage(f"homing/{one}/presence", b'{"online": true}', qos=1))
    await eventually(lambda: rig.counters["presence.online"] >= len(devices))


async def send_values(rig: Rig, *devices: str) -> None:
    """Have devices tell an event each."""
    before = rig.counters["events.appended"]
    for one in devices:
        rig.broker.publish(ReceivedMessage(f"homing/{one}/event", b'{"type": "hot"}', qos=1))
    await eventually(lambda: rig.counters["events.appended"] >= before + len(devices))


async def fail(rig: Rig, *devices: str, headers: dict[str, str] | None = None) -> None:
    """Have a command to each device fail."""
    for one in devices:
        body = {"method": "silent", "timeout": "1ms", "if_offline": "send"}
        sent = await rig.http.post(f"/v1/devices/{one}/commands", json=body, headers=headers)
        assert sent.status_code == 504, sent.text


async def heard(rig: Rig, query: str = "", headers: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """The devices of all pages."""
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = await rig.http.get(f"/v1/devices?heard=true{query}{cursor}", headers=headers)
        assert page.status_code == 200, page.text
        found += page.json()["devices"]
        if page.json()["cursor"] is None:
            return found
        cursor = f"&cursor={page.json()['cursor']}"


def ids(devices: list[dict[str, Any]]) -> list[str]:
    return [one["id"] for one in devices]


async def test_each_device_is_there_once_in_pages_of_any_size(site: Site) -> None:
    expected = [OWN, BY_PRESENCE, BY_VALUE, OTHER, BY_COMMAND]
    for limit in range(1, 7):
        assert ids(await heard(site.rig, f"&limit={limit}", site.headers("boss"))) == expected, limit


async def test_it_is_told_what_is_known_of_each(site: Site) -> None:
    site.rig.application.ports.overviews.kept_seconds = 0.0
    recorded, present, said, other, sent = await heard(site.rig, headers=site.headers("boss"))
    assert {name: recorded[name] for name in ("tenant", "labels", "on_record", "online", "failures")} == {
        "tenant": "air",
        "labels": {"site": "roof"},
        "on_record": True,
        "online": True,
        "failures": 1,
    }
    assert [one["on_record"] for one in (present, said, other, sent)] == [False] * 4
    assert [one["online"] for one in (present, said, other, sent)] == [True, None, None, None]
    assert [one["failures"] for one in (present, said, other, sent)] == [1, 1, 0, 1]
    state = (await site.rig.http.get(f"/v1/devices/{OWN}/state", headers=site.headers("boss"))).json()
    assert recorded["last_seen"] == state["presence"]["last_seen"]
    assert said["last_seen"] is not None
    assert (sent["last_seen"], sent["tenant"], sent["labels"]) == (None, None, {})


async def test_nobody_finds_what_they_may_not_read(site: Site) -> None:
    assert ids(await heard(site.rig, headers=site.headers("viewer"))) == [OWN, BY_PRESENCE, BY_VALUE, BY_COMMAND]
    assert ids(await heard(site.rig, headers=site.headers("neighbour"))) == [OTHER]
    assert await heard(site.rig, headers=site.headers("nobody")) == []


async def test_filters_hold_for_all_and_those_of_records_for_records_alone(site: Site) -> None:
    boss = site.headers("boss")
    assert ids(await heard(site.rig, "&id=*-3", boss)) == [BY_VALUE]
    assert ids(await heard(site.rig, "&id=drone-*&limit=2", boss)) == [OWN, BY_PRESENCE, BY_VALUE, BY_COMMAND]
    for of_records in ("tenant=air", "label=site=roof"):
        assert ids(await heard(site.rig, f"&{of_records}", boss)) == [OWN]
    assert await heard(site.rig, "&profile=dji", boss) == []


async def test_without_a_directory_there_are_those_that_were_heard_of() -> None:
    async with running(events=EVENTS) as rig:
        await say(rig, BY_PRESENCE)
        assert ids(await heard(rig)) == [BY_PRESENCE]
    async with running() as rig:
        assert await heard(rig) == []
        await fail(rig, BY_COMMAND)
        (one,) = await heard(rig)
        assert (one["id"], one["online"], one["last_seen"]) == (BY_COMMAND, None, None)
        assert (await rig.http.get("/v1/devices?heard=false")).status_code == 404


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ("cursor=x", "cursor"),
        ("cursor=9999.x", "cursor"),
        ("cursor=9.x", "cursor"),
        ("heard=maybe", "query.heard"),
        ("id=a%2Bb", "id"),
    ],
)
async def test_what_cannot_be_listed_is_refused_by_name(rig: Rig, wrong: str, field: str) -> None:
    more = wrong if wrong.startswith("heard") else f"heard=true&{wrong}"
    refused = await rig.http.get(f"/v1/devices?{more}")
    assert refused.status_code == 422
    assert field in [one["field"] for one in refused.json()["errors"]]
