"""Random histories of the event log, run on a plain model and on every engine: all must agree."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from app.core.errors import FencedError, HomingError, QuotaError, ValueChangedError
from app.core.events.batches import BatchId
from app.core.events.event import END, MOST_VALUE_BYTES, Database, Entry, Shard, TenantShares
from app.core.events.reading import Reading
from app.core.events.transaction import Transaction, ValueCondition
from app.core.topics import matches
from app.store.events import EventStore
from tests.contract.event_engines import ENGINES, place_of
from tests.contract.event_places import EventPlace

T = TypeVar("T")
MOST, PART = 12, 2
"""Last values of a shard, and of those what each of two tenants and what is nobody's has for itself."""
OWNERS = {"SN1": "north", "SN2": "south"}
TENANTS = TenantShares(lambda: 2, lambda device: OWNERS.get(device, ""))
DATABASE = Database("events", 2, ("taught/+/x",), 2 * MOST, MOST_VALUE_BYTES, TENANTS)
TOPICS = ("taught/1/x", "taught/2/x", "a", "a/b", "$s/a", *(f"many/{number}" for number in range(13)))
FILTERS = ("#", "", "taught/+/x", "taught/1/x", "taught/#", "a", "a/#", "many/+", "many/12", "+", "$s/#", "nothing")

shards = st.integers(0, 1)
entries = st.lists(
    st.builds(
        Entry,
        st.sampled_from(TOPICS),
        st.sampled_from([b"", b"1", b"2" * 300]),
        st.sampled_from(["", "SN1", "SN2"]),
        st.sampled_from(["", "dji:osd"]),
        st.sampled_from(["", "7", "é"]),
    ),
    min_size=1,
    max_size=5,
)


@dataclass
class Said:
    shard: int
    generation: int
    entry: Entry


@dataclass
class Model:
    """The content of the log; the number of an event in `said` is its name in every engine."""

    said: list[Said] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    values: dict[tuple[int, str], int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0})
    generations: list[int] = field(default_factory=lambda: [1])
    batches: list[tuple[int, BatchId, int]] = field(default_factory=list)
    """The batches: for each its shard, its id, and the number of its last event."""

    def put(self, shard: int, added: Sequence[Entry]) -> None:
        latest: dict[str, int] = {}
        for entry in added:
            latest[entry.topic] = len(self.said)
            self.said.append(Said(shard, self.generations[-1], entry))
        values = self.values_of(shard)
        for topic, number in latest.items():
            entry = self.said[number].entry
            if not entry.value:
                self.values.pop((shard, topic), None)
            elif topic in values or has_room(values, entry):
                self.values[shard, topic] = number
            values = self.values_of(shard)

    def values_of(self, shard: int) -> dict[str, Entry]:
        return {topic: self.said[number].entry for (place, topic), number in self.values.items() if place == shard}

    def takes_all(self, shard: int, added: Sequence[Entry]) -> bool:
        """True if all of them get last values, without the room of those that they delete."""
        values = self.values_of(shard)
        for topic, entry in {one.topic: one for one in added}.items():
            if entry.value and topic not in values and not has_room(values, entry):
                return False
            if entry.value:
                values[topic] = entry
        return True

    def read(self, shard: int, topic_filter: str, after: int, until: int) -> list[int]:
        return [
            number
            for number, one in enumerate(self.said)
            if one.shard == shard
            and after < number <= until
            and one.generation not in self.gone
            and (not topic_filter or matches(topic_filter, one.entry.topic))
        ]


def has_room(values: dict[str, Entry], new: Entry) -> bool:
    """True if there is room for one more beside all these, and what others may still take of their parts."""
    used = Counter(TENANTS.of(one.device) for one in values.values())
    others = {"", "north", "south"} - {TENANTS.of(new.device)}
    return len(values) + 1 + sum(max(0, PART - used[other]) for other in others) <= MOST


@dataclass
class Side:
    """An engine, and the position that it gave to each event of the model."""

    name: str
    log: EventStore
    positions: list[int] = field(default_factory=list)


@dataclass
class Stage:
    runner: asyncio.Runner
    places: dict[str, EventPlace]

    def run(self, step: Awaitable[T]) -> T:
        async def outcome() -> T:
            return await step

        return self.runner.run(outcome())


