"""The events that a log has kept of what talkers said: read as people read it, and judged."""

from __future__ import annotations

import asyncio
import itertools
from array import array
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

import aiohttp

from homing_rig.chaos.patient_asker import PatientAsker
from homing_rig.chaos.scenario import Figure
from homing_rig.talkers import Talkers

DATABASES: Final = ("events", "telemetry")
PAGE: Final = 1000
AGAIN_SECONDS: Final = 0.25

EVENTS_TAKEN: Final = Figure("events_taken", ">=", 1, "events that the broker has acknowledged to devices")
EVENTS_LOST: Final = Figure("events_lost", "=", 0, "events that the broker had acknowledged and the log has not")
EVENTS_JUMPED: Final = Figure(
    "events_jumped", "=", 0, "events that came before one that was said earlier on their topic"
)
POSITIONS_FELL: Final = Figure("positions_fell", "=", 0, "events whose position is not above the one before")
STALE: Final = Figure("stale_values", "=", 0, "topics whose last value is not what was said last")
DISAGREE: Final = Figure("readers_differ", "=", 0, "nodes whose readers do not get the same log")
KEPT: Final = (EVENTS_TAKEN, EVENTS_LOST, EVENTS_JUMPED, POSITIONS_FELL, STALE, DISAGREE)
"""The figures that hold of events in every scenario."""


@dataclass
class Kept:
    """The findings of a reader. `numbers` and `positions` are in the order in which they were read, by topic."""

    numbers: defaultdict[str, array[int]] = field(default_factory=lambda: defaultdict(lambda: array("q")))
    positions: defaultdict[str, array[int]] = field(default_factory=lambda: defaultdict(lambda: array("q")))
    gaps: int = 0
    """The number of times that a stream said that events are gone."""
    _cursors: dict[str, str] = field(default_factory=dict)
    _found: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def take(self, topic: str, number: int, position: int) -> None:
        """The next event."""
        self.numbers[topic].append(number)
        self.positions[topic].append(position)
        self._found[topic].add(number)

    async def read(self, asker: PatientAsker, url: str) -> None:
        """Read on to the end, on this node."""
        for database in DATABASES:
            more = True
            while more:
                parameters = {"database": database, "limit": str(PAGE)}
                if database in self._cursors:
                    parameters["cursor"] = self._cursors[database]
                page = await asker.ask(f"{url}/v1/events", parameters)
                for event in page["events"]:
                    self.take(event["topic"], event["data"]["n"], event["position"])
                self._cursors[database], more = page["cursor"], page["more"]

    async def read_all(self, asker: PatientAsker, url: str, talkers: Talkers, seconds: float) -> None:
        """Read on until everything is there that must be, or the time is over."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while True:
            await self.read(asker, url)
            if not self.missing(talkers) or loop.time() >= until:
                return
            await asyncio.sleep(AGAIN_SECONDS)

    def missing(self, talkers: Talkers) -> int:
        """Count the events that are not there though the broker acknowledged them."""
        return sum(
            number not in self._found[topic] and number not in talkers.unsure[topic]
            for topic, said in talkers.said.items()
            for number in range(said)
        )

    def repeated(self) -> int:
        """Count the events that are there more than once."""
        return sum(len(numbers) - len(self._found[topic]) for topic, numbers in self.numbers.items())

    def jumped(self, talkers: Talkers) -> int:
        """Count how often a number came before one that was said before it.

        Whoever takes a topic over may repeat what is in, from any number on; he may not leave one out. So numbers fall
        back, and never jump ahead: a jump is where somebody else wrote in between, or a loss.
        """
        count = 0
        for topic, numbers in self.numbers.items():
            before, unsure = -1, talkers.unsure[topic]
            for number in numbers:
                count += any(one not in unsure for one in range(before + 1, number))
                before = number
        return count

    def fell(self) -> int:
        """Count the positions that are not above the one before, on their topic."""
        return sum(
            later <= before for positions in self.positions.values() for before, later in itertools.pairwise(positions)
        )

    def longest_silence(self) -> float:
        """The longest time in which nothing was appended, in seconds."""
        every = sorted(position for positions in self.positions.values() for position in positions)
        return max((later - before for before, later in itertools.pairwise(every)), default=0) / 1e6


async def stale_values(asker: PatientAsker, url: str, talkers: Talkers) -> int:
    """Topics whose last value is not the number that was said last."""
    stale = 0
    for topic, said in talkers.said.items():
        if said - 1 in talkers.unsure[topic]:
            continue
        database = "events" if topic.startswith("homing/") else "telemetry"
        try:
            value = await asker.ask(f"{url}/v1/state/{quote(topic, safe='')}", {"database": database})
        except aiohttp.ClientResponseError:
            stale += 1
        else:
            stale += value["data"]["n"] != said - 1
    return stale
