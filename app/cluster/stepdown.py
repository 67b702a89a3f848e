"""A node that has lost the store while others have it steps down: its share of the responses is left to those.

The broker goes on giving a node its share of the responses for as long as it is connected, and without the store the
node can route none of them home. So it asks over the broker who has the store, and leaves its session, which holds all
that it has not acknowledged, to be adopted. It comes back as another incarnation as soon as it has the store again.
Where nobody answers, the store is away for all, and everybody keeps what is in its hands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from app.core.clock import Clock
from app.core.cluster.notices import SessionNotice, Word
from app.core.errors import HomingError
from app.runtime.telemetry import Counters

EVERY_SECONDS: Final = 0.25
"""The time between two looks of a node at the store."""
PATIENCE_SECONDS: Final = 0.5
"""A store that has not answered by then is away."""
LATE_SECONDS: Final = 0.25
"""A refusal that comes so much later still tells that this process did not run, and nothing of the store."""
LOST_SECONDS: Final = 0.6
"""A store that is away for less comes back before others could have taken over."""
HAD_SECONDS: Final = 2.0
"""A node that has had the store for so long without a break has not seen it come back from an outage, as those do that
still wait for their next attempt to connect."""
REST_SECONDS: Final = 10.0
"""The time after a step-down in which a node keeps its share, though it lose the store over and over."""


class StoreAnswers(Protocol):
    """The part of a store that says whether it is there. Whether it is set up as it must be, all nodes see alike."""

    async def now(self) -> int:
        """The store's time; HomingError when it is away."""


class StepDown:
    """Asks, answers, and steps down.

    `say` tells the other nodes a word and the incarnation that it is for. `cut` breaks the connection to the broker,
    which then comes back only once the store has said that the session is still this node's.
    """

    def __init__(
        self,
        *,
        store: StoreAnswers,
        connected: Callable[[], bool],
        say: Callable[[Word, str], None],
        cut: Callable[[], None],
        clock: Clock,
        counters: Counters,
    ) -> None:
        self._store = store
        self._connected = connected
        self._say = say
        self._cut = cut
        self._clock = clock
        self._counters = counters
        self._since = clock.monotonic()
        self._has = False
        self._stepped_down_at: float | None = None
        self._answering: asyncio.Task[None] | None = None
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Look until cancelled."""
        try:
            while True:
                await asyncio.sleep(EVERY_SECONDS)
                await self.look()
        finally:
            if self._answering is not None:
                self._answering.cancel()

    async def look(self) -> None:
        """Ask the store for a sign of life, and the others if it has given none for long enough."""
        if not await self._asked_store() and self._in_trouble():
            self._counters["stepdown.asked"] += 1
            self._say(Word.STORE, "")

    def heard(self, notice: SessionNotice) -> None:
        """Answer a node that has lost the store; or step down, as one of them has it."""
        if notice.word is Word.STORED and self._in_trouble():
            self._step_down()
        elif notice.word is Word.STORE and (self._answering is None or self._answering.done()):
            work = self._answer(notice.incarnation)
            self._answering = asyncio.get_running_loop().create_task(work, name="stepdown.answer")

    async def _answer(self, asker: str) -> None:
        """Say so if this node has had the store all the while and has it now."""
        if await self._asked_store() and self._clock.monotonic() - self._since >= HAD_SECONDS:
            self._counters["stepdown.answered"] += 1
            self._say(Word.STORED, asker)

    async def _asked_store(self) -> bool:
        """Return whether the store has answered this call; a call that failed late says nothing of it."""
        asked_at = self._clock.monotonic()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._store.now()
        except (HomingError, TimeoutError):
            if self._clock.monotonic() - asked_at < PATIENCE_SECONDS + LATE_SECONDS:
                self._note(asked_at, has=False)
            return False
        self._note(asked_at, has=True)
        return True

    def _note(self, asked_at: float, *, has: bool) -> None:
        if has is not self._has:
            self._has, self._since = has, asked_at

    def _in_trouble(self) -> bool:
        now, last = self._clock.monotonic(), self._stepped_down_at
        if self._has or not self._connected() or now - self._since < LOST_SECONDS:
            return False
        return last is None or now - last >= REST_SECONDS

    def _step_down(self) -> None:
        self._stepped_down_at = self._clock.monotonic()
        self._counters["stepdown.left"] += 1
        self._log.warning("node_stepped_down", lost_for=f"{self._clock.monotonic() - self._since:.1f} s")
        self._say(Word.LEFT, "")
        self._cut()
