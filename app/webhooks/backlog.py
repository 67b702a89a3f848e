"""The backlog of the endpoints of each tenant: one of them cannot fill the store for all."""

from __future__ import annotations

from collections import Counter
from typing import Final

from app.store.webhooks import WebhookStore
from app.webhooks.book import EndpointBook

MOST_OF_TENANT: Final = 200_000
"""The number of events that may wait for all endpoints of a tenant."""


class DeliveryBacklog:
    """Counted anew each round; in between, a node knows only of what it adds itself."""

    def __init__(self, store: WebhookStore, book: EndpointBook) -> None:
        self._store = store
        self._book = book
        self._of: Counter[str] = Counter()

    async def count(self) -> None:
        """Ask the store; StoreUnavailableError."""
        endpoints = self._book.all
        found: Counter[str] = Counter()
        counts = await self._store.waiting([one.id for one in endpoints])
        for endpoint, count in zip(endpoints, counts, strict=True):
            found[endpoint.tenant] += count
        self._of = found

    def has_room(self, tenant: str) -> bool:
        """True if another event may wait for an endpoint of the tenant."""
        return self._of[tenant] < MOST_OF_TENANT

    def add(self, tenant: str) -> None:
        """One more waits."""
        self._of[tenant] += 1

    @property
    def most(self) -> int:
        """Return how many wait for the tenant for which most wait."""
        return max(self._of.values(), default=0)
