"""Loans of a channel that others end: settled elsewhere, purged, given to somebody else."""

from __future__ import annotations

import asyncio

from tests.api.serving import Served
from tests.api.test_connect import lend_for_a_second, lent, opened, served, stand
from tests.api.test_queues import call, declare, publish
from tests.waiting import eventually

__all__ = ["served"]


async def passed(seconds: float) -> None:
    """Return when so much time has passed: loans are by the clock of the store."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds

    async def is_over() -> bool:
        return loop.time() > until

    await eventually(is_over)


async def test_a_loan_is_kept_though_the_first_of_it_was_settled_elsewhere(served: Served) -> None:
    await lend_for_a_second(served)
    await publish(served.rig, 1, 2)
    await stand(served.rig, ready=2)
    async with opened(served) as one:
        first, second = await lent(one, 2)
        assert await call(served.rig, "settle", {"done": [first["loan"]]}) == {"settled": 1, "over": []}
        await passed(1.5)
        await stand(served.rig, lent=1, ready=0, delivered=2)
        one.say(id=2, channel=1, done=[second["loan"]])
        assert (await one.heard())["settled"] == 1


async def test_what_is_over_takes_no_credit_whatever_is_said_of_it(served: Served) -> None:
    await publish(served.rig, 1)
    async with opened(served, prefetch=1) as one:
        (event,) = await lent(one, 1)
        await call(served.rig, "purge", None, status=204)
        one.say(id=2, channel=1, extend=[{"loan": event["loan"], "by": "12h"}])
        assert (await one.heard())["over"] == [event["loan"]]
        await publish(served.rig, 2)
        (event,) = await lent(one, 1)
        assert event["event"]["data"] == 2


async def test_a_queue_for_one_stays_with_a_connection_whose_handler_takes_longer_than_a_loan(served: Served) -> None:
    await declare(served.rig, "one", single=True, loan="2s")
    await publish(served.rig, 1, 2)
    async with opened(served, queue="one", prefetch=1) as one, opened(served, queue="one", prefetch=1) as other:
        either = {asyncio.create_task(lent(each, 1)): each for each in (one, other)}
        (first,), (waits,) = await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        await passed(5.0)
        assert not waits.done(), "the other one would work beside it"
        ((event,), holder) = first.result(), either[first]
        holder.say(id=2, channel=1, done=[event["loan"]])
        assert (await holder.heard())["settled"] == 1
        (event,) = await lent(holder, 1)
        assert event["event"]["data"] == 2
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
