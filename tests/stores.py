"""Stores as a node has them, with what a test does not care about filled in."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from app.core.clock import Clock
from app.core.cluster.wakekey import WakeKey
from app.core.redis_address import NO_TERMS, RedisTerms
from app.runtime.system import SystemClock, new_secret, new_wake_key
from app.store.redis.commands.store import RedisStateStore
from app.store.redis.driver.lane import CombinerOptions


def redis_store(
    url: str,
    *,
    counters: Counter[str] | None = None,
    budget: timedelta = timedelta(seconds=30),
    options: CombinerOptions | None = None,
    wake_key: WakeKey | None = None,
    clock: Clock | None = None,
    terms: RedisTerms = NO_TERMS,
) -> RedisStateStore:
    """Not started yet. Patient: how soon it gives up is for the tests that are about that."""
    return RedisStateStore(
        url,
        clock=clock or SystemClock(),
        counters=Counter() if counters is None else counters,
        wake_key=wake_key or new_wake_key(),
        new_secret=new_secret,
        budget=budget,
        options=options,
        terms=terms,
    )
