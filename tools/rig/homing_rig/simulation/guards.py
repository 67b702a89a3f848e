"""Guards of what a simulated process must not touch: the machine's clocks, its chance, its sockets, its threads."""

from __future__ import annotations

import gc
import os
import random
import secrets
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from homing_rig.simulation.loop import SimulatorError

EPOCH = 1_700_000_000.0
"""The time of virtual second 0 on every wall clock, in seconds since 1970."""


@contextmanager
def guarded(now: Callable[[], float], seed: int) -> Iterator[None]:
    """While it lasts, clocks are virtual, module-level chance is seeded, and the rest raises SimulatorError.

    Garbage is not collected meanwhile: when that happens would depend on what ran before.
    """
    state, collects, unraisable = random.getstate(), gc.isenabled(), sys.unraisablehook
    own_seed = random.Random.seed

    def seeded(self: random.Random, a: float | str | bytes | None = None, version: int = 2) -> None:
        if a is None:
            raise SimulatorError("a Random without a seed was made")
        own_seed(self, a, version)

    virtual: list[tuple[object, str, object]] = [
        (time, "time", lambda: EPOCH + now()),
        (time, "time_ns", lambda: round((EPOCH + now()) * 1e9)),
        (time, "monotonic", now),
        (time, "monotonic_ns", lambda: round(now() * 1e9)),
        (time, "perf_counter", now),
        (random.Random, "seed", seeded),
        (os, "urandom", _forbidden("os.urandom")),
        (secrets, "token_bytes", _forbidden("secrets.token_bytes")),
        (secrets, "token_hex", _forbidden("secrets.token_hex")),
        (uuid, "uuid4", _forbidden("uuid.uuid4")),
        (socket, "socket", _forbidden("a socket")),
        (threading.Thread, "start", _forbidden("a thread")),
    ]
    kept = [(where, name, getattr(where, name)) for where, name, _ in virtual]
    random.seed(seed)
    gc.disable()
    gc.freeze()
    # What is closed in the end says good-bye to nobody, and complains of that.
    sys.unraisablehook = lambda _: None
    for where, name, value in virtual:
        setattr(where, name, value)
    try:
        yield
    finally:
        for where, name, value in kept:
            setattr(where, name, value)
        random.setstate(state)
        gc.collect()
        gc.unfreeze()
        sys.unraisablehook = unraisable
        if collects:
            gc.enable()


def _forbidden(what: str) -> Callable[..., NoReturn]:
    def touched(*_arguments: object, **_named: object) -> NoReturn:
        raise SimulatorError(f"{what} was asked for, which no seed decides")

    return touched
