"""The tables of a profile file for probes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, model_validator

from app.core.access.patterns import fits
from app.core.profiles.probes import Probe
from app.profiles.language.faults import ProfileFault, refuse
from app.profiles.language.fields import (
    DURATION_SCHEMA,
    DatabaseName,
    MethodPattern,
    StrictTable,
    Topic,
    duration_between,
    template,
)
from app.profiles.language.interlocks import ComparisonTable, decode_of, kept_of, state_topic_faults
from app.profiles.language.lanes import shared_method
from app.profiles.language.tables import WishTable
from app.profiles.language.unasked import EventTable

SHORTEST: Final = timedelta(seconds=1)
LONGEST: Final = timedelta(minutes=10)
USUAL: Final = timedelta(seconds=3)
MOST_CONDITIONS: Final = 8
"""Conditions of a list: their values are kept with the command."""
_Conditions = Annotated[list[ComparisonTable], Field(max_length=MOST_CONDITIONS)]


class ProbeTable(StrictTable):
    """`[[probe]]`."""

    methods: Annotated[list[MethodPattern], Field(min_length=1)]
    topic: Topic
    done: Annotated[_Conditions, Field(min_length=1)]
    not_done: _Conditions = Field(default_factory=list)
    bound: Annotated[list[WishTable], Field(max_length=MOST_CONDITIONS)] = Field(default_factory=list)
    goal: bool = False
    within: Annotated[timedelta, BeforeValidator(duration_between(SHORTEST, LONGEST)), DURATION_SCHEMA] = USUAL
    database: DatabaseName | None = None

    @model_validator(mode="after")
    def _settles_something(self) -> ProbeTable:
        refuse(self._faults())
        return self

    def _faults(self) -> Iterator[ProfileFault]:
        if self.goal == bool(self.bound):
            yield ProfileFault(
                (), "needs either goal = true, or bound with what in the state names the command, and not both"
            )
        if self.not_done and not self.bound:
            yield ProfileFault(
                ("not_done",), "goes with bound: a state that names no command may be of before it; allowed: done alone"
            )
        for index, one in enumerate(self.bound):
            if not isinstance(one.equals, str) or "{" not in one.equals or one.type in ("any", "contains"):
                sentence = "names no command; allowed: equals with a placeholder, such as '{params.flight_id}'"
                yield ProfileFault(("bound", index), sentence)

    def build(self, events: Sequence[EventTable]) -> Probe:
        """The probe that the table describes, whose state is read as the event is that has its topic."""
        event = kept_of(self.topic, events)[0]
        return Probe(
            methods=tuple(self.methods),
            topic=template(self.topic),
            decode=decode_of(event),
            done=tuple(one.build() for one in self.done),
            within=self.within,
            not_done=tuple(one.build() for one in self.not_done),
            bound=tuple(one.build(wide=False) for one in self.bound),
            goal=self.goal,
            database=self.database or event.database,
        )


def probe_faults(
    tables: Sequence[ProbeTable], events: Sequence[EventTable], parts: Collection[str], known: Collection[str] | None
) -> Iterator[ProfileFault]:
    """The faults of the probes of a file. `known` are its methods; None where it takes any."""
    for index, table in enumerate(tables):
        for at, pattern in enumerate(table.methods):
            place = ("probe", index, "methods", at)
            if known is not None and not any(fits(pattern, one) for one in known):
                yield ProfileFault(place, f"{pattern!a} fits no method of the profile: {', '.join(sorted(known))}")
            for other in range(index):
                if (shared := shared_method(pattern, tables[other].methods, known)) is not None:
                    yield ProfileFault(place, f"{shared!a} is in probe.{other} already; allowed: each method in one")
        for sentence in state_topic_faults(table.topic, events, parts):
            yield ProfileFault(("probe", index, "topic"), sentence)
