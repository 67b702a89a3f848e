"""One attempt, over real sockets: what counts as delivered, and where nobody connects (server-side request forgery)."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from app.core.errors import InvalidInputError
from app.core.webhooks.destinations import networks, refusal, refusal_of_host
from app.core.webhooks.endpoints import validate_url
from app.outbound import sender as module
from app.outbound.sender import HttpSender
from homing_rig.receivers import Answer, Receiver, receiving
from tests.waiting import turns

PRIVATE = (
    *("127.0.0.1", "127.1", "127.0.1", "127.255.255.254", "0", "0.0.0", "2130706433", "0x7f000001", "0x7f.1"),
    *("0x7f.0x0.0x0.0x1", "0177.0.0.1", "017700000001", "0177.0x0.1", "127.000.000.001", "00.00.00.00"),
    *("10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "169.254.169.254"),
    *("2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "100.64.0.1", "100.100.100.200"),
    *("192.0.0.192", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1"),
    *("239.255.255.255", "240.0.0.1", "255.255.255.255", "0.1.2.3"),
    *("[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[::7f00:1]"),
    *("[64:ff9b::7f00:1]", "[64:ff9b::127.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b::10.0.0.1]", "[64:ff9b:1::1]"),
    *("[2002:7f00:1::]", "[2002:a9fe:a9fe::1]", "[2002:808:808::]", "[fec0::1]", "[fe80::1]", "[fc00::1]"),
    *("[fd00:ec2::254]", "[fdff:ffff::1]", "[ff02::1]", "[ff0e::1]", "[100::1]", "[2001::1]", "[2001:db8::1]"),
    *("[2001:10::1]", "[3fff::1]", "[5f00::1]", "[::ffff:169.254.169.254]", "[::ffff:8.8.8.8]"),
    *("[::ffff:0:127.0.0.1]", "[::ffff:0:a9fe:a9fe]", "[::ffff:0:10.0.0.1]", "[::ffff:0:8.8.8.8]", "[100:0:0:1::1]"),
)
NAMES = ("localhost", "LOCALHOST", "localhost.", "LocalHost.")


@pytest.fixture
async def sender() -> AsyncIterator[HttpSender]:
    made = HttpSender(allowed=(), user_agent="homing/test")
    yield made
    await made.close()


@pytest.fixture
async def neighbour() -> AsyncIterator[HttpSender]:
    """May connect to this machine."""
    made = HttpSender(allowed=networks(["127.0.0.0/8"]), user_agent="homing/test")
    yield made
    await made.close()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


def urls(port: int) -> list[str]:
    """Each place in several spellings, http where TLS would end it before."""
    hosts = (*PRIVATE, *NAMES)
    return [
        *(f"http://{host}:{port}/hook" for host in hosts),
        *(f"https://{host}:{port}/hook" for host in hosts),
        *(f"http://{host}/latest/meta-data" for host in hosts if "." in host),
    ]


class TestWhereNobodyConnects:
    async def test_no_spelling_leads_to_this_machine_or_its_neighbours(self, sender: HttpSender) -> None:
        async with receiving(host="127.0.0.1") as four, receiving(host="::1") as six:
            tried = [*urls(four.port), *urls(six.port)]
            assert len(set(tried)) >= 150
            replies = [await sender.post(url, {}, b"{}") for url in tried]
            assert [one.status for one in replies] == [None] * len(tried)
            assert (four.connections, six.connections) == (0, 0)

    async def test_the_canary_can_be_reached_by_who_may(self, neighbour: HttpSender, receiver: Receiver) -> None:
        assert (await neighbour.post(receiver.url, {}, b"{}")).delivered
        assert receiver.connections == 1

    async def test_a_name_with_one_private_address_is_refused_whole(
        self, sender: HttpSender, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        resolves_to(monkeypatch, ["8.8.8.8", "127.0.0.1"])
        reply = await sender.post(f"http://rebound.example:{receiver.port}/", {}, b"{}")
        assert reply.status is None
        assert reply.reason == "rebound.example: the name leads to an address that is not allowed"
        assert receiver.connections == 0

    async def test_what_a_name_leads_to_is_for_the_log_alone(
        self, neighbour: HttpSender, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        resolves_to(monkeypatch, ["10.0.0.7"])
        with capture_logs() as logs:
            refused = await neighbour.post("http://rebound.example/", {}, b"{}")
        assert "10.0.0.7" not in refused.reason
        (event,) = [one for one in logs if one["event"] == "webhook_address_refused"]
        assert (event["host"], event["reason"]) == ("rebound.example", "10.0.0.7 is no public address")
        resolves_to(monkeypatch, ["127.0.0.1"])
        closed = await neighbour.post("http://rebound.example:9/", {}, b"{}")
        assert closed.status is None
        assert "127.0.0.1" not in closed.reason
        assert closed.reason == "cannot connect to rebound.example:9: Connection refused"

    async def test_what_a_name_means_is_judged_on_each_attempt(
        self, neighbour: HttpSender, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        url = f"http://rebound.example:{receiver.port}/"
        resolves_to(monkeypatch, ["127.0.0.1"])
        assert (await neighbour.post(url, {}, b"{}")).delivered
        resolves_to(monkeypatch, ["10.0.0.1"])
        assert (await neighbour.post(url, {}, b"{}")).status is None

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    async def test_no_redirection_is_followed(self, neighbour: HttpSender, receiver: Receiver, status: int) -> None:
        async def elsewhere(_request: web.Request) -> web.Response:
            return web.Response(status=status, headers={"location": receiver.url})

        async with receiving(elsewhere) as first:
            reply = await neighbour.post(first.url, {}, b"{}")
        assert (reply.status, reply.delivered) == (status, False)
        assert receiver.connections == 0

    async def test_no_proxy_of_the_environment_is_used(
        self, sender: HttpSender, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "https_proxy"):
            monkeypatch.setenv(name, receiver.url)
        await sender.post("http://10.0.0.1/", {}, b"{}")
        assert receiver.connections == 0

    def test_who_asks_for_them_is_told_at_once_where_the_url_tells(self) -> None:
        for url in ("https://user:pw@a.example/", "file:///etc/passwd", "http://a.example"):
            with pytest.raises(InvalidInputError):
                validate_url(url, plain_http=False)

    @pytest.mark.parametrize("address", ["8.8.8.8", "2a00:1450:4001::1", "64:ff9b::808:808", "193.99.144.80"])
    def test_public_addresses_are_allowed(self, address: str) -> None:
        assert refusal(address) is None

    def test_a_url_that_can_never_be_delivered_to_is_known(self) -> None:
        for host in ("10.0.0.1", "::1", "::ffff:0:a00:1", "localhost", "LOCALHOST.", "a.localhost", "169.254.169.254"):
            assert refusal_of_host(host) is not None
        for host in ("127.1", "2130706433", "0x7f000001", "0177.0.0.1", "8.8.2056", "127.0.0.1."):
            assert refusal_of_host(host) is not None, "some resolvers take it for an address"
        for host in ("8.8.8.8", "hooks.example.com", "localhost.example.com", "10.0.0.1.example.com", "x.0b"):
            assert refusal_of_host(host) is None
        here = networks(["127.0.0.0/8", "10.1.0.0/16"])
        assert [refusal_of_host(one, here) for one in ("localhost", "127.0.0.1", "10.1.0.1")] == [None] * 3
        assert refusal_of_host("10.2.0.1", here) is not None

    def test_a_private_network_can_be_allowed(self) -> None:
        allowed = networks(["10.1.0.0/16", "fd00::/8"])
        assert [refusal(one, allowed) for one in ("10.1.2.3", "fd00::1")] == [None, None]
        assert refusal("10.2.0.1", allowed) is not None

    @pytest.mark.parametrize("text", ["10.1.0.0/33", "10.1.0.1/16", "x", "10.1.0.0/16;"])
    def test_what_is_no_network_is_said(self, text: str) -> None:
        with pytest.raises(InvalidInputError, match="CIDR"):
            networks([text])


def resolves_to(monkeypatch: pytest.MonkeyPatch, addresses: Sequence[str]) -> None:
    def found(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        assert host == "rebound.example"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", found)


async def test_a_name_server_that_does_not_answer_keeps_only_those_waiting_who_ask_for_its_names(
    neighbour: HttpSender, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def found(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        if host == "mute.example":
            answers.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", found)
    waiting = [
        asyncio.create_task(neighbour.post(f"http://mute.example:{receiver.port}/", {}, b"{}"))
        for _ in range(2 * module.THREADS)
    ]
    await turns()
    try:
        assert (await neighbour.post(f"http://fine.example:{receiver.port}/", {}, b"{}")).delivered
        assert not any(one.done() for one in waiting)
    finally:
        answers.set()
    assert all(one.delivered for one in await asyncio.gather(*waiting))


class TestAnAttempt:
    async def test_body_and_headers_arrive_as_they_are(self, neighbour: HttpSender, receiver: Receiver) -> None:
        reply = await neighbour.post(receiver.url, {"webhook-id": "evt_1"}, b'{"a": 1}')
        ((headers, body),) = receiver.got
        assert (reply.status, reply.reason, body) == (204, "", b'{"a": 1}')
        assert (headers["webhook-id"], headers["content-type"]) == ("evt_1", "application/json")
        assert headers["user-agent"] == "homing/test"

    @pytest.mark.parametrize(
        ("status", "delivered"), [(200, True), (299, True), (400, False), (410, False), (503, False)]
    )
    async def test_its_status_counts(
        self, neighbour: HttpSender, receiver: Receiver, status: int, *, delivered: bool
    ) -> None:
        async def answer(_request: web.Request) -> web.Response:
            return web.Response(status=status, headers={"retry-after": "7"}, text="no")

        receiver.answer = answer
        reply = await neighbour.post(receiver.url, {}, b"{}")
        assert (reply.status, reply.delivered, reply.retry_after) == (status, delivered, "7")

    async def test_who_does_not_answer_is_left(self, receiver: Receiver) -> None:
        async def never(_request: web.Request) -> web.Response:
            await asyncio.Event().wait()
            return web.Response()

        receiver.answer = never
        made = HttpSender(allowed=networks(["127.0.0.0/8"]), user_agent="homing/test", seconds=0.05)
        assert (await made.post(receiver.url, {}, b"{}")).reason == "no reply within 0.05 s"
        await made.close()

    async def test_a_body_that_stalls_or_breaks_off_changes_nothing_about_the_status(
        self, neighbour: HttpSender, receiver: Receiver
    ) -> None:
        def answering(status: int, *, breaks_off: bool) -> Answer:
            async def answer(request: web.Request) -> web.Response:
                response = web.StreamResponse(status=status, headers={"content-length": "5"})
                await response.prepare(request)
                if breaks_off and request.transport is not None:
                    request.transport.close()
                await asyncio.Event().wait()
                raise AssertionError

            return answer

        receiver.answer = answering(410, breaks_off=True)
        assert (await neighbour.post(receiver.url, {}, b"{}")).gone
        receiver.answer = answering(200, breaks_off=False)
        impatient = HttpSender(allowed=networks(["127.0.0.0/8"]), user_agent="homing/test", seconds=1.0)
        assert (await impatient.post(receiver.url, {}, b"{}")).delivered
        await impatient.close()

    async def test_an_endless_answer_is_not_read_to_its_end(self, neighbour: HttpSender, receiver: Receiver) -> None:
        async def endless(request: web.Request) -> web.Response:
            response = web.StreamResponse()
            await response.prepare(request)
            while True:
                await response.write(b"x" * 65_536)

        receiver.answer = endless
        assert (await neighbour.post(receiver.url, {}, b"{}")).delivered

    async def test_nobody_there_is_a_failure_with_a_reason(self, neighbour: HttpSender) -> None:
        async with receiving() as gone:
            url = gone.url
        reply = await neighbour.post(url, {}, b"{}")
        assert reply.status is None
        assert reply.reason
