"""The combiners of a Redis Cluster, one for each primary, behind the face of one: calls go where their slot is.

A call that a member sends elsewhere keeps its place among its caller's time: it is the same call on another queue.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import AskError, ClusterDownError, MovedError, ReadOnlyError, ResponseError

from app.core.errors import StoreUnavailableError
from app.core.redis_address import Place, shown_place
from app.runtime.histograms import StoreMeasures
from app.runtime.tasks import end
from app.store.redis.driver.calls import TICK_SECONDS, Call, pack
from app.store.redis.driver.combiner import AWAY_BUDGET_SECONDS, Combiner
from app.store.redis.driver.each_server import raise_for_all
from app.store.redis.driver.held_slots import HeldSlots, SlotCall
from app.store.redis.driver.lane import Argument, CombinerOptions, Script
from app.store.redis.driver.replicas import writes
from app.store.redis.driver.slots import NO_SLOT, SlotMap, guard_of, slot_of
from app.store.redis.driver.spread import Command, joined, parts_of
from app.store.redis.driver.topology import SlotWatch, slots_of

MOST_MOVES: Final = 5
"""The number of times that a call follows MOVED at once; then it waits for a new map."""


class SlotRouter:
    """Call it as a Combiner. `connect` makes connections to one member."""

    def __init__(
        self,
        url: str,
        connect: Callable[[Place], Callable[[], AbstractConnection]],
        scripts: Sequence[Script],
        *,
        counters: Counter[str],
        options: CombinerOptions | None = None,
        chance: random.Random | None = None,
        measures: StoreMeasures | None = None,
    ) -> None:
        self._url = url
        self._connect = connect
        self._scripts = {one.sha: one.on_cluster() for one in scripts}
        self._counters = counters
        self._options = options or CombinerOptions()
        self._chance = chance
        self._measures = measures
        self._watch: SlotWatch | None = None
        self._slots: SlotMap | None = None
        self._members: dict[Place, Combiner] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._held = HeldSlots(self._dispatch, counters)
        self._closed = False
        if measures is not None:
            measures.primaries = self.primaries

    @property
    def connected(self) -> bool:
        """True if a connection to any primary stands, as far as we know."""
        return any(one.connected for one in self._members.values())

    @property
    def outstanding(self) -> int:
        """Return how many calls wait for their turn or their reply."""
        return len(self._held) + sum(one.outstanding for one in self._members.values())

    @property
    def last_error(self) -> str:
        """Return why the slots are not known, or the last connection failed; or nothing."""
        known = "" if self._watch is None else self._watch.reason
        return known or next((one.last_error for one in self._members.values() if one.last_error), "")

    def start(self) -> None:
        """Begin to connect, and go on doing so until closed."""
        if self._watch is None and not self._closed:
            self._watch = slots_of(self._url)
            self._watch.follow(self)

    async def close(self) -> None:
        """Let go of the connections; whoever still waits gets StoreUnavailableError."""
        await end(self.refuse())

    def refuse(self) -> Sequence[asyncio.Task[None]]:
        """Fail who waits and who comes from now on. The tasks are to be ended, and let go of the connections."""
        self._closed = True
        self._held.close()
        tasks: list[asyncio.Task[None]] = [*self._leaving]
        for one in self._members.values():
            tasks += one.refuse()
        watch, self._watch = self._watch, None
        if watch is not None:
            tasks += watch.leave(self)
        return tasks

    def mapped(self, slots: SlotMap) -> None:
        """The primaries are these from now on. Calls that wait at another one go where their slots are."""
        self._slots = slots
        for place in () if self._options.on_demand else slots.primaries:
            self._member(place)
        for place in [one for one in self._members if one not in slots.primaries]:
            gone = self._members.pop(place)
            task = asyncio.create_task(self._leave(gone), name=f"store leaves {shown_place(place)}")
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)
        for place, member in self._members.items():
            self._send_again(member.queue.take_out(partial(self._is_elsewhere, place)))
        self._held.try_all()

    async def run_script(
        self, script: Script, keys: Sequence[str], arguments: Sequence[Argument], budget: float | None
    ) -> Any:  # noqa: ANN401 - what the script replies
        """The reply of a script. `budget` is in seconds; None waits as long as it takes."""
        there = self._scripts[script.sha]
        command = ("EVALSHA", there.sha, len(keys) + 1, *keys, guard_of(keys[0]), *arguments)
        return await self._send(slot_of(keys[0]), [command], budget, writing=script.writes, alone=False)

    async def call(self, command: tuple[Argument, ...], budget: float | None, *, beside: str = "") -> Any:  # noqa: ANN401 - a reply of Redis
        """The reply of a command that is safe to repeat.

        One without a key is answered by the primary that has the key `beside`, or by any.
        """
        if beside:
            return await self._send(slot_of(beside), [command], budget, writing=writes(command), alone=False)
        parts = parts_of(command)
        if len(parts) == 1:
            return await self._send(parts[0].slot, [command], budget, writing=writes(command))
        replies = [self._send(one.slot, [one.command], budget, writing=writes(command)) for one in parts]
        return joined(command, await asyncio.gather(*replies))

    async def call_many(self, commands: Sequence[tuple[Argument, ...]], budget: float) -> list[Any]:
        """The replies of commands that travel as one for each slot. The TIME of a cluster is the earliest of all."""
        packs: dict[int, list[tuple[int, Command]]] = {}
        for number, command in enumerate(commands):
            if command[0] != "TIME":
                for part in parts_of(command):
                    packs.setdefault(part.slot, []).append((number, part.command))
        times = await self.everywhere(("TIME",), budget) if any(one[0] == "TIME" for one in commands) else []
        found = await asyncio.gather(
            *(self._pack(slot, [command for _, command in some], budget) for slot, some in packs.items())
        )
        replies: list[list[Any]] = [[] for _ in commands]
        for some, answers in zip(packs.values(), found, strict=True):
            for (number, _), answer in zip(some, answers, strict=True):
                replies[number].append(answer)
        return [
            min(times, key=_instant) if command[0] == "TIME" else joined(command, some)
            for command, some in zip(commands, replies, strict=True)
        ]

    async def everywhere(self, command: tuple[Argument, ...], budget: float, *, partly: bool = False) -> list[Any]:
        """The reply of each primary, also of those that are to be connected first.

        With `partly`, and only then, those that are away are left out. A primary that answers nil has None.
        """
        if self._slots is None:
            await self.call(("PING",), budget)
        slots = self._slots
        now = asyncio.get_running_loop().time()
        asked = [
            self._new_call(NO_SLOT, [command], now, now + budget, writing=writes(command))
            for _ in (() if slots is None else slots.primaries)
        ]
        for call, place in zip(asked, () if slots is None else slots.primaries, strict=True):
            self._member(place).queue.add(call)
        found = await asyncio.gather(*(one.future for one in asked), return_exceptions=partly)
        raise_for_all(found)
        return [one for one in found if not isinstance(one, BaseException)]

    def server_of(self, key: str) -> str:
        """The name of the primary that has this key."""
        place = None if self._slots is None else self._slots.owners[slot_of(key)]
        return "" if place is None else shown_place(place)

    @property
    def disturbed(self) -> bool:
        """True while a primary is away, or somebody waits for a slot."""
        return len(self._held) > 0 or not all(one.connected for one in self._members.values())

    def primaries(self) -> Mapping[str, bool]:
        """Each primary, and whether it answers, as far as we know."""
        known = () if self._slots is None else self._slots.primaries
        return {shown_place(one): one in self._members and self._members[one].serves for one in known}

    async def _pack(self, slot: int, commands: Sequence[Command], budget: float) -> list[Any]:
        """The replies of commands of one slot, with the errors of those that Redis refused for good."""
        writing = any(map(writes, commands))
        replies: list[Any] = await self._send(
            slot, commands, budget, writing=writing, alone=len(commands) == 1, listed=True
        )
        return replies

    async def _send(
        self,
        slot: int,
        commands: Sequence[Command],
        budget: float | None,
        *,
        writing: bool,
        alone: bool = True,
        listed: bool = False,
    ) -> Any:  # noqa: ANN401 - what Redis replies
        if self._closed:
            raise StoreUnavailableError("the store is closed")
        now = asyncio.get_running_loop().time()
        member = self._publisher(commands[0]) if slot == NO_SLOT else self._owner(slot)
        deadline = now + self._within(slot, member, budget, now, writing=writing)
        if member is None or self._held.holds(slot):
            await self._admit(deadline)
        else:
            await member.queue.admit(deadline)
        call = self._new_call(slot, commands, now, deadline, writing=writing, alone=alone, listed=listed)
        self._dispatch(call, member)
        return await call.future

    def _new_call(
        self,
        slot: int,
        commands: Sequence[Command],
        since: float,
        deadline: float,
        *,
        writing: bool,
        alone: bool = True,
        listed: bool = False,
    ) -> SlotCall:
        packed = b"".join([pack(one) for one in commands])
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        replies = len(commands) if listed else None
        return SlotCall(slot, packed, future, since, deadline, replies, writes=writing, alone=alone)

    def _within(self, slot: int, member: Combiner | None, budget: float | None, now: float, *, writing: bool) -> float:
        """The budget, cut short while nobody serves the slot."""
        if budget is None:
            return math.inf
        if member is None or self._held.away(slot):
            return min(budget, AWAY_BUDGET_SECONDS)
        return member.within(budget, now, writing=writing)

    async def _admit(self, deadline: float) -> None:
        """Return when one more call may be parked. One with a deadline is refused where there is no room."""
        while len(self._held) >= self._options.max_queue:
            if deadline < math.inf:
                self._counters["store.rejected"] += 1
                raise StoreUnavailableError("too many calls wait for the store", asked=False)
            await asyncio.sleep(TICK_SECONDS)

    def _dispatch(self, call: SlotCall, member: Combiner | None = None) -> None:
        """Let the member serve it that has its slot, or park it."""
        if self._closed:
            call.give_up("the store is closed")
            return
        if self._held.keeps(call):
            self._held.park(call, away=self._held.away(call.slot))
            return
        there = self._owner(call.slot) if member is None or member.closed else member
        if there is None:
            self._held.park(call, away=True)
        else:
            there.queue.add(call)

    def _owner(self, slot: int) -> Combiner | None:
        """Return who serves the slot; for calls without one, anybody who is connected."""
        if slot == NO_SLOT:
            members = list(self._members.values())
            return next((one for one in members if one.connected), members[0] if members else None)
        place = None if self._slots is None else self._slots.owners[slot]
        return None if place is None else self._member(place)

    def _publisher(self, command: Command) -> Combiner | None:
        """Return who serves a command without keys; for a channel it is always the same: `SlotWatch.some_members`."""
        if command[0] == "PUBLISH" and (member := self._owner(slot_of(command[1]))) is not None and member.connected:
            return member
        return self._owner(NO_SLOT)

    def _member(self, place: Place) -> Combiner:
        found = self._members.get(place)
        if found is None:
            around = _Around(self, place)
            found = Combiner(
                self._connect(place),
                list(self._scripts.values()),
                counters=self._counters,
                options=self._options,
                chance=self._chance,
                measures=self._measures,
                around=around,
            )
            self._members[place] = found
            found.start()
        return found

    def _is_elsewhere(self, place: Place, call: Call) -> bool:
        slots = self._slots
        if not isinstance(call, SlotCall) or call.slot == NO_SLOT or call.asks or slots is None:
            return False
        return slots.owners[call.slot] != place

    def _send_again(self, calls: Iterable[Call]) -> None:
        for call in calls:
            if isinstance(call, SlotCall) and not call.future.done():
                call.asked()
                self._dispatch(call)

    async def _leave(self, gone: Combiner) -> None:
        """Let go of a member that is no primary any more, and send again what waits there."""
        await end(gone.halt())
        self._send_again(gone.queue.take_out(lambda _: True))
        await gone.close()

    def _lost(self) -> None:
        if self._watch is not None:
            self._watch.hint()

    def _elsewhere(self, place: Place, away: Sequence[tuple[Call, ResponseError]]) -> None:
        """Send what a member could not serve where it says, or let it wait."""
        moved = {one.slot_id: (one.host or place[0], one.port) for _, one in away if isinstance(one, MovedError)}
        if moved and self._watch is not None:
            self._watch.moved(moved)
        held: set[int] = set()
        for call, error in away:
            if not isinstance(call, SlotCall):
                continue
            call.asked()
            if isinstance(error, MovedError):
                self._moved(call)
            elif isinstance(error, AskError):
                self._ask(place, call, error)
            else:
                self._wait(call, error)
            if self._held.holds(call.slot):
                held.add(call.slot)
        member = self._members.get(place)
        if held and member is not None:
            # What waits behind these goes on waiting behind them.
            self._send_again(member.queue.take_out(lambda call: isinstance(call, SlotCall) and call.slot in held))

    def _moved(self, call: SlotCall) -> None:
        self._counters["store.moved"] += 1
        call.moves += 1
        if call.moves > MOST_MOVES:
            call.moves = 0
            self._held.park(call)
        else:
            self._dispatch(call)

    def _ask(self, place: Place, call: SlotCall, error: AskError) -> None:
        """One command is served by the slot's next member already; a script waits, as its keys are at both."""
        self._counters["store.asked"] += 1
        if not call.alone:
            self._held.park(call)
        else:
            call.ask()
            self._member((error.host or place[0], error.port)).queue.add(call)

    def _wait(self, call: SlotCall, error: ResponseError) -> None:
        away = isinstance(error, ClusterDownError | ReadOnlyError)
        self._counters["store.away" if away else "store.parked"] += 1
        if away:
            self._lost()
            if not call.patient:
                call.deadline = min(call.deadline, call.since + AWAY_BUDGET_SECONDS)
        self._held.park(call, away=away)


class _Around:
    """The router, as the combiner of one member knows it."""

    def __init__(self, router: SlotRouter, place: Place) -> None:
        self._router = router
        self._place = place

    def elsewhere(self, away: Sequence[tuple[Call, ResponseError]]) -> None:
        self._router._elsewhere(self._place, away)  # noqa: SLF001 - a part of it

    def lost(self) -> None:
        self._router._lost()  # noqa: SLF001 - likewise


def _instant(time: Sequence[bytes]) -> tuple[int, int]:
    return int(time[0]), int(time[1])
