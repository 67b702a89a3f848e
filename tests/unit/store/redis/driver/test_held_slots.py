"""Calls of slots that nobody serves: one is tried, the others follow in their order, and budgets end them."""

from __future__ import annotations

import asyncio
import math
from collections import Counter

import pytest

from app.core.errors import StoreRefusedError, StoreUnavailableError
from app.store.redis.driver.held_slots import HeldSlots, SlotCall
from tests.waiting import PATIENCE, eventually


class Place:
    """Keeps calls, and what was sent."""

    def __init__(self) -> None:
        self.sent: list[SlotCall] = []
        self.counters: Counter[str] = Counter()
        self.held = HeldSlots(self.sent.append, self.counters)

    def call(self, name: str, *, slot: int = 1, alone: bool = False, within: float = math.inf) -> SlotCall:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        return SlotCall(slot, name.encode(), loop.create_future(), loop.time(), deadline, writes=True, alone=alone)


async def test_one_is_tried_and_its_answer_frees_the_others_in_their_order() -> None:
    place = Place()
    calls = [place.call(name) for name in "abc"]
    for one in calls:
        place.held.park(one)
    await eventually(lambda: place.sent == calls[:1])
    place.held.park(calls[0])  # refused again
    await eventually(lambda: place.sent == [calls[0]] * 2)
    calls[0].resolve(b"")
    await eventually(lambda: place.sent == [calls[0], *calls])
    assert not place.held.holds(1)
    place.held.close()


async def test_a_refusal_of_the_one_that_is_tried_is_an_answer_and_the_end_of_its_budget_is_none() -> None:
    place = Place()
    first, second, third = (place.call(name) for name in "abc")
    for one in (first, second, third):
        place.held.park(one)
    await eventually(lambda: place.sent == [first])
    first.fail(StoreUnavailableError("in time"))
    await eventually(lambda: place.sent == [first, second])
    assert place.held.holds(1)
    second.fail(StoreRefusedError("wrong type"))
    await eventually(lambda: place.sent == [first, second, third])
    assert not place.held.holds(1)
    with pytest.raises(StoreUnavailableError):
        await first.future
    with pytest.raises(StoreRefusedError):
        await second.future
    place.held.close()


async def test_whoever_waits_for_longer_than_its_budget_is_told() -> None:
    place = Place()
    tried, patient, hasty = place.call("a"), place.call("b"), place.call("c", within=0.01)
    for one in (tried, patient, hasty):
        place.held.park(one)
    await eventually(lambda: place.sent == [tried])
    with pytest.raises(StoreUnavailableError, match="in time"):
        await asyncio.wait_for(hasty.future, PATIENCE)
    assert place.counters["store.timed_out"] == 1
    place.held.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        await asyncio.wait_for(patient.future, PATIENCE)


async def test_a_single_command_passes_a_script_that_waits_unless_nobody_serves_the_slot() -> None:
    place = Place()
    place.held.park(place.call("script"))
    assert place.held.keeps(place.call("script"))
    assert not place.held.keeps(place.call("read", alone=True))
    assert not place.held.keeps(place.call("script", slot=2))
    place.held.park(place.call("script", slot=3), away=True)
    assert place.held.keeps(place.call("read", slot=3, alone=True))
    assert (place.held.away(3), place.held.away(1)) == (True, False)
    place.held.close()


async def test_the_reply_of_asking_is_not_the_callers() -> None:
    place = Place()
    one = place.call("x", alone=True)
    one.ask()
    assert (one.packed, one.replies) == (b"*1\r\n$6\r\nASKING\r\nx", 2)
    one.asked()
    assert (one.packed, one.replies) == (b"x", None)
    one.ask()
    one.resolve([b"OK", b"reply"])
    assert await one.future == b"reply"
    wrong = place.call("x", alone=True)
    wrong.ask()
    wrong.resolve([b"OK", ValueError("wrong")])
    with pytest.raises(StoreRefusedError, match="wrong"):
        await wrong.future
