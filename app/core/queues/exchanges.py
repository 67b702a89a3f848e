"""Exchanges: names under which callers say something with a key, and the routes by which queues choose among keys."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

from app.core.errors import InvalidInputError
from app.core.events.event import EXCHANGES
from app.core.filtertree import Pattern, Wildcard, key_pattern, key_words
from app.core.tenants import tenant_level

Kind = Literal["direct", "fanout", "topic"]
KINDS: Final = get_args(Kind)
NAME: Final = "[a-z0-9][a-z0-9._-]{0,63}"
MOST_KEY_BYTES: Final = 255
_NAME: Final = re.compile(NAME, re.ASCII)
_WORD: Final = re.compile("[A-Za-z0-9_-]+", re.ASCII)
_ALLOWED: Final = "allowed: words of A-Z a-z 0-9 _ - joined by dots"


@dataclass(frozen=True, slots=True)
class DeclaredExchange:
    """An exchange on record, which is for ever of its kind. `database`: where what is said is kept."""

    tenant: str
    name: str
    kind: Kind
    database: str
    created_us: int

    @property
    def document(self) -> str:
        """The name of its document."""
        return exchange_document(self.tenant, self.name)

    def topic_of(self, key: str) -> str:
        """Return where what is said with a key is in the log."""
        return "/".join((*_front(self.tenant, self.name), *key_words(key)))


@dataclass(frozen=True, slots=True, order=True)
class KeyRoute:
    """The messages of an exchange whose keys fit. The exchange fills in its database and kind."""

    database: str
    exchange: str
    key: str
    kind: Kind = "topic"

    def pattern(self, tenant: str) -> Pattern:
        """The topics that it is about: the key itself, all keys, or those that fit its wildcards."""
        front = _front(tenant, self.exchange)
        if self.kind == "fanout":
            return (*front, Wildcard.MANY)
        return (*front, *(key_pattern(self.key) if self.kind == "topic" else key_words(self.key)))


def exchange_document(tenant: str, name: str) -> str:
    """The name of the document of an exchange."""
    return f"x {tenant_level(tenant)}/{name}"


def validate_exchange_name(name: str, field: str = "name") -> str:
    """The name itself when it is one of an exchange; InvalidInputError."""
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            field, f"{name[:64]!a} is no name of an exchange; allowed: a-z 0-9, then a-z 0-9 . _ -, up to 64"
        )
    return name


def validate_key(key: str, field: str = "key", wildcards: frozenset[str] = frozenset()) -> str:
    """The key itself when something can be said with it, or it may have these wildcards; InvalidInputError."""
    allowed = f"{_ALLOWED}, each * or # a word of its own" if wildcards else _ALLOWED
    if len(key.encode()) > MOST_KEY_BYTES:
        raise InvalidInputError(field, f"has {len(key.encode())} bytes; allowed are {MOST_KEY_BYTES}")
    for word in key.split("."):
        if word not in wildcards and not _WORD.fullmatch(word):
            raise InvalidInputError(field, f"has the word {word[:32]!a}; {allowed}")
    return key


def validate_route_key(kind: Kind, key: str, field: str) -> str:
    """The key itself when queues can choose by it in an exchange of this kind; InvalidInputError."""
    if kind == "fanout":
        if key not in ("", "#"):
            raise InvalidInputError(field, f"{key[:32]!a} chooses among keys, which fanout does not; allowed: #")
        return key
    return validate_key(key, field, frozenset("*#") if kind == "topic" else frozenset())


def encode_exchange(exchange: DeclaredExchange) -> bytes:
    """The document of an exchange. Fields that a later version adds are optional."""
    told = {
        "v": 1,
        "tenant": exchange.tenant,
        "name": exchange.name,
        "kind": exchange.kind,
        "database": exchange.database,
        "created": exchange.created_us,
    }
    return json.dumps(told, separators=(",", ":"), sort_keys=True).encode()


def decode_exchange(document: bytes) -> DeclaredExchange:
    """The exchange of a document; ValueError, KeyError or TypeError where this version cannot read it."""
    told = json.loads(document)
    if told["v"] != 1 or told["kind"] not in KINDS:
        raise ValueError(f"an exchange has version {told['v']} and kind {told['kind']!a}, which this node cannot read")
    return DeclaredExchange(told["tenant"], told["name"], told["kind"], told["database"], told["created"])


def _front(tenant: str, name: str) -> tuple[str, ...]:
    return (EXCHANGES.rstrip("/"), tenant_level(tenant), name)
