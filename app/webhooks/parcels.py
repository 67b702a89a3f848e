"""Parcels that the lane of an endpoint sends: claimed where they wait, and settled when the receiver has replied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any, Final, NamedTuple, Protocol

import structlog

from app.core.webhooks.deliveries import Delivery, Progress
from app.core.webhooks.endpoints import Endpoint
from app.core.webhooks.schedule import Reply
from app.outbound.ports import SECONDS
from app.runtime.telemetry import Counters
from app.store.webhooks import WebhookStore

HOLD: Final = timedelta(seconds=2 * SECONDS)
"""The time that a claim counts: longer than an attempt and its settling take."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """One message to a receiver. `claim` is what its source knows it by."""

    event_id: str
    body: bytes
    claim: Any
    headers: Mapping[str, str]


class ClaimedParcels(NamedTuple):
    """Parcels for this node alone. `more`: there may be others right away."""

    parcels: Sequence[Parcel]
    more: bool


class ParcelSource(Protocol):
    """Both calls raise HomingError when the store does not answer; what was claimed comes back by itself then."""

    async def claim(self, endpoint: Endpoint, most: int) -> ClaimedParcels:
        """Take up to so many parcels that are due, until they are settled, or the claim is over."""

    async def settle(self, endpoint: Endpoint, parcel: Parcel, reply: Reply) -> int:
        """Note the reply. Return for how long (µs) the endpoint has done nothing but fail; 0 after a success."""

    def forget(self, endpoint_id: str) -> None:
        """The endpoint is served no more. If it is again, its failures count anew."""


@dataclass(slots=True)
class ParcelSources:
    """The sources of a node. That of queues is there once their plane is open, on nodes that have queues."""

    outcomes: ParcelSource
    queues: ParcelSource | None = None

    def of(self, endpoint: Endpoint) -> ParcelSource:
        """The source of an endpoint's parcels. No lane is opened for one with a queue before there are queues."""
        return self.queues if endpoint.queue and self.queues is not None else self.outcomes


class StoredDeliveries:
    """Deliveries of outcomes, which wait in the store. `now` is in µs."""

    def __init__(self, *, store: WebhookStore, now: Callable[[], int], random: Random, counters: Counters) -> None:
        self._store = store
        self._now = now
        self._random = random
        self._counters = counters

    async def claim(self, endpoint: Endpoint, most: int) -> ClaimedParcels:
        """See ParcelSource."""
        claimed = await self._store.claim(endpoint.id, most, HOLD)
        return ClaimedParcels([Parcel(one.event_id, one.body, one, {}) for one in claimed], len(claimed) == most)

    async def settle(self, endpoint: Endpoint, parcel: Parcel, reply: Reply) -> int:
        """See ParcelSource."""
        delivery: Delivery = parcel.claim
        tried = delivery.after(reply, self._now(), self._random.random())
        if tried.progress is Progress.GIVEN_UP:
            self._counters["webhooks.given_up"] += 1
            structlog.get_logger().warning(
                "webhook_given_up", webhook_id=endpoint.id, event_id=delivery.event_id, reason=reply.reason
            )
        return await self._store.settle(endpoint.id, tried)

    def forget(self, endpoint_id: str) -> None:
        """See ParcelSource. The store knows of failures, and hears of it from who enables the endpoint."""
