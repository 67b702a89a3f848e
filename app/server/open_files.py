"""The number of files and connections that this process may have open."""

from __future__ import annotations

import resource
from dataclasses import replace
from typing import Final

import structlog

from app.broker.listener import MOST_TO_REFUSE
from app.server.limiter import Limits
from app.settings import Settings

OTHER_FILES: Final = 64
"""Files that a node opens besides connections of callers and clients: store, broker, sessions of dead nodes, logs."""


def allow_open_files(wanted: int) -> int:
    """Raise the limit of open files as far as the system lets us, if it is lower than `wanted`; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed


def limits_of(settings: Settings) -> tuple[Limits, Settings]:
    """The limits of callers, and the settings, with as many connections as the system lets us have files open.

    Where that is too few, callers and clients of the broker get shares of it, so that neither takes the last file.
    """
    api, broker = settings.api, settings.broker
    limits = Limits(
        connections=api.max_connections,
        per_peer=min(api.max_connections_per_peer, api.max_connections),
        idle=api.keep_alive.total_seconds(),
    )
    clients, others = 0, limits.probes + OTHER_FILES
    if broker.listens:
        clients, others = broker.max_connections, others + MOST_TO_REFUSE
    wanted = limits.connections + clients
    files = allow_open_files(wanted + others)
    if files >= wanted + others:
        return limits, settings
    callers = max(1, (files - others) * limits.connections // wanted)
    clients = min(clients, max(1, files - others - callers))
    structlog.get_logger().warning(
        "connections_limited", connections=callers, broker_connections=clients, open_files=files
    )
    if clients:
        settings = settings.model_copy(update={"broker": broker.model_copy(update={"max_connections": clients})})
    return replace(limits, connections=callers, per_peer=min(limits.per_peer, callers)), settings
