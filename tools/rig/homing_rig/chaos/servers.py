"""The processes of the rig: private Redis, Mosquitto and nodes, to be killed, frozen, stopped and started again."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import psutil  # type: ignore[import-untyped] # it comes without types

from app.core.errors import ConfigurationError
from homing_rig.chaos import stepped
from homing_rig.chaos.broker_log import LOG_TYPES
from homing_rig.chaos.options import ChaosError
from homing_rig.chaos.stepped import SteppedClock
from homing_rig.fork_server import ForkedNode, can_be_forked
from homing_rig.ports import lasting_port
from homing_rig.programs import (
    CONNECT_PACKET,
    NotInstalledError,
    environment,
    find_binary,
    http_get,
    mosquitto_command,
    redis_command,
    replies,
)
from homing_rig.rights import PASSWORD, RIG_USER, mosquitto_acl, mosquitto_passwords, redis_users

START_SECONDS: Final = 90.0
"""A bound against hanging: other programs use the machine as well."""
STOP_SECONDS: Final = 20.0
"""More than a node may take to stop; then it is killed."""
POLL_SECONDS: Final = 0.05
TRACEBACK: Final = "Traceback (most recent call last)"
"""The words with which Python begins one, as it stands in a record of JSON as well."""


def require_binary(name: str) -> str:
    """The path of a program; ConfigurationError when it is not installed."""
    try:
        return find_binary(name)
    except NotInstalledError as error:
        raise ConfigurationError(str(error)) from None


def require_faketime() -> None:
    """ConfigurationError when libfaketime is not installed."""
    if stepped.library() is None:
        raise ConfigurationError(stepped.MISSING)


class Process(Protocol):
    """The part of asyncio's Process that is used here."""

    @property
    def pid(self) -> int:
        """The process id."""

    @property
    def returncode(self) -> int | None:
        """The exit code; None while it runs."""

    async def wait(self) -> int:
        """Wait for its end; its exit code."""


class _Forked:
    """A node that was forked, as a Process."""

    def __init__(self, node: ForkedNode) -> None:
        self.pid: Final = node.pid
        self._node = node

    @property
    def returncode(self) -> int | None:
        return self._node.returncode

    async def wait(self) -> int:
        return await asyncio.to_thread(self._node.wait)


class ServerProcess:
    """A server process on a port of its own, with a folder and a log that outlive its restarts."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.port = lasting_port()
        self.folder = folder / name
        self.folder.mkdir(parents=True)
        self.log = self.folder / "log"
        self.frozen = False
        self._died_before = 0
        self._to_end = False
        self._process: Process | None = None
        self._spawning = asyncio.Lock()

    @property
    def running(self) -> bool:
        """True if the process is there, be it frozen."""
        return self._process is not None and self._process.returncode is None

    @property
    def died(self) -> int:
        """The number of times it ended though nobody had ended it."""
        is_dead = self._process is not None and not self.running
        return self._died_before + (is_dead and not self._to_end)

    @property
    def usage(self) -> psutil.Process:
        """The memory and files of the running process."""
        return psutil.Process(self._alive().pid)

    @property
    def log_text(self) -> str:
        """Everything it said so far."""
        return self.log.read_text("utf-8", errors="replace") if self.log.exists() else ""

    @property
    def tracebacks(self) -> int:
        """The number of lines of its log with a traceback."""
        if not self.log.exists():
            return 0
        with self.log.open(errors="replace") as lines:
            return sum(TRACEBACK in line for line in lines)

    async def start(self) -> None:
        """Start it, if it does not run, and return when it serves; ChaosError when it never does."""
        await self.spawn()
        if not await self.until_ready(START_SECONDS):
            raise ChaosError(f"{self.name} did not serve on port {self.port}: {self.log_text[-1500:]}")

    async def spawn(self) -> None:
        """Start the process, if it does not run, without waiting for it to serve."""
        async with self._spawning:
            if self.running:
                return
            self._died_before = self.died
            self.frozen = self._to_end = False
            self._process = await self._launch()

    async def until_ready(self, seconds: float) -> bool:
        """Wait until it serves; false when it ended, or does not within that time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.running:
                    if await self.ready():
                        return True
                    await asyncio.sleep(POLL_SECONDS)
        return False

    async def ready(self) -> bool:
        """True if the server answers its own protocol."""
        raise NotImplementedError

    async def stop(self) -> float:
        """SIGTERM, and wait for its end; the seconds that took."""
        began = asyncio.get_running_loop().time()
        await self._end(signal.SIGTERM)
        return asyncio.get_running_loop().time() - began

    async def kill(self) -> None:
        """SIGKILL, as a crash."""
        await self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        self._send(signal.SIGSTOP)
        self.frozen = self.running

    def thaw(self) -> None:
        """SIGCONT."""
        self._send(signal.SIGCONT)
        self.frozen = False

    def _command(self) -> Sequence[str]:
        raise NotImplementedError

    def _environment(self) -> Mapping[str, str]:
        return environment({})

    async def _launch(self) -> Process:
        with self.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *self._command(), stdout=log, stderr=log, cwd=self.folder, env=self._environment()
            )

    def _alive(self) -> Process:
        if self._process is None:
            raise ChaosError(f"{self.name} is not running")
        return self._process

    def _send(self, number: signal.Signals) -> None:
        # Not Process.send_signal: it would take the exit status away from asyncio's watcher.
        if self.running:
            with suppress(ProcessLookupError):
                os.kill(self._alive().pid, number)

    async def _end(self, number: signal.Signals) -> None:
        if not self.running:
            return
        process = self._alive()
        self._to_end = True
        if self.frozen and number is not signal.SIGKILL:
            self.thaw()
        self._send(number)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            self._send(signal.SIGKILL)
            await process.wait()


