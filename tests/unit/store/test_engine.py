from __future__ import annotations

import subprocess
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from app.cluster.engine import open_cluster
from app.cluster.local import LocalCluster
from app.cluster.redis import RedisCluster
from app.cluster.wakeups import ChannelHandlers
from app.core.errors import ConfigurationError
from app.runtime.system import SystemClock, new_charter, new_secret, new_wake_key
from app.store.engine import Engine, inspect_server, kind_of, open_engine
from app.store.folders import Folders
from app.store.memory.commands.store import MemoryStateStore
from app.store.redis.commands.store import RedisStateStore
from app.store.rocks.folder import RocksFolder


def opened(url: str) -> Engine:
    return open_engine(url, clock=SystemClock(), counters=Counter(), wake_key=new_wake_key(), new_secret=new_secret)


@pytest.mark.parametrize(
    ("url", "store", "shared"),
    [
        ("memory://", MemoryStateStore, False),
        ("redis://localhost:6379/1", RedisStateStore, True),
        ("rediss://user:password@localhost", RedisStateStore, True),
    ],
)
def test_the_url_chooses_the_engine(url: str, store: type, *, shared: bool) -> None:
    engine = opened(url)
    assert isinstance(engine.store, store)
    assert engine.kind is kind_of(url)
    assert engine.kind.shared is shared


@pytest.mark.parametrize(("url", "cluster"), [("memory://", LocalCluster), ("redis://localhost:6379/1", RedisCluster)])
async def test_the_cluster_goes_with_the_engine(url: str, cluster: type) -> None:
    found = open_cluster(
        url,
        lease=timedelta(seconds=5),
        session_life=timedelta(minutes=1),
        clock=SystemClock(),
        counters=Counter(),
        new_charter=new_charter,
        handlers=ChannelHandlers(lambda *_: None, lambda: None, lambda _: None),
        on_failure=lambda _: None,
    )
    assert isinstance(found, cluster)
    await found.leave()


def test_what_has_no_server_cannot_be_inspected() -> None:
    assert inspect_server("memory://", SystemClock().monotonic, "x") is None


@pytest.mark.parametrize("url", ["", "localhost", "postgres://x", "unix:///run/redis"])
def test_an_unknown_scheme_names_the_known_ones(url: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"the store's scheme .* allowed: memory://, rocks://, redis://, rediss://"
    ):
        opened(url)


def test_a_folder_is_one_whatever_it_is_called(tmp_path: Path) -> None:
    """Two of them would keep each other out, as two processes do."""
    real, link = tmp_path / "real", tmp_path / "link"
    link.symlink_to(real)
    folders = Folders()
    first = folders.of(real, "HOMING_STORE_URL", lambda: RocksFolder(real))
    assert folders.of(link, "HOMING_EVENTS_URL", lambda: RocksFolder(link)) is first


def test_without_redis_its_driver_is_not_imported() -> None:
    code = (
        "import sys, app.store.engine, app.cluster.engine; sys.exit('redis' in sys.modules or 'hiredis' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
