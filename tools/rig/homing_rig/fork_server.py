"""Nodes, and other verbs of Homing, that begin as a fork of a process which has loaded Homing once.

Such a node is a process like any other: it has its own memory, environment, folder and log, and it is killed, frozen
and waited for. It lacks the start of the interpreter and the imports, which take most of the processor time of a start.
Tests start hundreds of nodes. Figures start theirs as users do. `forked_verbs` has programs for shells.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Final, TypeVarTuple

_Arguments = TypeVarTuple("_Arguments")
LOADED: Final = (
    *("app.main", "app.cli.root", "app.cli.serve", "app.server.run", "app.store.redis.commands.store"),
    *("app.cli.access", "app.cli.commands", "app.cli.events", "app.cli.keys", "app.cli.operations", "app.cli.profile"),
    *("app.cli.queue", "app.cli.send", "app.cli.up", "app.cli.users", "app.settings.one_folder", "app.store.engine"),
    *("app.store.sql.access.directory", "homing_client._sync.client", "homing_simulator.cli.simulate", "rich.table"),
    *("homing_simulator.fleet", "app.access.login.passwords"),
)
"""Modules that take long to import, of nodes and of the verbs that are typed beside them."""
SERVE: Final = ("-m", "app.cli", "serve")
"""The arguments of Python that start a node."""
_CONTEXT: Final = multiprocessing.get_context("forkserver")
_TURN: Final = threading.Lock()
"""Starting one process also looks whether others have ended, and an exit code can be read once."""
_OF_THE_INTERPRETER: Final = ("PYTHON", "LD_")
"""Variables that count when an interpreter starts, and so not in a fork."""


def can_be_forked(arguments: Sequence[str], settings: Mapping[str, str]) -> bool:
    """Return whether a fork does the same as Python with these arguments and settings."""
    return tuple(arguments) == SERVE and not any(one.startswith(_OF_THE_INTERPRETER) for one in settings)


class ForkedProcess:
    """A process that was forked. It has the part of `subprocess.Popen` that `RunningProcess` names."""

    def __init__(self, run: Callable[[*_Arguments], None], *arguments: *_Arguments) -> None:
        """It runs this with these arguments, which are pickled."""
        _CONTEXT.set_forkserver_preload(list(LOADED))
        self._process = _CONTEXT.Process(target=run, args=arguments, daemon=True)
        with _TURN:
            self._process.start()
        if self._process.pid is None:
            raise RuntimeError("a process that has started has an id")
        self.pid: Final = self._process.pid

    @property
    def sentinel(self) -> int:
        """A descriptor that `multiprocessing.connection.wait` finds ready when the process has ended."""
        return self._process.sentinel

    @property
    def returncode(self) -> int | None:
        """The exit code, -N where signal N ended it; None while it runs."""
        return self.poll()

    def poll(self) -> int | None:
        """Look whether it has ended; its exit code."""
        with _TURN:
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end, for so many seconds; subprocess.TimeoutExpired."""
        wait([self._process.sentinel], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def send_signal(self, sig: int) -> None:
        """Send it a signal, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


class ForkedNode(ForkedProcess):
    """A node that was forked."""

    def __init__(
        self, environment: Mapping[str, str], folder: Path, log: Path, words: Sequence[str] = ("serve",)
    ) -> None:
        """It appends what it says to `log`. The words are those behind `homing`: `serve`, or `up` with its options."""
        super().__init__(_run_node, words, dict(environment), folder, log)


def run_verb(words: Sequence[str], environment: Mapping[str, str], folder: Path | int) -> None:
    """Do in this process what `homing` does with these words, in this environment and folder, or its descriptor."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["app.cli", *words]
    if environment.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    runpy.run_module("app.cli", run_name="__main__", alter_sys=True)


def _run_node(words: Sequence[str], environment: Mapping[str, str], folder: Path, log: Path) -> None:
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.close(said)
    run_verb(words, environment, folder)
