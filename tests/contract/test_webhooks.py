"""The promises of every store for webhooks: told with the outcome, queued once, claimed by one, in order."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from app.core.commands.command import CommandState
from app.core.identifiers import PARTITIONS
from app.core.webhooks.deliveries import Delivery, OutboxEntry, Progress, Tidings, event_id
from app.core.webhooks.endpoints import Endpoint, EventType
from app.core.webhooks.places import FIRST, DeliveryPage
from app.core.webhooks.schedule import Reply
from app.store.rocks.webhooks import RocksWebhooks
from app.store.state import StateStore
from app.store.webhooks import WebhookStore
from tests.contract.store_backends import MOMENT, Backend, answer, new_id, registration

WH = "wh_01J00000000000000000000001"
OTHER = "wh_01J00000000000000000000002"
ALL = range(PARTITIONS)
HOLD = timedelta(seconds=30)
FAILED = Reply(500, "the receiver answered 500")


@pytest.fixture
def hooks(store: StateStore) -> WebhookStore:
    return store.webhooks


@pytest.fixture
def elsewhere(other_node: StateStore) -> WebhookStore:
    return other_node.webhooks


def endpoint(identity: str = WH) -> Endpoint:
    return Endpoint(
        id=identity,
        tenant="acme",
        url="https://hooks.example/für?x=1",
        events=frozenset({EventType.SUCCEEDED, EventType.LATE}),
        devices="dock-*",
        methods="*:*",
        created_at=1,
    )


def delivery(command: str | None = None, tidings: Tidings = Tidings.OUTCOME) -> Delivery:
    notice = OutboxEntry(command or new_id("dock-1"), tidings)
    return Delivery(event_id(notice), EventType.SUCCEEDED, '{"größe":1}'.encode(), 1)


def tried(one: Delivery, reply: Reply, delay: timedelta = timedelta(hours=1)) -> Delivery:
    """After an attempt; one that failed is tried again after `delay`."""
    after = one.after(reply, 1_000, 0.5)
    return after if after.next_at is None else replace(after, next_at=1_000 + delay // timedelta(microseconds=1))


async def pages(hooks: WebhookStore, size: int) -> list[list[str]]:
    """The ids of all deliveries, page by page."""
    found, behind = [], FIRST
    while True:
        page = await hooks.deliveries(WH, size, behind)
        found.append([one.event_id for one in page.deliveries])
        if page.behind is None:
            return found
        behind = page.behind


async def bound(hooks: WebhookStore, name: str) -> None:
    """Let an engine keep two of what it bounds under this name."""

    async def set_bound(engine: object) -> None:
        setattr(engine, name, 2)

    await (hooks._do(set_bound) if isinstance(hooks, RocksWebhooks) else set_bound(hooks))


class TestEndpoints:
    async def test_they_are_what_was_put(self, hooks: WebhookStore, elsewhere: WebhookStore) -> None:
        assert await hooks.put_endpoint(endpoint(OTHER), None)
        assert await hooks.put_endpoint(endpoint(), None)
        assert await elsewhere.endpoints() == [endpoint(), endpoint(OTHER)]

    async def test_of_two_who_change_one_the_later_is_told(self, hooks: WebhookStore, elsewhere: WebhookStore) -> None:
        await hooks.put_endpoint(endpoint(), None)
        rotated = endpoint().rotated(5)
        assert await hooks.put_endpoint(rotated, endpoint())
        assert not await elsewhere.put_endpoint(endpoint().disabled(6, "x"), endpoint())
        assert not await elsewhere.put_endpoint(replace(endpoint(), url="https://other.example"), None)
        assert await hooks.put_endpoint(rotated, endpoint()), "the same once more"
        assert await hooks.endpoints() == [rotated]

    async def test_a_removed_one_leaves_nothing(self, backend: Backend, hooks: WebhookStore) -> None:
        await hooks.put_endpoint(endpoint(), None)
        await hooks.enqueue(WH, delivery())
        assert await hooks.remove_endpoint(WH)
        assert not await hooks.remove_endpoint(WH)
        assert await hooks.endpoints() == []
        assert await hooks.waiting([WH]) == [0]
        assert await backend.size() == 0


class TestOutbox:
    async def test_an_outcome_is_in_it_from_the_step_that_made_it(
        self, store: StateStore, elsewhere: WebhookStore
    ) -> None:
        by_answer, by_node = registration(notify=(WH, OTHER)), registration("dock-2", notify=(WH,))
        for one in (by_answer, by_node):
            await store.register(one)
        assert await elsewhere.outbox(ALL, 10) == []
        await store.respond(answer(by_answer), "node-b")
        await store.finish(by_node.command_id, CommandState.CANCELLED, "node-a")
        expected = {OutboxEntry(one.command_id) for one in (by_answer, by_node)}
        assert set(await elsewhere.outbox(ALL, 10)) == expected
        assert (await store.read(by_answer.command_id)).notify == (WH, OTHER)

    async def test_so_is_what_a_sweep_ends(self, backend: Backend, store: StateStore, hooks: WebhookStore) -> None:
        wanted = registration(timeout=MOMENT, notify=(WH,))
        await store.register(wanted)
        await backend.advance(2 * MOMENT)
        await store.sweep(ALL, "node-b", timedelta())
        assert await hooks.outbox(ALL, 10) == [OutboxEntry(wanted.command_id)]

    async def test_a_late_answer_is_in_it_after_its_outcome(self, store: StateStore, hooks: WebhookStore) -> None:
        wanted = registration(notify=(WH,))
        await store.register(wanted)
        await store.finish(wanted.command_id, CommandState.CANCELLED, "node-a")
        for _ in range(2):
            await store.respond(answer(wanted), "node-b")
        notices = [OutboxEntry(wanted.command_id), OutboxEntry(wanted.command_id, Tidings.LATE)]
        assert await hooks.outbox(ALL, 10) == notices
        await hooks.forget(notices[:1])
        await hooks.forget(notices[:1])
        assert await hooks.outbox(ALL, 10) == notices[1:]

    async def test_what_nobody_wants_to_hear_of_is_not(self, store: StateStore, hooks: WebhookStore) -> None:
        wanted = registration()
        await store.register(wanted)
        await store.finish(wanted.command_id, CommandState.CANCELLED, "node-a")
        await store.respond(answer(wanted), "node-b")
        assert await hooks.outbox(ALL, 10) == []

    async def test_progress_is_no_outcome(self, store: StateStore, hooks: WebhookStore) -> None:
        wanted = registration(notify=(WH,))
        await store.register(wanted)
        await store.respond(answer(wanted, CommandState.RUNNING), "node-b")
        assert await hooks.outbox(ALL, 10) == []

    async def test_only_of_the_partitions_and_as_many_as_asked(self, store: StateStore, hooks: WebhookStore) -> None:
        ended = [registration(notify=(WH,)) for _ in range(3)]
        for one in ended:
            await store.register(one)
            await store.finish(one.command_id, CommandState.CANCELLED, "node-a")
        partition = int(ended[0].command_id.partition("-")[0])
        assert await hooks.outbox([one for one in ALL if one != partition], 10) == []
        assert await hooks.outbox([partition], 2) == [OutboxEntry(one.command_id) for one in ended[:2]]


class TestQueue:
    async def test_an_event_is_delivered_once(self, hooks: WebhookStore, elsewhere: WebhookStore) -> None:
        wanted = delivery()
        assert await hooks.enqueue(WH, wanted)
        assert await elsewhere.enqueue(WH, wanted)
        (claimed,) = await hooks.claim(WH, 5, HOLD)
        assert (claimed.event_id, claimed.body, claimed.attempts) == (wanted.event_id, wanted.body, 0)
        assert await elsewhere.claim(WH, 5, HOLD) == []
        assert await hooks.settle(WH, tried(claimed, Reply(204))) == 0
        assert await elsewhere.enqueue(WH, wanted), "it is known"
        assert await elsewhere.claim(WH, 5, HOLD) == []
        (known,) = (await elsewhere.deliveries(WH, 5)).deliveries
        assert (known.progress, known.status, known.attempts) == (Progress.DELIVERED, 204, 1)

    async def test_what_a_dead_node_has_claimed_comes_back(
        self, backend: Backend, hooks: WebhookStore, elsewhere: WebhookStore
    ) -> None:
        await hooks.enqueue(WH, delivery())
        first = await hooks.claim(WH, 5, MOMENT)
        await backend.advance(2 * MOMENT)
        assert await elsewhere.claim(WH, 5, HOLD) == first

    async def test_two_nodes_never_claim_the_same(self, hooks: WebhookStore, elsewhere: WebhookStore) -> None:
        for _ in range(20):
            await hooks.enqueue(WH, delivery())
        claims = await asyncio.gather(*(one.claim(WH, 4, HOLD) for one in (hooks, elsewhere) * 3))
        ids = [one.event_id for claim in claims for one in claim]
        assert len(ids) == len(set(ids)) == 20

    async def test_a_failed_one_is_tried_again_after_its_delay(self, backend: Backend, hooks: WebhookStore) -> None:
        await hooks.enqueue(WH, delivery())
        (claimed,) = await hooks.claim(WH, 5, HOLD)
        assert await hooks.settle(WH, tried(claimed, FAILED, 2 * MOMENT)) == 0
        assert await hooks.claim(WH, 5, HOLD) == []
        await backend.advance(4 * MOMENT)
        (again,) = await hooks.claim(WH, 5, HOLD)
        assert (again.attempts, again.status, again.reason) == (1, 500, FAILED.reason)

    async def test_for_how_long_an_endpoint_does_nothing_but_fail(self, backend: Backend, hooks: WebhookStore) -> None:
        for _ in range(4):
            await hooks.enqueue(WH, delivery())
        first, second, third, fourth = await hooks.claim(WH, 5, HOLD)
        assert await hooks.settle(WH, tried(first, FAILED)) == 0
        await backend.advance(MOMENT)
        assert await hooks.settle(WH, tried(second, FAILED)) >= MOMENT // timedelta(microseconds=1)
        assert await hooks.settle(WH, tried(third, Reply(200))) == 0
        assert await hooks.settle(WH, tried(fourth, FAILED)) == 0

    async def test_the_later_event_of_a_command_waits_for_the_earlier(
        self, backend: Backend, hooks: WebhookStore, elsewhere: WebhookStore
    ) -> None:
        command = new_id("dock-1")
        late, verified = delivery(command, Tidings.LATE), delivery(command, Tidings.VERIFIED)
        outcome, free = delivery(command), delivery()
        for one in (outcome, late, verified, free):
            await hooks.enqueue(WH, one)
        first = await hooks.claim(WH, 1, HOLD)
        assert [one.event_id for one in first] == [outcome.event_id]
        assert [one.event_id for one in await elsewhere.claim(WH, 5, HOLD)] == [free.event_id]
        await hooks.settle(WH, tried(first[0], FAILED, MOMENT))
        assert await hooks.claim(WH, 5, HOLD) == [], "the earlier one is tried again first"
        await backend.advance(2 * MOMENT)
        (again,) = await hooks.claim(WH, 5, HOLD)
        assert again.event_id == outcome.event_id
        await hooks.settle(WH, tried(again, Reply(200)))
        assert [one.event_id for one in await hooks.claim(WH, 5, HOLD)] == [late.event_id, verified.event_id]

    async def test_a_settled_one_is_not_settled_twice(self, hooks: WebhookStore, elsewhere: WebhookStore) -> None:
        await hooks.enqueue(WH, delivery())
        (claimed,) = await hooks.claim(WH, 5, HOLD)
        await hooks.settle(WH, tried(claimed, Reply(200)))
        await elsewhere.settle(WH, tried(claimed, FAILED))
        (known,) = (await hooks.deliveries(WH, 5)).deliveries
        assert known.progress is Progress.DELIVERED
        assert await hooks.waiting([WH]) == [0]

    async def test_an_ended_one_can_be_sent_again(self, hooks: WebhookStore) -> None:
        await hooks.enqueue(WH, delivery())
        (claimed,) = await hooks.claim(WH, 5, HOLD)
        assert not await hooks.again(WH, "evt_unknown")
        await hooks.settle(WH, tried(claimed, Reply(200)))
        assert await hooks.again(WH, claimed.event_id)
        (again,) = await hooks.claim(WH, 5, HOLD)
        assert (again.attempts, again.progress) == (1, Progress.WAITING)

    async def test_deliveries_are_listed_waiting_ones_first(self, backend: Backend, hooks: WebhookStore) -> None:
        added = [delivery() for _ in range(4)]
        for one in added:
            await hooks.enqueue(WH, one)
            await backend.advance(timedelta(milliseconds=1))
        claimed = await hooks.claim(WH, 2, HOLD)
        for one in claimed:
            await hooks.settle(WH, tried(one, Reply(200)))
            await backend.advance(timedelta(milliseconds=1))
        ids = [one.event_id for one in added]
        listed = [one.event_id for one in (await hooks.deliveries(WH, 10)).deliveries]
        assert listed == [ids[2], ids[3], ids[1], ids[0]]
        assert await hooks.deliveries(OTHER, 3) == DeliveryPage([], None)
        for size in (1, 2, 3, 4):
            assert await pages(hooks, size) == [listed[first : first + size] for first in range(0, 4, size)]

    async def test_those_of_one_instant_are_on_one_page_each(self, hooks: WebhookStore) -> None:
        for _ in range(7):
            await hooks.enqueue(WH, delivery())
        await hooks.claim(WH, 7, HOLD)  # all are due again at once
        found = await pages(hooks, 2)
        assert [len(one) for one in found] == [2, 2, 2, 1]
        assert len({one for page in found for one in page}) == 7

    async def test_a_page_goes_on_where_the_last_one_ended_though_that_is_gone(self, hooks: WebhookStore) -> None:
        for _ in range(4):
            await hooks.enqueue(WH, delivery())
        claimed = {one.event_id: one for one in await hooks.claim(WH, 4, HOLD)}
        first = await hooks.deliveries(WH, 2)
        assert first.behind is not None
        for one in first.deliveries:
            await hooks.settle(WH, tried(claimed.pop(one.event_id), Reply(200)))
        second = await hooks.deliveries(WH, 2, first.behind)
        assert {one.event_id for one in second.deliveries} == set(claimed)

    async def test_a_full_queue_takes_no_more(self, hooks: WebhookStore) -> None:
        await bound(hooks, "most_waiting")
        assert [await hooks.enqueue(WH, delivery()) for _ in range(3)] == [True, True, False]
        assert await hooks.waiting([WH]) == [2]

    async def test_ended_ones_are_not_kept_without_end(self, hooks: WebhookStore) -> None:
        await bound(hooks, "most_kept")
        for _ in range(5):
            await hooks.enqueue(WH, delivery())
        for one in await hooks.claim(WH, 5, HOLD):
            await hooks.settle(WH, tried(one, Reply(200)))
        assert len((await hooks.deliveries(WH, 10)).deliveries) == 2

    async def test_the_failures_of_one_that_is_enabled_again_count_anew(
        self, backend: Backend, hooks: WebhookStore
    ) -> None:
        async def failed() -> int:
            await hooks.enqueue(WH, delivery())
            (one,) = await hooks.claim(WH, 1, HOLD)
            return await hooks.settle(WH, tried(one, FAILED))

        await failed()
        await backend.advance(2 * MOMENT)
        assert await failed() > 0
        await hooks.keep(WH, HOLD)
        assert await failed() > 0
        await hooks.keep(WH, None)
        assert await failed() == 0

    async def test_what_waits_for_a_disabled_one_is_forgotten_in_the_end(
        self, backend: Backend, hooks: WebhookStore
    ) -> None:
        await hooks.enqueue(WH, delivery())
        await hooks.enqueue(OTHER, delivery())
        for one in (WH, OTHER):
            await hooks.keep(one, MOMENT)
        await hooks.keep(OTHER, None)
        await backend.advance(2 * MOMENT)
        assert await hooks.waiting([WH, OTHER]) == [0, 1]
