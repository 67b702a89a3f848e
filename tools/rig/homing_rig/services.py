"""Private Redis, Mosquitto and other processes: own port, own temporary folder, gone at the end. All methods block."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from app.core.errors import HomingError
from homing_rig.patience import PATIENCE, pauses
from homing_rig.ports import lasting_port
from homing_rig.programs import CONNECT_PACKET, environment, find_binary, mosquitto_command, redis_command
from homing_rig.rights import NODE_USER, PASSWORD, mosquitto_acl, mosquitto_passwords, redis_users


class NotStartedError(HomingError):
    """A server ended, or did not answer, when it was started."""


class RunningProcess(Protocol):
    """The part of subprocess.Popen that a ServiceProcess uses."""

    @property
    def pid(self) -> int:
        """The process id."""

    @property
    def returncode(self) -> int | None:
        """The exit code; None while the process runs, as far as anybody has looked."""

    def poll(self) -> int | None:
        """Look whether it has ended; its exit code."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, for so many seconds; subprocess.TimeoutExpired."""

    def send_signal(self, sig: int) -> None:
        """Send it a signal."""

    def kill(self) -> None:
        """End it at once."""


class ServiceProcess:
    """A server process that can be stopped, killed, frozen and started again on the same port with the same data.

    A context manager: started on entry, gone together with its folder on exit. All methods block.
    """

    def __init__(self, binary: str) -> None:
        self.binary = self._find(binary)
        self.port = lasting_port()
        self._process: RunningProcess | None = None
        self.folder = Path(tempfile.mkdtemp(prefix=f"homing-{Path(binary).name}-"))

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        return self._running().pid

    @property
    def log_text(self) -> str:
        """Everything the server wrote so far."""
        log = self.folder / "log"
        return log.read_text(errors="replace") if log.exists() else ""

    def start(self) -> None:
        """Start the server and return when it answers its own protocol; NotStartedError when it never does."""
        for _ in range(3):
            if self._try_start():
                return
            # Between lasting_port() and now another process may have taken the port.
            if "in use" not in self.log_text or not self._may_change_port:
                break
            self.port = lasting_port()
        self.kill()
        raise NotStartedError(f"{self.binary} did not start on port {self.port}:\n{self.log_text[-2000:]}")

    def stop(self) -> int | None:
        """End the server in an orderly way (SIGTERM): it saves its data. Its exit code, where it ran."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server at once (SIGKILL), as a crash would."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop and start again on the same port, with the same data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze the server (SIGSTOP): connections stay open, nothing answers."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen server go on (SIGCONT)."""
        self._running().send_signal(signal.SIGCONT)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Frozen inside the block."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    _may_change_port = True

    def _command(self) -> Sequence[str]:
        raise NotImplementedError

    def _answers(self) -> bool:
        raise NotImplementedError

    def _running(self) -> RunningProcess:
        if self._process is None:
            raise RuntimeError(f"{self.binary} is not running")
        return self._process

    def _try_start(self) -> bool:
        self._process = process = self._launch(self._command())
        if not wait_until(lambda: process.poll() is not None or self._answers(), PATIENCE, interval=0.03):
            return False
        if process.poll() is not None:
            return False
        self._may_change_port = False
        return True

    def _find(self, binary: str) -> str:
        return find_binary(binary)

    def _launch(self, command: Sequence[str]) -> RunningProcess:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, env=environment({}))

    def _end(self, end_signal: signal.Signals) -> int | None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return None
        process.send_signal(end_signal)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        return process.returncode


class MosquittoProcess(ServiceProcess):
    """A Mosquitto with the limits of deploy/mosquitto.conf on a free port of 127.0.0.1.

    `extra_config` lines come last and so win over those. A client that logs in as `homing` has the rights of nodes; one
    that does not log in may do everything.
    """

    password = PASSWORD
    """The password of the user `homing`."""

    def __init__(self, *extra_config: str) -> None:
        super().__init__("mosquitto")
        self._extra_config = extra_config

    @property
    def url(self) -> str:
        """As for HOMING_MQTT_URL."""
        return f"mqtt://127.0.0.1:{self.port}"

    @property
    def node_settings(self) -> dict[str, str]:
        """The settings by which a node logs in."""
        login = {"HOMING_MQTT_USERNAME": NODE_USER, "HOMING_MQTT_PASSWORD": self.password}
        return {"HOMING_MQTT_URL": self.url, **login}

    def _acl(self) -> str:
        return mosquitto_acl()

    def _passwords(self) -> str:
        return mosquitto_passwords()

    def _command(self) -> Sequence[str]:
        # The lines before the first user are for clients that do not log in.
        acl = f"topic readwrite #\ntopic read $SYS/#\n{self._acl()}"
        for name, text in (("acl", acl), ("passwords", self._passwords())):
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o600)
        users = (f"acl_file {self.folder / 'acl'}", f"password_file {self.folder / 'passwords'}")
        return mosquitto_command(self.binary, self.port, self.folder, *users, *self._extra_config)

    def _answers(self) -> bool:
        # Any CONNACK will do, also one that asks for credentials.
        return reply_of(self.port, CONNECT_PACKET).startswith(b"\x20\x02")


