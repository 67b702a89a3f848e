"""The servers behind a URL, and the Sentinels of a primary, as `homing doctor` sees them. Blocking; writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisError

from app.core.errors import StoreUnavailableError
from app.core.redis_address import (
    Place,
    RedisAddress,
    RedisKind,
    RedisTerms,
    parse_redis_url,
    shown_place,
)
from app.store.redis.driver.slots import SlotMap, slot_of
from app.store.redis.driver.topology import read_slots
from app.store.redis.questioner import asking_client


@dataclass(frozen=True, slots=True)
class GuardFacts:
    """The statements of the Sentinels about their service."""

    asked: int
    """The number of Sentinels that the URL names."""
    silent: tuple[str, ...]
    """The Sentinels that gave no answer, as `host:port: reason`."""
    quorum: int
    known: int
    """The number of Sentinels that guard the primary, in the eyes of the one that answered."""
    down_after_ms: int
    agreed: bool
    """All who answered name the same primary."""


class Servers:
    """The servers that take writes, and who of them has a key."""

    def __init__(self, urls: Sequence[str], guards: GuardFacts | None = None, slots: SlotMap | None = None) -> None:
        self.urls = urls
        """One, or one for each primary of a Redis Cluster."""
        self.guards = guards
        """The Sentinels, where the URL names some."""
        self.slots = slots
        """None where there is one server."""

    def of(self, key: str) -> str:
        """The URL of the server that has this key."""
        if self.slots is None:
            return self.urls[0]
        owner = self.slots.owners[slot_of(key)]
        return self.urls[0 if owner is None else self.slots.primaries.index(owner)]


def find_servers(url: str, terms: RedisTerms) -> Servers:
    """The servers behind a URL.

    ValueError for a wrong URL; StoreUnavailableError when no Sentinel knows of a primary, or the members of a Redis
    Cluster do not serve all slots.
    """
    address = parse_redis_url(url)
    if address.kind is RedisKind.CLUSTER:
        try:
            slots = asyncio.run(read_slots(address))
        except (RedisError, OSError, TimeoutError) as error:
            raise StoreUnavailableError(str(error)) from None
        return Servers([address.url_of(one) for one in slots.primaries], slots=slots)
    server, guards = _primary_url(url, address, terms)
    return Servers([server], guards)


def _primary_url(url: str, address: RedisAddress, terms: RedisTerms) -> tuple[str, GuardFacts | None]:
    """The URL of the server that takes writes, and what Sentinels say; None for a URL without them."""
    if address.kind is not RedisKind.SENTINEL:
        return url, None
    answers: list[tuple[int, Place, dict[str, Any]]] = []
    silent: list[str] = []
    for seed in address.seeds:
        try:
            answers.append(_asked(address, seed, terms))
        except (RedisError, OSError, ValueError, KeyError, TypeError) as error:
            silent.append(f"{shown_place(seed)}: {str(error) or type(error).__name__}")
    if not answers:
        raise StoreUnavailableError(f"no Sentinel names the primary of {address.service}: {'; '.join(silent)}")
    _, place, facts = max(answers, key=lambda one: one[0])
    return address.url_of(place), GuardFacts(
        asked=len(address.seeds),
        silent=tuple(silent),
        quorum=int(facts.get("quorum", 0)),
        known=int(facts.get("num-other-sentinels", 0)) + 1,
        down_after_ms=int(facts.get("down-after-milliseconds", 0)),
        agreed=len({one[1] for one in answers}) == 1,
    )


def _asked(address: RedisAddress, seed: Place, terms: RedisTerms) -> tuple[int, Place, dict[str, Any]]:
    login = {"username": terms.sentinel_user or None, "password": terms.sentinel_password}
    with asking_client(address.sentinel_url(seed), **(login if terms.sentinel_password else {})) as client:
        facts: dict[str, Any] = client.sentinel_master(address.service)
    return int(facts["config-epoch"]), (facts["ip"], int(facts["port"])), facts
