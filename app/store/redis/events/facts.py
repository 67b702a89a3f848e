"""The content of an event log in Redis and its intake, for `homing doctor`. Blocking; writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, cast

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from app.core.errors import ConfigurationError, StoreUnavailableError
from app.core.events import keys
from app.core.events.event import Database, Position
from app.core.redis_address import NO_TERMS, RedisTerms
from app.store.redis.guards import find_servers

REPLY_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class EventFacts:
    """The facts that were seen. `oldest` is the position of the first event of each database that has one."""

    holder: str | None
    """The node that brings events in; None when nobody does."""
    size: int
    """Bytes of all databases, as quotas count them."""
    latest: Position
    """The position of the last event; 0 when there is none."""
    oldest: dict[str, Position]
    clock_off: float
    """The seconds by which the clock of Redis is ahead of this machine's."""
    maxmemory: int | None
    """Bytes; 0 is no limit. None where the server does not tell."""


def inspect_events(
    url: str, databases: Sequence[Database], role: str, wall: Callable[[], float], terms: RedisTerms = NO_TERMS
) -> EventFacts:
    """Look at the log; StoreUnavailableError when nobody answers. `wall` is seconds since 1970."""
    try:
        servers = find_servers(url, terms)
        clients = {one: _client(one) for one in servers.urls}
    except ValueError as error:
        raise ConfigurationError(f"HOMING_EVENTS_URL: {error}") from None
    with ExitStack() as stack:
        for one in clients.values():
            stack.enter_context(one)
        try:
            return _look(lambda key: clients[servers.of(key)], list(clients.values()), databases, role, wall)
        except (RedisError, OSError, ValueError) as error:
            raise StoreUnavailableError(f"the Redis of HOMING_EVENTS_URL: {error}") from None


def _client(server: str) -> Redis:
    return Redis.from_url(
        server,
        protocol=2,
        driver_info=None,
        socket_timeout=REPLY_SECONDS,
        socket_connect_timeout=REPLY_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )


def _look(
    server_of: Callable[[str], Redis],
    servers: Sequence[Redis],
    databases: Sequence[Database],
    role: str,
    wall: Callable[[], float],
) -> EventFacts:
    clock_off = max((_clock_off(one, wall) for one in servers), key=abs)
    holder = cast("bytes | None", server_of(keys.role(role)).get(keys.role(role)))
    size, latest, oldest = 0, 0, dict[str, Position]()
    for database in databases:
        for shard in database.all_shards():
            cuts = cast("dict[bytes, bytes]", server_of(keys.cuts(shard)).hgetall(keys.cuts(shard)))
            for cut in cuts.values():
                first, last, count, held = (int(part) for part in cut.split())
                size, latest = size + held, max(latest, last)
                if count:
                    oldest[database.name] = min(first, oldest.get(database.name, first))
    return EventFacts(
        holder=None if holder is None else holder.decode().partition(" ")[0],
        size=size,
        latest=latest,
        oldest=oldest,
        clock_off=clock_off,
        maxmemory=_maxmemory(servers),
    )


def _clock_off(client: Redis, wall: Callable[[], float]) -> float:
    seconds, microseconds = client.time()
    return seconds + microseconds / 1e6 - wall()


def _maxmemory(servers: Sequence[Redis]) -> int | None:
    """Return that of all servers together; none has a limit where one of them has none."""
    try:
        each = [int(one.info("memory").get("maxmemory", 0)) for one in servers]
    except RedisError:
        return None
    return sum(each) if all(each) else 0
