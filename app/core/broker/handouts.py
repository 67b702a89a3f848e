"""Retained messages for a client that subscribes: many of them, or filters that look at many topics, take turns.

A SUBSCRIBE has room for 60,000 filters, and each of them may look at all topics, though it brings nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from app.core.broker.packets import FilterOptions

if TYPE_CHECKING:
    from app.core.broker.broker import Broker
    from app.core.broker.session import ClientSession

AT_ONCE: Final = 10_000
"""Steps for one client in one go: to look at a level of topics is one, to hand a message over is MESSAGE_STEPS."""
AT_LEAST: Final = 100
"""Steps for one client in one go, however many others wait for theirs: who asks for little waits for nobody."""
A_SECOND: Final = 200_000
"""Steps for all clients in a second, if one go is not enough."""
MESSAGE_STEPS: Final = 10


class HandoutTurns:
    """The steps of all clients: the goes of many follow each other, so that others are served in between."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._free_at = 0.0
        """The instant at which the steps that were taken are paid for."""

    @property
    def owed(self) -> int:
        """The steps that were taken, and are not paid for yet."""
        return round(max(0.0, self._free_at - self._now()) * A_SECOND)

    @property
    def steps(self) -> int:
        """The steps of one go at this moment."""
        return max(AT_LEAST, AT_ONCE - self.owed)

    def wait_after(self, taken: int) -> float:
        """Take note of the steps of a go; the seconds after which the next one is due."""
        now = self._now()
        self._free_at = max(now, self._free_at) + taken / A_SECOND
        return self._free_at - now


class RetainedHandout:
    """The retained messages that one client has asked for, and was not given yet."""

    def __init__(self, broker: Broker) -> None:
        self.wait: float | None = None
        """Seconds after which `go_on` is to be called; None: the client has all that it asked for."""
        self._broker = broker
        self._asked: deque[tuple[FilterOptions, tuple[int, ...]]] = deque()
        self._steps: Iterator[int] = iter(())

    def ask(
        self,
        session: ClientSession,
        steps: int,
        filters: Iterable[FilterOptions] = (),
        identifiers: tuple[int, ...] = (),
    ) -> None:
        """Give the session what is retained for these subscriptions, after what it has asked for before.

        `steps` were taken to read what it asks for.
        """
        self._asked.extend((one, identifiers) for one in filters)
        if self.wait is None:
            self._steps = self._give(session, steps)
            self.go_on()

    def go_on(self) -> None:
        """Give as much as may be at once."""
        turns = self._broker.handout_turns
        self.wait, taken, most = None, 0, turns.steps
        for steps in self._steps:
            taken += steps
            if taken >= most:
                self.wait = turns.wait_after(taken)
                return
        turns.wait_after(taken)

    def _give(self, session: ClientSession, steps: int) -> Iterator[int]:
        yield steps
        while self._asked:
            yield from self._broker.give_retained(session, *self._asked.popleft())
