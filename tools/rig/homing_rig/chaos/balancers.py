"""Balancers choose the node that a caller's next request goes to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

Choose = Callable[[], tuple[str, str]]
"""Names the node for the next request, and its URL."""
LOOK_SECONDS: Final = 0.2


class RoundRobin:
    """All nodes in turn, whether they live or not."""

    def __init__(self, nodes: Sequence[tuple[str, str]]) -> None:
        self._nodes = list(nodes)
        self._next = 0

    def __call__(self) -> tuple[str, str]:
        """The next node and its URL."""
        self._next += 1
        return self._nodes[self._next % len(self._nodes)]


class StaleView:
    """A balancer that learns with a delay which nodes are ready, and sends to those it believes in."""

    def __init__(
        self, nodes: Sequence[tuple[str, str]], ready: Callable[[str], Awaitable[bool]], behind: float
    ) -> None:
        self._nodes = list(nodes)
        self._ready = ready
        self._behind = behind
        self._believed = {name for name, _ in nodes}
        self._next = 0

    def __call__(self) -> tuple[str, str]:
        """The next node that is believed to be ready, and its URL."""
        self._next += 1
        known = [node for node in self._nodes if node[0] in self._believed] or self._nodes
        return known[self._next % len(known)]

    async def look(self) -> None:
        """Ask all nodes again and again, until cancelled; none waits for another one that says nothing."""
        await asyncio.gather(*(self._look_at(name) for name, _ in self._nodes))

    async def _look_at(self, name: str) -> None:
        while True:
            change = self._believed.add if await self._ready(name) else self._believed.discard
            asyncio.get_running_loop().call_later(self._behind, change, name)
            await asyncio.sleep(LOOK_SECONDS)
