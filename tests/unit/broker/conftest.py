"""Fixtures of tests of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from tests.waiting import PATIENCE

Run = Callable[[Awaitable[None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine on the loop of the node, or on that of a system without it."""

    def whole(work: Awaitable[None]) -> None:
        async def bounded() -> None:
            faults: list[dict[str, Any]] = []
            asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))
            async with asyncio.timeout(PATIENCE):
                await work
            assert faults == [], "an exception has got out of the broker"

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(bounded())

    return whole
