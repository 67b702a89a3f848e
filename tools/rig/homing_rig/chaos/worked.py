"""Workers that share a queue, and books of what each event has met: lent, settled, put aside."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from zlib import crc32

import aiohttp

from homing_rig.chaos.balancers import Choose
from homing_rig.chaos.kept_events import Kept
from homing_rig.chaos.options import ChaosError

POISON_SHARE: Final = 100
"""One in so many events fails whoever touches it."""
DEATH_SHARE: Final = 50
"""One in so many takes is the last of its worker: what it was lent is never settled."""
MOST: Final = 16
"""Events of one take."""
WAIT: Final = "2s"
PATIENCE: Final = aiohttp.ClientTimeout(total=15.0)
AGAIN_SECONDS: Final = 0.2
SETTLE_SECONDS: Final = 300.0
"""The time in which some node has to settle what a worker has done: more than any fault lasts."""


def is_poison(topic: str, number: int) -> bool:
    """True if nobody can handle this event: the same for every worker."""
    return crc32(f"{topic} {number}".encode()) % POISON_SHARE == 0


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an event: a number may be in the log twice, a position may not."""

    topic: str
    number: int
    position: int


@dataclass(slots=True)
class Book:
    """The fate of the events that were lent, in the order in which it was noted."""

    deliveries: Counter[Place] = field(default_factory=Counter)
    done: set[Place] = field(default_factory=set)
    """Said to be done, whether or not the answer came."""
    settled: set[Place] = field(default_factory=set)
    """Said to be done, and the store has settled it."""
    lent_after_settled: int = 0
    out_of_order: list[tuple[Place, set[Place]]] = field(default_factory=list)
    """An event that was lent, with all those of its topic that were neither done nor failed by then."""
    overtaken: int = 0
    """Events that were lent after a later one of their topic."""
    _open: defaultdict[str, set[Place]] = field(default_factory=lambda: defaultdict(set))
    _furthest: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    def lent(self, place: Place) -> None:
        """A worker has it."""
        self.deliveries[place] += 1
        self.overtaken += place.position < self._furthest[place.topic]
        self._furthest[place.topic] = max(self._furthest[place.topic], place.position)
        self.lent_after_settled += place in self.settled
        mates = self._open[place.topic]
        if others := {one for one in mates if one != place}:
            self.out_of_order.append((place, others))
        mates.add(place)

    def says_done(self, place: Place) -> None:
        """A worker settles it now."""
        self.done.add(place)
        self._open[place.topic].discard(place)

    def says_failed(self, place: Place) -> None:
        """A worker wants it to be tried again: it may become a dead letter by that."""
        if is_poison(place.topic, place.number):
            self._open[place.topic].discard(place)


class Workers:
    """Ten of them, say, each asking any node. One that dies is followed by another at once."""

    def __init__(self, session: aiohttp.ClientSession, queue: str, choose: Choose, seed: int) -> None:
        self.book: Final = Book()
        self.deaths = 0
        self.patience = SETTLE_SECONDS
        self._session = session
        self._path = f"/v1/queues/{queue}"
        self._choose = choose
        self._random = random.Random(f"{seed} workers")
        self._stopping = False
        self._mortal = True

    async def work(self, count: int) -> None:
        """Work until `stop`; ChaosError when no node ever settles what was done."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(count):
                    group.create_task(self._work(number))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    def spare(self) -> None:
        """Let none of them die any more."""
        self._mortal = False

    def stop(self) -> None:
        """Take nothing more."""
        self._stopping = True

    async def _work(self, number: int) -> None:
        life = 0
        while not self._stopping:
            taken = await self._ask("take", {"max": MOST, "wait": WAIT, "consumer": f"w{number}.{life}"})
            lent = [] if taken is None else taken["events"]
            if not lent:
                await asyncio.sleep(AGAIN_SECONDS if taken is None else 0.0)
                continue
            places = [(one["loan"], _place_of(one["event"])) for one in lent]
            for _, place in places:
                self.book.lent(place)
            if self._random.randrange(DEATH_SHARE) == 0 and self._mortal and not self._stopping:
                self.deaths += 1
                life += 1
                continue
            await self._settle(places)

    async def _settle(self, places: list[tuple[str, Place]]) -> None:
        bad = {loan for loan, place in places if is_poison(place.topic, place.number)}
        for loan, place in places:
            (self.book.says_failed if loan in bad else self.book.says_done)(place)
        good = [loan for loan, _ in places if loan not in bad]
        said = {"done": good, "retry": [{"loan": loan} for loan in sorted(bad)]}
        loop = asyncio.get_running_loop()
        until = loop.time() + self.patience
        while (told := await self._ask("settle", said)) is None:
            if loop.time() >= until:
                raise ChaosError(f"{self._path}/settle: no node has answered it for {self.patience:g} s")
            await asyncio.sleep(AGAIN_SECONDS)
        over = set(told["over"])
        self.book.settled |= {place for loan, place in places if loan not in bad | over}

    async def _ask(self, verb: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """The answer of a node; None if there was none that says anything."""
        _, url = self._choose()
        try:
            async with self._session.post(f"{url}{self._path}/{verb}", json=body, timeout=PATIENCE) as answer:
                if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    return None
                answer.raise_for_status()
                said: dict[str, Any] = await answer.json()
                return said
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError):
            return None


def _place_of(event: dict[str, Any]) -> Place:
    return Place(event["topic"], event["data"]["n"], event["position"])


@dataclass(frozen=True, slots=True)
class Judgement:
    """The faults, as numbers of events."""

    lost: int
    """The events in the log that are neither settled nor dead letters."""
    poison_alive: int
    """Poison that is no dead letter."""
    wrongly_dead: int
    """Dead letters of events that could be handled."""
    lent_after_settled: int
    out_of_order: int


def judged(book: Book, kept: Kept, dead: set[tuple[str, int, int]]) -> Judgement:
    """Compare the workers' book and the dead letters with the log."""
    logged = [
        Place(topic, number, position)
        for topic in kept.numbers
        for number, position in zip(kept.numbers[topic], kept.positions[topic], strict=True)
    ]
    letters = {Place(*one) for one in dead}
    return Judgement(
        lost=sum(one not in book.done and one not in letters for one in logged),
        poison_alive=sum(is_poison(one.topic, one.number) and one not in letters for one in logged),
        wrongly_dead=sum(not is_poison(one.topic, one.number) for one in letters),
        lent_after_settled=book.lent_after_settled,
        out_of_order=book.overtaken + sum(bool(others - letters) for _, others in book.out_of_order),
    )
