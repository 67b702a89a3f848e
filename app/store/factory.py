"""Chooses the state store by URL. Drivers are imported only where they are used."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from urllib.parse import urlsplit

from app.core.clock import Clock
from app.core.errors import ConfigurationError
from app.measures import StoreMeasures
from app.store.base import StateStore
from app.store.memory import MemoryStateStore

SCHEMES = ("memory", "redis", "rediss")


def open_store(
    url: str,
    *,
    clock: Clock,
    counters: Counter[str],
    budget: timedelta = timedelta(seconds=2),
    measures: StoreMeasures | None = None,
) -> StateStore:
    """The store of this URL, not started yet; ConfigurationError when the URL is not understood."""
    scheme = urlsplit(url).scheme
    if scheme == "memory":
        return MemoryStateStore(clock)
    if scheme in SCHEMES:
        from app.store.redis import RedisStateStore  # noqa: PLC0415 - see above

        return RedisStateStore(url, clock=clock, counters=counters, budget=budget, measures=measures)
    allowed = ", ".join(f"{one}://" for one in SCHEMES)
    raise ConfigurationError(f"the store's scheme {scheme!a} is unknown; allowed: {allowed}")
