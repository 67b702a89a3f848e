"""A node that is open to its own machine alone obeys nobody who is, or may be, somewhere else."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import uvicorn.protocols.http.httptools_impl as uvicorn_http

from app.server.hosts import Hosts
from tests.api.rig import COMMANDS, Rig
from tests.api.serving import Served, answer_to, serving
from tests.api.test_framing import statuses

BODY = '{"method":"ok"}'
HOSTS = (
    *("evil.example", "evil.example:8080", "EVIL.example", "localhost.evil.example", "127.0.0.1.evil.example"),
    *("10.0.0.7", "10.0.0.7:8080", "192.168.1.20", "[2001:db8::1]", "[fe80::1]:8080", "[::]"),
    *("2130706433", "0x7f.1", "127.0.0.1@evil.example", "evil.example:80@127.0.0.1", "localhost,evil.example", ""),
)
PASSED_ON = (
    *("Forwarded: for=203.0.113.9", "forwarded: for=127.0.0.1", 'Forwarded: for="[2001:db8::9]";proto=https'),
    *("X-Forwarded-For: 203.0.113.9", "x-forwarded-for: 127.0.0.1", "X-Forwarded-For:", "X-Real-IP: 203.0.113.9"),
    *("X-Forwarded-Host: evil.example", "X-Forwarded-Host: localhost", "X-Forwarded-Proto: https"),
    *("Via: 1.1 proxy", "X-Forwarded-Server: x", "X-Forwarded-Port: 443", "CF-Connecting-IP: 203.0.113.9"),
    *("True-Client-IP: 203.0.113.9", "X-Client-IP: 203.0.113.9", "X-Envoy-External-Address: 203.0.113.9"),
    "Sec-Fetch-Site: cross-site",
)
ORIGINS = (
    *("http://evil.example", "https://evil.example:8443", "http://localhost.evil.example", "null", "", "file://"),
    *("http://localhost:3000", "http://127.0.0.1:3000", "http://[::1]:3000", "http://localhost@evil.example"),
)
PEERS = (
    "203.0.113.9",
    "10.0.0.7",
    "192.168.1.20",
    "169.254.1.1",
    "2001:db8::9",
    "fe80::1",
    "::ffff:10.0.0.7",
)
REQUESTS = (
    *[("421", COMMANDS, (f"Host: {host}",)) for host in HOSTS],
    *[("421", COMMANDS, (f"Host: {host}", f"Origin: http://{host}")) for host in HOSTS[:3]],  # a name that was rebound
    ("421", f"http://evil.example{COMMANDS}", ("Host: localhost",)),
    *[("403", COMMANDS, ("Host: localhost", one)) for one in PASSED_ON],
    *[("403", COMMANDS, ("Host: localhost", f"Origin: {origin}")) for origin in ORIGINS],
    ("400", COMMANDS, ("Host: localhost", "Host: evil.example")),
    ("400", COMMANDS, ()),
)


@pytest.fixture
async def served(rig: Rig) -> AsyncIterator[Served]:
    async with serving(rig, hosts=Hosts((), loopback=True, direct=True)) as served:
        yield served


def post(target: str, *headers: str) -> bytes:
    lines = (f"POST {target} HTTP/1.1", *headers, "Content-Type: application/json", f"Content-Length: {len(BODY)}")
    return "\r\n".join((*lines, "Connection: close", "", BODY)).encode()


@pytest.mark.parametrize(("status", "target", "headers"), REQUESTS)
async def test_a_forged_request_sends_nothing(
    served: Served, status: str, target: str, headers: tuple[str, ...]
) -> None:
    for _ in range(2):
        assert statuses(await answer_to(served.port, post(target, *headers))) == [int(status)]
        # What is allowed is remembered, and opens nothing for what is not.
        assert statuses(await answer_to(served.port, post(COMMANDS, "Host: localhost"))) == [200]
    assert len(served.rig.store.registrations) == 2


@pytest.mark.parametrize("peer", PEERS)
async def test_a_peer_that_is_no_loopback_address_sends_nothing(
    served: Served, peer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a packet filter leads strangers to a listener of the loopback."""
    monkeypatch.setattr(uvicorn_http, "get_remote_addr", lambda _: (peer, 40_000))
    answer = await answer_to(served.port, post(COMMANDS, "Host: localhost"))
    assert statuses(answer) == [403]
    assert b"this connection comes from another machine" in answer
    assert not served.rig.store.registrations


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"])
async def test_a_peer_on_this_machine_may_call(served: Served, peer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_http, "get_remote_addr", lambda _: (peer, 40_000))
    assert statuses(await answer_to(served.port, post(COMMANDS, "Host: localhost"))) == [200]


async def test_a_node_that_asks_for_keys_lets_other_machines_come_to_its_door(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uvicorn_http, "get_remote_addr", lambda _: (PEERS[0], 40_000))
    async with serving(rig, hosts=Hosts((), loopback=False)) as served:
        assert statuses(await answer_to(served.port, post(COMMANDS, "Host: localhost"))) == [200]


def test_there_are_forty_of_them_at_least() -> None:
    assert len({(target, *headers) for _, target, headers in REQUESTS}) + len(PEERS) >= 40
