"""Starts what is measured, privately: free ports, temporary folders, everything gone at the end."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import orjson
import psutil  # type: ignore[import-untyped] # it comes without types

from homing_rig.bench.options import BenchError
from homing_rig.ports import lasting_port
from homing_rig.programs import (
    CONNECT_PACKET,
    ask,
    environment,
    find_binary,
    http_get,
    mosquitto_command,
    redis_command,
    replies,
)

MAX_LINE: Final = 256 * 1024 * 1024
"""Bytes; a result carries the latency of every command."""
START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 10.0


class Running:
    """A process with the CPU time and memory it uses."""

    def __init__(self, name: str, process: Process, log: Path | None) -> None:
        self.name = name
        self.process = process
        self._log = log

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        with self._usage() as usage:
            times = usage.cpu_times()
        return float(times.user + times.system)

    def resident_bytes(self) -> int:
        """Physical memory in use."""
        with self._usage() as usage:
            return int(usage.memory_info().rss)

    @contextmanager
    def _usage(self) -> Iterator[psutil.Process]:
        try:
            yield psutil.Process(self.process.pid)
        except psutil.NoSuchProcess:
            raise BenchError(f"{self.name} ended: {self._said()}") from None

    def check(self) -> None:
        """Raise BenchError, with the end of its log, when it is not running any more."""
        if self.process.returncode is not None:
            raise BenchError(f"{self.name} ended with exit code {self.process.returncode}: {self._said()}")

    def _said(self) -> str:
        """The end of its log."""
        return self._log.read_text(errors="replace")[-2000:] if self._log is not None else ""

    async def stop(self) -> None:
        """Ask it to end, and make it."""
        with suppress(ProcessLookupError):
            self.process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


class Worker(Running):
    """A process of ours that answers questions, see tools/rig/homing_rig/bench/worker.py."""

    async def ask(self, request: object) -> Any:  # noqa: ANN401 - JSON
        """Its answer; BenchError when it ended instead."""
        stdin = self.process.stdin
        if stdin is None:
            raise BenchError(f"{self.name} cannot be asked")
        with suppress(ConnectionError):
            stdin.write(orjson.dumps(request) + b"\n")
            await stdin.drain()
        return await self.read()

    async def read(self) -> Any:  # noqa: ANN401 - JSON
        """The next line it says."""
        line = await self.process.stdout.readline() if self.process.stdout is not None else b""
        if not line:
            await self.process.wait()
            self.check()
        return orjson.loads(line)


class Processes:
    """Starts processes whose output goes to files in `folder`; stops all of them, the last one first."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[Running] = []

    async def stop(self) -> None:
        """Stop everything."""
        for one in reversed(self._running):
            await one.stop()
        self._running.clear()

    async def redis(self, name: str = "redis") -> tuple[Running, int]:
        """A Redis with an append-only file and no eviction, and its port."""
        port = lasting_port()
        folder = self._subfolder(name)
        command = redis_command(find_binary("redis-server"), port, folder)
        running = await self._start(name, *command, cwd=folder)
        await self._until(running, lambda: replies(port, b"PING\r\n", b"+PONG"))
        return running, port

    async def mosquitto(self, name: str = "mosquitto") -> tuple[Running, int]:
        """A Mosquitto with the limits that Homing asks for, and its port."""
        port = lasting_port()
        folder = self._subfolder(name)
        command = mosquitto_command(find_binary("mosquitto"), port, folder)
        running = await self._start(name, *command, cwd=folder)
        await self._until(running, lambda: replies(port, CONNECT_PACKET, b"\x20\x02"))
        return running, port

    async def nats(self, name: str = "nats") -> tuple[Running, int, int]:
        """A NATS with streams in files and its MQTT gateway, its own port and that of the gateway."""
        port, mqtt_port = lasting_port(), lasting_port()
        folder = self._subfolder(name)
        config = folder / "nats.conf"
        config.write_text(
            f'server_name: bench\nlisten: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder}/streams" }}\n'
            f'mqtt {{ listen: "127.0.0.1:{mqtt_port}" }}\n',
            "utf-8",
        )
        running = await self._start(name, find_binary("nats-server"), "-c", str(config), cwd=folder)
        await self._until(running, lambda: replies(mqtt_port, CONNECT_PACKET, b"\x20\x02"))
        return running, port, mqtt_port

    async def node(self, name: str, command: tuple[str, ...], settings: Mapping[str, str]) -> tuple[Running, int]:
        """A node with these settings, ready to serve, and its port."""
        port = lasting_port()
        folder = self._subfolder(name)
        own = {"HOMING_NODE_ID": name, "HOMING_API_HOST": "127.0.0.1", "HOMING_API_PORT": str(port)}
        running = await self._start(name, *command, cwd=folder, env=environment(dict(settings) | own))
        await self._until(running, lambda: replies(port, http_get("/readyz"), b"HTTP/1.1 200"))
        return running, port

    async def no_op(self) -> tuple[Running, int]:
        """The no-op reference, and its port."""
        port = lasting_port()
        arguments = ("-m", "homing_rig.bench.worker", "no-op", str(port))
        running = await self._start("no-op", sys.executable, *arguments, cwd=self._folder, env=environment({}))
        await self._until(running, lambda: replies(port, http_get("/"), b"HTTP/1.1 404"))
        return running, port

    async def worker(self, role: str, argument: Mapping[str, object], name: str | None = None) -> Worker:
        """One of our workers, ready. `name` where there are several of a role."""
        path = self._folder / f"{name or role}.log"
        with path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "homing_rig.bench.worker", role, orjson.dumps(argument).decode()),
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                cwd=self._folder,
                env=environment({}),
                limit=MAX_LINE,
            )
        worker = Worker(name or role, process, path)
        self._running.append(worker)
        try:
            async with asyncio.timeout(START_SECONDS):
                await worker.read()
        except TimeoutError:
            raise BenchError(f"{role} was not ready within {START_SECONDS:.0f} s") from None
        return worker

    def _subfolder(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        return folder

    async def _start(self, name: str, *command: str, cwd: Path, env: Mapping[str, str] | None = None) -> Running:
        path = self._folder / f"{name}.log"
        with path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log, cwd=cwd, env=env)
        running = Running(name, process, path)
        self._running.append(running)
        return running

    async def _until(self, running: Running, condition: Callable[[], Awaitable[bool]]) -> None:
        try:
            async with asyncio.timeout(START_SECONDS):
                while not await condition():
                    running.check()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise BenchError(f"{running.name} was not ready within {START_SECONDS:.0f} s") from None


def busy_seconds() -> float:
    """CPU time that all programs of this machine used so far."""
    times = psutil.cpu_times()
    return float(times.user + times.system + times.nice)


async def redis_memory(port: int) -> int:
    """Bytes that the Redis on this port has allocated (`used_memory`)."""
    reply = await ask(port, b"INFO memory\r\n", until=b"used_memory_human")
    for line in reply.split(b"\r\n"):
        if line.startswith(b"used_memory:"):
            return int(line.removeprefix(b"used_memory:"))
    raise BenchError("Redis did not say how much memory it uses")
