"""Requests that are framed oddly: upgrades that nobody takes, and one request smuggled inside another."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.server.hosts import Hosts
from tests.api.rig import COMMANDS, Rig, until
from tests.api.serving import HEAD, HEALTH, Served, all_of, answer_to, connection, request, serving

BODY = '{"method":"ok"}'
LENGTH = f"Content-Length: {len(BODY)}\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n"
IN_CHUNKS = f"5\r\n{BODY[:5]}\r\n{len(BODY) - 5:x}\r\n{BODY[5:]}\r\n0\r\n\r\n"
LAST = HEALTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")

H2C = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAA\r\n"
WEBSOCKET = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.fixture
async def served(rig: Rig) -> AsyncIterator[Served]:
    async with serving(rig) as one:
        yield one


def statuses(answer: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


@pytest.mark.parametrize("upgrade", [H2C, WEBSOCKET, "Connection: keep-alive, Upgrade\r\nUpgrade: x/1, y\r\n"])
async def test_an_upgrade_that_nobody_takes_is_ignored(served: Served, upgrade: str) -> None:
    behind = request('{"method":"ok","params":"behind"}') + LAST
    for framing, body in ((LENGTH, BODY.encode()), (CHUNKED, IN_CHUNKS.encode())):
        head = f"{HEAD}{upgrade}{framing}\r\n".encode()
        for pieces in ((head, body, behind), (head + body + behind,)):
            answer = await answer_to(served.port, *pieces)
            assert statuses(answer) == [200, 200, 200], answer
            assert b'"params":"behind"' in answer
    assert len(served.rig.device.received) == 8
    assert not served.closed("unreadable")


async def test_an_upgrade_without_a_body_is_ignored(served: Served) -> None:
    for upgrade in (H2C, WEBSOCKET):
        ask = f"GET /healthz HTTP/1.1\r\nHost: localhost\r\n{upgrade}\r\n".encode()
        assert statuses(await answer_to(served.port, ask + ask, ask, LAST)) == [200, 200, 200, 200]


async def test_an_upgrade_in_small_pieces_is_ignored(served: Served) -> None:
    whole = f"{HEAD}{H2C}{LENGTH}\r\n{BODY}".encode() + LAST
    assert (
        statuses(await answer_to(served.port, *(whole[at : at + 40] for at in range(0, len(whole), 40)))) == [200] * 2
    )


async def test_a_connection_that_asks_to_close_with_its_upgrade_is_closed(served: Served) -> None:
    head = f"{HEAD}Connection: Upgrade, close\r\nUpgrade: h2c\r\n{LENGTH}\r\n"
    answer = await answer_to(served.port, f"{head}{BODY}".encode())
    assert statuses(answer) == [200]
    assert b"connection: close" in answer


JAVA = """
import java.net.URI;
import java.net.http.*;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;

