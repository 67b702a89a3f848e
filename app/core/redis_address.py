"""URLs of a Redis: one server, a primary that Sentinels name, or a Redis Cluster.

What is wrong with a URL never repeats it: it may hold a password.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

REDIS_PARAMETERS: Final = (
    *("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_check_hostname", "ssl_cert_reqs"),
)
"""The parameters that the URL of a Redis may have: files and rules of TLS. All else is the nodes' own choice."""

REDIS_PORT: Final = 6379
SENTINEL_PORT: Final = 26379
MOST_SEEDS: Final = 16

Place = tuple[str, int]
"""Host and port of a server."""


class RedisKind(StrEnum):
    """The way in which nodes find the server that takes writes."""

    SERVER = "server"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


_KINDS: Final[Mapping[str, RedisKind]] = MappingProxyType(
    {
        "redis": RedisKind.SERVER,
        "rediss": RedisKind.SERVER,
        "redis+sentinel": RedisKind.SENTINEL,
        "rediss+sentinel": RedisKind.SENTINEL,
        "redis+cluster": RedisKind.CLUSTER,
        "rediss+cluster": RedisKind.CLUSTER,
    }
)

REDIS_SCHEMES: Final = tuple(_KINDS)
"""Schemes of URLs that nodes can use."""


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """The parts of a URL. `seeds` are the Sentinels, the members of a cluster that are asked first, or the server."""

    kind: RedisKind
    seeds: Sequence[Place]
    service: str = ""
    """The name by which Sentinels know the primary."""
    scheme: str = "redis"
    """The scheme of each single server, `rediss` with TLS."""
    login: str = field(default="", repr=False)
    """User and password as the URL has them, with `@` behind."""
    rest: str = field(default="", repr=False)
    """The database and the parameters, as the URL has them."""
    parameters: str = field(default="", repr=False)
    """`?` and what is behind it, or nothing."""

    def url_of(self, place: Place) -> str:
        """The URL of one server, with the login of this one."""
        return f"{self.scheme}://{self.login}{shown_place(place)}{self.rest}"

    def sentinel_url(self, place: Place) -> str:
        """The URL of one Sentinel, which has neither this login nor databases."""
        return f"{self.scheme}://{shown_place(place)}{self.parameters}"


@dataclass(frozen=True, slots=True)
class RedisTerms:
    """Settings of a Redis that stand beside its URL."""

    sentinel_user: str = ""
    sentinel_password: str = field(default="", repr=False)
    wait_replicas: int = 0
    """The replicas that have to have a write before it counts as written."""
    keeps_sessions: bool = False
    """True if the broker in the node keeps its sessions there, as the doctor is to know."""


NO_TERMS: Final = RedisTerms()
"""The terms of most installations."""


def shown_place(place: Place) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    host, port = place
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_redis_url(url: str) -> RedisAddress:
    """The parts of the URL; ValueError when it is none of a Redis that nodes can use."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("is no URL: scheme://host:port is needed") from None
    kind = _KINDS.get(parts.scheme)
    if kind is None:
        allowed = ", ".join(f"{one}://" for one in REDIS_SCHEMES)
        raise ValueError(f"scheme {parts.scheme!a} is unknown; allowed: {allowed}")
    login, at, hosts = parts.netloc.rpartition("@")
    default = SENTINEL_PORT if kind is RedisKind.SENTINEL else REDIS_PORT
    seeds = tuple(_place(one, default) for one in hosts.split(","))
    path = parts.path.removeprefix("/")
    service = ""
    if kind is RedisKind.SERVER:
        _check_alone(parts.scheme, seeds)
        _check_database(path, "redis://host:port/0, or no path at all")
    elif kind is RedisKind.SENTINEL:
        service, _, path = path.partition("/")
        service = unquote(service)
        _check_service(service, parts.scheme)
        _check_database(path, f"{parts.scheme}://host:port/{service}/0, or no path behind the service")
    elif path not in ("", "0"):
        raise ValueError("has a path, and a Redis Cluster has the database 0 only; allowed: no path at all")
    if len(seeds) > MOST_SEEDS:
        raise ValueError(f"has {len(seeds)} hosts; allowed are {MOST_SEEDS}, of which one that answers is enough")
    _check_parameters(parts.query)
    query = f"?{parts.query}" if parts.query else ""
    return RedisAddress(
        kind, seeds, service, parts.scheme.partition("+")[0], login + at, f"/{path}{query}" if path else query, query
    )


def check_redis_url(url: str) -> None:
    """ValueError when no node can use it, and why."""
    parse_redis_url(url)


def _place(text: str, default: int) -> Place:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(
            "has no port number after its host; in a user name or password write / as %2F, ? as %3F, # as %23, @ as %40"
        ) from None
    return host or "localhost", port or default


def _check_alone(scheme: str, seeds: Sequence[Place]) -> None:
    if len(seeds) > 1:
        raise ValueError(
            f"names {len(seeds)} hosts; {scheme}:// is one server, {scheme}+sentinel://host,host/service is a "
            f"primary that Sentinels guard, and {scheme}+cluster://host,host is a Redis Cluster"
        )


def _check_service(service: str, scheme: str) -> None:
    if not service or not all(one.isalnum() or one in "-_.:" for one in service) or not service.isascii():
        raise ValueError(
            "names no service that Sentinels would know (letters, digits, '-', '_', '.', ':'); "
            f"allowed: {scheme}://host:port,host:port/service, with /0 behind for the database"
        )


def _check_database(text: str, allowed: str) -> None:
    if text and not (text.isascii() and text.isdigit()):
        raise ValueError(f"has a path that is no database number; allowed: {allowed}")


def _check_parameters(query: str) -> None:
    for name, _ in parse_qsl(query, keep_blank_values=True):
        if name not in REDIS_PARAMETERS:
            shown = ascii(name[:32]) if name.isidentifier() else "something"
            allowed = ", ".join(REDIS_PARAMETERS)
            raise ValueError(f"has {shown} behind its '?', which is not allowed; allowed: {allowed}")
