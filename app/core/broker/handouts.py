"""Retained messages for a client that subscribes: many of them, or filters that look at many topics, take turns.

A SUBSCRIBE has room for 60,000 filters, and each of them may look at all topics, though it brings nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from app.core.broker.packets import FilterOptions

if TYPE_CHECKING:
    from app.core.broker.broker import Broker
    from app.core.broker.session import ClientSession

AT_ONCE: Final = 10_000
"""Steps for one client in one go: to look at a level of topics is one, to hand a message over is MESSAGE_STEPS."""
A_SECOND: Final = 200_000
"""Steps for one client in a second, if one go is not enough."""
MESSAGE_STEPS: Final = 10


class RetainedHandout:
    """The retained messages that one client has asked for, and was not given yet."""

    def __init__(self, broker: Broker) -> None:
        self.wait: float | None = None
        """Seconds after which `go_on` is to be called; None: the client has all that it asked for."""
        self._broker = broker
        self._asked: deque[tuple[FilterOptions, tuple[int, ...]]] = deque()
        self._steps: Iterator[int] = iter(())

    def ask(self, session: ClientSession, filters: Iterable[FilterOptions], identifiers: tuple[int, ...]) -> None:
        """Give the session what is retained for these subscriptions, after what it has asked for before."""
        self._asked.extend((one, identifiers) for one in filters)
        if self.wait is None:
            self._steps = self._give(session)
            self.go_on()

    def go_on(self) -> None:
        """Give as much as may be at once."""
        self.wait, taken = None, 0
        for steps in self._steps:
            taken += steps
            if taken >= AT_ONCE:
                self.wait = taken / A_SECOND
                return

    def _give(self, session: ClientSession) -> Iterator[int]:
        while self._asked:
            yield from self._broker.give_retained(session, *self._asked.popleft())
