"""Calls of slots that nobody serves for now: they move, or no replica has taken the place of their primary yet."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from app.core.errors import StoreRefusedError, StoreUnavailableError
from app.store.redis.driver.calls import TICK_SECONDS, Call, pack

_ASKING: Final = pack(("ASKING",))

FIRST_PAUSE_SECONDS: Final = 0.02
LONGEST_PAUSE_SECONDS: Final = 0.2


class SlotCall(Call):
    """A call whose keys are in one slot. `alone` says that it is one command and no script."""

    __slots__ = ("alone", "asks", "listed", "moves", "slot")

    def __init__(
        self,
        slot: int,
        packed: bytes,
        future: asyncio.Future[Any],
        since: float,
        deadline: float,
        replies: int | None = None,
        *,
        writes: bool,
        alone: bool,
    ) -> None:
        super().__init__(packed, future, since, deadline, replies, writes)
        self.slot = slot
        self.alone = alone
        self.listed = replies is not None
        self.moves = 0
        """The number of times that it was sent elsewhere."""
        self.asks = False
        """ASKING is packed in front of it, whose reply comes first."""

    def ask(self) -> None:
        """Let the next member serve it that has not got the slot yet."""
        self.asks = True
        self.packed = _ASKING + self.packed
        self.replies = (self.replies or 1) + 1

    def asked(self) -> None:
        """It goes to a member that has the slot again."""
        if self.asks:
            self.asks = False
            self.packed = self.packed.removeprefix(_ASKING)
            self.replies = (self.replies or 2) - 1 if self.listed else None

    def resolve(self, reply: object) -> None:
        """Hand over the reply, without that of ASKING."""
        if self.asks and isinstance(reply, list):
            reply = reply[1:] if self.listed else reply[1]
            if isinstance(reply, Exception):
                self.fail(StoreRefusedError(f"Redis refused: {reply}"))
                return
        super().resolve(reply)


class _HeldSlot:
    """The calls of a slot in their order, and the one of them that is being tried."""

    __slots__ = ("away", "calls", "pause", "probe", "timer", "told")

    def __init__(self) -> None:
        self.away = False
        self.told: Callable[[asyncio.Future[Any]], None] | None = None
        self.calls: deque[SlotCall] = deque()
        self.probe: SlotCall | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.pause = FIRST_PAUSE_SECONDS


class HeldSlots:
    """One call of each slot is tried now and then, with growing pauses; when it gets an answer, all others follow."""

    def __init__(self, send: Callable[[SlotCall], None], counters: Counter[str]) -> None:
        self._send = send
        self._counters = counters
        self._held: dict[int, _HeldSlot] = {}
        self._ticker: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(len(one.calls) for one in self._held.values())

    def holds(self, slot: int) -> bool:
        """True if calls of this slot have to wait here."""
        return slot in self._held

    def away(self, slot: int) -> bool:
        """True if nobody serves the slot at all."""
        held = self._held.get(slot)
        return held is not None and held.away

    def keeps(self, call: SlotCall) -> bool:
        """True if it has to wait behind others: but where nobody serves the slot, no single command does."""
        held = self._held.get(call.slot)
        return held is not None and held.probe is not call and (held.away or not call.alone)

    def park(self, call: SlotCall, *, away: bool = False) -> None:
        """Keep the call until its slot is served. One that was tried goes to the front again."""
        held = self._held.setdefault(call.slot, _HeldSlot())
        held.away = away
        if held.probe is call:
            held.probe = None
            if held.told is not None:
                call.future.remove_done_callback(held.told)
            held.calls.appendleft(call)
        else:
            held.calls.append(call)
        self._arm(call.slot, held)
        if self._ticker is None:
            self._ticker = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def try_all(self) -> None:
        """Try each slot now: somebody may serve it by now."""
        for slot, held in list(self._held.items()):
            if held.timer is not None:
                held.timer.cancel()
                self._try(slot, held)

    def close(self) -> None:
        """Let all fail who wait."""
        for held in self._held.values():
            if held.timer is not None:
                held.timer.cancel()
            for call in held.calls:
                call.give_up("the store was closed")
        self._held.clear()
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None

    def _arm(self, slot: int, held: _HeldSlot) -> None:
        if held.probe is None and held.timer is None:
            held.timer = asyncio.get_running_loop().call_later(held.pause, self._try, slot, held)
            held.pause = min(2 * held.pause, LONGEST_PAUSE_SECONDS)

    def _try(self, slot: int, held: _HeldSlot) -> None:
        held.timer = None
        while held.calls:
            probe = held.calls.popleft()
            if not probe.future.done():
                held.probe = probe
                held.told = partial(self._tried, slot, held, probe)
                probe.future.add_done_callback(held.told)
                self._send(probe)
                return
        if self._held.get(slot) is held:
            del self._held[slot]

    def _tried(self, slot: int, held: _HeldSlot, probe: SlotCall, future: asyncio.Future[Any]) -> None:
        if held.probe is not probe or self._held.get(slot) is not held:
            return
        held.probe = None
        if future.cancelled() or _unknown(future.exception()):
            self._arm(slot, held)  # nobody knows yet
            return
        del self._held[slot]
        for call in held.calls:
            self._send(call)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for held in self._held.values():
            for call in held.calls:
                if call.deadline <= now and not call.future.done():
                    self._counters["store.timed_out"] += 1
                    call.give_up("the store did not answer in time")
            if any(call.future.done() for call in held.calls):
                held.calls = deque(call for call in held.calls if not call.future.done())
        self._ticker = loop.call_later(TICK_SECONDS, self._tick) if self._held else None


def _unknown(error: BaseException | None) -> bool:
    """True if it says nothing of the slot: nobody has answered."""
    return isinstance(error, StoreUnavailableError) and not isinstance(error, StoreRefusedError)
