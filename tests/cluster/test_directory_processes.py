"""One SQLite file under two nodes, and verbs beside them: there is one directory, whoever comes and goes."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from random import SystemRandom

import pytest

from app.core.access.keys import Key, make_key
from tests.cluster.directory_rounds import FILE, Rounds
from tests.cluster.harness import Cluster, cluster_of
from tests.services import MosquittoProcess, RedisProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc, which Linux has")

ROUNDS = int(os.environ.get("HOMING_TEST_DIRECTORY_ROUNDS", "6"))
SEED = int(os.environ.get("HOMING_TEST_DIRECTORY_SEED", SystemRandom().randrange(2**32)))


@pytest.fixture
def bootstrap() -> Key:
    return make_key(secrets.token_bytes)


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / FILE}"


@pytest.fixture
def cluster(tmp_path: Path, bootstrap: Key, database: str) -> Iterator[Cluster]:
    file = tmp_path / "key"
    file.write_text(bootstrap.text + "\n")
    settings = {
        "HOMING_ACCESS_URL": database,
        "HOMING_ACCESS_BOOTSTRAP_KEY_FILE": str(file),
        "HOMING_ACCESS_BUDGET": "60s",
    }
    with MosquittoProcess() as broker, RedisProcess() as redis, cluster_of(2, redis, broker, **settings) as cluster:
        yield cluster


@pytest.mark.timeout(60 + 60 * ROUNDS)
async def test_whatever_nodes_and_verbs_do_there_is_one_directory(
    cluster: Cluster, bootstrap: Key, database: str
) -> None:
    rounds = Rounds(cluster, database, bootstrap, SEED)
    try:
        await rounds.play(ROUNDS)
    except BaseException:
        print(f"HOMING_TEST_DIRECTORY_SEED={SEED}", *rounds.history[-20:], sep="\n")  # noqa: T201 - pytest shows it
        raise
