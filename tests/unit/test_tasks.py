from __future__ import annotations

import asyncio
from contextlib import suppress

from app.tasks import end


async def test_a_task_that_swallows_a_cancellation_is_cancelled_again() -> None:
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if swallowed == 2:
                    raise
                swallowed += 1

    async def fails() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        raise ValueError

    async def ended() -> None:
        return

    tasks = [asyncio.create_task(work()) for work in (stubborn, fails, ended)]
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await end(tasks)
    assert swallowed == 2
    assert all(task.done() for task in tasks)


async def test_nothing_to_end_is_fine() -> None:
    await end([])
