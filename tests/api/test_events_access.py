"""Access to events: every operation of the event log, asked by everybody, about all devices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from app.core.events.event import shard_number
from tests.api.documents import document_of
from tests.api.test_access import OF_EVENTS, OTHER, OWN, ROLES, Site, actions, guarded
from tests.api.test_events import say
from tests.waiting import eventually

WHO: Final = (*ROLES, "neighbour", "watcher", "boss")
READERS: Final = {"viewer", "operator", "approver", "admin", "neighbour", "watcher", "boss"}
TOPICS: Final = {device: f"homing/{device}/event" for device in (OWN, OTHER)}


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path, events={"url": "memory://"}) as site:
        for topic in TOPICS.values():
            say(site.rig, topic, {"n": 1})
        await eventually(lambda: site.rig.counters["events.appended"] >= len(TOPICS))
        yield site


async def ask(site: Site, who: str | None, method: str, path: str, **more: Any) -> httpx.Response:
    return await site.rig.http.request(method, f"/v1{path}", headers=site.headers(who), **more)


def visible(who: str) -> set[str]:
    """The devices whose events somebody may read."""
    if who not in READERS:
        return set()
    return {OWN, OTHER} if who in ("watcher", "boss") else {OTHER} if who == "neighbour" else {OWN}


def writable(who: str) -> set[str]:
    """The devices in whose name somebody may publish."""
    return visible(who) if who in ("operator", "admin", "neighbour", "boss") else set()


async def test_every_operation_of_events_is_asked_here(site: Site) -> None:
    document = await document_of(site.rig)
    tagged = {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if "events" in operation.get("tags", ())
    }
    assert tagged == OF_EVENTS
    assert actions(document).keys() >= OF_EVENTS


@pytest.mark.parametrize("operation", sorted(OF_EVENTS))
async def test_nobody_unknown_gets_anything(site: Site, operation: str) -> None:
    method, _, path = operation.partition(" /v1")
    url = path.format(topic=TOPICS[OWN], device_id=OWN, database="events", shard=0, position=1, name="archive")
    assert (await ask(site, None, method, url, json={})).status_code == 401


@pytest.mark.parametrize("who", WHO)
async def test_what_is_read_is_of_devices_that_one_may_read(site: Site, who: str) -> None:
    page = (await ask(site, who, "GET", "/events")).json()
    assert {one["device_id"] for one in page["events"]} == visible(who)
    topics = (await ask(site, who, "GET", "/topics")).json()
    assert {one["topic"] for one in topics["topics"]} == {TOPICS[one] for one in visible(who)}
    for device, topic in TOPICS.items():
        value = await ask(site, who, "GET", f"/state/{topic}")
        assert value.status_code == (200 if device in visible(who) else 404)
        values = (await ask(site, who, "GET", f"/devices/{device}/state")).json()["values"]
        assert bool(values) == (device in visible(who))


@pytest.mark.parametrize("who", WHO)
async def test_an_event_that_one_may_not_read_is_not_there(site: Site, who: str) -> None:
    for device, topic in TOPICS.items():
        (event,) = (await ask(site, "boss", "GET", "/events", params={"topic": topic})).json()["events"]
        place = f"/events/events/{shard_number(device, 4)}/{event['position']}"
        one = await ask(site, who, "GET", place)
        assert one.status_code == (200 if device in visible(who) else 404), one.text
        if one.is_success:
            assert one.json() == event
        else:
            other = await ask(site, who, "GET", f"{place}1")
            assert {**one.json(), "detail": ""} == {**other.json(), "detail": ""}
            assert one.json()["detail"].replace(place.rpartition("/")[2], "N") == other.json()["detail"].replace(
                f"{place.rpartition('/')[2]}1", "N"
            )


@pytest.mark.parametrize("who", WHO)
async def test_what_is_published_is_in_the_name_of_devices_that_one_may(site: Site, who: str) -> None:
    for device, topic in TOPICS.items():
        allowed = device in writable(who)
        refused = (403,) if device in visible(who) else (404,)
        said = [{"topic": topic, "data": 2}]
        for answer in (
            await ask(site, who, "POST", "/events", json=said),
            await ask(site, who, "PUT", f"/state/{topic}", json=2),
            await ask(site, who, "POST", "/transactions", json={"write": said}),
        ):
            assert answer.status_code in ((200,) if allowed else refused), answer.text


@pytest.mark.parametrize("path", ["/streams", "/databases"])
@pytest.mark.parametrize("who", WHO)
async def test_the_log_itself_is_no_tenants(site: Site, who: str, path: str) -> None:
    assert (await ask(site, who, "GET", path)).status_code == (200 if who in ("watcher", "boss") else 403)


async def test_cursors_are_whose_reader_commits_them(site: Site) -> None:
    body = {"cursor": (await ask(site, "viewer", "GET", "/events")).json()["cursor"]}
    assert (await ask(site, "viewer", "PUT", "/cursors/archive", json=body)).status_code == 200
    for who in ("operator", "admin", "neighbour", "boss"):
        assert (await ask(site, who, "GET", "/cursors")).json() == {"cursors": []}
        assert (await ask(site, who, "GET", "/cursors/archive")).status_code == 404
        assert (await ask(site, who, "DELETE", "/cursors/archive")).status_code == 204
    kept = (await ask(site, "viewer", "GET", "/cursors/archive")).json()
    assert kept["cursor"].startswith("s1."), "sealed, as all that callers are given"
    page = await ask(site, "viewer", "GET", "/events", params={"cursor": kept["cursor"]})
    assert page.json()["events"] == []
