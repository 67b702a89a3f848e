"""A caller that waits: what is heard of it counts as long as it waits, and no longer."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message

from app.api.parking import Ending, ParkedCaller


@pytest.mark.parametrize("kind", ["http.disconnect", "http.request"])
async def test_what_is_heard_as_the_wait_ends_does_not_cancel_what_the_task_does_next(kind: str) -> None:
    """It was heard, and nobody has been told of it yet: only then does taking the callback away come too late."""
    heard = 0

    async def receive() -> Message:
        nonlocal heard
        heard += 1
        return {"type": kind if heard == 1 else "http.disconnect"}

    task = asyncio.create_task(asyncio.Event().wait())
    place = ParkedCaller(task, receive, lambda: None)
    place.watch()
    await asyncio.sleep(0)
    assert heard == 1
    place.close()
    for _ in range(5):
        await asyncio.sleep(0)
    assert (heard, task.cancelling()) == (1, 0)
    task.cancel()


async def test_a_caller_that_hangs_up_ends_its_wait() -> None:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    task = asyncio.create_task(asyncio.Event().wait())
    place = ParkedCaller(task, receive, lambda: None)
    place.watch()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert place.why is Ending.HUNG_UP
    place.close()
