"""Messages that the broker delivered and that have no PUBACK yet, in the order in which they came.

Handlers settle side by side and in any order; PUBACKs go out in the order of arrival [MQTT-4.6.0-2]. How many
deliveries are under way is bounded by the client's Receive Maximum.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from app.core.clock import Clock
from app.core.errors import BrokerUnavailableError
from app.core.messages import ReceivedMessage
from app.mqtt.base import InboundDelivery, SessionDrain

MOST_REFUSED: Final = 64
"""Messages that stay with the broker as nobody takes them: more would use up the Receive Maximum."""
LEFT_SECONDS: Final = 2.0
"""The time for what else another session holds to be settled, once some of it was left to the broker."""


def _nothing() -> None:
    """Do nothing."""


class Arrival:
    """A delivery in its place in the order. Whoever takes it calls one of `settle`, `leave` and `refuse`, once."""

    __slots__ = ("_inbox", "after", "at", "delivery", "left", "message", "settled")

    def __init__(self, delivery: InboundDelivery, at: float, inbox: Inbox, left: Callable[[], None]) -> None:
        """`left` is called when it is left to the broker."""
        self.left = left
        self.delivery = delivery
        self.message: ReceivedMessage = delivery.message
        self.at = at
        """The instant at which it came, on the monotonic clock."""
        self.settled = False
        self.after: Callable[[], None] | None = None
        """Called when the message is settled, and not when it is left to the broker."""
        self._inbox = inbox

    def settle(self) -> None:
        """It is dealt with: its PUBACK goes out as soon as all before it are settled."""
        self.settled = True
        self._inbox.acknowledge()
        if self.after is not None:
            self.after()

    def leave(self) -> None:
        """Without PUBACK the next connection gets it again; it holds up none behind it."""
        if self._inbox.forget(self):
            self.left()

    def done(self, is_in: bool) -> None:  # noqa: FBT001 - how a writer tells
        """Settle it, or leave it."""
        if is_in:
            self.settle()
        else:
            self.leave()

    def refuse(self) -> bool:
        """Leave it where no later try is likely to help; false when too many are left already, and nothing is done."""
        return self._inbox.refuse(self)


class Inbox:
    """Hands each delivery to `take`, which settles it now or later."""

    def __init__(self, take: Callable[[Arrival], None], clock: Clock) -> None:
        self._take = take
        self._clock = clock
        self._arrived: deque[Arrival] = deque()
        self._refused = 0
        self._emptied: asyncio.Event | None = None

    def handle(self, delivery: InboundDelivery) -> None:
        """Begin with a delivery. Called on the event loop for each one; returns at once."""
        self._begin(delivery, _nothing)

    def _begin(self, delivery: InboundDelivery, left: Callable[[], None]) -> None:
        arrival = Arrival(delivery, self._clock.monotonic(), self, left)
        self._arrived.append(arrival)
        try:
            self._take(arrival)
        except BaseException:
            self.forget(arrival)  # the client sees to it, and the others must not wait for it
            raise

    async def empty(self, drain: SessionDrain, topic_filters: Sequence[str], idle: timedelta) -> int:
        """Take in what another session holds, and end it; the number of deliveries. BrokerUnavailableError.

        Of what was left to the broker no PUBACK would ever come. The session stays then, and it may be tried again.
        """
        loop, goes_on = asyncio.get_running_loop(), True

        def left() -> None:
            if goes_on and not bound.expired():
                bound.reschedule(loop.time() + LEFT_SECONDS)

        try:
            async with asyncio.timeout(None) as bound:
                return await drain.drain(topic_filters, lambda delivery: self._begin(delivery, left), idle)
        except TimeoutError:
            raise BrokerUnavailableError("some of what the session holds was left to the broker") from None
        finally:
            goes_on = False

    async def drained(self) -> None:
        """Return when every delivery so far is settled, or left to the broker."""
        while self._arrived:
            self._emptied = self._emptied or asyncio.Event()
            await self._emptied.wait()

    def acknowledge(self) -> None:
        """Send the PUBACKs whose turn it is."""
        arrived = self._arrived
        while arrived and arrived[0].settled:
            arrived.popleft().delivery.acknowledge()
        if self._emptied is not None and not arrived:
            self._emptied.set()
            self._emptied = None

    def forget(self, arrival: Arrival) -> bool:
        """Let it hold up nobody; False, and nothing happens, when it has its PUBACK."""
        if arrival in self._arrived:
            self._arrived.remove(arrival)
            self.acknowledge()
            return True
        return False

    def refuse(self, arrival: Arrival) -> bool:
        """See `Arrival.refuse`."""
        if self._refused >= MOST_REFUSED:
            return False
        self._refused += 1
        arrival.leave()
        return True
