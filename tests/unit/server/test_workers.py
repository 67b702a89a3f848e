"""The supervisor of workers, with real processes that have nothing to connect to."""

from __future__ import annotations

import socket
from datetime import timedelta

import pytest

from app.runtime.exits import Exit
from app.server import workers
from app.settings import load_settings


def test_a_worker_that_cannot_start_stops_all_however_long_it_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOMING_PROFILE", "nobody-knows-it")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert workers.run_workers(1, load_settings(), listener, stable=timedelta()) == Exit.USAGE
