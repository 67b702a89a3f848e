"""Private Redis, Mosquitto and PostgreSQL processes for tests: own port, own temporary folder, stopped at the end."""

from __future__ import annotations

import getpass
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self
from urllib.parse import quote

import psutil  # type: ignore[import-untyped] # it has no types
import psycopg
import pytest

from homing_rig.ports import lasting_port
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.service_container import ContainerProcess

DEPLOY = Path(__file__).parent.parent / "deploy"
DEPLOYED_MOSQUITTO_CONF = DEPLOY / "mosquitto.conf"
NODE_USER, NODE_PASSWORD = "homing", "change-me"
"""Whom deploy/redis/users.acl and deploy/mosquitto/acl grant what nodes need, and nothing else (S9)."""
IN_CONTAINERS = ("redis-server", "mosquitto") if os.environ.get("HOMING_TEST_SERVICES") == "docker" else ()
"""Services that run in containers, as neither apt nor the machine has them."""


def find_binary(name: str, package: str = "redis-server mosquitto") -> str:
    """Path of a service binary. When it is missing the test is skipped on a laptop and fails in CI."""
    if name in IN_CONTAINERS:
        return name
    places = ["/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/sbin", "/opt/homebrew/bin"]
    # Debian keeps the servers of all versions of PostgreSQL side by side.
    places += map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))
    path = shutil.which(name) or shutil.which(name, path=":".join(places))
    if path is None:
        without_program(f"{name} is not installed (Debian, Ubuntu: apt-get install {package})")
    return path


def without_program(missing: str) -> NoReturn:
    """Skip the test on a laptop, and fail it in CI."""
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


def require_programs() -> None:
    """Redis and Mosquitto as programs of this machine, for rigs that start them themselves: containers will not do."""
    if IN_CONTAINERS:
        pytest.skip("this rig starts redis-server and mosquitto itself, and here they are in containers only")
    for name in ("redis-server", "mosquitto"):
        find_binary(name)


class ServiceProcess:
    """A server process that can be stopped, killed, frozen and started again on the same port with the same data.

    A context manager: started on entry, gone together with its folder on exit. All methods block.
    """

    def __init__(self, binary: str) -> None:
        self.binary = find_binary(binary)
        self.port = lasting_port()
        self._process: subprocess.Popen[bytes] | ContainerProcess | None = None
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
        """Start the server and return when it answers its own protocol."""
        for _ in range(3):
            if self._try_start():
                return
            # Between lasting_port() and now another process may have taken the port.
            if "in use" not in self.log_text or not self._may_change_port:
                break
            self.port = lasting_port()
        self.kill()
        pytest.fail(f"{self.binary} did not start on port {self.port}:\n{self.log_text[-2000:]}")

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

    def _running(self) -> subprocess.Popen[bytes] | ContainerProcess:
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

    def _launch(self, command: Sequence[str]) -> subprocess.Popen[bytes] | ContainerProcess:
        if self.binary in IN_CONTAINERS:
            from tests.service_container import ContainerProcess  # noqa: PLC0415 - Docker's library, where there is Docker

            return ContainerProcess(command, self.folder)
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)

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

    `extra_config` lines come last and so win over the deployed ones. Who logs in as NODE_USER may do what
    deploy/mosquitto/acl grants; who does not log in may do everything.
    """

    def __init__(self, *extra_config: str) -> None:
        super().__init__("mosquitto")
        self._extra_config = extra_config

    @property
    def url(self) -> str:
        """As for HOMING_MQTT_URL."""
        return f"mqtt://127.0.0.1:{self.port}"

    def _command(self) -> Sequence[str]:
        deployed = DEPLOYED_MOSQUITTO_CONF.read_text().splitlines()
        kept = [line for line in deployed if line.split(" ")[0] not in ("listener", "persistence_location")]
        # Started by root, Mosquitto would change to a user that may not write to the temporary folder.
        own = [f"listener {self.port} 127.0.0.1", f"persistence_location {self.folder}/", f"user {getpass.getuser()}"]
        own += [f"acl_file {self.folder / 'acl'}", f"password_file {self.folder / 'passwords'}"]
        # What stands before the first user is for those who do not log in.
        acl = f"topic readwrite #\ntopic read $SYS/#\n{(DEPLOY / 'mosquitto' / 'acl').read_text()}"
        for name, text in (("acl", acl), ("passwords", (DEPLOY / "mosquitto" / "passwords.example").read_text())):
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o600)
        config = self.folder / "mosquitto.conf"
        config.write_text("\n".join([*own, *kept, *self._extra_config, ""]))
        return [self.binary, "-c", str(config)]

    def _answers(self) -> bool:
        mqtt311_connect_without_client_id = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x0a\x00\x00"
        # Any CONNACK will do, also one that asks for credentials.
        return _reply(self.port, mqtt311_connect_without_client_id).startswith(b"\x20\x02")


class RedisProcess(ServiceProcess):
    """A Redis with an append-only file and no eviction, as a cluster of Homing needs it, on a free port of 127.0.0.1.

    `extra_arguments` are options such as `"--maxmemory", "20mb"`. Who logs in as NODE_USER may do what
    deploy/redis/users.acl grants; who does not log in may do everything.
    """

    def __init__(self, *extra_arguments: str) -> None:
        super().__init__("redis-server")
        self._extra_arguments = extra_arguments

    @property
    def url(self) -> str:
        """For tests themselves."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def node_url(self) -> str:
        """As for HOMING_STORE_URL, with the rights of a node."""
        return f"redis://{NODE_USER}:{NODE_PASSWORD}@127.0.0.1:{self.port}/0"

    def forget_refusals(self) -> None:
        """What others were refused before is none of the business of who asks next."""
        _reply(self.port, b"ACL LOG RESET\r\n", 4096, PATIENCE)

    def forget_everything(self) -> None:
        """What others have kept, such as databases of events with other shards."""
        _reply(self.port, b"FLUSHALL\r\n", 4096, PATIENCE)

    def refusals(self) -> str:
        """What users were refused so far, in the words of Redis; empty when nothing was."""
        reply = _reply(self.port, b"ACL LOG 10\r\n", 4096, PATIENCE).decode(errors="replace")
        return "" if reply == "*0\r\n" else reply or "Redis did not tell"

    def _command(self) -> Sequence[str]:
        users = (DEPLOY / "redis" / "users.acl").read_text().splitlines()
        kept = [line for line in users if not line.startswith("user default ")]
        (self.folder / "users.acl").write_text("\n".join(["user default on nopass ~* &* +@all", *kept, ""]))
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": str(self.folder),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
        }
        if "--requirepass" not in self._extra_arguments:  # the file would win
            options["aclfile"] = str(self.folder / "users.acl")
        flags = [word for name, value in options.items() for word in (f"--{name}", value)]
        return [self.binary, *flags, *self._extra_arguments]

    def _answers(self) -> bool:
        # While it loads its file Redis replies with -LOADING; with a password set, with -NOAUTH.
        return _reply(self.port, b"PING\r\n").startswith((b"+PONG", b"-NOAUTH"))


