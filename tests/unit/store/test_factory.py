from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from app.core.errors import ConfigurationError
from app.store.factory import open_store
from app.store.memory import MemoryStateStore
from app.store.redis import RedisStateStore
from app.system import SystemClock


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory://", MemoryStateStore),
        ("redis://localhost:6379/1", RedisStateStore),
        ("rediss://user:password@localhost", RedisStateStore),
    ],
)
def test_the_url_chooses_the_store(url: str, kind: type) -> None:
    assert isinstance(open_store(url, clock=SystemClock(), counters=Counter()), kind)


@pytest.mark.parametrize("url", ["", "localhost", "postgres://x", "unix:///run/redis"])
def test_an_unknown_scheme_names_the_known_ones(url: str) -> None:
    with pytest.raises(ConfigurationError, match="allowed: memory://, redis://, rediss://"):
        open_store(url, clock=SystemClock(), counters=Counter())


def test_without_redis_its_driver_is_not_imported() -> None:
    code = "import sys, app.store.factory; sys.exit('redis' in sys.modules or 'hiredis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
