"""The look at the outbox: lanes get their turn however fast commands end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from app.core.webhooks.deliveries import OutboxEntry
from app.core.webhooks.endpoints import Endpoint
from app.runtime.telemetry import Counters
from app.store.memory.commands.store import MemoryStateStore
from app.store.memory.webhooks import MemoryWebhooks
from app.webhooks.backlog import DeliveryBacklog
from app.webhooks.book import EndpointBook
from app.webhooks.collector import ROUND, Collector
from app.webhooks.deliverer import Deliverer
from app.webhooks.lane import DeliveryLane
from tests.unit.assembly import ManualClock

DISABLED = Endpoint(
    id="wh_01J00000000000000000000001",
    tenant="",
    url="https://a.example/hook",
    events=frozenset(),
    devices="*",
    methods="*:*",
    created_at=1,
    disabled_at=1,
)


class BusyOutbox(MemoryWebhooks):
    """An outbox in which there is always more: commands end as fast as it is read."""

    looks = 0

    async def outbox(self, partitions: Sequence[int], most: int) -> Sequence[OutboxEntry]:
        self.looks += 1
        assert self.looks < 5, "nobody else gets a turn"
        for number in range(most):
            self.tell(OutboxEntry(f"007-01M7{self.looks:02}{number:020}"))
        return await super().outbox(partitions, most)


def no_lane(_endpoint: Endpoint) -> DeliveryLane:
    raise AssertionError


async def test_a_round_ends_though_there_is_always_more_and_the_next_one_begins_at_once() -> None:
    clock = ManualClock()
    counters: Counters = Counter()
    hooks = BusyOutbox(lambda: 1)
    await hooks.put_endpoint(DISABLED, None)
    book = EndpointBook(hooks, lambda _: "")
    backlog = DeliveryBacklog(hooks, book)
    collector = Collector(
        store=hooks,
        commands=MemoryStateStore(clock),
        book=book,
        render=lambda _: b"{}",
        now=lambda: 1,
        counters=counters,
        waiting=backlog,
    )

    async def live() -> list[str]:
        return ["node-1"]

    deliverer = Deliverer(
        collector=collector,
        book=book,
        waiting=backlog,
        live=live,
        node_id="node-1",
        open_lane=no_lane,
        pushes=lambda: False,
        root="",
        counters=counters,
    )
    assert await deliverer.round()
    assert (hooks.looks, counters["webhooks.lost"]) == (1, ROUND)
