"""Fixtures for all tests: private services, and an environment without Homing's own settings."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.services import MosquittoProcess, RedisProcess


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the developer's shell must not change what a test sees."""
    for name in list(os.environ):
        if name.upper().startswith("HOMING_"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def mosquitto() -> Iterator[MosquittoProcess]:
    """A Mosquitto for the whole run (one per worker). Take a MosquittoProcess of your own to stop or freeze it."""
    with MosquittoProcess() as broker:
        yield broker


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisProcess]:
    """A Redis for the whole run (one per worker). Take a RedisProcess of your own to stop, fill or freeze it."""
    with RedisProcess() as server:
        yield server
