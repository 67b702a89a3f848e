"""Copies of the access directory in the cluster's store: what a node decides by that starts while the database is away.

A copy is signed with a key that is made of the database's password: who can forge one could change the database just as
well. It has neither hashes of passwords nor addresses of people.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeVar

import orjson

from app.core.access.model import Binding, Credential, Device, Document, Kind, Principal, Role, Scheme, Tenant
from app.core.clock import Clock, wall_us
from app.store.copies import Copies

AGAIN_SECONDS: Final = 300.0
"""The age at which a kept copy of the same version is kept anew: that says that it still holds."""
_FORMAT: Final = 1
_SIGNATURE: Final = 32
_LABEL: Final = b"homing: copy of the access directory"
_ROUNDS: Final = 2**14
"""The cost of scrypt, some 50 ms: somebody who reads Redis is not to find the password by trying."""

T = TypeVar("T")


class RulesCopy(NamedTuple):
    """A directory as it was at `at_us`."""

    document: Document
    at_us: int


class RulesCopier:
    """Keeps copies and finds them again; `life` is how long one is good for."""

    def __init__(self, copies: Copies, password: str, clock: Clock, life: timedelta) -> None:
        self._copies = copies
        self._password = password
        self._clock = clock
        self._life = life
        self._key = b""

    async def keep(self, document: Document, age: float) -> None:
        """Keep the directory as the database had it `age` seconds ago, if nobody has; StoreUnavailableError."""
        at_us = self._now_us() - round(age * 1_000_000)
        kept = await self._copies.kept()
        if kept is not None and kept[0] >= document.version and at_us - kept[1] < AGAIN_SECONDS * 1_000_000:
            return
        signed = signed_copy(await self._made_key(), await asyncio.to_thread(written, RulesCopy(document, at_us)))
        await self._copies.keep(document.version, at_us, signed, self._life)

    async def find(self) -> RulesCopy | None:
        """The copy that is kept, if it is good for anything; StoreUnavailableError."""
        signed = await self._copies.read()
        if signed is None:
            return None
        body = body_of(await self._made_key(), signed)
        found = None if body is None else await asyncio.to_thread(read, body)
        if found is None or self._now_us() - found.at_us >= self._life / timedelta(microseconds=1):
            return None
        return found

    def age(self, copy: RulesCopy) -> float:
        """The number of seconds since the database was in accord with the copy."""
        return max(0.0, (self._now_us() - copy.at_us) / 1_000_000)

    async def _made_key(self) -> bytes:
        self._key = self._key or await asyncio.to_thread(_key_of, self._password)
        return self._key

    def _now_us(self) -> int:
        return wall_us(self._clock)


def _key_of(password: str) -> bytes:
    return hashlib.scrypt(password.encode(), salt=_LABEL, n=_ROUNDS, r=8, p=1)


def signed_copy(key: bytes, body: bytes) -> bytes:
    """The body behind its signature."""
    return hmac.digest(key, body, "sha256") + body


def body_of(key: bytes, signed: bytes) -> bytes | None:
    """The body; None when its signature is not of this key."""
    signature, body = signed[:_SIGNATURE], signed[_SIGNATURE:]
    return body if hmac.compare_digest(signature, hmac.digest(key, body, "sha256")) else None


def written(copy: RulesCopy) -> bytes:
    """The copy as JSON."""
    people = tuple(replace(one, email=None, password_hash=None) for one in copy.document.principals)
    document = replace(copy.document, principals=people)
    return orjson.dumps({"format": _FORMAT, "at": copy.at_us, "document": document}, default=_plain)


def _plain(value: object) -> object:
    """Turn what orjson does not know into what it does: digests, and mappings that cannot be changed."""
    match value:
        case bytes():
            return value.hex()
        case Mapping():
            return dict(value)
    raise TypeError


def read(body: bytes) -> RulesCopy | None:
    """Read what `written` gave; None for that of another version."""
    try:
        found = orjson.loads(body)
        told = found["document"]
        if found["format"] != _FORMAT:
            return None
        document = Document(
            cluster_id=str(told["cluster_id"]),
            version=int(told["version"]),
            tenants=_entries(Tenant, told["tenants"]),
            principals=_entries(Principal, told["principals"]),
            credentials=_entries(Credential, told["credentials"]),
            roles=_entries(Role, told["roles"]),
            bindings=_entries(Binding, told["bindings"]),
            devices=_entries(Device, told["devices"]),
        )
        return RulesCopy(document, int(found["at"]))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _entries(kind: type[T], told: list[Mapping[str, Any]]) -> tuple[T, ...]:
    return tuple(kind(**{name: _value(name, value) for name, value in one.items()}) for one in told)


def _value(name: str, value: Any) -> Any:  # noqa: ANN401 - of a field of any type
    match name, value:
        case _, None:
            return None
        case "kind", _:
            return Kind(value)
        case "scheme", _:
            return Scheme(value)
        case "digest", _:
            return bytes.fromhex(value)
        case _, list():
            return tuple(value)
        case _:
            return value
