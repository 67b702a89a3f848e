"""Callers who ask for much take turns."""

from __future__ import annotations

import asyncio

import pytest

from app.api.turns import MOST_WAITING, Turns
from app.core.errors import CapacityError
from app.store.commands import CommandSlice, Query
from tests.api.rig import Rig
from tests.api.test_send import problem


async def test_lists_are_read_one_at_a_time_in_order_of_arrival() -> None:
    turns, order, inside = Turns(), [], 0

    async def reader(number: int) -> None:
        nonlocal inside
        async with turns.take():
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            order.append(number)
            inside -= 1

    await asyncio.gather(*(reader(number) for number in range(10)))
    assert order == list(range(10))


async def test_everybody_else_has_as_much_time_as_the_lists() -> None:
    turns, loop = Turns(), asyncio.get_running_loop()
    began = loop.time()
    async with turns.take():
        await asyncio.sleep(0.05)
        took = loop.time() - began
    async with turns.take():
        assert loop.time() - began >= 1.9 * took


async def test_a_reader_that_fails_or_goes_away_gives_its_turn_back() -> None:
    turns = Turns()
    with pytest.raises(ZeroDivisionError):
        async with turns.take():
            raise ZeroDivisionError

    async def stay() -> None:
        async with turns.take():
            await asyncio.Event().wait()

    gone = asyncio.create_task(stay())
    await asyncio.sleep(0)
    gone.cancel()
    async with turns.take():
        pass


async def test_when_too_many_wait_the_next_is_told_so(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    going_on = asyncio.Event()

    async def list_commands(_query: Query) -> CommandSlice:
        await going_on.wait()
        return CommandSlice([], None)

    monkeypatch.setattr(rig.store, "list_commands", list_commands)
    waiting = [asyncio.create_task(rig.http.get("/v1/commands")) for _ in range(1 + MOST_WAITING)]
    for _ in range(200):
        await asyncio.sleep(0)
    refused = await rig.http.get("/v1/commands")
    body = problem(refused, 429, "limit-reached")
    assert "lists wait to be read on this node already" in body["detail"]
    assert refused.headers["retry-after"] == "1"
    # One command is no list.
    problem(await rig.http.get("/v1/commands/042-01JC8ZQ5M7W3T9K2V4X6Y8B0D1"), 404, "command-not-found")
    going_on.set()
    assert {one.status_code for one in await asyncio.gather(*waiting)} == {200}


async def test_who_waits_too_long_for_a_turn_is_told_so() -> None:
    turns = Turns(wait_seconds=0.01)
    async with turns.take():
        with pytest.raises(CapacityError, match=r"no list could be read within 0\.01 s"):
            async with turns.take():
                pass
