"""The collector of the outbox asks nobody for what was decided meanwhile, and tells no tenant of foreign devices."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

from app.core.commands.approval import ApprovalDecision
from app.core.commands.command import CommandState
from app.core.errors import UnavailableError
from app.core.identifiers import partition_of
from app.core.webhooks.endpoints import EventType
from app.store.memory.commands.store import MemoryStateStore
from app.webhooks.backlog import DeliveryBacklog
from app.webhooks.book import EndpointBook, TenantOf
from app.webhooks.collector import Collector
from tests.contract.store_backends import ManualClock, registration
from tests.unit.webhooks.test_deliverer import DISABLED

HOUR = timedelta(hours=1)
ASKED = replace(DISABLED, events=frozenset((EventType.APPROVAL_ASKED,)), disabled_at=None)
ENDED = replace(ASKED, events=frozenset((EventType.CANCELLED,)))
REFUSED = ApprovalDecision(approves=False, who='["key"]', name="ben")


async def test_a_second_person_is_asked_unless_somebody_has_decided() -> None:
    store = MemoryStateStore(ManualClock())
    await store.webhooks.put_endpoint(ASKED, None)
    collector = await collector_of(store, lambda _: "")
    waits, decided = (registration(held=HOUR, approval=HOUR, notify=(ASKED.id,)) for _ in range(2))
    for one in (waits, decided):
        await store.register(one)
    assert (await store.decide(decided.command_id, REFUSED, "node-a")).won
    await collector.collect([partition_of("dock-1")])
    deliveries = (await store.webhooks.deliveries(ASKED.id, 10)).deliveries
    assert [one.event_id for one in deliveries] == [f"evt_{waits.command_id}_0"]
    assert await store.webhooks.outbox([partition_of("dock-1")], 10) == []


async def collector_of(store: MemoryStateStore, tenant_of: TenantOf) -> Collector:
    book = EndpointBook(store.webhooks, tenant_of)
    await book.refresh()
    return Collector(
        store=store.webhooks,
        commands=store,
        book=book,
        render=lambda _: b"{}",
        now=lambda: 1,
        counters=Counter(),
        waiting=DeliveryBacklog(store.webhooks, book),
    )


async def test_a_tenant_is_told_nothing_of_a_device_that_is_anothers_by_now() -> None:
    """While nobody can tell whose it is, the news waits."""
    owners: dict[str, str] = {}

    def tenant_of(device: str) -> str:
        if device not in owners:
            raise UnavailableError("the rules are not known yet")
        return owners[device]

    store = MemoryStateStore(ManualClock())
    await store.webhooks.put_endpoint(replace(ENDED, tenant="north"), None)
    collector = await collector_of(store, tenant_of)
    command = registration(notify=(ENDED.id,))
    await store.register(command)
    await store.finish(command.command_id, CommandState.CANCELLED, "node-a")
    place = [partition_of("dock-1")]
    await collector.collect(place)
    assert len(await store.webhooks.outbox(place, 10)) == 1
    owners["dock-1"] = "south"
    await collector.collect(place)
    assert await store.webhooks.outbox(place, 10) == []
    assert (await store.webhooks.deliveries(ENDED.id, 10)).deliveries == []
