"""systemd is told that a process is ready, and that it lives, where it has asked for it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.runtime.service_manager import ServiceManager


@pytest.fixture
def heard() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.setblocking(False)
        yield heard


async def hear(heard: socket.socket) -> bytes:
    return await asyncio.get_running_loop().sock_recv(heard, 64)


async def test_it_is_told_again_and_again_that_the_loop_goes_round(heard: socket.socket, tmp_path: Path) -> None:
    heard.bind(str(tmp_path / "notify"))
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "3000", "WATCHDOG_PID": "7"}
    ServiceManager(environ, 7).begin()
    assert [await hear(heard) for _ in range(4)] == [b"READY=1", *[b"WATCHDOG=1"] * 3]


@pytest.mark.parametrize(
    "watchdog", [{}, {"WATCHDOG_USEC": "3000", "WATCHDOG_PID": "8"}, {"WATCHDOG_USEC": "soon"}], ids=str
)
async def test_whoever_does_not_watch_is_told_once(heard: socket.socket, watchdog: dict[str, str]) -> None:
    heard.bind("")  # the system finds a name, which has no file
    name = heard.getsockname().decode()
    ServiceManager({"NOTIFY_SOCKET": f"@{name[1:]}", **watchdog}, 7).begin()
    assert await hear(heard) == b"READY=1"
    with pytest.raises(BlockingIOError):
        heard.recv(64)


@pytest.mark.parametrize("environ", [{"WATCHDOG_USEC": "3000"}, {"NOTIFY_SOCKET": "/nowhere/at/all"}], ids=str)
def test_nobody_has_to_listen(environ: dict[str, str]) -> None:
    ServiceManager(environ, 7).begin()