class Call {
    public static void main(String[] args) throws Exception {
        var client = HttpClient.newHttpClient();
        for (int n = 0; n < 3; n++) {
            var call = HttpRequest.newBuilder(URI.create(args[0]))
                .header("Content-Type", "application/json").POST(BodyPublishers.ofString(args[1])).build();
            var answer = client.send(call, BodyHandlers.ofString());
            System.out.println(answer.statusCode() + " " + answer.version() + " " + answer.body());
        }
    }
}
"""


async def test_javas_http_client_can_send_a_command(served: Served, tmp_path: Path) -> None:
    java = shutil.which("java")
    if java is None or shutil.which("javac") is None:
        pytest.skip("there is no JDK")
    source = tmp_path / "Call.java"
    source.write_text(JAVA)
    url = f"http://127.0.0.1:{served.port}{COMMANDS}"
    command = [java, "-Xshare:auto", "-XX:TieredStopAtLevel=1", str(source), url, BODY]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=150, check=False)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert [line.split(" ")[:2] for line in lines] == [["200", "HTTP_1_1"]] * 3
    assert json.loads(lines[0].split(" ", 2)[2])["state"] == "succeeded"


SMUGGLED = b"GET /v1/nodes HTTP/1.1\r\nHost: localhost\r\n\r\n"

REFUSED: dict[str, bytes] = {
    "length and chunked": f"{HEAD}{LENGTH}{CHUNKED}\r\n{IN_CHUNKS}".encode(),
    "chunked and length": f"{HEAD}{CHUNKED}{LENGTH}\r\n{IN_CHUNKS}".encode(),
    "two different lengths": f"{HEAD}{LENGTH}Content-Length: 2\r\n\r\n{BODY}".encode(),
    "the same length twice": f"{HEAD}{LENGTH}{LENGTH}\r\n{BODY}".encode(),
    "a list of lengths": f"{HEAD}Content-Length: 15, 15\r\n\r\n{BODY}".encode(),
    "a negative length": f"{HEAD}Content-Length: -15\r\n\r\n{BODY}".encode(),
    "a length with a sign": f"{HEAD}Content-Length: +15\r\n\r\n{BODY}".encode(),
    "a length in hexadecimal": f"{HEAD}Content-Length: 0xf\r\n\r\n{BODY}".encode(),
    "a length that overflows": f"{HEAD}Content-Length: {2**64 + len(BODY)}\r\n\r\n{BODY}".encode(),
    "chunked that is not last": f"{HEAD}Transfer-Encoding: chunked, gzip\r\n\r\n{IN_CHUNKS}".encode(),
    "an encoding that is unknown": f"{HEAD}Transfer-Encoding: xchunked\r\n\r\n{IN_CHUNKS}".encode(),
    "chunked twice": f"{HEAD}{CHUNKED}{CHUNKED}\r\n{IN_CHUNKS}".encode(),
    "chunked in HTTP/1.0": f"{HEAD}{CHUNKED}\r\n{IN_CHUNKS}".replace("HTTP/1.1", "HTTP/1.0").encode(),
    "a space before the colon": f"{HEAD}Content-Length : 15\r\n\r\n{BODY}".encode(),
    "a folded header": f"{HEAD}X-Folded: a\r\n b\r\n{LENGTH}\r\n{BODY}".encode(),
    "a folded encoding": f"{HEAD}Transfer-Encoding:\r\n chunked\r\n\r\n{IN_CHUNKS}".encode(),
    "NUL in a header": f"{HEAD}X-Nul: a\0b\r\n{LENGTH}\r\n{BODY}".encode(),
    "NUL in a name": f"{HEAD}X-\0Nul: a\r\n{LENGTH}\r\n{BODY}".encode(),
    "CR alone in a header": f"{HEAD}X-Cr: a\rb\r\n{LENGTH}\r\n{BODY}".encode(),
    "LF alone at the end of lines": f"{HEAD}{LENGTH}\r\n{BODY}".replace("\r\n", "\n").encode(),
    "a header without name": f"{HEAD}: x\r\n{LENGTH}\r\n{BODY}".encode(),
    "a header without colon": f"{HEAD}nothing\r\n{LENGTH}\r\n{BODY}".encode(),
    "a chunk size with a sign": f"{HEAD}{CHUNKED}\r\n+f\r\n{BODY}\r\n0\r\n\r\n".encode(),
    "a chunk size with 0x": f"{HEAD}{CHUNKED}\r\n0xf\r\n{BODY}\r\n0\r\n\r\n".encode(),
    "a chunk size that overflows": f"{HEAD}{CHUNKED}\r\nffffffffffffffff0f\r\n{BODY}\r\n0\r\n\r\n".encode(),
    "a chunk that is longer than its size": f"{HEAD}{CHUNKED}\r\n3\r\n{BODY}\r\n0\r\n\r\n".encode(),
    "LF alone behind a chunk size": f"{HEAD}{CHUNKED}\r\nf\n{BODY}\r\n0\r\n\r\n".encode(),
    "Host twice": f"{HEAD}Host: localhost\r\n{LENGTH}\r\n{BODY}".encode(),
    "no Host": f"{HEAD}{LENGTH}\r\n{BODY}".replace("Host: localhost\r\n", "").encode(),
    "a target without slash": f"{HEAD}{LENGTH}\r\n{BODY}".replace(" /v1", " v1").encode(),
    "CONNECT": b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "HTTP/2 from the start": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    "HTTP/0.9": b"GET /healthz\r\n\r\n",
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


async def test_what_two_readers_could_read_differently_is_refused(served: Served) -> None:
    for shape, what in REFUSED.items():
        answer = await answer_to(served.port, what + SMUGGLED)
        assert statuses(answer) == [400], (shape, answer)
        assert b"connection: close" in answer, shape
        assert b"urn:homing:problem:unreadable-request" in answer, shape
    assert not served.rig.store.registrations


SERVED: dict[str, tuple[bytes, int]] = {
    "a target in absolute form": (HEALTH.replace(b" /healthz", b" http://localhost/healthz"), 200),
    "OPTIONS *": (HEALTH.replace(b"GET /healthz", b"OPTIONS *"), 404),
    "a body that GET has no use for": (HEALTH.replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\nabc"), 200),
    "empty lines before": (b"\r\n\r\n" + HEALTH, 200),
    "two slashes": (HEALTH.replace(b" /", b" //"), 404),
    "a fragment": (HEALTH.replace(b"healthz", b"healthz#x"), 200),
    "HTTP/1.0 without Host": (b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 200),
    "bytes beyond ASCII in a header": (HEALTH.replace(b"\r\n\r\n", b"\r\nX-Name: \xff\xfe\r\n\r\n"), 200),
    "an unknown expectation": (HEALTH.replace(b"\r\n\r\n", b"\r\nExpect: miracles\r\n\r\n"), 200),
    "a trailer": (f"{HEAD}{CHUNKED}\r\n{IN_CHUNKS[:-2]}Idempotency-Key: a\r\n\r\n".encode(), 200),
    "a length behind thousands of zeros": (f"{HEAD}Content-Length: {len(BODY):05000}\r\n\r\n{BODY}".encode(), 200),
    "a chunk's extension": (f"{HEAD}{CHUNKED}\r\nf;a=b\r\n{BODY}\r\n0\r\n\r\n".encode(), 200),
}


async def test_what_is_odd_but_clear_is_served(served: Served) -> None:
    for shape, (what, status) in SERVED.items():
        answer = await answer_to(served.port, what + LAST)
        behind = [200] if b"HTTP/1.0" not in what else []
        assert statuses(answer) == [status, *behind], (shape, answer)


async def test_trailers_are_no_headers(served: Served) -> None:
    for _ in range(2):
        chunks = IN_CHUNKS[:-2] + "Idempotency-Key: same\r\nPrefer: respond-async\r\n\r\n"
        answer = await answer_to(served.port, f"{HEAD}{CHUNKED}\r\n{chunks}".encode() + LAST)
        assert statuses(answer) == [200, 200]
        assert b"idempotent-replayed" not in answer
    assert len(served.rig.store.registrations) == 2


async def test_junk_behind_a_command_does_not_take_its_answer(served: Served) -> None:
    async with connection(served.port) as (reader, writer):
        writer.write(request('{"method":"silent","timeout":"1h"}') + HEALTH + b"\0\0\0\r\n\r\n" + SMUGGLED)
        command = await served.rig.heard()
        await until(lambda: served.closed("unreadable") == 1)
        served.rig.device.answer(command, '"status":"ok"')
        answer = await all_of(reader)
    assert statuses(answer) == [200, 200, 400]
    assert answer.index(b"succeeded") < answer.index(b'{"status":"ok"}') < answer.index(b"unreadable-request")


async def test_a_broken_body_behind_a_command_does_not_take_its_answer(served: Served) -> None:
    async with connection(served.port) as (reader, writer):
        broken = f"{HEAD}{CHUNKED}\r\nzz\r\n".encode()
        writer.write(request('{"method":"silent","timeout":"1h"}') + broken + SMUGGLED)
        command = await served.rig.heard()
        await until(lambda: served.closed("unreadable") == 1)
        served.rig.device.answer(command, '"status":"ok"')
        answer = await all_of(reader)
    assert statuses(answer) == [200, 400]
    assert len(served.rig.store.registrations) == 1


async def test_a_request_behind_connection_close_is_not_served(served: Served) -> None:
    answer = await answer_to(served.port, LAST + request(BODY))
    assert statuses(answer) == [200]
    assert not served.rig.store.registrations


async def test_who_expects_a_continue_gets_it(served: Served) -> None:
    async with connection(served.port) as (reader, writer):
        writer.write(f"{HEAD}Expect: 100-continue\r\n{LENGTH}Connection: close\r\n\r\n".encode())
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(BODY.encode())
        assert statuses(await all_of(reader)) == [200]


async def test_a_page_whose_name_was_rebound_to_the_loopback_sends_no_command(served: Served) -> None:
    rebound = request(BODY).replace(b"Host: localhost", b"Host: evil.example\r\nOrigin: http://evil.example")
    answer = await answer_to(served.port, rebound + LAST)
    assert statuses(answer) == [421, 200]
    assert b"urn:homing:problem:host-not-allowed" in answer
    foreign = request(BODY).replace(b"Host: localhost", b"Host: localhost\r\nOrigin: http://evil.example")
    assert statuses(await answer_to(served.port, foreign + LAST)) == [403, 200]
    assert not served.rig.store.registrations
    assert served.rig.counters["refused.host-not-allowed"] == 1
    assert served.rig.counters["refused.origin-not-allowed"] == 1


async def test_on_another_listener_probes_ask_by_address_and_callers_by_name(rig: Rig) -> None:
    async with serving(rig, hosts=Hosts(("homing.example.com",), loopback=False)) as served:
        for host in (b"10.1.2.3:8080", b"homing.example.com"):
            answer = await answer_to(served.port, LAST.replace(b"localhost", host))
            assert statuses(answer) == [200], host
        assert statuses(await answer_to(served.port, b"GET /readyz HTTP/1.0\r\n\r\n")) == [200]
        assert statuses(await answer_to(served.port, LAST.replace(b"localhost", b"evil.example"))) == [421]
