"""Finds out what a Redis is and how it is set up, for `homing doctor`. Blocking; writes nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final, cast
from urllib.parse import urlsplit

from redis import Connection, Redis
from redis.exceptions import RedisError

from app.core.errors import ConfigurationError, StoreUnavailableError
from app.core.identifiers import PARTITIONS
from app.core.keys import due
from app.core.redis_address import NO_TERMS, RedisTerms
from app.store.redis.guards import GuardFacts, Servers, find_servers
from app.store.redis.questioner import REPLY_SECONDS, asking_client
from app.store.redis.rights import OF_BROKER, OF_CLUSTER, missing

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
    """The median of round trips, in milliseconds."""
    missing_rights: Sequence[str] = ()
    """The rights that this user lacks, as rules of an ACL (app/store/redis/rights.py)."""
    user: str = "default"
    primary: str = ""
    """`host:port` of the primary, where this is a replica."""
    replicas: int = 0
    """The replicas that are connected."""
    wanted_replicas: int = 0
    """The replicas that have to acknowledge, by the settings."""
    guards: GuardFacts | None = None
    """The Sentinels, where the URL names some."""
    place: str = ""
    """`host:port`."""
    clock: float = 0.0
    """Its clock in seconds, less that of who looks."""
    cluster: ClusterFacts | None = None
    """All of a Redis Cluster, where the URL names one. This is the first of its primaries."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The facts that were seen of a Redis Cluster."""

    primaries: Sequence[RedisFacts]
    """All of them."""
    states: Sequence[str]
    """The verdict of each primary on the whole: `ok`, or `fail`."""
    bus_works: bool = True
    """A message that one member published came to who listens at another."""
    partitions: Sequence[int] = ()
    """The number of partitions of devices that each primary has."""
    node_timeout_ms: int | None = None
    """After so long a primary that does not answer counts as dead. None where the server does not tell."""
    full_coverage: bool = False
    """All primaries refuse all calls while the slots of one are not served."""


def inspect(url: str, clock: Callable[[], float], run_id: str, terms: RedisTerms = NO_TERMS) -> RedisFacts:
    """Look at the server; StoreUnavailableError with a reason when there is none. `clock` is monotonic seconds."""
    try:
        servers = find_servers(url, terms)
    except ValueError as error:
        raise ConfigurationError(f"HOMING_STORE_URL: {error}") from None
    if servers.slots is None:
        return _inspect(servers.urls[0], clock, run_id, servers, terms)
    return _inspect_all(servers, clock, run_id, terms)


def _inspect_all(servers: Servers, clock: Callable[[], float], run_id: str, terms: RedisTerms) -> RedisFacts:
    """Look at each primary of a cluster."""
    primaries = [_inspect(one, clock, run_id, servers, terms) for one in servers.urls]
    with ExitStack() as stack:
        clients = [stack.enter_context(asking_client(one)) for one in servers.urls]
        try:
            states = [] if "+cluster|info" in primaries[0].missing_rights else [_cluster_state(one) for one in clients]
            bus_works = _wake_ups_work(clients[0], clients[-1], f"mqtt:node:doctor-{run_id}")
        except (RedisError, OSError) as error:
            raise StoreUnavailableError(str(error)) from None
        timeouts = [int(found) for one in clients if (found := _config(one, "cluster-node-timeout")) is not None]
        coverage = any(_config(one, "cluster-require-full-coverage") == "yes" for one in clients)
    shares = Counter(servers.of(due(one)) for one in range(PARTITIONS))
    partitions = [shares[one] for one in servers.urls]
    facts = ClusterFacts(primaries, states, bus_works, partitions, max(timeouts, default=None), coverage)
    return replace(primaries[0], cluster=facts)


def _cluster_state(client: Redis) -> str:
    said: Any = client.execute_command("CLUSTER INFO")
    return str(said["cluster_state"])


def _inspect(server: str, clock: Callable[[], float], run_id: str, servers: Servers, terms: RedisTerms) -> RedisFacts:
    address = urlsplit(server)
    place = f"{address.hostname}:{address.port or 6379}"
    try:
        client = asking_client(server)
    except ValueError as error:
        raise ConfigurationError(f"HOMING_STORE_URL: {error}") from None
    with client:
        try:
            return replace(_look(client, clock, run_id, servers, terms), place=place)
        except (RedisError, OSError) as error:
            raise StoreUnavailableError(f"{place}: {error}") from None


def _look(client: Redis, clock: Callable[[], float], run_id: str, servers: Servers, terms: RedisTerms) -> RedisFacts:
    guards, wanted = servers.guards, terms.wait_replicas
    also = [*(["role"] if guards else []), *(["wait"] if wanted else []), *(OF_CLUSTER if servers.slots else [])]
    also += OF_BROKER if terms.keeps_sessions else ()
    rights = cast("Connection", client.connection_pool.make_connection())
    try:
        rights.connect()
        lacking = missing(rights, run_id, also)
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
        wake_ups_work=_wake_ups_work(client, client, f"mqtt:node:doctor-{run_id}"),
        ping_ms=math.nan if "+ping" in lacking else _ping_ms(client, clock),
        missing_rights=lacking,
        primary=f"{said['master_host']}:{said.get('master_port')}" if "master_host" in said else "",
        replicas=int(said.get("connected_slaves", 0)),
        wanted_replicas=wanted,
        guards=guards,
        clock=math.nan if "+time" in lacking else _clock_of(client, clock),
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


def _clock_of(client: Redis, clock: Callable[[], float]) -> float:
    before = clock()
    seconds, micros = client.time()
    return seconds + micros / 1e6 - (before + clock()) / 2


def _wake_ups_work(hearing: Redis, saying: Redis, channel: str) -> bool:
    try:
        with hearing.pubsub() as listener:
            listener.subscribe(channel)
            listener.get_message(timeout=REPLY_SECONDS)
            saying.publish(channel, "doctor")
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