class RedisProcess(ServerProcess):
    """A Redis with an append-only file and no eviction, in which nodes have the rights of nodes."""

    def __init__(self, folder: Path, *, name: str = "redis", steps: bool = False, fsync: str = "everysec") -> None:
        """`steps`: whether its clock can be set. `fsync`: when it writes what it was told."""
        self._fsync = fsync
        self._binary = require_binary("redis-server")
        super().__init__(name, folder)
        self._primary_port: int | None = None
        self._users = self.folder / "users.acl"
        self._users.write_text(redis_users(), "utf-8")
        self._clock = SteppedClock(self.folder / "clock") if steps else None

    @property
    def clock(self) -> SteppedClock:
        """The clock of the server alone."""
        if self._clock is None:
            raise ChaosError("the clock of this Redis cannot be set")
        return self._clock

    def follow(self, port: int | None) -> None:
        """Be a replica of the Redis on this port as from the next start, or of nobody."""
        self._primary_port = port

    def wipe(self) -> None:
        """Throw away what it wrote; it must not run."""
        shutil.rmtree(self.folder / "appendonlydir", ignore_errors=True)

    async def ready(self) -> bool:  # noqa: D102 - see ServerProcess
        login = f"AUTH {RIG_USER} {PASSWORD}\r\n".encode()  # before that it does not say whether it still loads
        return await replies(self.port, login + b"PING\r\n", b"+OK\r\n+PONG")

    def _command(self) -> Sequence[str]:
        options = {"aclfile": str(self._users), "appendfsync": self._fsync}
        if self._primary_port is not None:
            options |= {"replicaof": f"127.0.0.1 {self._primary_port}", "masteruser": RIG_USER, "masterauth": PASSWORD}
        options["repl-diskless-sync-delay"] = "0"  # there is one replica, and none to wait for
        return redis_command(self._binary, self.port, self.folder, **options)

    def _environment(self) -> Mapping[str, str]:
        return environment({} if self._clock is None else self._clock.environment)


class MosquittoProcess(ServerProcess):
    """A Mosquitto with the limits of deploy/mosquitto.conf that tells its counts every second.

    Everybody logs in. Nodes and devices may use the topics of the profiles, shipped or in a folder, in their direction.
    """

    def __init__(self, folder: Path, profiles: Path) -> None:
        self._binary = require_binary("mosquitto")
        super().__init__("mosquitto", folder)
        for name, text in (("acl", mosquitto_acl(profiles)), ("passwords", mosquitto_passwords())):
            (self.folder / name).write_text(text, "utf-8")
            (self.folder / name).chmod(0o600)

    async def ready(self) -> bool:  # noqa: D102 - see ServerProcess
        return await replies(self.port, CONNECT_PACKET, b"\x20\x02")

    def _command(self) -> Sequence[str]:
        users = ("allow_anonymous false", f"acl_file {self.folder}/acl", f"password_file {self.folder}/passwords")
        return mosquitto_command(self._binary, self.port, self.folder, *LOG_TYPES, *users, "sys_interval 1")


class NodeProcess(ServerProcess):
    """A node as users run it: `homing serve` in a process of its own. `forked`: see ChaosOptions."""

    def __init__(
        self, name: str, folder: Path, command: Sequence[str], settings: Mapping[str, str], *, forked: bool = False
    ) -> None:
        super().__init__(name, folder)
        self._forked = forked
        self._serve = command
        self._settings = settings

    def configure(self, settings: Mapping[str, str]) -> None:
        """Change settings, as from its next start."""
        self._settings = {**self._settings, **settings}

    @property
    def url(self) -> str:
        """The URL where callers reach the node."""
        return f"http://127.0.0.1:{self.port}"

    async def ready(self) -> bool:  # noqa: D102 - see ServerProcess
        return await replies(self.port, http_get("/readyz"), b"HTTP/1.1 200")

    def _command(self) -> Sequence[str]:
        return self._serve

    async def _launch(self) -> Process:
        if self._forked and can_be_forked(self._serve[1:], self._settings):
            return _Forked(await asyncio.to_thread(ForkedNode, self._environment(), self.folder, self.log))
        return await super()._launch()

    def _environment(self) -> Mapping[str, str]:
        own = {"HOMING_NODE_ID": self.name, "HOMING_API_HOST": "127.0.0.1", "HOMING_API_PORT": str(self.port)}
        return environment({**self._settings, **own, "PYTHONFAULTHANDLER": "1", "PATH": os.environ.get("PATH", "")})


class UpProcess(NodeProcess):
    """`homing up`: a node with a broker on `mqtt_port`, and everything it keeps in a folder. Nobody needs a key."""

    def __init__(self, name: str, folder: Path, settings: Mapping[str, str]) -> None:
        super().__init__(name, folder, [], settings)
        self.mqtt_port: Final = lasting_port()

    def _command(self) -> Sequence[str]:
        up = [sys.executable, "-m", "app.cli", "up", "--open", "--data", str(self.folder / "data")]
        return [*up, "--mqtt", f"127.0.0.1:{self.mqtt_port}", "--api", f"127.0.0.1:{self.port}"]