class PostgresProcess(ServiceProcess):
    """A PostgreSQL on a free port of 127.0.0.1, in which USER with PASSWORD may do everything.

    It refuses to run as root, so there it runs as the user that Debian's package makes for it.
    """

    USER, PASSWORD = "homing", "p@ss/w?rd#1"
    """The password needs its escapes in a URL."""
    SERVER_USER = "postgres"

    def __init__(self) -> None:
        super().__init__("postgres")
        self._numbers = itertools.count(1)
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            self._as_user = ["setpriv", f"--reuid={self.SERVER_USER}", f"--regid={self.SERVER_USER}", "--clear-groups"]

    def new_database(self) -> str:
        """An empty database, as a URL for HOMING_ACCESS_URL."""
        name = f"access_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, database: str) -> str:
        """As for HOMING_ACCESS_URL."""
        return f"postgresql://{self.USER}:{quote(self.PASSWORD, safe='')}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> None:
        """Do what the statement says, past the code under test."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    def kill(self) -> None:
        """End the server at once, with all of its processes and without saving, as a crash would."""
        self._end(signal.SIGQUIT)

    def pause(self) -> None:
        """Freeze the server: its sessions are processes of their own."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        server = psutil.Process(self.pid)
        for one in (server, *server.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                one.send_signal(number)

    def _command(self) -> Sequence[str]:
        data = self.folder / "data"
        if not data.exists():
            self._make(data)
        options = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",  # what survives is the machine's own memory, which outlives the processes
            "max_connections": "60",
        }
        flags = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        return [*self._as_user, self.binary, "-D", str(data), *flags]

    def _make(self, data: Path) -> None:
        password = self.folder / "password"
        password.write_text(self.PASSWORD)
        data.mkdir(mode=0o700)
        if self._as_user:
            self.folder.chmod(0o711)
            for path in (password, data):
                shutil.chown(path, self.SERVER_USER)
        initdb = [str(Path(self.binary).with_name("initdb")), "-D", str(data), "-U", self.USER, f"--pwfile={password}"]
        rules = ["--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync"]
        command = [*self._as_user, *initdb, *rules]
        made = subprocess.run(command, check=False, capture_output=True, text=True, cwd=self.folder)
        if made.returncode:
            pytest.fail(f"initdb failed: {made.stderr[-2000:]}")

    def _answers(self) -> bool:
        words = b"".join(word + b"\0" for word in (b"user", self.USER.encode(), b"database", b"postgres", b""))
        start_up = (8 + len(words)).to_bytes(4) + (3 << 16).to_bytes(4) + words
        return _reply(self.port, start_up).startswith(b"R")  # it asks who we are; before, it answers with an error


def wait_until(condition: Callable[[], bool], timeout: float, interval: float = 0.01) -> bool:
    """Ask `condition` again and again (blocking) until it is true; False when `timeout` seconds went by."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(interval)
    return condition()


def _reply(port: int, request: bytes, size: int = 64, timeout: float = 5.0) -> bytes:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
            connection.sendall(request)
            return connection.recv(size)
    except OSError:
        return b""
