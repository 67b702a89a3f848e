"""A queue as it is declared: its name, its routes, and what it says of loans."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any, Final, Literal

from app.core.errors import InvalidInputError
from app.core.events.event import Position, validate_database, validate_reading_filter
from app.core.filtertree import Pattern, topic_pattern
from app.core.queues.exchanges import KeyRoute, validate_route_key
from app.core.queues.letters import DEAD
from app.core.queues.loans import LendingRules, micros_of
from app.core.tenants import tenant_level
from app.core.topics import matches

NAME: Final = "[a-z0-9][a-z0-9._-]{0,63}"
MOST_ROUTES: Final = 64
MOST_LABELS: Final = 16
MOST_DELIVERIES: Final = 100
LONGEST: Final = timedelta(hours=12)
LONGEST_DELAY: Final = timedelta(hours=24)
LEAST: Final = timedelta(seconds=1)
LEAST_UNUSED: Final = timedelta(minutes=1)
_NAME: Final = re.compile(NAME, re.ASCII)
Order = Literal["none", "device"]


@dataclass(frozen=True, slots=True, order=True)
class TopicRoute:
    """Events of a database whose topics match a filter."""

    database: str
    topic: str

    def pattern(self, _tenant: str) -> Pattern:
        """The topics that it is about."""
        return topic_pattern(self.topic)


QueueRoute = TopicRoute | KeyRoute


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """The options of a queue that callers set. Only the order is for ever."""

    routes: tuple[QueueRoute, ...]
    loan: timedelta = timedelta(seconds=30)
    retry: tuple[timedelta, ...] = (timedelta(seconds=1), timedelta(seconds=10), timedelta(minutes=1))
    max_deliveries: int = 5
    order: Order = "none"
    ttl: timedelta | None = None
    delay: timedelta = timedelta()
    single: bool = False
    ends_after: timedelta | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def differs_from(self, other: QueueOptions) -> list[str]:
        """The names of what is not the same."""
        return [one.name for one in fields(self) if getattr(self, one.name) != getattr(other, one.name)]

    @property
    def rules(self) -> LendingRules:
        """The same, as windows go by it."""
        return LendingRules(
            loan=micros_of(self.loan),
            retry=tuple(map(micros_of, self.retry)),
            max_deliveries=self.max_deliveries,
            ordered=self.order == "device",
            ttl=0 if self.ttl is None else micros_of(self.ttl),
            single=self.single,
        )

    @property
    def databases(self) -> tuple[str, ...]:
        """Return those that it reads, each once."""
        return tuple(dict.fromkeys(one.database for one in self.routes))


@dataclass(frozen=True, slots=True)
class DeclaredQueue:
    """A queue on record. One of the same name later has another id, and inherits nothing.

    `starts`: behind which position it began to read each database, also those of which it has no route any more.
    """

    id: str
    tenant: str
    name: str
    options: QueueOptions
    starts: Mapping[str, Position]
    created_us: int
    moved_us: int = 0
    """The instant of its last rewind or redrive, on the engine's clock: whoever feeds it looks again where it is."""

    @property
    def document(self) -> str:
        """The name of its document."""
        return document_of(self.tenant, self.name)

    @property
    def databases(self) -> tuple[str, ...]:
        """Return those of which it has windows: what it had looked at before it lost a route is delivered still."""
        return tuple(dict.fromkeys((*self.options.databases, *self.starts)))

    def starts_with(self, options: QueueOptions, start: Position) -> dict[str, Position]:
        """Return where it began in all databases when it has these options; it is new to some of them."""
        return {**dict.fromkeys(options.databases, start), **self.starts}

    @property
    def dead_topic(self) -> str:
        """Return where its dead letters are."""
        return dead_topic_of(self.tenant, self.name)


def document_of(tenant: str, name: str) -> str:
    """The name of the document of a queue."""
    return f"q {tenant_level(tenant)}/{name}"


def dead_topic_of(tenant: str, name: str) -> str:
    """The topic of the dead letters of a queue."""
    return f"{DEAD}{tenant_level(tenant)}/{name}"


def in_order(routes: Iterable[QueueRoute]) -> tuple[QueueRoute, ...]:
    """The routes, each once, in the one order in which declarations are compared."""
    each = set(routes)
    topics = sorted(one for one in each if isinstance(one, TopicRoute))
    keys = (one for one in each if isinstance(one, KeyRoute))
    return (*topics, *sorted(keys, key=lambda one: (one.exchange, one.key)))


def validate_queue_name(name: str, field: str = "name") -> str:
    """The name itself when it is one of a queue; InvalidInputError."""
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            field, f"{name[:64]!a} is no name of a queue; allowed: a-z 0-9, then a-z 0-9 . _ -, up to 64"
        )
    return name


