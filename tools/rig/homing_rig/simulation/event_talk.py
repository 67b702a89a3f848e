"""Events of a run: devices tell them, callers publish them, a reader follows them, and the log is judged in the end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from random import Random
from typing import Annotated, Final

import orjson
from pydantic import Field

from app.core.errors import BrokerUnavailableError
from app.core.events.event import Entry, Event
from app.core.messages import Publication, Receipt
from homing_rig.simulation.callers import CALLER, DEVICE, PATIENCE, RETRY_PAUSE, Callers
from homing_rig.simulation.devices import RESEND_SECONDS, SimDevice
from homing_rig.simulation.event_store import EventHost
from homing_rig.simulation.loop import SimLoop
from homing_rig.simulation.node import SimNode

DATABASE: Final = "events"
"""The database of the events of the homing profile, and of what callers publish."""
ATTEMPT_SECONDS: Final = 4.0
FOLLOW_SECONDS: Final = 0.2
"""The pause of the reader between two pages."""
PAGE: Final = 20
_OK: Final = 200


@dataclass(frozen=True, slots=True, order=True)
class Saying:
    """One event that a device tells, or that a caller publishes. `at` is in seconds."""

    at: Annotated[float, Field(ge=0, le=3600)]
    number: Annotated[int, Field(ge=0)]
    source: Annotated[str, Field(pattern=f"^({DEVICE}|{CALLER})$")]

    @property
    def entry(self) -> Entry:
        """The event itself."""
        return Entry(topic_of(self.source), orjson.dumps({"type": "reading", "n": self.number}))


def topic_of(source: str) -> str:
    """The topic of all that a device or a caller says."""
    return f"homing/{source}/event"


@dataclass(slots=True)
class Said:
    """The numbers that one source has said, in their order.

    Of those in `taken` it was told that they are kept; those in `unsure` nobody heard at first, so others came before.
    """

    numbers: list[int] = field(default_factory=list)
    taken: set[int] = field(default_factory=set)
    unsure: set[int] = field(default_factory=set)

    def excuse(self, number: int) -> None:
        """The log has forgotten it, as it may."""
        self.taken.discard(number)
        self.unsure.add(number)


class Talker:
    """Tells the events of one device in their order, and after a broken connection again all that have no PUBACK."""

    def __init__(self, device: SimDevice, loop: SimLoop) -> None:
        self.said: Final = Said()
        self._device = device
        self._loop = loop
        self._waiting: dict[Saying, None] = {}
        self._rests = False

    @property
    def open(self) -> int:
        """The number of events without PUBACK."""
        return len(self._waiting)

    def say(self, saying: Saying) -> None:
        """Tell it behind those before it."""
        self.said.numbers.append(saying.number)
        self._waiting[saying] = None
        self._tell(saying)

    def _tell(self, saying: Saying) -> None:
        if self._rests:
            return
        entry = saying.entry
        try:
            puback = self._device.publish(Publication(entry.topic, entry.value))
        except BrokerUnavailableError:
            self._rest()
        else:
            puback.add_done_callback(partial(self._settled, saying))

    def _settled(self, saying: Saying, puback: asyncio.Future[Receipt]) -> None:
        if puback.cancelled() or puback.exception() is not None:
            self._rest()
        elif puback.result() is Receipt.UNMATCHED:
            self.said.unsure.add(saying.number)
            self._rest()
        else:
            self.said.taken.add(saying.number)
            self._waiting.pop(saying, None)

    def _rest(self) -> None:
        if not self._rests:
            self._rests = True
            self._loop.call_later(RESEND_SECONDS, self._tell_again)

    def _tell_again(self) -> None:
        self._rests = False
        for saying in tuple(self._waiting):
            self._tell(saying)


class Publisher:
    """Publishes the events of one caller, each with a key, and asks another node as long as it has no answer."""

    def __init__(self, callers: Callers, loop: SimLoop, chance: Random) -> None:
        self.said: Final = Said()
        self.open = 0
        self._callers = callers
        self._loop = loop
        self._chance = chance

    def say(self, saying: Saying) -> None:
        """Publish it."""
        self.open += 1
        _begun = self._loop.create_task(self._until_taken(saying))

    async def _until_taken(self, saying: Saying) -> None:
        give_up, longer = self._loop.time() + PATIENCE, 1.0
        self.said.numbers.append(saying.number)
        try:
            while not await self._attempt(saying) and self._loop.time() < give_up:
                await asyncio.sleep(longer * self._chance.uniform(*RETRY_PAUSE))
                longer = min(2 * longer, 8.0)
        finally:
            self.open -= 1

    async def _attempt(self, saying: Saying) -> bool:
        node = self._callers.any_node()
        work = partial(node.publish, DATABASE, saying.entry, f"key-{saying.number}")
        try:
            told = await self._callers.ask(node, work, ATTEMPT_SECONDS)
        except OSError:
            return False
        if told.status == _OK:
            self.said.taken.add(saying.number)
        return told.status == _OK


class Follower:
    """Reads the log to its end and on, a page at a time, each from any node, with the cursor of the last one."""

    def __init__(self, callers: Callers) -> None:
        self.read: Final[list[Event]] = []
        self._callers = callers
        self._cursor: str | None = None

    async def follow(self) -> None:
        """Read until cancelled."""
        while True:
            with suppress(OSError):
                await self._page(self._callers.any_node())
            await asyncio.sleep(FOLLOW_SECONDS)

    async def finish(self) -> None:
        """Read what is left. OSError when a node does not answer, though everything is well."""
        while await self._page(self._callers.any_node()):
            pass

    async def _page(self, node: SimNode) -> bool:
        """Read a page; whether there is more."""
        told = await self._callers.ask(node, partial(node.follow, DATABASE, self._cursor, PAGE), ATTEMPT_SECONDS)
        self.read.extend(told.events)
        self._cursor = told.cursor or self._cursor
        return told.more


class Talk:
    """Everything that is said in a run. `ordered`: the log keeps the order of what each device tells."""

    def __init__(
        self,
        sayings: Sequence[Saying],
        host: EventHost,
        devices: Mapping[str, SimDevice],
        callers: Callers,
        loop: SimLoop,
        chance: Random,
        *,
        ordered: bool,
    ) -> None:
        self._host = host
        self._callers = callers
        self._loop = loop
        self._sayings = sayings
        self._ordered = ordered
        self._talkers = {name: Talker(devices[name], loop) for name in _sources(sayings) if name in devices}
        self._publishers = {
            name: Publisher(callers, loop, chance) for name in _sources(sayings) if name not in self._talkers
        }
        self._devices = devices
        self._follower = Follower(callers)
        self._forgotten: list[Event] = []

    def start(self) -> None:
        """Let each event be said at its time, and the reader begin."""
        for one in self._sayings:
            if one.source in self._talkers:
                context = self._devices[one.source].lane.context
                self._loop.call_at(one.at, self._talkers[one.source].say, one, context=context)
            else:
                self._loop.call_at(one.at, self._publishers[one.source].say, one, context=self._callers.lane.context)
        self._following = self._loop.create_task(self._follower.follow(), context=self._callers.lane.context.copy())

    @property
    def open(self) -> int:
        """The number of events that somebody still tries to have taken."""
        every: Iterable[Talker | Publisher] = chain(self._talkers.values(), self._publishers.values())
        return sum(one.open for one in every)

    def fall_behind(self) -> None:
        """From now on a replica of the log gets nothing more."""
        self._replica = self._host.log.kept()

    def fail_over(self) -> None:
        """The replica takes the place of the log. What it has not got is excused, and counts as not read."""
        self._forgotten += self._host.log.restore(self._replica)

    async def finish(self) -> None:
        """Let the reader come to the end."""
        self._following.cancel()
        await asyncio.wait([self._following])
        await self._follower.finish()

    def facts(self) -> Sequence[object]:
        """The log as it is in the end, as part of a digest."""
        return [(event.position, shard, event.entry.topic, event.entry.value.decode()) for shard, event in self._kept()]

    def mistakes(self) -> Iterator[tuple[str, str]]:
        """Each as a rule and a sentence."""
        for event in self._forgotten:
            self._said_on(event.entry.topic).excuse(_number_of(event))
        kept: dict[str, list[int]] = {}
        for _, event in sorted(self._kept(), key=lambda one: one[1].position):
            kept.setdefault(event.entry.topic, []).append(_number_of(event))
        for name, talker in self._talkers.items():
            yield from _lost(name, talker.said, kept.get(topic_of(name), []))
            if self._ordered:
                yield from _out_of_line(name, talker.said, kept.get(topic_of(name), []))
        for name, publisher in self._publishers.items():
            yield from _lost(name, publisher.said, kept.get(topic_of(name), []))
            yield from _repeated(name, kept.get(topic_of(name), []))
        there = [(shard, event.position) for shard, event in self._kept()]
        forgotten = set(self._forgotten)
        read = [(event.shard, event.position) for event in self._follower.read if event not in forgotten]
        if sorted(read) != sorted(there):
            yield "E3 skipped", f"the reader got {len(read)} events, {len(set(read))} of {len(there)} that are there"
        for one in self._host.log.unfenced:
            yield "E4 unfenced", one

    def _said_on(self, topic: str) -> Said:
        every: Iterable[tuple[str, Talker | Publisher]] = chain(self._talkers.items(), self._publishers.items())
        return next(one.said for name, one in every if topic_of(name) == topic)

    def _kept(self) -> list[tuple[int, Event]]:
        """All events with their shards, in the order of each."""
        return [(shard.number, event) for shard, events in self._host.log.everything(DATABASE) for event in events]


def _number_of(event: Event) -> int:
    number: int = orjson.loads(event.entry.value)["n"]
    return number


def _sources(sayings: Sequence[Saying]) -> list[str]:
    return sorted({one.source for one in sayings})


def _lost(name: str, said: Said, kept: Sequence[int]) -> Iterator[tuple[str, str]]:
    lost = sorted(said.taken.difference(kept))
    if lost:
        yield "E1 event_lost", f"{name} was told that {lost} are kept, and they are not in the log"


def _out_of_line(name: str, said: Said, kept: Sequence[int]) -> Iterator[tuple[str, str]]:
    """A holder of the intake may repeat what is in, from any event on; nobody may leave one out."""
    place = {number: index for index, number in enumerate(said.numbers)}
    before = -1
    for number in kept:
        if not said.unsure.issuperset(said.numbers[before + 1 : place[number]]):
            yield "E2 out_of_line", f"{name} said {said.numbers}, and in the log is {list(kept)}"
            return
        before = place[number]


def _repeated(name: str, kept: Sequence[int]) -> Iterator[tuple[str, str]]:
    twice = sorted(number for number, count in Counter(kept).items() if count > 1)
    if twice:
        yield "E1 repeated", f"{name} published {twice} once each, with a key, and they are in the log more often"
