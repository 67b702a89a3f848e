"""Fixtures for all tests: private services, and an environment without Homing's own settings."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import hypothesis
import pytest
import structlog

from homing_rig.forked_verbs import forked_homing
from homing_rig.harness import NodeProcess
from tests.services import MosquittoProcess, PostgresProcess, RedisProcess, require_programs
from tests.sharded import Sharded, sharded

COMPUTING = (
    *("analysis", "console", "client", "contract", "api"),
    *("simulator", "conformance", "project", "unit"),
)
"""Folders whose tests use a processor. Of these and of the others those come first whose tests take long, so that no
worker has to wait for another one at the end.
"""
WAITING = ("containers", "rig", "cluster", "counterparts", "deploy")
"""Folders whose tests wait for other processes half of the time, and so leave processors to the former."""

NodeProcess.forked = True

hypothesis.settings.register_profile("homing", deadline=None)  # no test judges how fast this machine is
hypothesis.settings.load_profile("homing")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests for scripts/test, which gives each worker whole files: one that computes, and one that waits."""
    place = {
        path: at
        for folders in (WAITING, COMPUTING)
        for path, at in _spread(list(dict.fromkeys(item.path for item in items if _folder(item.path) in folders)))
    }
    items.sort(key=lambda item: place.get(item.path, 0))


def _spread(paths: Sequence[Path]) -> Iterator[tuple[Path, float]]:
    """Yield these with their places between 0 and 1, so that two rows of them become one in which they take turns."""
    folders = (*WAITING, *COMPUTING)
    ordered = sorted(paths, key=lambda path: folders.index(_folder(path)))
    return ((path, number / len(ordered)) for number, path in enumerate(ordered))


def _folder(path: Path) -> str:
    return path.relative_to(Path(__file__).parent).parts[0]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the developer's shell must not change what a test sees."""
    for name in list(os.environ):
        if name.upper().startswith("HOMING_"):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """A test that leaves the log configured takes what is logged away from the tests behind it in the same worker."""
    before = structlog.get_config()
    yield
    after = structlog.get_config()
    structlog.configure(**before)
    assert after == before, "this test leaves structlog configured: restore its configuration"


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


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[Sharded]:
    """A Redis Cluster for the whole run (one per worker). Take one of your own to move slots or end a member."""
    require_programs()
    with sharded() as cluster:
        cluster.outlast_pauses()
        yield cluster


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresProcess]:
    """A PostgreSQL for the whole run (one per worker). Take a PostgresProcess of your own to stop or freeze it."""
    with PostgresProcess() as server:
        yield server


@pytest.fixture(scope="session")
def homing_program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A program `homing` for a PATH, which begins as a fork as nodes do: for pages that start it dozens of times."""
    with forked_homing(tmp_path_factory.mktemp("bin")) as program:
        yield program
