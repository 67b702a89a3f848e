"""URLs of the services that a node needs, and what the URL of the store chooses.

What is wrong with a URL never repeats it: it may hold a password.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from ipaddress import IPv6Address, ip_address
from types import MappingProxyType
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from app.core.redis_address import REDIS_SCHEMES, check_redis_url

MQTT_PORTS: Final[Mapping[str, int]] = MappingProxyType({"mqtt": 1883, "mqtts": 8883})
"""The port of an MQTT URL that names none."""
POSTGRESQL_PARAMETERS: Final = ("host", "sslcert", "sslkey", "sslmode", "sslrootcert", "target_session_attrs")
"""Likewise in the URL of a PostgreSQL: TLS, a socket's folder, and which of several servers will do."""


def split_address(url: str) -> SplitResult:
    """The parts of `scheme://user:password@host:port/…`; ValueError when they cannot be told apart."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError("is no URL: scheme://host:port is needed") from None
    try:
        _ = parts.port
    except ValueError:
        raise ValueError(
            "has no port number after its host; in a user name or password write / as %2F, ? as %3F, # as %23, @ as %40"
        ) from None
    return parts


def shown_address(url: str) -> str:
    """The URL without user, password and parameters, for logs."""
    parts = urlsplit(url)
    if parts.scheme not in REDIS_SCHEMES:  # whose URLs may name several hosts
        parts = split_address(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


class EngineKind(StrEnum):
    """The kind of engine that keeps the state of a node, or of all nodes."""

    MEMORY = "memory"
    REDIS = "redis"
    ROCKS = "rocks"

    @property
    def shared(self) -> bool:
        """True if there can be other nodes beside this one."""
        return self is EngineKind.REDIS

    @property
    def remembers(self) -> bool:
        """True if what it keeps outlives the process."""
        return self is not EngineKind.MEMORY


STORE_SCHEMES: Final[Mapping[str, EngineKind]] = MappingProxyType(
    {
        "memory": EngineKind.MEMORY,
        "rocks": EngineKind.ROCKS,
        **dict.fromkeys(REDIS_SCHEMES, EngineKind.REDIS),
    }
)


def engine_kind(url: str) -> EngineKind:
    """Return what the URL of a store chooses; ValueError when its scheme is none of STORE_SCHEMES."""
    scheme = urlsplit(url).scheme
    kind = STORE_SCHEMES.get(scheme)
    if kind is None:
        allowed = ", ".join(f"{one}://" for one in STORE_SCHEMES)
        raise ValueError(f"scheme {scheme!a} is unknown; allowed: {allowed}")
    return kind


def check_store_url(url: str) -> None:
    """ValueError when no store can be opened with it."""
    kind = engine_kind(url)
    if kind is EngineKind.ROCKS:
        check_folder_url(split_address(url))
    elif kind is EngineKind.REDIS:
        check_redis_url(url)
    else:
        _check_memory(url)


def _check_memory(url: str) -> None:
    if url != "memory://":
        raise ValueError("has something behind memory://; allowed: memory://")


def check_folder_url(parts: SplitResult) -> None:
    """ValueError when it names no folder."""
    if parts.netloc or parts.query or parts.fragment or not parts.path.strip("/"):
        raise ValueError("names no folder; allowed: rocks:///absolute/path")


class EventsKind(StrEnum):
    """The kind of engine that keeps the events."""

    MEMORY = "memory"
    ROCKS = "rocks"
    REDIS = "redis"

    @property
    def shared(self) -> bool:
        """True if several nodes can have it in common."""
        return self is EventsKind.REDIS


def events_kind(url: str) -> EventsKind:
    """Return what the URL of an event log chooses; ValueError when it names none that can be opened."""
    if urlsplit(url).scheme in REDIS_SCHEMES:
        check_redis_url(url)
        return EventsKind.REDIS
    parts = split_address(url)
    if parts.scheme == EventsKind.MEMORY:
        _check_memory(url)
        return EventsKind.MEMORY
    if parts.scheme == EventsKind.ROCKS:
        check_folder_url(parts)
        return EventsKind.ROCKS
    allowed = ", ".join(f"{one}://" for one in REDIS_SCHEMES)
    raise ValueError(f"scheme {parts.scheme!a} is unknown; allowed: memory://, rocks:///absolute/path, {allowed}")


def check_access_url(url: str) -> None:
    """ValueError when it names no database that can hold the access directory."""
    parts = split_address(url)
    if parts.scheme == "sqlite":
        _check_sqlite(parts)
    elif parts.scheme == "postgresql":
        _check_postgresql(parts)
    else:
        raise ValueError(f"scheme {parts.scheme!a} is unknown; allowed: sqlite://, postgresql://")


def sqlite_file(parts: SplitResult) -> str:
    """The path of the file that a URL of SQLite names."""
    return unquote(parts.path[1:])


def _check_sqlite(parts: SplitResult) -> None:
    if parts.netloc or parts.query or parts.fragment or not parts.path.strip("/") or parts.path.endswith("/"):
        raise ValueError("names no file; allowed: sqlite:///relative/path or sqlite:////absolute/path")


def _check_postgresql(parts: SplitResult) -> None:
    database = parts.path.removeprefix("/")
    if not database or "/" in database:
        raise ValueError("names no database; allowed: postgresql://user:password@host:port/database")
    for name, _ in parse_qsl(parts.query, keep_blank_values=True):
        if name not in POSTGRESQL_PARAMETERS:
            shown = ascii(name[:32]) if name.isidentifier() else "something"
            allowed = ", ".join(POSTGRESQL_PARAMETERS)
            raise ValueError(f"has {shown} behind its '?', which is not allowed; allowed: {allowed}")


def check_broker_url(url: str, scheme: str = "mqtt") -> None:
    """ValueError when it is not an address for the broker of a node to listen on, and nothing else."""
    parts = split_address(url)
    if parts.scheme != scheme:
        raise ValueError(f"scheme {parts.scheme!a} is unknown; allowed: {scheme}://")
    more = parts.username is not None or parts.path or parts.query or parts.fragment
    if not parts.hostname or parts.port == 0 or more:
        example = f"{scheme}://127.0.0.1:{MQTT_PORTS[scheme]}"
        raise ValueError(f"names no address to listen on; allowed: {scheme}://address:port, such as {example}")


def is_loopback(address: str) -> bool:
    """True if a socket with this address can be reached from this machine alone."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_loopback
