"""Webhooks of one node alone, in this process's memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from heapq import heappop, heappush, nlargest, nsmallest
from itertools import count
from typing import Final, NamedTuple

from app.core.identifiers import partition_of_command
from app.core.webhooks.deliveries import KEPT_US, MOST_KEPT, MOST_WAITING, Delivery, OutboxEntry, Progress, before
from app.core.webhooks.endpoints import Endpoint
from app.core.webhooks.places import FIRST, DeliveryPage, DeliveryPosition, part
from app.store.memory.commands.records import Changed, nobody
from app.store.rules import micros

ENDPOINT_ROW: Final = "e"
QUEUE_ROW: Final = "f"
DELIVERY_ROW: Final = "q"
NOTICE_ROW: Final = "n"


class KeptDelivery(NamedTuple):
    """A delivery and when it is due, however long it is claimed, or when it ended. Instants in µs."""

    delivery: Delivery
    due: int | None
    ended: int | None


class QueueFacts(NamedTuple):
    """The instants (µs) since which an endpoint has only failed, 0 if it has not, and at which its queue goes."""

    failing_since: int = 0
    forget_at: int | None = None


@dataclass(slots=True)
class _DeliveryQueue:
    deliveries: dict[str, Delivery] = field(default_factory=dict)
    retry: dict[str, int] = field(default_factory=dict)
    """The instant at which each that waits is due if nobody claims it."""
    due: dict[str, int] = field(default_factory=dict)
    """The instant at which each that waits is next due (µs), also those that are claimed."""
    order: list[tuple[int, int, str]] = field(default_factory=list)
    """A heap of when each is due; an entry of which `due` says otherwise is stale. The number is for ties."""
    parked: dict[str, list[str]] = field(default_factory=dict)
    """Later events of commands, by the earlier ones that they wait for; they are not in `order`."""
    numbers: Iterator[int] = field(default_factory=count)
    ended: dict[str, int] = field(default_factory=dict)
    """The instant at which each that ended did so, the oldest first."""
    failing_since: int = 0
    forget_at: int | None = None

    def kept(self, event_id: str) -> KeptDelivery | None:
        """Return how it stands with a delivery, if it is here."""
        found = self.deliveries.get(event_id)
        return None if found is None else KeptDelivery(found, self.retry.get(event_id), self.ended.get(event_id))

    def wait(self, event_id: str, due: int) -> None:
        """Let it be due then, whoever has claimed it."""
        self.retry[event_id] = due
        self.put(event_id, due)

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
            if earlier is None or earlier not in self.due:
                return event_id
            self.parked.setdefault(earlier, []).append(event_id)
        return None

    def end(self, event_id: str, now: int) -> None:
        """It does not wait any more; what waited for it is due."""
        del self.due[event_id]
        self.retry.pop(event_id, None)
        for later in self.parked.pop(event_id, ()):
            self.put(later, now)


class MemoryWebhooks:
    """`now` is the store's clock, in µs; `changed` is told what somebody else may keep."""

    def __init__(self, now: Callable[[], int], changed: Changed = nobody) -> None:
        self.most_waiting = MOST_WAITING
        self.most_kept = MOST_KEPT
        self._now = now
        self._changed = changed
        self._endpoints: dict[str, Endpoint] = {}
        self._queues: dict[str, _DeliveryQueue] = {}
        self._outbox: dict[OutboxEntry, None] = {}

    def tell(self, notice: OutboxEntry) -> None:
        """Part of the step that made the outcome."""
        self._outbox[notice] = None
        self._changed((NOTICE_ROW, notice.member))

    def told(self, notice: OutboxEntry) -> bool:
        """True if the outbox has the notice."""
        return notice in self._outbox

    def endpoint(self, endpoint_id: str) -> Endpoint | None:
        """One of them."""
        return self._endpoints.get(endpoint_id)

    def facts(self, endpoint_id: str) -> QueueFacts | None:
        """Return the facts of a queue, if there is one."""
        queue = self._queues.get(endpoint_id)
        return None if queue is None else QueueFacts(queue.failing_since, queue.forget_at)

    def kept(self, endpoint_id: str, event_id: str) -> KeptDelivery | None:
        """Return how it stands with a delivery, if there is one."""
        queue = self._queues.get(endpoint_id)
        return None if queue is None else queue.kept(event_id)

    def restore_endpoint(self, endpoint: Endpoint) -> None:
        """As it was."""
        self._endpoints[endpoint.id] = endpoint

    def restore_notice(self, notice: OutboxEntry) -> None:
        """As it was."""
        self._outbox[notice] = None

    def restore_queue(self, endpoint_id: str, facts: QueueFacts, deliveries: Sequence[KeptDelivery]) -> None:
        """As it was; the one that ended first comes first, and what was claimed is due."""
        queue = self._queues[endpoint_id] = _DeliveryQueue()
        queue.failing_since, queue.forget_at = facts
        for one in deliveries:
            event_id = one.delivery.event_id
            queue.deliveries[event_id] = one.delivery
            if one.ended is not None:
                queue.ended[event_id] = one.ended
            elif one.due is not None:
                queue.wait(event_id, one.due)

    async def endpoints(self) -> Sequence[Endpoint]:
        return [self._endpoints[one] for one in sorted(self._endpoints)]

    async def put_endpoint(self, endpoint: Endpoint, before: Endpoint | None) -> bool:
        if self._endpoints.get(endpoint.id) not in (before, endpoint):
            return False
        self._endpoints[endpoint.id] = endpoint
        self._changed((ENDPOINT_ROW, endpoint.id))
        return True

    async def remove_endpoint(self, endpoint_id: str) -> bool:
        self._forget_queue(endpoint_id)
        self._changed((ENDPOINT_ROW, endpoint_id))
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
            self._changed((NOTICE_ROW, one.member))

    async def enqueue(self, endpoint_id: str, delivery: Delivery) -> bool:
        queue = self._queue(endpoint_id)
        if delivery.event_id in queue.deliveries:
            return True
        if len(queue.due) >= self.most_waiting:
            return False
        now = self._now()
        queue.deliveries[delivery.event_id] = replace(delivery, next_at=now)
        queue.wait(delivery.event_id, now)
        self._changed((DELIVERY_ROW, endpoint_id, delivery.event_id))
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
            queue.wait(delivery.event_id, now + delivery.delay)
        else:
            queue.end(delivery.event_id, now)
            queue.ended[delivery.event_id] = now
            self._trim(endpoint_id, queue, now)
        self._changed((DELIVERY_ROW, endpoint_id, delivery.event_id))
        failing_since = 0 if delivery.progress is Progress.DELIVERED else queue.failing_since or now
        if failing_since != queue.failing_since:
            queue.failing_since = failing_since
            self._changed((QUEUE_ROW, endpoint_id))
        if not failing_since:
            return 0
        return now - queue.failing_since

    async def again(self, endpoint_id: str, event_id: str) -> bool:
        queue = self._queue(endpoint_id)
        if event_id not in queue.ended:
            return False
        del queue.ended[event_id]
        now = self._now()
        queue.wait(event_id, now)
        self._changed((DELIVERY_ROW, endpoint_id, event_id))
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
        queue = self._queue(endpoint_id)
        if duration is None:
            queue.forget_at, queue.failing_since = None, 0
        else:
            queue.forget_at = self._now() + micros(duration)
        self._changed((QUEUE_ROW, endpoint_id))

    def _queue(self, endpoint_id: str) -> _DeliveryQueue:
        queue = self._queues.get(endpoint_id)
        if queue is None or (queue.forget_at is not None and queue.forget_at <= self._now()):
            self._forget_queue(endpoint_id)
            queue = self._queues[endpoint_id] = _DeliveryQueue()
        return queue

    def _forget_queue(self, endpoint_id: str) -> None:
        queue = self._queues.pop(endpoint_id, None)
        if queue is not None:
            self._changed((QUEUE_ROW, endpoint_id))
            for event_id in queue.deliveries:
                self._changed((DELIVERY_ROW, endpoint_id, event_id))

    def _trim(self, endpoint_id: str, queue: _DeliveryQueue, now: int) -> None:
        while queue.ended:
            oldest = next(iter(queue.ended))
            if len(queue.ended) <= self.most_kept and queue.ended[oldest] > now - KEPT_US:
                return
            del queue.ended[oldest]
            del queue.deliveries[oldest]
            self._changed((DELIVERY_ROW, endpoint_id, oldest))
