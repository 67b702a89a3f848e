"""The places where the broker in a node keeps its sessions, behind one face."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from app.runtime.system import SystemClock, new_secret, new_wake_key
from app.store.engine import open_engine
from app.store.rocks.folder import COMMANDS, RocksFolder
from app.store.rocks.sessions import RocksSessions
from app.store.session_engine import open_sessions
from app.store.sessions import SessionStore
from tests.waiting import PATIENCE

NAME = "homing"
LEASE = timedelta(seconds=PATIENCE)
"""So long that only what a test does takes it away."""


class SessionPlace(Protocol):
    """A place where sessions are kept."""

    def open(self) -> SessionStore:
        """Return what another process has of it, not started yet. One process at a time may have it."""


class FolderPlace:
    """A folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self) -> SessionStore:
        return RocksSessions(RocksFolder(self._path, COMMANDS))


class RedisPlace:
    """A Redis, or a Redis Cluster."""

    def __init__(self, url: str) -> None:
        self._url = url

    def open(self, lease: timedelta = LEASE) -> SessionStore:
        clock, counters = SystemClock(), Counter[str]()
        engine = open_engine(self._url, clock=clock, counters=counters, wake_key=new_wake_key(), new_secret=new_secret)
        sessions = open_sessions(
            engine,
            self._url,
            name=NAME,
            node_id="n1",
            clock=clock,
            counters=counters,
            new_secret=new_secret,
            lease=lease,
            budget=timedelta(seconds=PATIENCE),
        )
        assert sessions is not None
        return sessions
