"""Fault proxies in a process of their own, and how long that lives."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from homing_rig.chaos.options import ChaosError
from homing_rig.chaos.proxy_process import ProxyProcess
from homing_rig.programs import environment
from tests.tcp import listening
from tests.waiting import PATIENCE, eventually

NOTHING = 0.15
"""Seconds in which nothing must come."""


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data.upper())


@pytest.fixture
async def ways(tmp_path: Path) -> AsyncIterator[ProxyProcess]:
    async with ProxyProcess(tmp_path / "proxies.log") as one:
        yield one


@pytest.fixture
async def target() -> AsyncIterator[int]:
    async with listening(echo) as port:
        yield port


class Asking:
    """A connection to a port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, text: bytes) -> bytes:
        self.writer.write(text)
        async with asyncio.timeout(PATIENCE):
            return await self.reader.readexactly(len(text))

    async def hears_nothing(self) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(NOTHING):
                await self.reader.read(1)


@asynccontextmanager
async def connected(*ports: int) -> AsyncIterator[list[Asking]]:
    found = [Asking(*await asyncio.open_connection("127.0.0.1", one)) for one in ports]
    try:
        yield found
    finally:
        for one in found:
            one.writer.transport.abort()
        await asyncio.sleep(0)


async def refused(port: int) -> bool:
    try:
        async with connected(port):
            return False
    except ConnectionError as error:
        return isinstance(error, ConnectionRefusedError)  # and not at the moment in which it closes


async def test_it_carries_and_each_proxy_has_its_own_faults(ways: ProxyProcess, target: int) -> None:
    broken, sound = await ways.open(target), await ways.open(target)
    async with connected(broken.port, sound.port) as (one, two):
        assert await one.ask(b"one") == b"one"
        assert await broken.blackhole() == 1, "one connection is open"
        one.writer.write(b"into the dark")
        assert await two.ask(b"two") == b"two"
        await one.hears_nothing()
        await broken.heal()
        assert await one.reader.readexactly(13) == b"into the dark"


async def test_a_fault_that_meets_no_connection_says_so(ways: ProxyProcess, target: int) -> None:
    proxy = await ways.open(target)
    assert await proxy.latency(timedelta(milliseconds=1)) == 0


async def test_latency_a_reset_and_another_target_take_effect_before_the_call_returns(
    ways: ProxyProcess, target: int
) -> None:
    loop = asyncio.get_running_loop()
    proxy = await ways.open(target)
    async with listening(shout) as another, connected(proxy.port) as (one,):
        await one.ask(b"warm")
        await proxy.latency(timedelta(seconds=0.1))
        began = loop.time()
        assert await one.ask(b"slow") == b"slow"
        assert loop.time() - began >= 0.2
        await proxy.lead_to(another)
        assert await proxy.reset() == 1
        with pytest.raises(ConnectionResetError):
            await one.reader.read(1)
        await proxy.heal()
        async with connected(proxy.port) as (two,):
            assert await two.ask(b"loud") == b"LOUD"


async def test_an_answer_that_nobody_waited_for_is_not_taken_for_the_next_one(ways: ProxyProcess, target: int) -> None:
    proxy = await ways.open(target)
    os.kill(ways.pid, signal.SIGSTOP)
    given_up = asyncio.create_task(proxy.blackhole())
    await asyncio.sleep(NOTHING)
    given_up.cancel()
    await asyncio.wait([given_up])
    os.kill(ways.pid, signal.SIGCONT)
    other = await ways.open(target)
    assert other.port != proxy.port
    async with connected(other.port) as (one,):
        assert await one.ask(b"here") == b"here"


async def test_when_the_process_is_gone_a_fault_is_an_error(ways: ProxyProcess, target: int) -> None:
    proxy = await ways.open(target)
    os.kill(ways.pid, signal.SIGKILL)
    with pytest.raises(ChaosError, match="fault proxies does not answer"):
        await proxy.blackhole()


async def test_it_ends_with_its_context(tmp_path: Path, target: int) -> None:
    async with ProxyProcess(tmp_path / "proxies.log") as ways:
        port = (await ways.open(target)).port
    assert await refused(port)


RIG = """
import asyncio, sys
from pathlib import Path
from homing_rig.chaos.proxy_process import ProxyProcess

async def main():
    async with ProxyProcess(Path(sys.argv[1])) as ways:
        print((await ways.open(1)).port, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_it_ends_with_a_rig_that_is_killed(tmp_path: Path) -> None:
    rig = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", RIG, str(tmp_path / "proxies.log")),
        stdout=asyncio.subprocess.PIPE,
        env=environment({}),
    )
    try:
        assert rig.stdout is not None
        port = int(await rig.stdout.readline())
        assert not await refused(port)
    finally:
        rig.kill()
        await rig.wait()
    await eventually(lambda: refused(port))
