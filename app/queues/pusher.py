"""Pushes queues to webhooks: what a lane claims are loans of the queue, and the reply settles all events of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import orjson

from app.core.clock import Clock
from app.core.events.event import Event
from app.core.queues.loans import LoanToken, SettleHow, micros_of
from app.core.queues.model import DeclaredQueue
from app.core.webhooks.endpoints import Endpoint
from app.core.webhooks.schedule import GIVEN_UP_AFTER, Reply
from app.queues.plane import QueuePlane
from app.queues.settler import TokenSettlement
from app.queues.taker import QueueMessage
from app.webhooks.parcels import HOLD, ClaimedParcels, Parcel

CONTENT_TYPE: Final = "application/cloudevents-batch+json"
TYPE: Final = "homing.queue.event"
MOST_BYTES: Final = 160 * 1024
"""The bytes of the values of a batch, which are a third longer as base64: with all about them a body has 256 KiB at
most."""
WAIT_SECONDS: Final = 5.0
"""The time for which a claim waits for the first event."""
FIRST_PAUSE: Final = 1.0
"""Seconds without an attempt after a first failure; twice as long after each further one."""
LONGEST_PAUSE: Final = 60.0
MOST_FAILING: Final = 1_000
"""Endpoints that are remembered as failing."""


@dataclass(slots=True)
class _Standing:
    """An endpoint that has failed, and not succeeded since. Instants in s, on the clock that only goes forward."""

    url: str
    """The receiver that failed: another one has not."""
    since: float
    pause: float
    until: float
    """Before that it is not tried."""
    tried: bool = False
    """True if one event was sent to see whether it still fails."""


class QueueParcels:
    """Batches of a queue, as CloudEvents. `show` gives an event as the API shows it.

    While a receiver fails, one event at a time is tried, so that few deliveries of few events are used up meanwhile.
    """

    def __init__(self, queues: QueuePlane, show: Callable[[Event], bytes], clock: Clock) -> None:
        self._queues = queues
        self._show = show
        self._clock = clock
        self._failing: dict[str, _Standing] = {}

    async def claim(self, endpoint: Endpoint, most: int) -> ClaimedParcels:
        """See ParcelSource. QueueNotFoundError while there is no such queue."""
        del most  # one batch after the other: the lane asks again at once
        failing = self._standing(endpoint)
        if failing is not None and self._clock.monotonic() < failing.until:
            return ClaimedParcels((), more=False)
        queue = await self._queues.find(endpoint.tenant, endpoint.queue)
        batch = endpoint.batch if failing is None else 1
        messages = await self._queues.take(queue, batch, endpoint.id, WAIT_SECONDS, MOST_BYTES, auto=False)
        if messages and failing is None and endpoint.id in self._failing:  # it began to fail while this waited
            await self._queues.settle(queue, _all(messages, SettleHow.RELEASE))
            return ClaimedParcels((), more=False)
        if not messages:
            return ClaimedParcels((), more=False)
        if queue.options.loan < HOLD:  # an attempt may take longer than the queue lends
            await self._queues.settle(queue, _all(messages, SettleHow.EXTEND, micros_of(HOLD)))
        if failing is not None:  # an attempt of which nobody hears, as its lane has ended, holds up no later one
            failing.tried, failing.until = True, self._clock.monotonic() + HOLD.total_seconds()
        first = messages[0].token
        event_id = f"evt_{first.life}_{first.shard.database}_{first.shard.number}_{first.number}_{first.index}"
        body = b"[%b]" % b",".join(self._cloud_event(queue, one) for one in messages)
        return ClaimedParcels([Parcel(event_id, body, messages, {"content-type": CONTENT_TYPE})], more=True)

    async def settle(self, endpoint: Endpoint, parcel: Parcel, reply: Reply) -> int:
        """See ParcelSource."""
        failing = self._note(endpoint, reply)
        how = SettleHow.DONE if reply.delivered else SettleHow.RELEASE if reply.gone else SettleHow.RETRY
        queue = await self._queues.find(endpoint.tenant, endpoint.queue)
        await self._queues.settle(queue, _all(parcel.claim, how))
        return failing

    def forget(self, endpoint_id: str) -> None:
        """See ParcelSource."""
        self._failing.pop(endpoint_id, None)

    def _note(self, endpoint: Endpoint, reply: Reply) -> int:
        """Remember whether it fails; for how long it has done so (µs)."""
        if reply.delivered:
            self._failing.pop(endpoint.id, None)
            return 0
        now, known = self._clock.monotonic(), self._standing(endpoint)
        if known is None:
            if len(self._failing) >= MOST_FAILING:  # most of them were deleted
                self._failing.clear()
            self._failing[endpoint.id] = _Standing(endpoint.url, now, FIRST_PAUSE, now + FIRST_PAUSE)
            return 0
        if known.tried:  # else it was sent before the first failure was known
            known.tried, known.pause = False, min(2 * known.pause, LONGEST_PAUSE)
            known.until = now + known.pause
        failing = round((now - known.since) * 1_000_000)
        if failing >= GIVEN_UP_AFTER:  # it is disabled; whoever enables it again wants to have it tried anew
            del self._failing[endpoint.id]
        return failing

    def _standing(self, endpoint: Endpoint) -> _Standing | None:
        known = self._failing.get(endpoint.id)
        if known is not None and known.url != endpoint.url:
            del self._failing[endpoint.id]
            return None
        return known

    def _cloud_event(self, queue: DeclaredQueue, message: QueueMessage) -> bytes:
        token, event = message.token, message.event
        at = datetime.fromtimestamp(event.position // 1000 / 1000, UTC).isoformat(timespec="milliseconds")
        return orjson.dumps(
            {
                "specversion": "1.0",
                "id": f"{message.database}.{token.shard.number}.{event.position}",
                "source": f"/v1/queues/{queue.name}",
                "type": TYPE,
                "subject": event.entry.topic,
                "time": at.replace("+00:00", "Z"),
                "datacontenttype": "application/json",
                "delivery": message.delivery,
                "data": orjson.Fragment(self._show(event)),
            }
        )


def _all(messages: Sequence[QueueMessage], how: SettleHow, amount: int = -1) -> list[TokenSettlement]:
    tokens: list[LoanToken] = [one.token for one in messages]
    return [TokenSettlement(one, how, amount) for one in tokens]
