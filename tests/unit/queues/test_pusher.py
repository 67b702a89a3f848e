"""Batches of a queue for a receiver that fails: few are tried, and none is lent for less time than an attempt takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

from app.core.events.event import Entry, Event, Shard
from app.core.queues.loans import LoanToken, SettleHow
from app.core.queues.model import DeclaredQueue, QueueOptions
from app.core.webhooks.endpoints import Endpoint
from app.core.webhooks.schedule import GIVEN_UP_AFTER, Reply
from app.queues.plane import QueuePlane
from app.queues.pusher import LONGEST_PAUSE, QueueParcels
from app.queues.settler import TokenSettlement
from app.queues.taker import QueueMessage
from tests.unit.assembly import ManualClock
from tests.unit.queues.stage import ROUTES

FINE, BROKEN, GONE = Reply(204), Reply(500), Reply(410)


class Queues:
    """Lends as much as is asked for, and keeps what was said."""

    def __init__(self, **options: Any) -> None:
        self.queue = DeclaredQueue("01Q", "", "alarms", QueueOptions(routes=ROUTES, **options), {}, 0)
        self.asked: list[int] = []
        self.said: list[tuple[SettleHow, int, int]] = []
        self.meanwhile: Callable[[], Awaitable[int]] | None = None
        self._number = 0

    async def find(self, _tenant: str, _name: str) -> DeclaredQueue:
        return self.queue

    async def take(self, _queue: DeclaredQueue, most: int, *_: object, auto: bool) -> list[QueueMessage]:
        assert not auto
        self.asked.append(most)
        self._number += 1
        if self.meanwhile is not None:
            await self.meanwhile()
        token = LoanToken("0123abcd", Shard("events", 0), False, self._number, 0)
        return [QueueMessage(token, 1, 0, Event(1_000_000, 0, Entry("alarm", b"1")), "events")] * most

    async def settle(self, _queue: DeclaredQueue, said: list[TokenSettlement]) -> None:
        self.said.append((said[0].how, len(said), said[0].amount))


def staged(**options: Any) -> tuple[Queues, QueueParcels, ManualClock, Endpoint]:
    queues, clock = Queues(**options), ManualClock()
    parcels = QueueParcels(cast("QueuePlane", queues), lambda _: b"{}", clock)
    endpoint = Endpoint("wh_1", "", "", frozenset(), "queue/alarms", "*:*", 0, queue="alarms", batch=8)
    return queues, parcels, clock, endpoint


async def attempt(parcels: QueueParcels, endpoint: Endpoint, reply: Reply) -> int:
    (parcel,) = (await parcels.claim(endpoint, 8)).parcels
    return await parcels.settle(endpoint, parcel, reply)


async def test_the_reply_settles_all_of_a_batch() -> None:
    queues, parcels, clock, endpoint = staged()
    for reply in (FINE, GONE):
        await attempt(parcels, endpoint, reply)
        clock.advance(LONGEST_PAUSE)
    await attempt(parcels, endpoint, BROKEN)
    assert queues.said == [(SettleHow.DONE, 8, -1), (SettleHow.RELEASE, 8, -1), (SettleHow.RETRY, 1, -1)]


async def test_while_it_fails_one_event_at_a_time_is_tried_with_growing_pauses() -> None:
    queues, parcels, clock, endpoint = staged()
    await attempt(parcels, endpoint, BROKEN)
    assert await parcels.claim(endpoint, 8) == ((), False)
    for pause in (1, 2, 4, 8, 16, 32, 60, 60):
        clock.advance(pause - 0.01)
        assert await parcels.claim(endpoint, 8) == ((), False), pause
        clock.advance(0.01)
        (parcel,) = (await parcels.claim(endpoint, 8)).parcels
        assert await parcels.claim(endpoint, 8) == ((), False), "one is under way"
        await parcels.settle(endpoint, parcel, BROKEN)
    assert queues.asked == [8, *[1] * 8]
    clock.advance(LONGEST_PAUSE)
    assert await attempt(parcels, endpoint, FINE) == 0
    await attempt(parcels, endpoint, FINE)
    assert queues.asked[-1] == 8


async def test_an_attempt_of_which_nobody_hears_holds_up_no_later_one() -> None:
    _, parcels, clock, endpoint = staged()
    await attempt(parcels, endpoint, BROKEN)
    clock.advance(LONGEST_PAUSE)
    assert (await parcels.claim(endpoint, 8)).parcels  # its lane ends before there is a reply
    clock.advance(LONGEST_PAUSE)
    assert (await parcels.claim(endpoint, 8)).parcels


async def test_eight_that_fail_at_once_are_one_failure() -> None:
    queues, parcels, clock, endpoint = staged()
    under_way = [parcel for _ in range(8) for parcel in (await parcels.claim(endpoint, 8)).parcels]
    for parcel in under_way:
        await parcels.settle(endpoint, parcel, BROKEN)
    clock.advance(1)
    assert (await parcels.claim(endpoint, 8)).parcels
    assert queues.asked[-1] == 1


async def test_what_was_lent_while_it_began_to_fail_is_given_back() -> None:
    queues, parcels, _, endpoint = staged()
    (parcel,) = (await parcels.claim(endpoint, 8)).parcels
    queues.meanwhile = lambda: parcels.settle(endpoint, parcel, GONE)
    assert await parcels.claim(endpoint, 8) == ((), False)
    assert queues.said == [(SettleHow.RELEASE, 8, -1)] * 2


async def test_it_says_for_how_long_it_has_done_nothing_but_fail() -> None:
    _, parcels, clock, endpoint = staged()
    assert await attempt(parcels, endpoint, BROKEN) == 0
    clock.advance(72 * 3600)
    assert await attempt(parcels, endpoint, Reply(None, "refused")) == 72 * 3600 * 1_000_000


async def test_a_receiver_that_was_given_another_url_is_tried_at_once() -> None:
    queues, parcels, clock, endpoint = staged()
    for _ in range(4):
        await attempt(parcels, endpoint, Reply(301))
        clock.advance(LONGEST_PAUSE)
    await attempt(parcels, endpoint, Reply(301))
    moved = replace(endpoint, url="https://moved.example")
    assert await attempt(parcels, moved, BROKEN) == 0, "this one has failed for no time at all"
    assert queues.asked[-1] == endpoint.batch


async def test_a_receiver_that_is_enabled_again_is_not_disabled_at_its_first_failure() -> None:
    _, parcels, clock, endpoint = staged()
    await attempt(parcels, endpoint, BROKEN)
    clock.advance(72 * 3600)
    assert await attempt(parcels, endpoint, BROKEN) == GIVEN_UP_AFTER
    clock.advance(3600)
    assert await attempt(parcels, endpoint, BROKEN) == 0


async def test_a_loan_that_is_shorter_than_an_attempt_is_made_longer() -> None:
    queues, parcels, _, endpoint = staged(loan=timedelta(seconds=1))
    await parcels.claim(endpoint, 8)
    assert queues.said == [(SettleHow.EXTEND, 8, 30_000_000)]


async def test_the_failures_of_an_endpoint_that_was_not_served_meanwhile_count_anew() -> None:
    _, parcels, clock, endpoint = staged()
    await attempt(parcels, endpoint, BROKEN)
    clock.advance(72 * 3600)
    parcels.forget(endpoint.id)
    assert await attempt(parcels, endpoint, BROKEN) == 0
