"""The conditions that a Redis must fulfil to have our state: how it is reached, and a look at it every few seconds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import structlog
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from app.core.errors import ConfigurationError, StoreRefusedError, StoreUnavailableError, UnavailableError
from app.core.redis_address import NO_TERMS, RedisKind, RedisTerms, parse_redis_url
from app.store.redis.driver.sentinel import led_arguments
from app.store.redis.driver.tls import parsed
from app.store.redis.driver.topology import member_arguments

OLDEST_REDIS: Final = (6, 0)
LOOK_SECONDS: Final = 3.0
"""The time between two looks of a running node at its Redis: what was set meanwhile is noticed within ten seconds."""

Info = Mapping[str, str]

_log = structlog.get_logger(__name__)


def url_arguments(url: str, terms: RedisTerms) -> dict[str, Any]:
    """Return what redis-py is to know of the URL; its class of connections goes to the primary. ValueError."""
    kind = parse_redis_url(url).kind
    if kind is RedisKind.SENTINEL:
        return led_arguments(url, terms)
    return member_arguments(url) if kind is RedisKind.CLUSTER else parsed(url)


def connector(url: str, terms: RedisTerms = NO_TERMS, name: str = "homing") -> partial[AbstractConnection]:
    """Makes connections to this URL, with TLS for rediss://; ConfigurationError when it cannot be used."""
    try:
        arguments = url_arguments(url, terms)
        kind = arguments.pop("connection_class")
        # RESP 2 needs no handshake. Time limits are the combiner's, one for a whole round trip.
        arguments |= {"protocol": 2, "driver_info": None, "client_name": name, "decode_responses": False}
        arguments |= {"socket_timeout": None, "socket_connect_timeout": None}
        connect = partial(kind, **arguments)
        connect()
    except (TypeError, ValueError, RedisError) as error:
        raise ConfigurationError(f"the store's URL cannot be used: {error}") from None
    return connect


def check_server(info: Info, kind: RedisKind = RedisKind.SERVER) -> None:
    """ConfigurationError when this server must not hold our state; StoreUnavailableError while it is a replica.

    `kind` is that of the URL which led here. In a cluster, and behind Sentinels, a primary that was replaced is no
    fault: nodes follow its successor.
    """
    version = info.get("redis_version", "")
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < OLDEST_REDIS:
        raise ConfigurationError(f"the store is Redis {version or '(unknown)'}; needed is 6.0 or newer, or Valkey")
    if info.get("redis_mode") == "cluster" and kind is not RedisKind.CLUSTER:
        raise ConfigurationError(
            "the store is a Redis Cluster, whose URL is redis+cluster://host:port, or rediss+cluster:// with TLS"
        )
    policy = info.get("maxmemory_policy")
    if policy not in (None, "noeviction"):
        # Anything else removes open commands without a word.
        raise ConfigurationError(f"Redis has maxmemory-policy {policy}; needed is noeviction (CONFIG SET, redis.conf)")
    if info.get("role") == "slave" and kind is RedisKind.SERVER:
        raise StoreUnavailableError(replica_of(info))


def replica_of(info: Info) -> str:
    """A sentence that names its primary."""
    primary = f"{info.get('master_host', '?')}:{info.get('master_port', '?')}"
    return f"this Redis is a replica of {primary}, which takes no writes: HOMING_STORE_URL must name the primary"


def parse_info(reply: bytes) -> Info:
    """The lines of INFO."""
    lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


class ServerWatch:
    """Looks at the server at the start and then every few seconds; `unfit` is why it must not be used now, or empty."""

    def __init__(
        self,
        ask: Callable[[], Awaitable[Sequence[bytes]]],
        counters: Counter[str],
        kind: RedisKind = RedisKind.SERVER,
    ) -> None:
        """`ask` gives the reply of INFO of each server that takes writes; `kind` is that of their URL."""
        self.unfit = ""
        self._ask = ask
        self._kind = kind
        self._blind = False
        self._counters = counters

    async def check(self) -> None:
        """Look now; raises what `check_server` does."""
        try:
            infos = [parse_info(one) for one in await self._ask()]
        except StoreRefusedError as error:
            self._blind = True  # and is refused each time
            _log.warning("store_unchecked", reason=str(error), needed="Redis 6.0 or newer, maxmemory-policy noeviction")
            return
        if not all("maxmemory_policy" in info for info in infos):
            _log.warning("eviction_policy_unknown", reason="INFO does not tell it; it must be noeviction")
        try:
            self.check_all(infos)
        except UnavailableError as error:
            self.unfit = str(error)
            raise
        self.unfit = ""

    async def run(self) -> None:
        """Look until cancelled, if there is something to see."""
        while not self._blind:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                infos = [parse_info(one) for one in await self._ask()]
            except UnavailableError:
                continue  # nobody can say; that it is away is noticed elsewhere
            try:
                self.check_all(infos)
            except (ConfigurationError, StoreUnavailableError) as error:
                self._is(str(error))
            else:
                self._is("")

    def check_all(self, infos: Iterable[Info]) -> None:
        """Raise what `check_server` does, of any of these."""
        for info in infos:
            check_server(info, self._kind)

    def _is(self, unfit: str) -> None:
        before, self.unfit = self.unfit, unfit
        if unfit and not before:
            self._counters["store.unfit"] += 1
            _log.error("store_unfit", reason=unfit)
        elif before and not unfit:
            _log.info("store_fit_again")
