"""`GET /v1/overview/events`: what is urgent is told at once, numbers later, and that nothing is new in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.api.overview_views import OverviewViews
from app.core.access.changes import Revoke
from app.core.access.rules import Action
from app.core.last_hour import NOTHING, together
from app.core.overview import JudgedFailure, NodeGlance
from app.overview import ClusterGlance
from tests.api.rig import Rig, running
from tests.api.serving import Served, serving
from tests.api.streaming import Event, Reading, stream
from tests.api.test_access import OTHER, OWN, Site, an_open_command, guarded
from tests.waiting import eventually

SOON = 0.01
NEVER = 3600.0


def hasten(rig: Rig, *, counted: float = NEVER, keep_alive: float = NEVER) -> None:
    """Make overviews so often that the test need not wait."""
    rig.application.ports.overviews.kept_seconds = SOON
    rig.application.overviews.counted_seconds = counted
    rig.application.overviews._streams.keep_alive = keep_alive


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with running() as rig, serving(rig) as one:
        hasten(rig)
        yield one


def followed(served: Served) -> Any:  # noqa: ANN401 - a context manager
    return stream(f"http://127.0.0.1:{served.port}/v1/overview/events")


async def told(reading: Reading) -> Event:
    event = await reading.next()
    assert event is not None
    return event


async def test_what_fails_is_told_when_it_fails(served: Served) -> None:
    async with followed(served) as reading:
        first = await told(reading)
        assert (first.name, first.data["trouble"]) == ("overview", [])
        assert first.data.keys() == (await served.rig.http.get("/v1/overview")).json().keys()
        await served.rig.send("refuse")
        found: list[Event] = []
        while not found or found[-1].data["verdict"]["party"] != "device":
            found.append(await told(reading))
        assert {one.name for one in found} == {"overview"}
        assert [one["code"] for one in found[-1].data["trouble"]] == ["device_refused"]


async def test_while_nothing_is_new_only_bookmarks_are_written(served: Served) -> None:
    hasten(served.rig, counted=0.0, keep_alive=5 * SOON)
    async with followed(served) as reading:
        event = await told(reading)
        while event.name == "overview":  # that there is one more stream is news, too
            event = await told(reading)
        events = [event, await told(reading), await told(reading)]
    assert [one.name for one in events] == ["bookmark"] * 3
    instants = [one.data["at"] for one in events]
    assert instants == sorted(set(instants))


async def test_numbers_alone_wait_for_their_time(served: Served) -> None:
    hasten(served.rig, keep_alive=0.0)
    async with followed(served) as reading:
        await told(reading)
        await served.rig.send("ok")
        for _ in range(5):
            assert (await told(reading)).name == "bookmark"
        hasten(served.rig, counted=0.0, keep_alive=0.0)
        event = await told(reading)
        while event.name == "bookmark":
            event = await told(reading)
        assert event.data["last_hour"]["total"]["begun"] == 1


async def test_a_broker_that_is_away_is_told_at_once(served: Served) -> None:
    async with followed(served) as reading:
        await told(reading)
        served.rig.mqtt.connection_lost()
        assert (await told(reading)).data["verdict"]["party"] == "broker"


async def test_those_who_follow_take_no_place_of_other_streams() -> None:
    async with running(api={"max_streams": 1}) as rig, serving(rig) as served:
        commands = f"http://127.0.0.1:{served.port}/v1/commands/events"
        async with followed(served) as first, followed(served) as second, stream(commands) as other:
            assert (first.status, second.status, other.status) == (200, 429, 200)
            queues = (await rig.http.get("/v1/nodes")).json()["self"]["queues"]
            assert (queues["overviews"]["size"], queues["streams"]["size"]) == (1, 1)
        await eventually(lambda: not rig.application.overviews.fill().size)


async def test_a_node_that_stops_sends_them_away(served: Served) -> None:
    async with followed(served) as reading:
        await told(reading)
        served.rig.application.dismiss()
        assert await reading.all() == []
        assert reading.retries[-1] >= 500


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path) as one, serving(one.rig) as served:
        hasten(one.rig, counted=0.0)
        one.port = served.port
        yield one


async def test_each_is_told_of_what_they_may_read(site: Site) -> None:
    own, other = await an_open_command(site, OWN), await an_open_command(site, OTHER)
    expected = {"viewer": {own}, "neighbour": {other}, "nobody": set[str](), "boss": {own, other}}
    for who, ids in expected.items():
        async with stream(f"http://127.0.0.1:{site.port}/v1/overview/events", site.headers(who)) as reading:
            data = (await told(reading)).data
        assert {one["id"] for one in data["open_commands"]} == ids, who
        assert (data["nodes"] is None, data["missing"] is None) == ((who != "boss"),) * 2
        assert ("node-a" in data["verdict"]["text"]) is False


async def test_a_key_that_is_revoked_ends_its_stream(site: Site) -> None:
    url = f"http://127.0.0.1:{site.port}/v1/overview/events"
    async with stream(url, site.headers("viewer")) as reading, stream(url, site.headers("boss")) as whole:
        await told(reading)
        await told(whole)
        await site.change(Revoke(credential_id=site.keys["viewer"].id, at_us=1))
        events = await reading.all()
        assert (events[-1].name, events[-1].data["status"]) == ("problem", 401)
        await an_open_command(site, OWN)
        while not (event := await told(whole)).data["open_commands"]:
            assert event.name == "overview"


class Reader:
    """A caller who may read commands of some devices."""

    def __init__(self, *devices: str, actions: tuple[Action, ...] = ()) -> None:
        self._devices = devices
        self._actions = actions

    def may(self, action: Action) -> bool:
        return action in self._actions

    def may_know(self, device: str, _profile: str, _method: str) -> bool:
        return device in self._devices


def glance() -> ClusterGlance:
    nodes = [NodeGlance("n1", answered=True, state="ready", version="1")]
    failures = [JudgedFailure(1, f"c-{one}", one, "p", "m") for one in ("d1", "d2")]
    return ClusterGlance(2, nodes, True, (), failures, (), together([NOTHING], 0, 1))


def test_equal_rights_get_the_same_bytes() -> None:
    views, now = OverviewViews(), glance()
    one = views.view(now, Reader("d1"))
    assert views.view(now, Reader("d1", "elsewhere")) is one
    assert views.view(now, Reader("d2")).body != one.body
    assert views.view(now, Reader("d1", actions=(Action.NODES,))).body != one.body
    assert views.view(now, Reader("d1", actions=(Action.METRICS,))).body != one.body
    assert views.view(glance(), Reader("d1")) is not one  # another instant
