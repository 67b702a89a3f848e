"""Lets addresses take turns at something that is dear: who asks often waits for themselves, and not others for them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from app.core.errors import CapacityError, NodeDrainingError

MOST_WAITING: Final = 32
LONGEST_REST_SECONDS: Final = 0.5


class FairTurns:
    """One turn at a time. Each address has a line of its own, and the lines take turns.

    A rest as long as the turn was follows each one, and is for everything else that the node does. When too many wait,
    the last one of the longest line is sent away.
    """

    def __init__(self, most: int = MOST_WAITING) -> None:
        self._most = most
        self._lines: Final[dict[str, deque[asyncio.Future[None]]]] = {}
        """The lines that are not empty. The first one is next."""
        self._taken = False
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def close(self) -> None:
        """Give no more turns: those who wait are sent away, and those who come later."""
        self._closed = True
        for line in self._lines.values():
            for turn in line:
                if not turn.done():
                    turn.set_exception(_no_more())
        self._lines.clear()

    @asynccontextmanager
    async def take(self, address: str) -> AsyncIterator[None]:
        """Inside the block it is the caller's turn. CapacityError when too many wait, NodeDrainingError once closed."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # the one before has ended, and with it all that waited for a turn or had one
            self._loop, self._taken = loop, False
            self._lines.clear()
        if self._taken and not self._closed:
            await self._wait(address)
        if self._closed:
            raise _no_more()
        self._taken = True
        began = loop.time()
        try:
            yield
        finally:
            loop.call_later(min(loop.time() - began, LONGEST_REST_SECONDS), self._next)

    async def _wait(self, address: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(address, deque()).append(turn)
        if sum(map(len, self._lines.values())) > self._most:
            self._send_away()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._remove(address, turn)
            elif turn.exception() is None:
                self._next()  # it was our turn already
            raise

    def _send_away(self) -> None:
        address = max(reversed(self._lines), key=lambda one: len(self._lines[one]))
        turn = self._lines[address][-1]
        self._remove(address, turn)
        if not turn.done():
            turn.set_exception(CapacityError("too many passwords are being checked: try again in a second"))

    def _remove(self, address: str, turn: asyncio.Future[None]) -> None:
        line = self._lines.get(address, deque())
        if turn in line:
            line.remove(turn)
            if not line:
                del self._lines[address]

    def _next(self) -> None:
        """Give the turn to the first of the first line, which goes behind the others."""
        while self._lines:
            address = next(iter(self._lines))
            line = self._lines.pop(address)
            turn = line.popleft()
            if line:
                self._lines[address] = line
            if not turn.done():  # else who waited has gone
                turn.set_result(None)
                return
        self._taken = False


def _no_more() -> NodeDrainingError:
    return NodeDrainingError("this node is about to stop and checks no more passwords; try again at another one")
