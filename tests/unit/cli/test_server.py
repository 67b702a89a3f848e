"""One node in this process."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator

import pytest

from app.cli.client import NodeClient
from app.cli.server import NodeServer, listen, url_of
from app.core.errors import ConfigurationError, StoreUnavailableError
from app.settings import Settings, load_settings
from tests.services import wait_until


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with listen("127.0.0.1", 0) as one:
        yield one


def settings() -> Settings:
    """A node that never finds its broker, and serves nevertheless."""
    return load_settings(mqtt={"url": "mqtt://127.0.0.1:1"}, cluster={"drain_delay": "0s"})


async def test_a_part_that_fails_stops_the_server_which_says_why(listener: socket.socket) -> None:
    server = NodeServer(settings(), listener)
    serving = asyncio.create_task(server.serve())
    client = NodeClient(url_of(listener))
    alive = await asyncio.to_thread(client.call, "GET", "/healthz", 5.0)
    assert alive.status == 200
    server.fail(StoreUnavailableError("the first reason"))
    server.fail(StoreUnavailableError("the second reason"))
    with pytest.raises(StoreUnavailableError, match="the first reason"):
        await serving


async def test_a_signal_stops_it_without_a_failure(listener: socket.socket) -> None:
    again = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: again.append(number))
    try:
        server = NodeServer(settings(), listener)
        serving = asyncio.create_task(server.serve())
        await asyncio.to_thread(wait_until, lambda: server.uvicorn.started, 5.0)
        signal.raise_signal(signal.SIGTERM)
        await serving
    finally:
        signal.signal(signal.SIGTERM, before)
    assert again == [signal.SIGTERM]


def test_a_port_that_is_taken_is_a_wrong_setting(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1 port {port}: Address already in use"):
        listen("127.0.0.1", port)


@pytest.mark.parametrize(("host", "url"), [("0.0.0.0", "http://127.0.0.1:"), ("::1", "http://[::1]:")])  # noqa: S104
def test_the_url_is_one_that_can_be_called(host: str, url: str) -> None:
    with listen(host, 0) as one:
        assert url_of(one) == f"{url}{one.getsockname()[1]}"
