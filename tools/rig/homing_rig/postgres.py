"""A private PostgreSQL, for access directories."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import psutil  # type: ignore[import-untyped] # it comes without types
import psycopg

from homing_rig.services import NotStartedError, ServiceProcess, reply_of


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
        """Execute a statement, past the code of Homing."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    def stop(self) -> int | None:
        """End the server in an orderly way, and with it the sessions of its clients, for which SIGTERM would wait."""
        return self._end(signal.SIGINT)

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
            raise NotStartedError(f"initdb failed: {made.stderr[-2000:]}")

    def _answers(self) -> bool:
        words = b"".join(word + b"\0" for word in (b"user", self.USER.encode(), b"database", b"postgres", b""))
        start_up = (8 + len(words)).to_bytes(4) + (3 << 16).to_bytes(4) + words
        return reply_of(self.port, start_up).startswith(b"R")  # it asks who we are; before, it answers with an error