def validate_options(given: QueueOptions, tenant: str, name: str, databases: Iterable[str]) -> QueueOptions:
    """The options themselves when the queue of this name may have them; InvalidInputError names the field."""
    known = tuple(databases)
    if not 1 <= len(given.routes) <= MOST_ROUTES:
        raise InvalidInputError("routes", f"has {len(given.routes)} entries; allowed are 1 to {MOST_ROUTES}")
    for place, route in enumerate(given.routes):
        _check_route(f"routes.{place}", route, dead_topic_of(tenant, name), known)
    if len(set(given.routes)) < len(given.routes):
        raise InvalidInputError("routes", "has a route twice; allowed: each once")
    _within("loan", given.loan, LEAST, LONGEST)
    if not 1 <= len(given.retry) <= MOST_LABELS:
        raise InvalidInputError("retry", f"has {len(given.retry)} entries; allowed are 1 to {MOST_LABELS}")
    for place, one in enumerate(given.retry):
        _within(f"retry.{place}", one, timedelta(), LONGEST)
    if not 0 <= given.max_deliveries <= MOST_DELIVERIES:
        raise InvalidInputError(
            "max_deliveries", f"{given.max_deliveries} is out of range; allowed: 1 to {MOST_DELIVERIES}, 0 for no limit"
        )
    if given.ttl is not None:
        _within("ttl", given.ttl, LEAST, timedelta(days=3650))
    _within("delay", given.delay, timedelta(), LONGEST_DELAY)
    if given.ends_after is not None:
        _within("ends_after", given.ends_after, LEAST_UNUSED, timedelta(days=3650))
    if len(given.labels) > MOST_LABELS or any(len(key) + len(value) > 128 for key, value in given.labels.items()):  # noqa: PLR2004 - said in the sentence
        raise InvalidInputError("labels", f"are too many or too long; allowed: {MOST_LABELS} of 128 characters each")
    return given


def _check_route(place: str, route: QueueRoute, dead_topic: str, databases: Sequence[str]) -> None:
    if isinstance(route, KeyRoute):
        if route.database not in databases:
            raise InvalidInputError(
                f"{place}.exchange", f"{route.exchange!a} keeps its messages in {route.database!a}, which is not there"
            )
        validate_route_key(route.kind, route.key, f"{place}.key")
        return
    try:
        validate_database(route.database)
    except InvalidInputError as error:
        raise InvalidInputError(f"{place}.database", error.reason) from None
    if route.database not in databases:
        raise InvalidInputError(
            f"{place}.database", f"{route.database!a} is not there; allowed: {', '.join(databases)}"
        )
    try:
        validate_reading_filter(route.topic)
    except InvalidInputError as error:
        raise InvalidInputError(f"{place}.topic", error.reason) from None
    if matches(route.topic, dead_topic):
        raise InvalidInputError(
            f"{place}.topic", "matches the queue's own dead letters, which would never end; redrive reads them again"
        )


def _within(field: str, value: timedelta, least: timedelta, most: timedelta) -> None:
    if not least <= value <= most:
        raise InvalidInputError(
            field,
            f"{value.total_seconds():g}s is out of range; "
            f"allowed: {least.total_seconds():g}s to {most.total_seconds():g}s",
        )


def encode_queue(queue: DeclaredQueue) -> bytes:
    """The document of a queue. Fields that a later version adds are optional."""
    options = queue.options
    told: dict[str, Any] = {
        "v": 1,
        "id": queue.id,
        "tenant": queue.tenant,
        "name": queue.name,
        "created": queue.created_us,
        "moved": queue.moved_us,
        "starts": dict(queue.starts),
        "routes": [{name: getattr(one, name) for name in type(one).__dataclass_fields__} for one in options.routes],
        "loan": micros_of(options.loan),
        "retry": [micros_of(one) for one in options.retry],
        "max_deliveries": options.max_deliveries,
        "order": options.order,
        "ttl": None if options.ttl is None else micros_of(options.ttl),
        "delay": micros_of(options.delay),
        "single": options.single,
        "ends_after": None if options.ends_after is None else micros_of(options.ends_after),
        "labels": dict(options.labels),
    }
    return json.dumps(told, separators=(",", ":"), sort_keys=True).encode()


def decode_queue(document: bytes) -> DeclaredQueue:
    """The queue of a document; ValueError, KeyError or TypeError where this version cannot read it."""
    told = json.loads(document)
    if told["v"] != 1:
        raise ValueError(f"a queue has version {told['v']}, and this node reads 1")
    options = QueueOptions(
        routes=tuple(map(_route, told["routes"])),
        loan=_duration(told["loan"]),
        retry=tuple(map(_duration, told["retry"])),
        max_deliveries=told["max_deliveries"],
        order=told["order"],
        ttl=None if told["ttl"] is None else _duration(told["ttl"]),
        delay=_duration(told["delay"]),
        single=told["single"],
        ends_after=None if told["ends_after"] is None else _duration(told["ends_after"]),
        labels=dict(told["labels"]),
    )
    return DeclaredQueue(
        told["id"], told["tenant"], told["name"], options, told["starts"], told["created"], told.get("moved", 0)
    )


def _route(told: Mapping[str, Any]) -> QueueRoute:
    if "exchange" in told:
        return KeyRoute(told["database"], told["exchange"], told["key"], told["kind"])
    return TopicRoute(told["database"], told["topic"])


def _duration(micros: int) -> timedelta:
    return timedelta(microseconds=micros)
