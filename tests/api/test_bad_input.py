"""Bad input: whatever a caller sends, it is refused with a sentence, and before MQTT or the store see it."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from app.api.command_body import MEMBERS
from app.core.identifiers import validate_device_id
from app.core.payload import MAX_BYTES, MAX_DEPTH
from tests.api.rig import COMMANDS, Rig
from tests.api.test_callers_leave import Browser
from tests.api.test_send import problem
from tests.unit.core.hostile_ids import hostile_ids, is_device, is_method

GOOD = b'{"method":"ok"}'
JSON = {"Content-Type": "application/json"}


def untouched(rig: Rig) -> bool:
    return not rig.store.registrations and not rig.store.reads and not rig.device.received


async def raw_call(rig: Rig, method: str, path: str, query: bytes = b"") -> int:
    """Call with a path as a server gives it: decoded."""
    browser = Browser(GOOD)
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "query_string": query,
        "headers": [(b"content-type", b"application/json")],
    }
    await rig.application(scope, browser.receive, browser.send)
    assert (b"content-type", b"application/problem+json") in browser.sent[0]["headers"]
    status: int = browser.sent[0]["status"]
    return status


async def test_F93_hostile_device_ids_are_refused(rig: Rig) -> None:
    for device_id in hostile_ids():
        if is_device(device_id):
            continue
        status = await raw_call(rig, "POST", f"/v1/devices/{device_id}/commands")
        assert status == (404 if "/" in device_id or not device_id else 422), ascii(device_id)
        encoded = quote(device_id.encode("utf-8", "surrogatepass"), safe="")
        if len(encoded) < 60_000:  # what httpx takes
            response = await rig.http.post(f"/v1/devices/{encoded}/commands", content=GOOD, headers=JSON)
            assert response.status_code in {404, 405, 422}, ascii(device_id)
            assert response.headers["content-type"] == "application/problem+json"
    assert untouched(rig)


async def test_F93_what_only_looks_hostile_is_one_device_however_it_is_written(rig: Rig) -> None:
    for device_id in filter(is_device, hostile_ids()):
        known = validate_device_id(device_id)
        for written in (known, quote(device_id, safe=""), quote(known, safe="")):
            response = await rig.http.get(f"/v1/devices/{written}/commands?idempotency_key=k")
            assert response.status_code == 200, ascii(device_id)
            assert rig.store.asked[-1].device_id == known, ascii(device_id)


async def test_F93_hostile_methods_are_refused(rig: Rig) -> None:
    for method in hostile_ids():
        if is_method(method):
            continue
        text = "".join(f"\\u{unit:04x}" for unit in _utf16(method))
        if len(text) < MAX_BYTES - 100:
            response = await rig.http.post(COMMANDS, content=f'{{"method":"{text}"}}', headers=JSON)
            assert response.status_code == 422, ascii(method)
            assert response.headers["content-type"] == "application/problem+json"
    assert untouched(rig)


def _utf16(text: str) -> list[int]:
    data = text.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]


async def test_F93_hostile_command_ids_and_filters_are_refused(rig: Rig) -> None:
    for hostile in hostile_ids():
        for method in ("GET", "DELETE"):
            status = await raw_call(rig, method, f"/v1/commands/{hostile}")
            assert status in {404, 422}, ascii(hostile)
        if is_device(hostile):
            continue
        query = quote(hostile.encode("utf-8", "surrogatepass"), safe="").encode()
        assert await raw_call(rig, "GET", "/v1/commands", b"device=" + query) == 422
    assert untouched(rig)


@pytest.mark.parametrize("key", ["", " ", "a b", "a\tb", "é", "k" * 256, "a\x7f"])
async def test_hostile_idempotency_keys_are_refused(rig: Rig, key: str) -> None:
    headers = httpx.Headers([(b"Idempotency-Key", key.encode("latin-1")), (b"Content-Type", b"application/json")])
    response = await rig.http.post(COMMANDS, content=GOOD, headers=headers)
    body = problem(response, 422, "invalid-input")
    assert body["errors"][0]["field"] == "idempotency_key"
    assert untouched(rig)


async def test_two_idempotency_keys_are_refused(rig: Rig) -> None:
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b"), ("Content-Type", "application/json")]
    problem(await rig.http.post(COMMANDS, content=GOOD, headers=headers), 422, "invalid-input")


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ('{"params":{}}', "method", "is missing; a string is needed"),
        ('{"method":7}', "method", "is a number; a string is needed"),
        ('{"method":null}', "method", "is null; a string is needed"),
        ('{"method":""}', "method", "is empty"),
        ('{"method":"take off"}', "method", "U+0020 at index 4 is not allowed"),
        (
            '{"method":"ok","timeout":10}',
            "timeout",
            "bare number has no unit; allowed: a string of a number and a unit",
        ),
        ('{"method":"ok","timeout":1.5}', "timeout", "a bare number has no unit"),
        ('{"method":"ok","timeout":"10"}', "timeout", "'10' is not a duration; allowed: a number and a unit"),
        ('{"method":"ok","timeout":null}', "timeout", "is null; allowed"),
        ('{"method":"ok","timeout":true}', "timeout", "is a boolean; allowed"),
        ('{"method":"ok","timeout":"0s"}', "timeout", "0s is out of range; allowed: 1ms to 1h"),
        ('{"method":"ok","timeout":"0.0001ms"}', "timeout", "is out of range"),
        ('{"method":"ok","timeout":"999999999h"}', "timeout", "is out of range"),
        ('{"method":"ok","timeout":"-1s"}', "timeout", "is not a duration"),
        ('{"method":"ok","profile":"nosuch"}', "profile", "'nosuch' is unknown; allowed: dji, homing"),
        ('{"method":"ok","profile":5}', "profile", "is a number; a string is needed"),
        ('{"method":"ok","one_way":"yes"}', "one_way", "is a string; true or false is needed"),
        ('{"method":"ok","one_way":1}', "one_way", "is a number; true or false is needed"),
        (
            '{"method":"ok","parms":{}}',
            "parms",
            f"is unknown; allowed: {', '.join(MEMBERS)}",
        ),
        ('{"method":"ok","if_offline":"wait"}', "if_offline", "'wait' is none; allowed: fail, send, hold"),
        ('{"method":"ok","if_offline":null}', "if_offline", "is null; allowed: fail, send, hold"),
        ('{"method":"ok","if_offline":true}', "if_offline", "is a boolean; allowed: fail, send, hold"),
        ('{"method":"ok","\\u001b[31m🚁":1}', "\x1b[31m\\U0001f681", "is unknown"),
        ("[]", "body", "is an array; a JSON object is needed"),
        ("null", "body", "is null; a JSON object is needed"),
        ('"ok"', "body", "is a string; a JSON object is needed"),
    ],
)
async def test_a_wrong_value_is_named_with_what_is_allowed(rig: Rig, body: str, field: str, says: str) -> None:
    response = await rig.http.post(COMMANDS, content=body, headers=JSON)
    told = problem(response, 422, "invalid-input")
    (fault,) = told["errors"]
    assert fault["field"] == field
    assert says in fault["reason"]
    assert untouched(rig)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"{", "not JSON"),
        (b"method=ok", "not JSON"),
        (b'{"method":"ok"}{}', "not JSON"),
        (b'{"method":"ok","method":"refuse"}', "same key twice"),
        (b'{"method":"ok","params":NaN}', "NaN and Infinity are not JSON"),
        (b'{"method":"ok","params":1e999}', "out of range"),
        (b'{"method":"ok","params":18446744073709551616}', "out of range"),
        (b'{"method":"ok","params":"\\ud800"}', "surrogate"),
        (b'{"method":"ok","params":"\xff"}', "not UTF-8"),
        (b'\xff\xfe{\x00"\x00', "not UTF-8"),
        (b'{"method":"ok","params":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}", "nested too deep"),
        (b"[" * 100_000, "nested too deep"),
    ],
)
async def test_a_body_that_cannot_be_read_is_refused_with_the_reason(rig: Rig, body: bytes, says: str) -> None:
    told = problem(await rig.http.post(COMMANDS, content=body, headers=JSON), 422, "unreadable-body")
    assert says in told["detail"]
    assert told["errors"] == [{"field": "body", "reason": told["detail"].removeprefix("body: ")}]
    assert untouched(rig)


@pytest.mark.parametrize(
    "content_type",
    ["application/x-www-form-urlencoded", "text/plain", "text/plain;charset=utf-8", "multipart/json", ""],
)
async def test_another_content_type_than_json_is_refused(rig: Rig, content_type: str) -> None:
    response = await rig.http.post(COMMANDS, content=GOOD, headers={"Content-Type": content_type})
    assert "add -H 'Content-Type: application/json'" in problem(response, 415, "unsupported-media-type")["detail"]
    assert response.headers["accept"] == "application/json, application/*+json"
    assert untouched(rig)


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/json; charset=utf-8", "Application/JSON", "application/ld+json"]
)
async def test_all_kinds_of_json_are_taken(rig: Rig, content_type: str) -> None:
    response = await rig.http.post(COMMANDS, content=GOOD, headers={"Content-Type": content_type})
    assert response.status_code == 200


async def test_no_content_type_is_taken_unless_it_comes_from_a_browser(rig: Rig) -> None:
    assert (await rig.http.post(COMMANDS, content=GOOD)).status_code == 200
    response = await rig.http.post(COMMANDS, content=GOOD, headers={"Origin": "https://evil.example"})
    problem(response, 415, "unsupported-media-type")
    assert len(rig.device.received) == 1


@pytest.mark.parametrize("encoding", ["gzip", "br", "gzip, deflate", "identity, gzip", "GZIP"])
@pytest.mark.parametrize(("method", "path"), [("POST", COMMANDS), ("PUT", "/v1/queues/a"), ("POST", "/v1/events")])
async def test_a_body_that_is_coded_is_refused_with_a_sentence(rig: Rig, method: str, path: str, encoding: str) -> None:
    coded = {**JSON, "Content-Encoding": encoding}
    response = await rig.http.request(method, path, content=gzip.compress(GOOD), headers=coded)
    told = problem(response, 415, "unsupported-media-type")
    assert told["detail"].startswith(f"Content-Encoding: {encoding} is not decoded here"), told
    assert response.headers["accept-encoding"] == "identity"
    assert untouched(rig)


async def test_a_body_that_says_that_it_is_not_coded_is_taken(rig: Rig) -> None:
    response = await rig.http.post(COMMANDS, content=GOOD, headers={**JSON, "Content-Encoding": "identity"})
    assert response.status_code == 200


def sized(size: int) -> bytes:
    frame = b'{"method":"ok","params":"%b"}'
    return frame % (b"x" * (size - len(frame) + 2))


async def test_a_body_of_exactly_the_limit_is_taken(rig: Rig) -> None:
    body = sized(MAX_BYTES)
    assert len(body) == MAX_BYTES
    assert (await rig.http.post(COMMANDS, content=body, headers=JSON)).status_code == 200
    assert (await rig.http.post(COMMANDS, content=in_chunks(body, []), headers=JSON)).status_code == 200


async def in_chunks(body: bytes, sent: list[int]) -> AsyncIterator[bytes]:
    for at in range(0, len(body), 1000):
        sent.append(at)
        yield body[at : at + 1000]


async def test_a_body_over_the_limit_is_refused(rig: Rig) -> None:
    response = await rig.http.post(COMMANDS, content=sized(MAX_BYTES + 1), headers=JSON)
    problem(response, 413, "body-too-large")
    assert response.headers["connection"] == "close"
    assert untouched(rig)


async def test_F99_a_chunked_body_without_end_is_refused_before_it_is_read(rig: Rig) -> None:
    sent: list[int] = []
    response = await rig.http.post(COMMANDS, content=in_chunks(b"x" * 100 * MAX_BYTES, sent), headers=JSON)
    problem(response, 413, "body-too-large")
    assert len(sent) <= MAX_BYTES // 1000 + 2
    assert untouched(rig)


@pytest.mark.parametrize("length", ["131073", "99999999999999999999999999", "-1", "1e3", "²"])
async def test_F99_a_declared_length_over_the_limit_is_refused_unread(rig: Rig, length: str) -> None:
    read = False

    async def body() -> AsyncIterator[bytes]:
        nonlocal read
        read = True
        yield GOOD

    headers = httpx.Headers([(b"Content-Length", length.encode("latin-1")), (b"Content-Type", b"application/json")])
    response = await rig.http.post(COMMANDS, content=body(), headers=headers)
    problem(response, 413, "body-too-large")
    assert not read


async def test_F99_a_body_that_does_not_come_is_not_waited_for_for_ever(rig: Rig) -> None:
    rig.application.hot.body_seconds = 0.01

    async def body() -> AsyncIterator[bytes]:
        yield b'{"method":'
        await asyncio.sleep(60)

    response = await rig.http.post(COMMANDS, content=body(), headers=JSON)
    problem(response, 408, "slow-body")
    assert response.headers["connection"] == "close"
    assert untouched(rig)


async def test_a_caller_that_hangs_up_within_its_body_leaves_nothing(rig: Rig) -> None:
    browser = Browser(GOOD)
    browser._messages = [{"type": "http.disconnect"}, {"type": "http.request", "body": b"{", "more_body": True}]
    await browser.call(rig)
    assert browser.sent[0]["status"] == 499
    assert untouched(rig)
