"""One port for the endpoints that want to be told of outcomes, and for what waits to be told.

An outcome that somebody is to be told of is in the outbox from the very step that made it. From there a node puts it
into the queue of each endpoint, and whoever serves that queue claims, sends and settles.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from app.core.webhooks.deliveries import Delivery, OutboxEntry
from app.core.webhooks.endpoints import Endpoint
from app.core.webhooks.places import FIRST, DeliveryPage, DeliveryPosition


class WebhookStore(Protocol):
    """Each call is atomic and safe to repeat; StoreUnavailableError when the store did not answer within its budget."""

    async def endpoints(self) -> Sequence[Endpoint]:
        """All of them, in the order of their ids; what this version cannot read is left out."""

    async def put_endpoint(self, endpoint: Endpoint, before: Endpoint | None) -> bool:
        """Write it where it still stands as `before` (None: where there is none). Whether it was written."""

    async def remove_endpoint(self, endpoint_id: str) -> bool:
        """Forget it and all that waits for it; whether there was one."""

    async def outbox(self, partitions: Sequence[int], most: int) -> Sequence[OutboxEntry]:
        """Return what happened to commands of these partitions, at most `most` of each, the oldest first.

        Where one of several servers is away, its partitions have nothing.
        """

    async def forget(self, notices: Sequence[OutboxEntry]) -> None:
        """Take them out of the outbox: they are in the queues of their endpoints."""

    async def enqueue(self, endpoint_id: str, delivery: Delivery) -> bool:
        """Let it wait for its first attempt, now. An event that the endpoint has, or had lately, is left as it is.

        False when the queue is full, and the event lost.
        """

    async def claim(self, endpoint_id: str, most: int, hold: timedelta) -> Sequence[Delivery]:
        """Take the deliveries that are due, for this node alone: until they are settled, or `hold` is over.

        The later event of a command is not due while an earlier one waits.
        """

    async def settle(self, endpoint_id: str, delivery: Delivery) -> int:
        """Note how a delivery stands after an attempt.

        Return for how long (µs) the endpoint has done nothing but fail; 0 after a success.

        When it is tried again goes by the time between `attempted_at` and `next_at`, so that clocks may differ.
        """

    async def again(self, endpoint_id: str, event_id: str) -> bool:
        """Let an ended delivery be tried once more, now, with all of its attempts before it; whether there is one."""

    async def deliveries(self, endpoint_id: str, limit: int, behind: DeliveryPosition = FIRST) -> DeliveryPage:
        """Return deliveries behind a place: those that wait, the next one first, then those that ended, the last first.

        One that is tried meanwhile takes another place, and may come twice.
        """

    async def waiting(self, endpoint_ids: Sequence[str]) -> Sequence[int]:
        """Return the number of deliveries that wait for each endpoint; 0 where a server that is away has them."""

    async def keep(self, endpoint_id: str, duration: timedelta | None) -> None:
        """Forget what waits after `duration`, or (None) not at all: then its failures count anew as well."""
