"""Handlers of replies, over real sockets: what they are asked, and what of their answers can be used."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from app.core.errors import ConfigurationError, HandlerFailedError
from app.core.payload import MAX_BYTES, MISSING
from app.core.profiles.profile import DeviceProfile
from app.core.webhooks.signatures import signed_headers
from app.profiles.loader import parse_profile
from app.replies.handlers import HttpHandlers, open_handlers, read_handlers
from app.runtime.system import SystemClock, new_ulid
from app.settings import ReplySettings
from homing_rig.receivers import Answer, Receiver, receiving
from tests.unit.profiles.test_replies import PLAIN

KEY, OTHER = b"k" * 32, b"o" * 24
SECRET, OLD = (f"whsec_{b64encode(one).decode()}" for one in (KEY, OTHER))
QUESTION: Any = {"type": "reply.asked", "device_id": "d", "payload": {"what": "mission"}}


_CLOSE: list[Callable[[], Awaitable[None]]] = []


@pytest.fixture(autouse=True)
async def closed() -> AsyncIterator[None]:
    yield
    while _CLOSE:
        await _CLOSE.pop()()


def handlers_of(url: str, folder: Path, *, secret: str = f'"{SECRET}"', **settings: Any) -> HttpHandlers:
    file = folder / "handlers.toml"
    file.write_text(f'[missions]\nurl = "{url}"\nsecret = {secret}\n')
    given = {"handlers": file, "plain_http": True, "networks": "127.0.0.0/8", **settings}
    plane = open_handlers(ReplySettings(**given), [], clock=SystemClock(), new_ulid=new_ulid, counters=Counter())
    assert plane is not None
    assert plane.service.close is not None
    _CLOSE.append(plane.service.close)
    return plane.handlers


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


def saying(body: bytes, status: int = 200) -> Answer:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=body, status=status)

    return answer


async def failure(asked: HttpHandlers) -> str:
    with pytest.raises(HandlerFailedError) as failed:
        await asked.ask("missions", QUESTION)
    return failed.value.reason


async def test_a_handler_is_asked_once_and_knows_who_asks(receiver: Receiver, tmp_path: Path) -> None:
    receiver.answer = saying(b'{"url":"u"}')
    asked = handlers_of(receiver.url, tmp_path, secret=f'["{SECRET}", "{OLD}"]')
    assert await asked.ask("missions", QUESTION) == {"url": "u"}
    ((headers, body),) = receiver.got
    assert json.loads(body) == QUESTION
    assert headers["content-type"] == "application/json"
    at = int(headers["webhook-timestamp"]) * 1_000_000
    expected = signed_headers([KEY, OTHER], headers["webhook-id"], body, at)
    assert headers["webhook-signature"] == expected["webhook-signature"]
    assert len(headers["webhook-signature"].split()) == 2
    assert asked.in_flight == 0


@pytest.mark.parametrize(("status", "body"), [(204, b""), (200, b"")])
async def test_a_handler_may_have_nothing_to_say(receiver: Receiver, tmp_path: Path, status: int, body: bytes) -> None:
    receiver.answer = saying(body, status)
    assert await handlers_of(receiver.url, tmp_path).ask("missions", QUESTION) is MISSING


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (500, b"{}", "reply_handler_refused"),
        (404, b"", "reply_handler_refused"),
        (302, b"{}", "reply_handler_refused"),
        (200, b"{", "reply_handler_unreadable"),
        (200, b'{"a":1,"a":2}', "reply_handler_unreadable"),
        (200, b"<html>", "reply_handler_unreadable"),
        (200, b'"' + b"x" * MAX_BYTES + b'"', "reply_handler_unreadable"),
    ],
)
async def test_what_cannot_be_used_is_no_answer(
    receiver: Receiver, tmp_path: Path, status: int, body: bytes, reason: str
) -> None:
    receiver.answer = saying(body, status)
    assert await failure(handlers_of(receiver.url, tmp_path)) == reason


async def test_an_answer_may_be_as_long_as_a_payload(receiver: Receiver, tmp_path: Path) -> None:
    text = "x" * (MAX_BYTES - 2)
    receiver.answer = saying(json.dumps(text).encode())
    assert await handlers_of(receiver.url, tmp_path).ask("missions", QUESTION) == text


async def test_a_slow_handler_is_left_and_others_are_asked_meanwhile(receiver: Receiver, tmp_path: Path) -> None:
    async def never(_request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    receiver.answer = never
    asked = handlers_of(receiver.url, tmp_path, budget=timedelta(milliseconds=50))
    assert await failure(asked) == "reply_handler_timeout"
    assert asked.in_flight == 0


async def test_so_many_questions_are_under_way_and_no_more(receiver: Receiver, tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def slow(_request: web.Request) -> web.Response:
        await go_on.wait()
        return web.json_response(1)

    receiver.answer = slow
    asked = handlers_of(receiver.url, tmp_path, in_flight=2)
    under_way = [asyncio.create_task(asked.ask("missions", QUESTION)) for _ in range(2)]
    await receiver.wait(2)
    assert await failure(asked) == "reply_handler_busy"
    assert asked.fills()["reply_handlers"] == (2, 2)
    go_on.set()
    assert [await one for one in under_way] == [1, 1]
    assert await asked.ask("missions", QUESTION) == 1
    assert len(receiver.got) == 3


async def test_no_handler_is_on_a_private_address_unless_the_operator_says_so(
    receiver: Receiver, tmp_path: Path
) -> None:
    assert await failure(handlers_of(receiver.url, tmp_path, networks="")) == "reply_handler_unreachable"
    assert receiver.connections == 0
    async with receiving() as gone:
        url = gone.url
    assert await failure(handlers_of(url, tmp_path)) == "reply_handler_unreachable"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[A]", "handlers.toml:1: A: is no name; allowed: a lower-case letter, then up to 31 of a-z 0-9 _ -"),
        ("a = 1", "handlers.toml:1: a: is no table; allowed: [a] with url and secret below"),
        (
            f'[a]\nurl = "https://a.example"\nsecret = "{SECRET}"\nx = 1',
            "handlers.toml:4: a.x: is unknown; allowed: url, secr",
        ),
        (f'[a]\nsecret = "{SECRET}"', "a.url: is missing, or no text; allowed: https://host[:port]/path"),
        (
            f'[a]\nurl = "http://a.example"\nsecret = "{SECRET}"',
            "handlers.toml:2: a.url: begins with 'http'; allowed: https (HOMING_REPLY_PLAIN_HTTP=true allows http)",
        ),
        ('[a]\nurl = "https://a.example"', "a.secret: is no secret; allowed: text that begins with whsec_"),
        ('[a]\nurl = "https://a.example"\nsecret = []', "handlers.toml:3: a.secret: is no secret"),
        ('[a]\nurl = "https://a.example"\nsecret = [1]', "handlers.toml:3: a.secret: is no secret"),
        ('[a]\nurl = "https://a.example"\nsecret = "hush"', "handlers.toml:3: a.secret: does not begin with whsec_"),
        ('[a]\nurl = "https://a.example"\nsecret = "whsec_hush!"', "a.secret: is no Base64"),
        ('[a]\nurl = "https://a.example"\nsecret = "whsec_aHVzaA=="', "a.secret: has 4 bytes; allowed: whsec_ and 24"),
        ("[a", "not TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line_and_without_its_secret(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "handlers.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        read_handlers(file, plain_http=False)
    assert said in str(refused.value)
    assert "hush" not in str(refused.value)
    assert "aHVzaA" not in str(refused.value)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_handlers(tmp_path / "none.toml", plain_http=False)


def profile(reply: str) -> DeviceProfile:
    head = '[[reply]]\nname = "a"\ntopic = "a/{device_id}"\nto = "b/{device_id}"\n'
    return parse_profile(PLAIN + head + reply, "p.toml")


def test_a_node_does_not_start_with_a_handler_that_nobody_has_named(tmp_path: Path) -> None:
    file = tmp_path / "handlers.toml"
    file.write_text(f'[missions]\nurl = "https://a.example"\nsecret = "{SECRET}"\n')

    def start(handler: str, handlers: Path | None) -> object:
        return open_handlers(
            ReplySettings(handlers=handlers),
            [profile(f'handler = "{handler}"')],
            clock=SystemClock(),
            new_ulid=new_ulid,
            counters=Counter(),
        )

    assert start("missions", file) is not None
    with pytest.raises(
        ConfigurationError,
        match="reply 'a': handler 'maps' is not in the file of HOMING_REPLY_HANDLERS; allowed: missions",
    ):
        start("maps", file)
    with pytest.raises(ConfigurationError, match="allowed: none"):
        start("missions", None)


def test_a_profile_names_a_handler_and_says_nothing_of_where_it_is() -> None:
    (spec,) = profile('handler = "missions"').replies
    assert spec.handler == "missions"
    assert spec.render({"handler": {"a": 1}}) == {"a": 1}  # the whole, where the profile has no payload
    (spec,) = profile('handler = "missions"\npayload = { file = "{handler.url}" }').replies
    assert spec.render({"handler": {"url": "u"}}) == {"file": "u"}
    with pytest.raises(
        ConfigurationError, match=r"p.toml:17: reply.0.handler: 'https://a' is no name; allowed: .* are the"
    ):
        profile('handler = "https://a"')
    with pytest.raises(
        ConfigurationError, match=r"p.toml:17: reply.0.payload: speaks of \{handler…\}, which goes with"
    ):
        profile('payload = "{handler.x}"')
