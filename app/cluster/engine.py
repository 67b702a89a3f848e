"""Chooses the cluster that goes with the engine of the store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from app.cluster.cluster import Cluster
from app.cluster.local import LocalCluster
from app.cluster.wakeups import ChannelHandlers
from app.core.clock import Clock
from app.core.cluster.charter import Charter
from app.core.redis_address import NO_TERMS, RedisTerms
from app.runtime.telemetry import Counters
from app.store.engine import kind_of


def open_cluster(
    url: str,
    *,
    lease: timedelta,
    session_life: timedelta,
    clock: Clock,
    counters: Counters,
    new_charter: Callable[[], Charter],
    handlers: ChannelHandlers,
    on_failure: Callable[[BaseException], None],
    terms: RedisTerms = NO_TERMS,
) -> Cluster:
    """The cluster of the nodes whose store has this URL; ConfigurationError when the URL is not understood.

    `session_life` is for how long the broker keeps a session; `on_failure` is called when what must run has ended.
    """
    kind = kind_of(url)
    if not kind.shared:
        return LocalCluster(new_charter(), remembers=kind.remembers)
    from app.cluster.redis import RedisCluster  # noqa: PLC0415 - its driver is imported where it is used

    return RedisCluster(
        url,
        lease=lease,
        session_life=session_life,
        clock=clock,
        counters=counters,
        new_charter=new_charter,
        handlers=handlers,
        on_failure=on_failure,
        terms=terms,
    )
