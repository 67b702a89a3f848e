"""PUBACKs in the order of arrival, whoever settles when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from app.core.errors import BrokerUnavailableError
from app.core.messages import ReceivedMessage
from app.mqtt.base import MessageHandler
from app.mqtt.inbox import MOST_REFUSED, Arrival, Inbox
from tests.unit.assembly import ManualClock


class Delivered:
    """A delivery that notes when it is acknowledged."""

    def __init__(self, number: int, acknowledged: list[int]) -> None:
        self.message = ReceivedMessage("a", str(number).encode())
        self._number = number
        self._acknowledged = acknowledged

    def acknowledge(self) -> None:
        self._acknowledged.append(self._number)


class Rig:
    """An inbox with deliveries that nobody has settled."""

    def __init__(self, count: int, take: Callable[[Arrival], None] | None = None) -> None:
        self.arrivals: list[Arrival] = []
        self.acknowledged: list[int] = []
        self.clock = ManualClock()
        self.inbox = Inbox(take or self.arrivals.append, self.clock)
        for number in range(count):
            self.deliver(number)

    def deliver(self, number: int) -> None:
        self.inbox.handle(Delivered(number, self.acknowledged))


def test_a_handler_may_settle_many_at_once_and_in_any_order() -> None:
    rig = Rig(4)
    for number in (2, 1, 3):
        rig.arrivals[number].settle()
    assert rig.acknowledged == []
    rig.arrivals[0].settle()
    assert rig.acknowledged == [0, 1, 2, 3]


def test_an_arrival_knows_when_it_came_and_what_it_is() -> None:
    rig = Rig(1)
    rig.clock.advance(5)
    rig.deliver(1)
    assert [(one.at, one.message.payload) for one in rig.arrivals] == [(1000.0, b"0"), (1005.0, b"1")]


def test_what_is_left_to_the_broker_holds_up_none_behind_it() -> None:
    rig = Rig(3)
    rig.arrivals[1].settle()
    rig.arrivals[2].settle()
    rig.arrivals[0].leave()
    assert rig.acknowledged == [1, 2]


def test_only_so_many_stay_with_the_broker_as_leave_room_in_its_window() -> None:
    rig = Rig(MOST_REFUSED + 1)
    assert [one.refuse() for one in rig.arrivals] == [True] * MOST_REFUSED + [False]
    rig.arrivals[-1].settle()
    assert rig.acknowledged == [MOST_REFUSED]


def test_a_handler_that_fails_holds_up_none_behind_it() -> None:
    arrivals: list[Arrival] = []

    def take(arrival: Arrival) -> None:
        if arrival.message.payload == b"1":
            raise ValueError("a mistake of ours")
        arrivals.append(arrival)

    rig = Rig(1, take)
    with pytest.raises(ValueError, match="mistake"):
        rig.deliver(1)
    rig.deliver(2)
    arrivals[1].settle()
    arrivals[0].settle()
    assert rig.acknowledged == [0, 2]  # the client sees to the one in between


async def test_it_is_drained_when_everything_is_settled_or_left() -> None:
    rig = Rig(2)
    draining = [asyncio.create_task(rig.inbox.drained()) for _ in range(2)]
    await asyncio.sleep(0)
    rig.arrivals[1].settle()
    await asyncio.sleep(0)
    assert not any(one.done() for one in draining)
    rig.arrivals[0].leave()
    await asyncio.gather(*draining)
    await rig.inbox.drained()


class BreakingDrain:
    """A session whose connection breaks once it has handed something out."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    async def drain(self, _topic_filters: Sequence[str], handler: MessageHandler, _idle: timedelta) -> int:
        for number in range(2):
            handler(Delivered(number, self._rig.acknowledged))
        self._rig.arrivals[0].leave()
        raise BrokerUnavailableError("it broke")


async def test_what_is_left_after_the_session_broke_matters_no_more() -> None:
    rig = Rig(0)
    with pytest.raises(BrokerUnavailableError, match="it broke"):
        await rig.inbox.empty(BreakingDrain(rig), [], timedelta(seconds=1))
    rig.arrivals[1].leave()
    rig.arrivals[1].leave()
    await rig.inbox.drained()
    assert rig.acknowledged == []
