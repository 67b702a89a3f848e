"""A program `homing` for shells that begins as a fork, as nodes do in tests: guides start hundreds of them.

The program is a short script that waits for the forked process and stands for it: signals that it gets are passed on,
it ends with the same code, and where it is killed the process is. The streams, the folder and the environment of the
process are those of the program. What the program lacks is the start of the interpreter and the imports.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any, Final

from homing_rig import fork_caller
from homing_rig.fork_server import ForkedProcess, run_verb
from homing_rig.patience import PATIENCE

_SIZE_BYTES: Final = 4
"""The number of bytes that tell how long a request is."""


class LentDescriptor:
    """A descriptor that goes along when it is pickled for a process that is forked."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __reduce__(self) -> tuple[Any, ...]:
        return _lent, (DupFd(self.descriptor),)


def _lent(there: Any) -> LentDescriptor:  # noqa: ANN401 - multiprocessing's
    return LentDescriptor(there.detach())


@contextmanager
def forked_homing(folder: Path) -> Iterator[Path]:
    """A program `homing` in this folder, while the block lasts; what it still runs then is killed."""
    with tempfile.TemporaryDirectory(prefix="homing-") as place, socket.socket(socket.AF_UNIX) as listener:
        address = f"{place}/forks"
        listener.bind(address)
        listener.listen(socket.SOMAXCONN)
        program = folder / "homing"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {shlex.quote(fork_caller.__file__)} {address} "$@"\n')
        program.chmod(0o700)
        bell, ringer = socket.socketpair()
        with bell, ringer:
            desk = threading.Thread(target=VerbForks(listener, bell).serve, name="forked verbs", daemon=True)
            desk.start()
            try:
                yield program
            finally:
                ringer.close()
                desk.join(PATIENCE)


class VerbForks:
    """Forks a process for each program that asks, and stands between the two, until the bell rings."""

    def __init__(self, listener: socket.socket, bell: socket.socket) -> None:
        self._listener = listener
        self._bell = bell
        self._running: dict[socket.socket, ForkedProcess] = {}

    def serve(self) -> None:
        """Serve until the bell rings."""
        while True:
            ends = {process.sentinel: program for program, process in self._running.items()}
            ready = wait([self._bell, self._listener, *self._running, *ends])
            if self._bell in ready:
                break
            for end in ends.keys() & set(ready):
                self._tell(ends[end])
            for program in self._running.keys() & set(ready):
                self._hear(program)
            # The last, so that what was killed before a program is started has let go of its folder.
            if self._listener in ready:
                self._begin()
        for program in list(self._running):
            self._end(program)

    def _begin(self) -> None:
        program, _ = self._listener.accept()
        size, descriptors, _, _ = socket.recv_fds(program, _SIZE_BYTES, len(fork_caller.STREAMS) + 1)
        lent = [LentDescriptor(one) for one in descriptors]
        try:
            asked = json.loads(program.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
            self._running[program] = ForkedProcess(_run, lent, asked["words"], asked["environment"], asked["ignored"])
        except json.JSONDecodeError:  # the program was killed before it had asked
            program.close()
        finally:
            for one in descriptors:
                os.close(one)

    def _hear(self, program: socket.socket) -> None:
        """Pass on its signals; it is gone when it says nothing."""
        numbers = program.recv(64)
        for number in numbers:
            self._running[program].send_signal(number)
        if not numbers:
            self._end(program)

    def _tell(self, program: socket.socket) -> None:
        code = self._running.pop(program).wait()
        with program, suppress(OSError):  # it may be gone
            program.sendall(code.to_bytes(4, "big", signed=True))

    def _end(self, program: socket.socket) -> None:
        process = self._running.pop(program)
        process.kill()
        process.wait()
        program.close()


def _run(
    lent: Sequence[LentDescriptor], words: Sequence[str], environment: Mapping[str, str], ignored: Sequence[int]
) -> None:
    *streams, folder = (one.descriptor for one in lent)
    for target, one in zip(fork_caller.STREAMS, streams, strict=True):
        os.dup2(one, target)
        os.close(one)
    at_once = os.isatty(1) or bool(environment.get("PYTHONUNBUFFERED"))
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", 1 if at_once else -1, closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    for number in fork_caller.PASSED_ON:
        signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
    if signal.SIGINT not in ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_verb(words, environment, folder)
