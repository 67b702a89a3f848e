"""Devices that ask, and services of the operator that know the answer."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from app.replies import replier
from homing_rig.receivers import Answer, Receiver, receiving
from tests.unit.replies.test_replier import ECHO, Dock, dock_with
from tests.waiting import eventually

PROFILE = (
    ECHO
    + """
[[reply]]
name = "mission"
topic = "echo/{device_id}/ask"
match = [{ path = "what", is_in = ["mission"] }]
to = "echo/{device_id}/told"
payload = { ref = "{message.ref}", file = "{handler.url}" }
handler = "missions"
needs = ["message.ref", "handler.url"]
[[reply]]
name = "whole"
topic = "echo/{device_id}/ask"
match = [{ path = "what", is_in = ["anything"] }]
to = "echo/{device_id}/told"
handler = "missions"
[[reply]]
name = "refusal"
topic = "echo/{device_id}/ask"
match = [{ path = "ref", present = true }]
to = "echo/{device_id}/told"
payload = { ref = "{message.ref}", refused = true }
"""
)


@asynccontextmanager
async def asking(folder: Path, receiver: Receiver, **reply: Any) -> AsyncIterator[Dock]:
    (folder / "echo.toml").write_text(PROFILE)
    file = folder / "handlers"
    file.write_text(f'[missions]\nurl = "{receiver.url}"\nsecret = "whsec_{b64encode(b"k" * 32).decode()}"\n')
    settings = {"handlers": file, "networks": "127.0.0.0/8", "plain_http": True, **reply}
    async with dock_with(profiles={"dir": folder}, reply=settings) as dock:
        yield dock


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


def answering(body: object, status: int = 200) -> Answer:
    async def answer(_request: web.Request) -> web.Response:
        return web.json_response(body, status=status)

    return answer


async def test_a_device_is_told_what_the_handler_says(receiver: Receiver, tmp_path: Path) -> None:
    receiver.answer = answering({"url": "u"})
    async with asking(tmp_path, receiver) as dock:
        dock.say("echo/D1/ask", {"what": "mission", "ref": 7})
        await eventually(lambda: dock.told == [("echo/D1/told", {"ref": 7, "file": "u"})])
        asked = json.loads(receiver.got[0][1])
        assert asked.pop("timestamp")
        assert asked == {
            "type": "reply.asked",
            "device_id": "D1",
            "profile": "echo",
            "reply": "mission",
            "topic": "echo/D1/ask",
            "payload": {"what": "mission", "ref": 7},
        }
        assert dock.rig.counters["reply.asked"] == dock.rig.counters["reply.sent"] == 1
        dock.say("echo/D1/ask", {"what": "anything"})
        await eventually(lambda: dock.told[1:] == [("echo/D1/told", {"url": "u"})])


async def test_a_handler_that_has_nothing_to_say_leaves_it_to_the_next_kind(receiver: Receiver, tmp_path: Path) -> None:
    """As one that says less than the reply needs; and a message that lacks something is not asked about at all."""
    async with asking(tmp_path, receiver) as dock:  # it answers 204
        dock.say("echo/D1/ask", {"what": "anything"})
        await dock.silence("reply_lacks_values")
        dock.say("echo/D1/ask", {"what": "mission", "ref": 7})
        await eventually(lambda: dock.told == [("echo/D1/told", {"ref": 7, "refused": True})])
        receiver.answer = answering({})
        dock.say("echo/D1/ask", {"what": "mission", "ref": 8})
        await eventually(lambda: dock.told[1:] == [("echo/D1/told", {"ref": 8, "refused": True})])
        assert len(receiver.got) == 3
        dock.say("echo/D1/ask", {"what": "mission"})
        await eventually(lambda: dock.rig.counters["drop.reply_lacks_values"] == 2)
        assert len(receiver.got) == 3


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (answering({"url": "u"}, 503), "reply_handler_refused"),
        (answering({"url": 10**30}), "reply_handler_unreadable"),
    ],
)
async def test_a_handler_that_fails_is_no_refusal_to_the_device(
    receiver: Receiver, tmp_path: Path, answer: Answer, reason: str
) -> None:
    """No other kind is tried: the device would take for certain what nobody knows. It asks again."""
    receiver.answer = answer
    async with asking(tmp_path, receiver) as dock:
        dock.say("echo/D1/ask", {"what": "mission", "ref": 7})
        await dock.silence(reason)


async def test_a_slow_handler_keeps_nobody_else_waiting(receiver: Receiver, tmp_path: Path) -> None:
    """Over its bound questions are dropped and counted; other replies and the PUBACKs of its own go on."""
    go_on = asyncio.Event()

    async def slow(_request: web.Request) -> web.Response:
        await go_on.wait()
        return web.json_response({"url": "u"})

    receiver.answer = slow
    async with asking(tmp_path, receiver, in_flight=3, budget="30s") as dock:
        for number in range(20):
            dock.say(f"echo/D{number}/ask", {"what": "mission", "ref": number})
        await eventually(lambda: dock.rig.counters["drop.reply_handler_busy"] == 17)
        await receiver.wait(3)
        dock.say("echo/D1/ask", {"what": "none", "ref": "other"})
        await eventually(lambda: [body["ref"] for _, body in dock.told] == ["other"])
        go_on.set()
        await eventually(lambda: len(dock.told) == 4)
        assert len(receiver.got) == 3


async def test_who_waits_for_a_handler_takes_no_place_of_those_who_wait_for_the_store(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = asyncio.Event()

    async def slow(_request: web.Request) -> web.Response:
        await go_on.wait()
        return web.json_response({"url": "u"})

    receiver.answer = slow
    monkeypatch.setattr(replier, "MOST_LOOKED_UP", 1)
    async with asking(tmp_path, receiver, budget="30s") as dock:
        for number in range(3):
            dock.say("echo/D1/ask", {"what": "mission", "ref": number})
            await receiver.wait(number + 1)
        go_on.set()
        await eventually(lambda: len(dock.told) == 3)
        assert dock.rig.counters["drop.reply_overload"] == 0


async def test_a_handler_that_never_answers_costs_its_budget(receiver: Receiver, tmp_path: Path) -> None:
    async def never(_request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    receiver.answer = never
    async with asking(tmp_path, receiver, budget="50ms") as dock:
        dock.say("echo/D1/ask", {"what": "mission", "ref": 7})
        await dock.silence("reply_handler_timeout")
