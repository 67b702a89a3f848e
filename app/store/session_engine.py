"""Chooses what keeps the sessions of a broker by the URL of the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta

from app.core.addresses import EngineKind
from app.core.clock import Clock
from app.core.redis_address import NO_TERMS, RedisTerms
from app.store.engine import Engine
from app.store.sessions import SessionStore


def open_sessions(
    engine: Engine,
    url: str,
    *,
    name: str,
    node_id: str,
    clock: Clock,
    counters: Counter[str],
    new_secret: Callable[[], str],
    lease: timedelta,
    budget: timedelta = timedelta(seconds=2),
    terms: RedisTerms = NO_TERMS,
) -> SessionStore | None:
    """The sessions beside an engine of this URL, not started yet; None where they are kept in memory alone.

    In Redis one process at a time owns those of `name`; `lease` is how long one that died keeps them, and `node_id`
    tells people who has them.
    """
    if engine.kind is not EngineKind.REDIS:
        return engine.sessions
    from app.store.redis.driver.role import open_role  # noqa: PLC0415 - drivers are imported where they are used
    from app.store.redis.sessions import RedisSessions  # noqa: PLC0415 - likewise

    role_name = f"{name}-broker"
    holder = f"{node_id or 'node'} {new_secret()}"
    role = open_role(url, role_name, holder, lease=lease, clock=clock, counters=counters, terms=terms)
    return RedisSessions(url, role_name, role, counters=counters, budget=budget.total_seconds(), terms=terms)
