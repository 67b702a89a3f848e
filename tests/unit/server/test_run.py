"""One node in this process."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.core.errors import ConfigurationError, StoreUnavailableError
from app.runtime.sockets import listen
from app.server.run import NodeServer
from app.server.sockets import listen_for_operations, url_of
from app.settings import Settings, load_settings
from homing_client import AsyncHoming
from homing_rig.ports import lasting_port
from tests.services import wait_until


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with listen("127.0.0.1", 0) as one:
        yield one


@pytest.fixture
def no_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that stops has been told to, as no tick comes that would look."""
    monkeypatch.setattr("app.server.run.TICK_SECONDS", 3600)


def settings(**more: Any) -> Settings:
    """A node that never finds its broker, and serves nevertheless."""
    return load_settings(mqtt={"url": "mqtt://127.0.0.1:1"}, cluster={"drain_delay": "0s"}, **more)


@pytest.mark.usefixtures("no_tick")
async def test_a_part_that_fails_stops_the_server_which_says_why(listener: socket.socket) -> None:
    server = NodeServer(settings(), listener)
    serving = asyncio.create_task(server.serve())
    async with AsyncHoming(url_of(listener)) as homing:
        assert await homing.alive() == {"status": "ok"}
    server.fail(StoreUnavailableError("the first reason"))
    server.fail(StoreUnavailableError("the second reason"))
    with pytest.raises(StoreUnavailableError, match="the first reason"):
        await serving


@pytest.mark.usefixtures("no_tick")
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_it_without_a_failure(listener: socket.socket, sent: signal.Signals) -> None:
    again = []
    before = signal.signal(sent, lambda number, _frame: again.append(number))
    try:
        server = NodeServer(settings(), listener)
        serving = asyncio.create_task(server.serve())
        await asyncio.to_thread(wait_until, lambda: server.uvicorn.started, 5.0)
        signal.raise_signal(sent)
        await serving
    finally:
        signal.signal(sent, before)
    assert again == [sent]


def test_a_port_that_is_taken_is_a_wrong_setting(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1 port {port}: Address already in use"):
        listen("127.0.0.1", port)


@pytest.mark.parametrize(("host", "url"), [("0.0.0.0", "http://127.0.0.1:"), ("::1", "http://[::1]:")])  # noqa: S104
def test_the_url_is_one_that_can_be_called(host: str, url: str) -> None:
    with listen(host, 0) as one:
        assert url_of(one) == f"{url}{one.getsockname()[1]}"


async def test_health_and_metrics_have_a_port_of_their_own(listener: socket.socket, tmp_path: Path) -> None:
    """On which nobody is asked for a key, and on which there is nothing else."""
    guarded = settings(access={"url": f"sqlite:///{tmp_path / 'access.db'}"}, ops={"port": 0})
    operations = listen_for_operations(guarded)
    assert operations is not None
    server = NodeServer(guarded, listener, operations=operations)
    serving = asyncio.create_task(server.serve())

    async def status(socket: socket.socket, path: str, method: str = "GET") -> int:
        async with httpx.AsyncClient(base_url=url_of(socket)) as client:
            return (await client.request(method, path)).status_code

    assert await status(operations, "/healthz") == 200
    assert await status(operations, "/readyz") == 503  # its broker is away
    assert await status(operations, "/metrics") == 200
    for path in ("/", "/docs", "/openapi.json", "/v1/me", "/v1/commands", "/v1/nodes", "/v1/devices/d/commands"):
        assert await status(operations, path) == 404, path
    assert await status(operations, "/v1/devices/d/commands", "POST") == 404
    assert await status(operations, "/metrics", "POST") == 405
    assert await status(listener, "/healthz") == 200
    assert await status(listener, "/metrics") in (401, 503)
    server.stop()
    await serving


def test_without_the_setting_there_is_no_such_port() -> None:
    assert listen_for_operations(settings()) is None


def test_each_worker_has_a_port_for_its_health() -> None:
    base = lasting_port()
    found = listen_for_operations(settings(ops={"port": base, "host": "127.0.0.1"}), 1)
    assert found is not None
    with found:
        assert found.getsockname() == ("127.0.0.1", base + 1)
        with pytest.raises(ConfigurationError, match="HOMING_OPS_HOST, HOMING_OPS_PORT: cannot listen on 127"):
            listen_for_operations(settings(ops={"port": base + 1}))
