"""The queue of calls: whoever gets no answer learns whether Redis may have carried out the call."""

from __future__ import annotations

from collections import Counter

import pytest

from app.core.errors import StoreUnavailableError
from app.store.redis.driver.calls import CallQueue


@pytest.mark.parametrize("taken", [1, 2])
async def test_a_call_without_an_answer_says_whether_it_was_sent(taken: int) -> None:
    queue = CallQueue(10, Counter())
    answers = [await queue.put(b"", since=0.0, deadline=0.0) for _ in range(2)]
    await queue.take(taken)
    asked = []
    for one in answers:
        with pytest.raises(StoreUnavailableError) as failure:
            await one
        asked.append(failure.value.asked)
    assert asked == [True, taken > 1]
    queue.close()


async def test_a_call_that_broke_off_was_sent_though_it_waits_again() -> None:
    queue = CallQueue(10, Counter())
    answer = await queue.put(b"", since=0.0, deadline=0.0)
    queue.give_back(await queue.take(1))
    with pytest.raises(StoreUnavailableError) as failure:
        await answer
    assert failure.value.asked
    queue.close()


async def test_a_call_for_which_there_is_no_room_was_not_sent() -> None:
    queue = CallQueue(1, Counter())
    waiting = await queue.put(b"", since=0.0, deadline=1e9)
    with pytest.raises(StoreUnavailableError) as failure:
        _refused = await queue.put(b"", since=0.0, deadline=1e9)
    assert not failure.value.asked
    queue.close()
    assert isinstance(waiting.exception(), StoreUnavailableError)
