"""Access to the stream of all commands: callers are told of commands that they may read, and of nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from app.core.access.changes import Put, Remove, Revoke
from app.core.access.model import Binding, Role
from tests.api.rig import until
from tests.api.serving import serving
from tests.api.streaming import Event, Reading, stream
from tests.api.test_access import OTHER, OWN, ROLES, Site, an_open_command, guarded

WHO: Final = (*ROLES, "neighbour", "watcher", "boss")
READERS: Final = {"viewer", "operator", "approver", "admin", "neighbour", "watcher", "boss"}
ALL: Final = "/v1/commands/events"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path) as site, serving(site.rig) as served:
        site.port = served.port
        yield site


def visible(who: str) -> list[str]:
    """The devices of which somebody is told, of what happens to first one and then the other."""
    if who not in READERS:
        return []
    return [OWN, OTHER] if who in ("watcher", "boss") else [OTHER] if who == "neighbour" else [OWN]


@asynccontextmanager
async def following(site: Site, who: str | None, query: str = "") -> AsyncIterator[Reading]:
    """A stream, once it is told what happens."""
    before = len(site.rig.application.ports.commands.stream)
    async with stream(f"http://127.0.0.1:{site.port}{ALL}{query}", site.headers(who)) as reading:
        if reading.status == 200:
            await until(lambda: len(site.rig.application.ports.commands.stream) > before)
        yield reading


async def told(reading: Reading) -> Event:
    """The next thing that happens."""
    event = await reading.next()
    while event is not None and event.name == "bookmark":
        event = await reading.next()
    assert event is not None
    return event


async def rest(site: Site, reading: Reading) -> list[Any]:
    """The devices of which the stream tells until the node sends the reader away."""
    site.rig.application.dismiss()
    return [one.data.get("device_id", one.data) for one in await reading.all() if one.name != "bookmark"]


async def cancelled(site: Site, device: str) -> None:
    """A command of the device ends."""
    identity = await an_open_command(site, device)
    assert (await site.rig.http.delete(f"/v1/commands/{identity}", headers=site.headers("boss"))).is_success


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer homing_x"}])
async def test_nobody_unknown_is_told_anything(site: Site, headers: dict[str, str]) -> None:
    assert (await site.rig.http.get(ALL, headers=headers)).status_code == 401


@pytest.mark.parametrize("who", WHO)
async def test_everybody_is_told_of_devices_that_they_may_read(site: Site, who: str) -> None:
    async with following(site, who) as reading, following(site, "boss") as whole:
        for device in (OWN, OTHER):
            await cancelled(site, device)
        assert [(await told(whole)).data["device_id"] for _ in range(2)] == [OWN, OTHER]
        assert [(await told(reading)).data["device_id"] for _ in visible(who)] == visible(who)
        assert await rest(site, reading) == []


@pytest.mark.parametrize("who", WHO)
async def test_who_comes_back_is_told_of_no_more_than_that(site: Site, who: str) -> None:
    async with following(site, "boss") as whole:
        begun = await whole.next()
        assert begun is not None
        for device in (OWN, OTHER):
            await cancelled(site, device)
        assert [(await told(whole)).data["device_id"] for _ in range(2)] == [OWN, OTHER]
        async with following(site, who, f"?after={begun.id}") as reading:
            assert [(await told(reading)).data["device_id"] for _ in visible(who)] == visible(who)
            assert await rest(site, reading) == []


async def test_to_ask_for_a_device_of_others_is_to_be_told_nothing(site: Site) -> None:
    async with following(site, "viewer", f"?device={OTHER}") as reading, following(site, "boss") as whole:
        await cancelled(site, OTHER)
        assert (await told(whole)).data["device_id"] == OTHER
        assert await rest(site, reading) == []


async def test_who_may_send_and_not_read_is_told_nothing(site: Site) -> None:
    await site.change(Put(Role(name="sender", tenant_id="air", rules=("allow send *:* on *",))))
    await site.add("blind", "sender")
    async with following(site, "blind") as reading, following(site, "boss") as whole:
        assert (await site.send("blind")).is_success
        assert (await told(whole)).data["device_id"] == OWN
        assert await rest(site, reading) == []


async def test_a_narrowed_key_is_told_of_what_it_was_narrowed_to(site: Site) -> None:
    await site.add("narrow", "operator", narrow=["allow read *:ok on *"])
    async with following(site, "narrow") as reading, following(site, "boss") as whole:
        for method in ("refuse", "ok"):
            await site.send("operator", method=method)
        assert [(await told(whole)).data["method"] for _ in range(2)] == ["refuse", "ok"]
        assert (await told(reading)).data["method"] == "ok"
        assert await rest(site, reading) == []


async def test_a_stream_ends_when_its_key_is_revoked_and_others_go_on(site: Site) -> None:
    async with following(site, "operator") as reading, following(site, "viewer") as other:
        await site.change(Revoke(credential_id=site.keys["operator"].id, at_us=1))
        events = [one for one in await reading.all() if one.name != "bookmark"]
        assert [(one.name, one.data["status"]) for one in events] == [("problem", 401)]
        assert "revoked" in events[0].data["detail"]
        await until(lambda: len(site.rig.application.ports.commands.stream) == 1)
        assert (await site.send("boss")).is_success
        assert (await told(other)).data["device_id"] == OWN
    assert site.rig.counters["stream.unwanted"] == 1


async def test_a_right_that_is_taken_away_counts_from_the_next_event_on(site: Site) -> None:
    async with following(site, "viewer") as reading, following(site, "boss") as whole:
        assert (await site.send("boss")).is_success
        assert [(await told(one)).data["device_id"] for one in (whole, reading)] == [OWN, OWN]
        await site.change(Remove(kind=Binding, id="viewer-viewer"))
        assert (await site.send("boss")).is_success
        assert (await told(whole)).data["device_id"] == OWN
        assert await rest(site, reading) == []