@pytest.fixture(params=["hot", "cold"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    with asyncio.Runner() as runner:
        names = [name for name in ENGINES if name.endswith("+cold") == (request.param == "cold")]
        stage = Stage(runner, {name: place_of(name, tmp_path / name, request) for name in names})
        yield stage
        for place in stage.places.values():
            runner.run(place.close())


class Histories(RuleBasedStateMachine):
    """Every rule is one step on all sides."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage
        self.model = Model()
        self.sides: list[Side] = []

    @initialize()
    def empty(self) -> None:
        for name, place in self.stage.places.items():
            self.sides.append(Side(name, self.stage.run(place.fresh([DATABASE]))))

    def teardown(self) -> None:
        for side in self.sides:
            self.stage.run(side.log.close())

    def every(self, step: Callable[[Side], Awaitable[Any]], refused: type[HomingError] | None, count: int) -> None:
        """Take a step that appends so many events, or is refused, on all sides."""
        for side in self.sides:
            try:
                position = self.stage.run(step(side))
            except HomingError as error:
                assert type(error) is refused, side.name  # noqa: PT017 - the model says which
            else:
                assert refused is None, side.name
                side.positions += range(position - count + 1, position + 1)
                mine = [at for at, one in zip(side.positions, self.model.said, strict=True) if one.shard == 0]
                assert mine == sorted(set(mine)), side.name

    @rule(
        shard=shards,
        added=entries,
        epoch=st.sampled_from([None, None, 1, 2, 3]),
        writer=st.sampled_from([None, "one", "other"]),
    )
    def append(self, shard: int, added: list[Entry], epoch: int | None, writer: str | None) -> None:
        batch = None if writer is None else BatchId(writer, len(self.model.said) + 1)
        fenced = epoch is not None and epoch < self.model.epochs[shard]
        if not fenced:
            self.model.epochs[shard] = epoch or self.model.epochs[shard]
            self.model.put(shard, added)
            if batch is not None:
                self.model.batches.append((shard, batch, len(self.model.said) - 1))
        step = lambda side: side.log.append(Shard("events", shard), added, epoch, batch)  # noqa: E731 - said where it is used
        self.every(step, FencedError if fenced else None, len(added))

    @rule(added=entries, data=st.data())
    def append_again(self, added: list[Entry], data: st.DataObject) -> None:
        if not self.model.batches:
            return
        shard, batch, _ = data.draw(st.sampled_from(self.model.batches))
        # Of an earlier one it is only known that it is in.
        last = next(end for place, one, end in reversed(self.model.batches) if (place, one.writer) == (shard, batch[0]))
        for side in self.sides:
            position = self.stage.run(side.log.append(Shard("events", shard), added, 0, batch))
            assert position == side.positions[last], side.name

    @rule(shard=shards, added=entries, data=st.data())
    def commit(self, shard: int, added: list[Entry], data: st.DataObject) -> None:
        numbers = [number for number, one in enumerate(self.model.said) if one.shard == shard]
        believed = data.draw(
            st.dictionaries(st.sampled_from(TOPICS[:5]), st.sampled_from([None, *numbers]), max_size=2)
        )
        holds = all(self.model.values.get((shard, topic)) == number for topic, number in believed.items())
        fits = self.model.takes_all(shard, added)
        if holds and fits:
            self.model.put(shard, added)

        def step(side: Side) -> Awaitable[Any]:
            conditions = [
                ValueCondition(topic, None if number is None else side.positions[number])
                for topic, number in believed.items()
            ]
            return side.log.commit(Transaction(Shard("events", shard), tuple(conditions), tuple(added)))

        self.every(step, ValueChangedError if not holds else None if fits else QuotaError, len(added))

    @rule()
    def rotate(self) -> None:
        for side in self.sides:
            self.stage.run(side.log.rotate("events", self.model.generations[-1]))
        self.model.generations.append(self.model.generations[-1] + 1)

    @rule(which=st.integers(1, 6))
    def drop(self, which: int) -> None:
        for side in self.sides:
            self.stage.run(side.log.drop("events", which))
        if which in self.model.generations[:-1]:
            self.model.gone.add(which)

    @rule(shard=shards, topic_filter=st.sampled_from(FILTERS), step=st.integers(1, 4), data=st.data())
    def read(self, shard: int, topic_filter: str, step: int, data: st.DataObject) -> None:
        after = data.draw(st.integers(-1, len(self.model.said) - 1))
        until = data.draw(st.integers(after, len(self.model.said) + 2))
        expected = self.model.read(shard, topic_filter, after, until)
        ends = [one for one in (after, until) if 0 <= one < len(self.model.said)]
        if any(self.model.said[one].shard != shard for one in ends):
            return  # positions of two shards do not tell before and after
        for side in self.sides:
            first, last = (
                0 if one < 0 else side.positions[one] if one < len(side.positions) else END for one in (after, until)
            )
            found = self.stage.run(self._all(side.log, Shard("events", shard), topic_filter, (first, last), step))
            assert [entry for _, entry in found] == [self.model.said[one].entry for one in expected], side.name
            assert [at for at, _ in found] == [side.positions[one] for one in expected], side.name

    async def _all(
        self, log: EventStore, shard: Shard, topic_filter: str, ends: tuple[int, int], step: int
    ) -> list[tuple[int, Entry]]:
        found: list[tuple[int, Entry]] = []
        after, until = ends
        while True:
            part = await log.read(shard, Reading(topic_filter, after, until), step)
            assert len(part.events) <= step
            found += [(event.position, event.entry) for event in part.events]
            if not part.more:
                return found
            assert part.position > after
            after = part.position

    @rule(shard=shards, data=st.data())
    def pick(self, shard: int, data: st.DataObject) -> None:
        """Events of the shard and of the other one, and places where nothing ever was."""
        if not self.model.said:
            return
        numbers = data.draw(st.lists(st.integers(0, len(self.model.said) - 1), min_size=1, max_size=8))
        for side in self.sides:
            asked = [side.positions[one] for one in numbers] + [1, side.positions[numbers[0]] - 1, END]
            there = zip(side.positions, self.model.said, strict=True)
            kept = {at: one for at, one in there if one.shard == shard and one.generation not in self.model.gone}
            picked = self.stage.run(side.log.pick(Shard("events", shard), asked))
            assert {at: (one.position, one.shard, one.entry) for at, one in picked.events.items()} == {
                at: (at, shard, kept[at].entry) for at in asked if at in kept
            }, side.name
            assert not picked.damaged, side.name
            assert not picked.archived or "+" not in side.name, side.name

    @rule(shard=shards, topic=st.sampled_from(TOPICS))
    def value(self, shard: int, topic: str) -> None:
        number = self.model.values.get((shard, topic))
        for side in self.sides:
            found = self.stage.run(side.log.value(Shard("events", shard), topic))
            expected = None if number is None else (side.positions[number], self.model.said[number].entry)
            assert (None if found is None else (found.position, found.entry)) == expected, side.name

    @rule(shard=shards, topic_filter=st.sampled_from(FILTERS[:1] + FILTERS[2:]), after=st.sampled_from(["", *TOPICS]))
    def values(self, shard: int, topic_filter: str, after: str) -> None:
        expected = sorted(
            topic
            for place, topic in self.model.values
            if place == shard and matches(topic_filter, topic) and topic > after
        )[:3]
        for side in self.sides:
            found = self.stage.run(side.log.values(Shard("events", shard), topic_filter, after, 3))
            assert [event.entry.topic for event in found] == expected, side.name

    @rule()
    def catalogue(self) -> None:
        there = [one for one in self.model.generations if one not in self.model.gone]
        for side in self.sides:
            found = self.stage.run(side.log.generations("events"))
            counts = [sum(one.generation == number for one in self.model.said) for number in there]
            assert [(one.number, one.count) for one in found] == list(zip(there, counts, strict=True)), side.name


def test_all_engines_agree_with_the_model(stage: Stage) -> None:
    class OnStage(Histories):
        def __init__(self) -> None:
            super().__init__(stage)

    run_state_machine_as_test(
        OnStage,
        settings=settings(
            max_examples=25,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],  # add Phase.shrink to have the shortest history; it takes minutes
        ),
    )
