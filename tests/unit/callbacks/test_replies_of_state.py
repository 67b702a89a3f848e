"""Replies that speak of the event log: a device asks a node for what it, or somebody for it, has said last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.core.errors import StoreUnavailableError
from app.core.events.event import Entry
from app.events.values import LastValues
from app.replies import finder
from tests.unit.replies.test_replier import ECHO, Dock, dock_with
from tests.waiting import eventually

PROFILE = (
    ECHO
    + """
[[event]]
name = "settings"
topic = "echo/{device_id}/settings"
database = "telemetry"
[[reply]]
name = "settings"
topic = "echo/{device_id}/ask"
match = [{ path = "what", is_in = ["settings"] }]
to = "echo/{device_id}/told"
payload = { hz = "{state.settings.hz}", of = "{device_id}" }
state.settings = { topic = "echo/{device_id}/settings" }
[[reply]]
name = "settings or default"
topic = "echo/{device_id}/ask"
match = [{ path = "what", is_in = ["settings", "default"] }, { path = "strict", present = false }]
to = "echo/{device_id}/told"
payload = { hz = "{state.settings.hz}" }
state.settings = { topic = "echo/{device_id}/settings", default = { hz = 1 } }
"""
)


@asynccontextmanager
async def asking(folder: Path, **settings: object) -> AsyncIterator[Dock]:
    (folder / "echo.toml").write_text(PROFILE)
    async with dock_with(profiles={"dir": folder}, **settings) as dock:
        yield dock


@pytest.fixture
async def dock(tmp_path: Path) -> AsyncIterator[Dock]:
    async with asking(tmp_path, events={"url": "memory://"}) as one:
        yield one


async def test_a_device_is_told_what_it_said_last_and_nothing_of_others(dock: Dock) -> None:
    for device, hz in (("D1", 5), ("D2", 7), ("D1", 50)):
        dock.say(f"echo/{device}/settings", {"hz": hz})
    await eventually(lambda: dock.rig.counters["events.appended"] >= 3)
    dock.say("echo/D1/ask", {"what": "settings"})
    await eventually(lambda: dock.told == [("echo/D1/told", {"hz": 50, "of": "D1"})])
    assert dock.rig.counters["reply.sent"] == 1


async def test_without_a_value_the_next_kind_is_tried_and_there_is_a_default(dock: Dock) -> None:
    dock.say("echo/D1/ask", {"what": "settings", "strict": True})
    await dock.silence("reply_lacks_state")
    dock.say("echo/D1/ask", {"what": "settings"})
    await eventually(lambda: dock.told == [("echo/D1/told", {"hz": 1})])


async def test_a_backend_may_have_said_it(dock: Dock) -> None:
    body = [{"topic": "echo/D1/settings", "data": {"hz": 3}}]
    published = await dock.rig.http.post("/v1/events?database=telemetry", json=body)
    assert published.status_code == 200, published.text
    dock.say("echo/D1/ask", {"what": "settings"})
    await eventually(lambda: dock.told == [("echo/D1/told", {"hz": 3, "of": "D1"})])


async def test_without_an_event_log_there_are_defaults_alone(tmp_path: Path) -> None:
    async with asking(tmp_path) as dock:
        dock.say("echo/D1/ask", {"what": "settings", "strict": True})
        await dock.silence("reply_lacks_state")
        dock.say("echo/D1/ask", {"what": "default"})
        await eventually(lambda: dock.told == [("echo/D1/told", {"hz": 1})])


@pytest.mark.parametrize("hangs", [True, False])
async def test_no_default_is_told_while_the_log_is_away(
    dock: Dock, monkeypatch: pytest.MonkeyPatch, *, hangs: bool
) -> None:
    """It may well have a value: the device has to ask again."""

    async def away(_values: LastValues, _database: str, _topic: str) -> Entry:
        if hangs:
            await asyncio.Event().wait()
        raise StoreUnavailableError("away")

    monkeypatch.setattr(LastValues, "value", away)
    monkeypatch.setattr(finder, "STATE_SECONDS", 0.01)
    dock.say("echo/D1/ask", {"what": "default"})
    await dock.silence("reply_unsent")
    assert dock.told == []
