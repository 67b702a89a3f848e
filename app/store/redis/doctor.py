"""Finds out what a Redis is and how it is set up, for `homing doctor`. Blocking; writes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, cast
from urllib.parse import urlsplit

from redis import Connection, Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from app.core.errors import ConfigurationError, StoreUnavailableError
from app.core.redis_address import NO_TERMS, RedisTerms
from app.store.redis.guards import GuardFacts, primary_url
from app.store.redis.rights import missing

REPLY_SECONDS: Final = 3.0
PINGS: Final = 21


@dataclass(frozen=True, slots=True)
class RedisFacts:
    """The facts that were seen. None where the server does not tell, as managed ones and narrow ACLs do."""

    version: str
    mode: str
    """`standalone`, `sentinel` or `cluster`."""
    role: str
    """`master` or `slave`, in the words of Redis."""
    maxmemory: int
    """Bytes; 0 is no limit."""
    used_memory: int
    maxmemory_policy: str
    append_only: bool
    append_fsync: str | None
    snapshots: str | None
    """The rule for RDB snapshots; empty when there are none."""
    evicted_keys: int
    scripts_work: bool
    wake_ups_work: bool
    """A message to a Pub/Sub channel came back."""
    ping_ms: float
    """Median."""
    missing_rights: Sequence[str] = ()
    """What this user lacks, as rules of an ACL (app/store/redis/rights.py)."""
    user: str = "default"
    primary: str = ""
    """`host:port` of the primary, where this is a replica."""
    replicas: int = 0
    """Those that are connected."""
    wanted_replicas: int = 0
    """Those that have to acknowledge, by the settings."""
    guards: GuardFacts | None = None
    """The Sentinels, where the URL names some."""


def inspect(url: str, clock: Callable[[], float], run_id: str, terms: RedisTerms = NO_TERMS) -> RedisFacts:
    """Look at the server; StoreUnavailableError with a reason when there is none. `clock` is monotonic seconds."""
    try:
        server, guards = primary_url(url, terms)
    except ValueError as error:
        raise ConfigurationError(f"HOMING_STORE_URL: {error}") from None
    address = urlsplit(server)
    place = f"{address.hostname}:{address.port or 6379}"
    try:
        client = Redis.from_url(
            server,
            decode_responses=True,
            protocol=2,
            driver_info=None,
            socket_timeout=REPLY_SECONDS,
            socket_connect_timeout=REPLY_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError as error:
        raise ConfigurationError(f"HOMING_STORE_URL: {error}") from None
    with client:
        try:
            return _look(client, clock, run_id, guards, terms.wait_replicas)
        except (RedisError, OSError) as error:
            raise StoreUnavailableError(f"{place}: {error}") from None


def _look(client: Redis, clock: Callable[[], float], run_id: str, guards: GuardFacts | None, wanted: int) -> RedisFacts:
    rights = cast("Connection", client.connection_pool.make_connection())
    try:
        rights.connect()
        lacking = missing(rights, run_id, [*(["role"] if guards else []), *(["wait"] if wanted else [])])
    finally:
        rights.disconnect()
    said: dict[str, Any] = {} if "+info" in lacking else client.info()
    return RedisFacts(
        version=str(said.get("redis_version", "unknown")),
        mode=str(said.get("redis_mode", "standalone")),
        role=str(said.get("role", "master")),
        maxmemory=int(said.get("maxmemory", 0)),
        used_memory=int(said.get("used_memory", 0)),
        maxmemory_policy=str(said.get("maxmemory_policy", "unknown")),
        append_only=bool(int(said.get("aof_enabled", 0))),
        append_fsync=_config(client, "appendfsync"),
        snapshots=_config(client, "save"),
        evicted_keys=int(said.get("evicted_keys", 0)),
        scripts_work=_scripts_work(client),
        wake_ups_work=_wake_ups_work(client, f"mqtt:node:doctor-{run_id}"),
        ping_ms=math.nan if "+ping" in lacking else _ping_ms(client, clock),
        missing_rights=lacking,
        primary=f"{said['master_host']}:{said.get('master_port')}" if "master_host" in said else "",
        replicas=int(said.get("connected_slaves", 0)),
        wanted_replicas=wanted,
        guards=guards,
        user=str(client.connection_pool.connection_kwargs.get("username") or "default"),
    )


def _config(client: Redis, name: str) -> str | None:
    try:
        found: Any = client.config_get(name)
    except RedisError:
        return None
    value = found.get(name)
    return None if value is None else str(value)


def _scripts_work(client: Redis) -> bool:
    try:
        return bool(client.evalsha(client.script_load("return redis.call('TIME')"), 0))
    except RedisError:
        return False


def _wake_ups_work(client: Redis, channel: str) -> bool:
    try:
        with client.pubsub() as listener:
            listener.subscribe(channel)
            listener.get_message(timeout=REPLY_SECONDS)
            client.publish(channel, "doctor")
            return listener.get_message(timeout=REPLY_SECONDS) is not None
    except RedisError:
        return False


def _ping_ms(client: Redis, clock: Callable[[], float]) -> float:
    durations = []
    for _ in range(PINGS):
        began = clock()
        client.ping()
        durations.append(clock() - began)
    return median(durations) * 1000
