"""The collector of the outbox asks nobody for what was decided meanwhile."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

from app.core.commands.approval import ApprovalDecision
from app.core.identifiers import partition_of
from app.core.webhooks.endpoints import EventType
from app.store.memory.commands.store import MemoryStateStore
from app.webhooks.backlog import DeliveryBacklog
from app.webhooks.book import EndpointBook
from app.webhooks.collector import Collector
from tests.contract.store_backends import ManualClock, registration
from tests.unit.webhooks.test_deliverer import DISABLED

HOUR = timedelta(hours=1)
ASKED = replace(DISABLED, events=frozenset((EventType.APPROVAL_ASKED,)), disabled_at=None)
REFUSED = ApprovalDecision(approves=False, who='["key"]', name="ben")


async def test_a_second_person_is_asked_unless_somebody_has_decided() -> None:
    store = MemoryStateStore(ManualClock())
    await store.webhooks.put_endpoint(ASKED, None)
    book = EndpointBook(store.webhooks, lambda _: "")
    await book.refresh()
    collector = Collector(
        store=store.webhooks,
        commands=store,
        book=book,
        render=lambda _: b"{}",
        now=lambda: 1,
        counters=Counter(),
        waiting=DeliveryBacklog(store.webhooks, book),
    )
    waits, decided = (registration(held=HOUR, approval=HOUR, notify=(ASKED.id,)) for _ in range(2))
    for one in (waits, decided):
        await store.register(one)
    assert (await store.decide(decided.command_id, REFUSED, "node-a")).won
    await collector.collect([partition_of("dock-1")])
    deliveries = (await store.webhooks.deliveries(ASKED.id, 10)).deliveries
    assert [one.event_id for one in deliveries] == [f"evt_{waits.command_id}_0"]
    assert await store.webhooks.outbox([partition_of("dock-1")], 10) == []
