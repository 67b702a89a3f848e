"""The clock on the wall is set while queues lend: engines of one process, and a loan takes as long as was said."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from app.core.queues.loans import HELD, Reference, SettleHow
from tests.contract.queue_places import QueuePlace
from tests.contract.test_queue_attacks import RULES, SECOND, Window, positions

DAY = 86_400 * SECOND


@pytest.fixture(params=["memory", "rocks"])
async def window(request: pytest.FixtureRequest) -> AsyncIterator[Window]:
    found = QueuePlace(request.param, request)
    await found.start()
    try:
        yield Window(found)
    finally:
        await found.store.close()


@pytest.mark.parametrize("step", [-DAY, DAY])
async def test_a_loan_runs_out_in_its_time_though_the_clock_is_set(window: Window, step: int) -> None:
    await window.feed(Reference(1))
    loan = await window.lent("w1")
    window.place.clock.ahead = step
    assert await window.take("w2") is None, "it is lent for ten seconds"
    await window.place.pass_time(RULES.loan)
    assert positions(await window.take("w2")) == [1]
    assert (await window.say(loan, SettleHow.DONE)).count == 0


@pytest.mark.parametrize("step", [-DAY, DAY])
async def test_a_retry_comes_back_in_its_time_though_the_clock_is_set(window: Window, step: int) -> None:
    await window.feed(Reference(1))
    await window.say(await window.lent(), SettleHow.RETRY, 5 * SECOND)
    window.place.clock.ahead = step
    assert await window.take() is None
    await window.place.pass_time(5 * SECOND)
    assert positions(await window.take()) == [1]


async def test_a_date_is_one_on_the_wall(window: Window) -> None:
    date = window.place.clock.micros + DAY
    await window.feed(Reference(1), dated={2: date})
    assert positions(await window.take()) == [1]
    window.place.clock.ahead = DAY - SECOND
    assert await window.take() is None
    await window.place.pass_time(SECOND)
    assert positions(await window.take()) == [2]


async def test_what_is_told_of_a_window_is_told_by_the_wall(window: Window) -> None:
    assert await window.feed(Reference(1)) == 1
    assert (await window.state()).asked == 0, "nobody has asked, on whatever clock"
    window.place.clock.ahead = DAY
    loan = await window.lent("w1")
    now, state = await window.place.store.now(), await window.state()
    assert now == window.place.clock.micros + DAY
    assert (loan.until, state.asked, state.consumers) == (now + RULES.loan, now, (("w1", now),))


async def test_the_holder_of_a_queue_for_one_keeps_it_though_the_clock_is_set(window: Window) -> None:
    window.rules = replace(RULES, single=True)
    await window.feed(Reference(1))
    await window.lent("w1")
    window.place.clock.ahead = DAY
    assert await window.take("w2") is HELD
