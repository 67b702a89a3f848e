"""The lane of one endpoint: claims what is due, sends it, settles it. One that hangs delays no other endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from app.core.errors import HomingError
from app.core.webhooks.endpoints import Endpoint
from app.core.webhooks.schedule import GIVEN_UP_AFTER
from app.core.webhooks.signatures import Signer
from app.outbound.ports import Sender
from app.runtime.tasks import end
from app.runtime.telemetry import Counters
from app.webhooks.parcels import Parcel, ParcelSource

MOST_IN_FLIGHT: Final = 8
Disable = Callable[[Endpoint, str], Coroutine[Any, Any, None]]
"""Serves the endpoint no more, for a reason."""


class DeliveryLane:
    """`endpoint` gives the endpoint as it stands, or None when there is none any more; `now` is in µs."""

    def __init__(
        self,
        endpoint_id: str,
        *,
        endpoint: Callable[[str], Endpoint | None],
        source: ParcelSource,
        sender: Sender,
        signer: Signer,
        disable: Disable,
        now: Callable[[], int],
        counters: Counters,
    ) -> None:
        self._id = endpoint_id
        self._endpoint = endpoint
        self._source = source
        self._sender = sender
        self._signer = signer
        self._disable = disable
        self._now = now
        self._counters = counters
        self._flying: set[asyncio.Task[None]] = set()
        self._disabling: set[asyncio.Task[None]] = set()
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
            endpoint = self._endpoint(self._id)
            if endpoint is None or not endpoint.enabled:
                self._source.forget(self._id)

    async def _claim(self, endpoint: Endpoint) -> bool:
        """True if there may be more to claim."""
        free = MOST_IN_FLIGHT - len(self._flying)
        if not free:
            return False
        try:
            claimed = await self._source.claim(endpoint, free)
        except HomingError as error:
            self._log.debug("webhook_claim_failed", reason=str(error))
            return False
        for one in claimed.parcels:
            task = asyncio.create_task(self._deliver(endpoint, one), name=f"webhook {self._id}")
            self._flying.add(task)
            task.add_done_callback(self._landed)
        return claimed.more

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._flying.discard(task)
        self._woken.set()

    async def _deliver(self, endpoint: Endpoint, parcel: Parcel) -> None:
        signed = self._signer.headers(endpoint, parcel.event_id, parcel.body, self._now())
        reply = await self._sender.post(endpoint.url, {**signed, **parcel.headers}, parcel.body)
        self._counters[f"webhooks.{'delivered' if reply.delivered else 'failed'}"] += 1
        try:
            failing = await self._source.settle(endpoint, parcel, reply)
            if reply.gone:
                await self._give_up(endpoint, "the receiver answered 410: it wants nothing any more")
            elif failing >= GIVEN_UP_AFTER:
                await self._give_up(endpoint, "it did nothing but fail for three days")
        except HomingError as error:  # the claim ends by itself, and it is tried again
            self._log.debug("webhook_settle_failed", reason=str(error))

    async def _give_up(self, endpoint: Endpoint, reason: str) -> None:
        """Disable the endpoint, which ends this lane and its attempts: others are told of it nevertheless."""
        disabling = asyncio.create_task(self._disable(endpoint, reason), name=f"webhook {self._id} is disabled")
        self._disabling.add(disabling)
        disabling.add_done_callback(self._disabling.discard)
        await asyncio.shield(disabling)
