from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from app.runtime.tasks import end
from tests.waiting import PATIENCE


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
    async with asyncio.timeout(PATIENCE):
        await end(tasks)
    assert swallowed == 2
    assert all(task.done() for task in tasks)


async def test_nothing_to_end_is_fine() -> None:
    await end([])


async def test_who_is_cancelled_while_ending_tasks_ends_them_first() -> None:
    heard, hears_twice = asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        for event in (heard, hears_twice):
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                event.set()

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    ending = asyncio.create_task(end([task]))
    await heard.wait()
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert task.done()


async def test_who_is_cancelled_does_not_wait_for_ever_for_a_task_that_never_ends() -> None:
    released = asyncio.Event()

    async def deaf() -> None:
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()

    task = asyncio.create_task(deaf())
    await asyncio.sleep(0)
    ending = asyncio.create_task(end([task], again=timedelta(milliseconds=1)))
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(ending, PATIENCE)
    released.set()
    await task
