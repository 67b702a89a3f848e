"""The loop of the simulation: virtual time, lanes that are paused and killed, and what nobody may touch."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from homing_rig.simulation.guards import EPOCH, guarded
from homing_rig.simulation.loop import MOST_STEPS, Lane, SimLoop, SimulatorError, bury


def simulate(
    work: Callable[[SimLoop], Coroutine[Any, Any, object]], seed: int = 1, most_steps: int = MOST_STEPS
) -> SimLoop:
    """Run the work in the lane of the world."""
    loop = SimLoop(Random(seed), most_steps)
    with guarded(loop.time, seed):
        try:
            loop.run_until_complete(loop.create_task(work(loop), context=loop.world.context.copy()))
        finally:
            bury([loop.world])
            loop.close()
    return loop


def begin(loop: SimLoop, lane: Lane, work: Coroutine[Any, Any, object]) -> None:
    _begun = loop.create_task(work, context=lane.context.copy())


def test_an_hour_passes_at_once() -> None:
    async def work(_loop: SimLoop) -> None:
        await asyncio.sleep(3600)

    assert simulate(work).time() == 3600


def test_no_step_of_a_killed_lane_runs_and_no_finally_either() -> None:
    lane, said = Lane("victim"), list[str]()

    async def victim() -> None:
        try:
            while True:
                said.append("lives")
                await asyncio.sleep(1)
        finally:
            said.append("good-bye")

    async def work(loop: SimLoop) -> None:
        begin(loop, lane, victim())
        await asyncio.sleep(2.5)
        loop.kill(lane)
        await asyncio.sleep(10)
        assert said == ["lives"] * 3
        bury([lane])

    simulate(work)


def test_what_a_dead_lane_waited_for_reaches_it_no_more() -> None:
    lane, said = Lane("victim"), list[str]()

    async def work(loop: SimLoop) -> None:
        answer: asyncio.Future[None] = loop.create_future()

        async def victim() -> None:
            await answer
            said.append("answered")

        begin(loop, lane, victim())
        await asyncio.sleep(1)
        loop.kill(lane)
        answer.set_result(None)
        await asyncio.sleep(1)
        assert said == []
        bury([lane])
        assert lane.tasks == []

    simulate(work)


def test_what_became_due_in_a_pause_runs_at_its_end() -> None:
    lane, at = Lane("paused"), list[float]()

    async def paused(loop: SimLoop) -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            at.append(loop.time())

    async def work(loop: SimLoop) -> None:
        begin(loop, lane, paused(loop))
        await asyncio.sleep(1.5)
        loop.hold(lane)
        await asyncio.sleep(5)
        assert at == [1]
        loop.release(lane)
        await asyncio.sleep(5)

    simulate(work)
    assert at == [1, 6.5, 7.5]


def test_the_seed_decides_which_of_two_lanes_is_first() -> None:
    def first(seed: int) -> str:
        said = list[str]()

        async def say(name: str) -> None:
            said.append(name)

        async def work(loop: SimLoop) -> None:
            for name in ("a", "b"):
                begin(loop, Lane(name), say(name))
            await asyncio.sleep(1)

        simulate(work, seed)
        return said[0]

    assert {first(seed) for seed in range(20)} == {"a", "b"}
    assert [first(3) for _ in range(5)] == [first(3)] * 5


def test_who_waits_for_ever_is_a_finding_and_no_hang() -> None:
    async def work(loop: SimLoop) -> None:
        await loop.create_future()

    with pytest.raises(SimulatorError, match="deadlock"):
        simulate(work)


def test_who_spins_is_a_finding() -> None:
    async def work(_loop: SimLoop) -> None:
        while True:  # noqa: ASYNC110 - that is the mistake
            await asyncio.sleep(0)

    with pytest.raises(SimulatorError, match="world spins"):
        simulate(work, most_steps=1000)


@pytest.mark.parametrize(
    "touch",
    [
        lambda: os.urandom(1),
        secrets.token_hex,
        lambda: socket.socket(),  # noqa: PLW0108 - what it is then
        random.Random,
        lambda: threading.Thread(target=print).start(),
        lambda: asyncio.get_running_loop().call_soon_threadsafe(print),
    ],
)
def test_nobody_touches_what_no_seed_decides(touch: Callable[[], object]) -> None:
    async def work(_loop: SimLoop) -> None:
        touch()

    with pytest.raises(SimulatorError):
        simulate(work)
    assert len(os.urandom(3)) == 3


def test_clocks_are_virtual_and_module_level_chance_is_seeded() -> None:
    seen = list[tuple[float, float, float]]()

    async def work(_loop: SimLoop) -> None:
        await asyncio.sleep(5)
        seen.append((time.monotonic(), time.time(), random.random()))

    simulate(work)
    simulate(work)
    assert seen[0] == seen[1]
    assert seen[0][:2] == (5, EPOCH + 5)


def test_work_for_a_thread_is_done_inline_after_a_while() -> None:
    async def work(loop: SimLoop) -> None:
        assert await asyncio.to_thread(sum, [1, 2]) == 3
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 / 0)
        assert loop.time() > 0

    simulate(work)
