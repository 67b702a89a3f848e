"""The lane of one endpoint: claims what is due, sends it, settles it. One that hangs delays no other endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random
from typing import Final

import structlog

from app.core.errors import HomingError
from app.core.webhooks.deliveries import Delivery, Progress
from app.core.webhooks.endpoints import Endpoint
from app.core.webhooks.schedule import GIVEN_UP_AFTER
from app.core.webhooks.signatures import Signer
from app.outbound.sender import SECONDS, Sender
from app.runtime.tasks import end
from app.runtime.telemetry import Counters
from app.store.webhooks import WebhookStore

MOST_IN_FLIGHT: Final = 8
HOLD: Final = timedelta(seconds=2 * SECONDS)
"""How long a claim counts: longer than an attempt and its settling take."""

Disable = Callable[[Endpoint, str], Awaitable[None]]
"""Serves the endpoint no more, for a reason."""


class DeliveryLane:
    """`endpoint` gives the endpoint as it stands, or None when there is none any more; `now` is in µs."""

    def __init__(
        self,
        endpoint_id: str,
        *,
        endpoint: Callable[[str], Endpoint | None],
        store: WebhookStore,
        sender: Sender,
        signer: Signer,
        disable: Disable,
        now: Callable[[], int],
        random: Random,
        counters: Counters,
    ) -> None:
        self._id = endpoint_id
        self._endpoint = endpoint
        self._store = store
        self._sender = sender
        self._signer = signer
        self._disable = disable
        self._now = now
        self._random = random
        self._counters = counters
        self._flying: set[asyncio.Task[None]] = set()
        self._woken = asyncio.Event()
        self._log = structlog.get_logger().bind(webhook_id=endpoint_id)

    @property
    def in_flight(self) -> int:
        """Return how many attempts are under way."""
        return len(self._flying)

    def wake(self) -> None:
        """Look for what is due."""
        self._woken.set()

    async def run(self) -> None:
        """Serve until the endpoint is not served any more, or until cancelled: what is claimed then comes back."""
        try:
            while (endpoint := self._endpoint(self._id)) is not None and endpoint.enabled:
                if not await self._claim(endpoint):
                    await self._woken.wait()
                    self._woken.clear()
        finally:
            await end(self._flying)

    async def _claim(self, endpoint: Endpoint) -> bool:
        """True if there may be more to claim."""
        free = MOST_IN_FLIGHT - len(self._flying)
        if not free:
            return False
        try:
            claimed = await self._store.claim(self._id, free, HOLD)
        except HomingError as error:
            self._log.debug("webhook_claim_failed", reason=str(error))
            return False
        for one in claimed:
            task = asyncio.create_task(self._deliver(endpoint, one), name=f"webhook {self._id}")
            self._flying.add(task)
            task.add_done_callback(self._landed)
        return len(claimed) == free

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._flying.discard(task)
        self._woken.set()

    async def _deliver(self, endpoint: Endpoint, delivery: Delivery) -> None:
        now = self._now()
        headers = self._signer.headers(endpoint, delivery.event_id, delivery.body, now)
        reply = await self._sender.post(endpoint.url, headers, delivery.body)
        tried = delivery.after(reply, self._now(), self._random.random())
        self._counters[f"webhooks.{'delivered' if reply.delivered else 'failed'}"] += 1
        if tried.progress is Progress.GIVEN_UP:
            self._counters["webhooks.given_up"] += 1
            self._log.warning("webhook_given_up", event_id=delivery.event_id, reason=reply.reason)
        try:
            failing = await self._store.settle(self._id, tried)
            if reply.gone:
                await self._disable(endpoint, "the receiver answered 410: it wants nothing any more")
            elif failing >= GIVEN_UP_AFTER:
                await self._disable(endpoint, "it did nothing but fail for three days")
        except HomingError as error:  # the claim ends by itself, and it is tried again
            self._log.debug("webhook_settle_failed", reason=str(error))
