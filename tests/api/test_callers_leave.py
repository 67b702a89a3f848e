"""Callers that wait for an outcome and hang up, or are dismissed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest

from tests.api.rig import COMMANDS, Rig, until
from tests.waiting import PATIENCE


async def test_F71_parked_callers_are_dismissed_with_202(rig: Rig) -> None:
    parked = [asyncio.create_task(rig.send("silent", timeout="120s")) for _ in range(20)]
    await until(lambda: len(rig.waiters) == 20)
    rig.application.parking.dismiss()
    responses = await asyncio.gather(*parked)
    assert {response.status_code for response in responses} == {202}
    assert all(response.headers["location"].startswith("/v1/commands/") for response in responses)
    assert len({response.headers["location"] for response in responses}) == 20
    assert len(rig.waiters) == 0
    assert len(rig.open_commands) == 20
    assert rig.counters["caller.dismissed"] == 20


async def test_a_caller_that_is_dismissed_twice_is_answered_once(rig: Rig) -> None:
    parked = asyncio.create_task(rig.send("silent"))
    await rig.heard()
    rig.application.parking.dismiss()
    rig.application.parking.dismiss()
    assert (await parked).status_code == 202


class Browser:
    """A caller on the ASGI level, who can hang up."""

    def __init__(self, body: bytes) -> None:
        self.gone = asyncio.Event()
        self.watched = asyncio.Event()
        self.sent: list[dict[str, Any]] = []
        self._messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive(self) -> dict[str, Any]:
        if self._messages:
            return self._messages.pop()
        self.watched.set()
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.sent.append(dict(message))

    async def call(self, rig: Rig) -> None:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
            "method": "POST",
            "path": COMMANDS,
            "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
        }
        await rig.application(scope, self.receive, self.send)


async def test_F16_callers_that_hang_up_leave_nothing_and_their_commands_go_on(rig: Rig) -> None:
    browsers = [Browser(b'{"method":"silent","timeout":"60s"}') for _ in range(200)]
    calls = [asyncio.create_task(browser.call(rig)) for browser in browsers]
    await until(lambda: len(rig.waiters) == 200)
    for browser in browsers:
        browser.gone.set()
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*calls)
    assert len(rig.waiters) == 0
    assert len(rig.open_commands) == 200
    assert rig.counters["caller.hung_up"] == 200
    assert len(rig.application.parking) == 0
    for command in rig.device.received:
        rig.device.answer(command, '"status":"ok"')
    await until(lambda: not len(rig.open_commands))
    assert {command["state"] for command in (await rig.http.get("/v1/commands")).json()["commands"]} == {"succeeded"}


async def test_F16_a_caller_that_stays_is_answered_although_it_was_watched(rig: Rig) -> None:
    browser = Browser(b'{"method":"silent"}')
    call = asyncio.create_task(browser.call(rig))
    command = await rig.heard()
    async with asyncio.timeout(PATIENCE):
        await browser.watched.wait()
    rig.device.answer(command, '"status":"ok"')
    await call
    assert browser.sent[0]["status"] == 200
    assert json.loads(browser.sent[1]["body"])["state"] == "succeeded"
    await asyncio.sleep(0)
    assert not [task for task in asyncio.all_tasks() if "receive" in repr(task.get_coro())]


async def test_a_handler_that_the_server_cancels_frees_its_place(rig: Rig) -> None:
    call = asyncio.create_task(Browser(b'{"method":"silent"}').call(rig))
    await rig.heard()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert len(rig.waiters) == 0
    assert len(rig.application.parking) == 0


async def test_a_handler_that_is_cancelled_while_it_is_dismissed_is_cancelled(rig: Rig) -> None:
    call = asyncio.create_task(Browser(b'{"method":"silent"}').call(rig))
    await rig.heard()
    rig.application.parking.dismiss()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert len(rig.waiters) == 0
