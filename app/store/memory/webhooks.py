"""Webhooks of one node alone, in this process's memory. It promises nothing across the end of the process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from heapq import heappop, heappush, nlargest, nsmallest
from itertools import count

from app.core.identifiers import partition_of_command
from app.core.webhooks.deliveries import KEPT_US, MOST_KEPT, MOST_WAITING, Delivery, OutboxEntry, Progress, before
from app.core.webhooks.endpoints import Endpoint
from app.core.webhooks.places import FIRST, DeliveryPage, DeliveryPosition, part
from app.store.rules import micros


@dataclass(slots=True)
class _DeliveryQueue:
    deliveries: dict[str, Delivery] = field(default_factory=dict)
    due: dict[str, int] = field(default_factory=dict)
    """When each that waits is next due (µs), also those that are claimed."""
    order: list[tuple[int, int, str]] = field(default_factory=list)
    """A heap of when each is due; an entry of which `due` says otherwise is stale. The number is for ties."""
    parked: dict[str, str] = field(default_factory=dict)
    """Later events of commands, by the earlier ones that they wait for; they are not in `order`."""
    numbers: Iterator[int] = field(default_factory=count)
    ended: dict[str, int] = field(default_factory=dict)
    """When each that ended did so, the oldest first."""
    failing_since: int = 0
    forget_at: int | None = None

    def put(self, event_id: str, due: int) -> None:
        """Let it be due then."""
        self.due[event_id] = due
        heappush(self.order, (due, next(self.numbers), event_id))

    def take(self, now: int) -> str | None:
        """The next that is due, which is not in order any more; None where there is none."""
        while self.order and self.order[0][0] <= now:
            due, _, event_id = heappop(self.order)
            if self.due.get(event_id) != due:
                continue
            earlier = before(event_id)
            if earlier not in self.due:
                return event_id
            self.parked[earlier] = event_id
        return None

    def end(self, event_id: str, now: int) -> None:
        """It does not wait any more; what waited for it is due."""
        del self.due[event_id]
        later = self.parked.pop(event_id, None)
        if later is not None:
            self.put(later, now)


class MemoryWebhooks:
    """`now` is the store's clock, in µs."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._endpoints: dict[str, Endpoint] = {}
        self._queues: dict[str, _DeliveryQueue] = {}
        self._outbox: dict[OutboxEntry, None] = {}

    def tell(self, notice: OutboxEntry) -> None:
        """Part of the step that made the outcome."""
        self._outbox[notice] = None

    async def endpoints(self) -> Sequence[Endpoint]:
        return [self._endpoints[one] for one in sorted(self._endpoints)]

    async def put_endpoint(self, endpoint: Endpoint, before: Endpoint | None) -> bool:
        if self._endpoints.get(endpoint.id) not in (before, endpoint):
            return False
        self._endpoints[endpoint.id] = endpoint
        return True

    async def remove_endpoint(self, endpoint_id: str) -> bool:
        self._queues.pop(endpoint_id, None)
        return self._endpoints.pop(endpoint_id, None) is not None

    async def outbox(self, partitions: Sequence[int], most: int) -> Sequence[OutboxEntry]:
        found: dict[int, list[OutboxEntry]] = {one: [] for one in partitions}
        for notice in self._outbox:
            of_partition = found.get(partition_of_command(notice.command_id))
            if of_partition is not None and len(of_partition) < most:
                of_partition.append(notice)
        return [notice for some in found.values() for notice in some]

    async def forget(self, notices: Sequence[OutboxEntry]) -> None:
        for one in notices:
            self._outbox.pop(one, None)

    async def enqueue(self, endpoint_id: str, delivery: Delivery) -> bool:
        queue = self._queue(endpoint_id)
        if delivery.event_id in queue.deliveries:
            return True
        if len(queue.due) >= MOST_WAITING:
            return False
        now = self._now()
        queue.deliveries[delivery.event_id] = replace(delivery, next_at=now)
        queue.put(delivery.event_id, now)
        return True

    async def claim(self, endpoint_id: str, most: int, hold: timedelta) -> Sequence[Delivery]:
        queue, now = self._queue(endpoint_id), self._now()
        claimed: list[Delivery] = []
        while len(claimed) < most and (event_id := queue.take(now)) is not None:
            queue.put(event_id, now + micros(hold))
            claimed.append(queue.deliveries[event_id])
        return claimed

    async def settle(self, endpoint_id: str, delivery: Delivery) -> int:
        queue, now = self._queue(endpoint_id), self._now()
        if delivery.event_id not in queue.due:
            return now - queue.failing_since if queue.failing_since else 0
        queue.deliveries[delivery.event_id] = delivery
        if delivery.delay is not None:
            queue.put(delivery.event_id, now + delivery.delay)
        else:
            queue.end(delivery.event_id, now)
            queue.ended[delivery.event_id] = now
            self._trim(queue, now)
        if delivery.progress is Progress.DELIVERED:
            queue.failing_since = 0
            return 0
        queue.failing_since = queue.failing_since or now
        return now - queue.failing_since

    async def again(self, endpoint_id: str, event_id: str) -> bool:
        queue = self._queue(endpoint_id)
        if event_id not in queue.ended:
            return False
        del queue.ended[event_id]
        now = self._now()
        queue.put(event_id, now)
        queue.deliveries[event_id] = replace(queue.deliveries[event_id], progress=Progress.WAITING, next_at=now)
        return True

    async def deliveries(self, endpoint_id: str, limit: int, behind: DeliveryPosition = FIRST) -> DeliveryPage:
        queue = self._queue(endpoint_id)
        last = (behind.at, behind.event_id)
        waiting = ((at, one) for one, at in queue.due.items() if not behind.ended and (at, one) > last)
        ended = ((at, one) for one, at in queue.ended.items() if not behind.ended or (at, one) < last)
        places = [
            *(DeliveryPosition(ended=False, at=at, event_id=one) for at, one in nsmallest(limit + 1, waiting)),
            *(DeliveryPosition(ended=True, at=at, event_id=one) for at, one in nlargest(limit + 1, ended)),
        ]
        shown, more = part(places, limit)
        return DeliveryPage([queue.deliveries[one.event_id] for one in shown], more)

    async def waiting(self, endpoint_ids: Sequence[str]) -> Sequence[int]:
        return [len(self._queue(one).due) for one in endpoint_ids]

    async def keep(self, endpoint_id: str, duration: timedelta | None) -> None:
        self._queue(endpoint_id).forget_at = None if duration is None else self._now() + micros(duration)

    def _queue(self, endpoint_id: str) -> _DeliveryQueue:
        queue = self._queues.get(endpoint_id)
        if queue is None or (queue.forget_at is not None and queue.forget_at <= self._now()):
            queue = self._queues[endpoint_id] = _DeliveryQueue()
        return queue

    def _trim(self, queue: _DeliveryQueue, now: int) -> None:
        while queue.ended:
            oldest = next(iter(queue.ended))
            if len(queue.ended) <= MOST_KEPT and queue.ended[oldest] > now - KEPT_US:
                return
            del queue.ended[oldest]
            del queue.deliveries[oldest]
