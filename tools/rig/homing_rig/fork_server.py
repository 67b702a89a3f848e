"""Nodes that begin as a fork of a process which has loaded Homing once.

Such a node is a process like any other: it has its own memory, environment, folder and log, and it is killed, frozen
and waited for. It lacks the start of the interpreter and the imports, which take most of the processor time of a start.
Tests start hundreds of nodes. Figures start theirs as users do.
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
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Final

LOADED: Final = ("app.main", "app.cli.root", "app.cli.serve", "app.server.run", "app.store.redis.commands.store")
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


class ForkedNode:
    """A node that was forked. It has the part of `subprocess.Popen` that `RunningProcess` names."""

    def __init__(self, environment: Mapping[str, str], folder: Path, log: Path) -> None:
        """It appends what it says to `log`."""
        _CONTEXT.set_forkserver_preload(list(LOADED))
        self._process = _CONTEXT.Process(target=_serve, args=(dict(environment), folder, log), daemon=True)
        with _TURN:
            self._process.start()
        if self._process.pid is None:
            raise RuntimeError("a process that has started has an id")
        self.pid: Final = self._process.pid

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
            raise subprocess.TimeoutExpired(" ".join(SERVE), timeout or 0.0)
        return code

    def send_signal(self, sig: int) -> None:
        """Send it a signal, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


def _serve(environment: Mapping[str, str], folder: Path, log: Path) -> None:
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.close(said)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["app.cli", "serve"]
    if environment.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    runpy.run_module("app.cli", run_name="__main__", alter_sys=True)