class RedisProcess(ServiceProcess):
    """A Redis with an append-only file and no eviction, as a cluster of Homing needs it, on a free port of 127.0.0.1.

    `extra_arguments` are options such as `"--maxmemory", "20mb"`. A client that logs in as `homing` has the rights of
    nodes; one that does not log in may do everything.
    """

    password = PASSWORD
    """The password of the user `homing`."""

    def __init__(self, *extra_arguments: str) -> None:
        super().__init__("redis-server")
        self._extra_arguments = extra_arguments

    @property
    def url(self) -> str:
        """The URL of a user with all rights."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def peer_port(self) -> int:
        """The port by which other servers reach this one."""
        return self.port

    @property
    def node_url(self) -> str:
        """As for HOMING_STORE_URL, with the rights of a node."""
        return f"redis://{NODE_USER}:{self.password}@127.0.0.1:{self.port}/0"

    def forget_refusals(self) -> None:
        """Empty the list of calls that were refused, so that `refusals` has those of the next user alone."""
        reply_of(self.port, b"ACL LOG RESET\r\n", 4096, PATIENCE)

    def log_end(self) -> int:
        """The number of bytes of the append-only file: all that was answered so far is in them."""
        return self._log().stat().st_size

    def forget_since(self, log_end: int) -> None:
        """Kill the server, and start it as if the disk had no more than so many bytes of its append-only file."""
        self.kill()
        with self._log().open("r+b") as file:
            file.truncate(log_end)
        self.start()

    def _log(self) -> Path:
        return max((self.folder / "appendonlydir").glob("*.incr.aof"))

    def forget_everything(self) -> None:
        """Delete all keys, such as databases of events with other shards."""
        reply_of(self.port, b"FLUSHALL\r\n", 4096, PATIENCE)

    def refusals(self) -> str:
        """The calls that users were refused so far, in the words of Redis; empty when there were none."""
        reply = reply_of(self.port, b"ACL LOG 10\r\n", 4096, PATIENCE).decode(errors="replace")
        return "" if reply == "*0\r\n" else reply or "Redis did not tell"

    def _users(self) -> str:
        return redis_users()

    def _command(self) -> Sequence[str]:
        options = {"repl-diskless-sync-delay": "0"}  # no further replica is worth waiting for
        if "--requirepass" not in self._extra_arguments:  # the file would win
            kept = [line for line in self._users().splitlines() if not line.startswith("user default ")]
            (self.folder / "users.acl").write_text("\n".join(["user default on nopass ~* &* +@all", *kept, ""]))
            options["aclfile"] = str(self.folder / "users.acl")
        return [*redis_command(self.binary, self.port, self.folder, **options), *self._extra_arguments]

    def _answers(self) -> bool:
        # While it loads its file Redis replies with -LOADING; with a password set, with -NOAUTH.
        return reply_of(self.port, b"PING\r\n").startswith((b"+PONG", b"-NOAUTH"))


class SentinelProcess(ServiceProcess):
    """A Sentinel on a free port of 127.0.0.1 that guards a Redis under a name, in the mode of redis-server.

    `quorum` Sentinels have to agree that the primary is away. `lines` are more of its file: without users in them,
    anybody may do all.
    """

    service = "homing"

    def __init__(self, redis: RedisProcess, *, quorum: int, down_after_ms: int = 1_000, lines: str = "") -> None:
        super().__init__("redis-server")
        self._redis = redis
        self._quorum = quorum
        self._down_after_ms = down_after_ms
        self._lines = lines

    @property
    def peer_port(self) -> int:
        """The port by which other Sentinels reach this one."""
        return self.port

    def _command(self) -> Sequence[str]:
        file = self.folder / "sentinel.conf"  # the Sentinel writes into it what it has found
        if not file.exists():
            name = self.service
            lines = (
                *(f"port {self.port}", "bind 127.0.0.1", f"dir {self.folder}", "sentinel resolve-hostnames no"),
                f"sentinel monitor {name} 127.0.0.1 {self._redis.peer_port} {self._quorum}",
                f"sentinel down-after-milliseconds {name} {self._down_after_ms}",
                *(f"sentinel failover-timeout {name} 5000", f"sentinel parallel-syncs {name} 1"),
            )
            file.write_text("\n".join((*lines, self._lines, "")), "utf-8")
        return [self.binary, str(file), "--sentinel"]

    def _answers(self) -> bool:
        return reply_of(self.port, b"PING\r\n").startswith((b"+PONG", b"-NOAUTH"))


def wait_until(condition: Callable[[], bool], timeout: float, interval: float = 0.01) -> bool:
    """Ask `condition` again and again (blocking) until it is true; False when `timeout` seconds went by."""
    deadline = time.monotonic() + timeout
    pause = pauses(interval)
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(next(pause))
    return True


def reply_of(port: int, request: bytes, size: int = 64, timeout: float = 5.0) -> bytes:
    """The first bytes of what the server on this port answers; none when it does not."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
            connection.sendall(request)
            return connection.recv(size)
    except OSError:
        return b""
