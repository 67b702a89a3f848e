"""The way from the outbox to the queues of endpoints, while a server of a Redis Cluster is away that has some."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from app.core.errors import StoreUnavailableError
from app.core.webhooks.deliveries import Delivery
from app.store.memory.commands.store import MemoryStateStore
from app.webhooks.backlog import DeliveryBacklog
from app.webhooks.book import EndpointBook
from app.webhooks.collector import Collector
from tests.contract.store_backends import answer, registration
from tests.unit.assembly import ManualClock
from tests.unit.webhooks.test_book import ALL

AWAY = replace(ALL, id="wh_01M70000000000000000000001")


async def test_a_queue_that_cannot_be_reached_keeps_nothing_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStateStore(ManualClock())
    hooks = store.webhooks
    for one in (AWAY, ALL):
        await hooks.put_endpoint(one, None)
    book = EndpointBook(hooks, lambda _: "")
    await book.refresh()
    collector = Collector(
        store=hooks,
        commands=store,
        book=book,
        render=lambda _: b"{}",
        now=lambda: 1,
        counters=Counter(),
        waiting=DeliveryBacklog(hooks, book),
    )
    for notify in ((AWAY.id,), (AWAY.id, ALL.id), (ALL.id,)):
        asked = registration(notify=notify)
        await store.register(asked)
        await store.respond(answer(asked), "node-a")
    enqueue, tried = hooks.enqueue, list[str]()

    async def partly(endpoint_id: str, delivery: Delivery) -> bool:
        tried.append(endpoint_id)
        if endpoint_id == AWAY.id:
            raise StoreUnavailableError("away")
        return await enqueue(endpoint_id, delivery)

    monkeypatch.setattr(hooks, "enqueue", partly)
    await collector.collect(range(256))
    assert tried.count(AWAY.id) == 1
    assert await hooks.waiting([AWAY.id, ALL.id]) == [0, 2]
    assert len(await hooks.outbox(range(256), 10)) == 2
    monkeypatch.undo()
    await collector.collect(range(256))
    assert await hooks.waiting([AWAY.id, ALL.id]) == [2, 2]
    assert await hooks.outbox(range(256), 10) == []
