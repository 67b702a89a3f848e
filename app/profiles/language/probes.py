"""The tables of a profile file for probes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from app.core.access.patterns import fits
from app.core.durations import format_duration
from app.core.profiles.interlocks import AHEAD
from app.core.profiles.probes import Probe, ProbeQuestion
from app.profiles.language.faults import ProfileFault, refuse
from app.profiles.language.fields import (
    DURATION_SCHEMA,
    DatabaseName,
    MethodName,
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
LONGEST_DOING: Final = timedelta(minutes=9)
_Conditions = Annotated[list[ComparisonTable], Field(max_length=MOST_CONDITIONS)]


class QuestionTable(StrictTable):
    """`ask = { method = …, params = … }`."""

    method: MethodName
    params: JsonValue = None

    def build(self) -> ProbeQuestion:
        """The question that the table describes."""
        return ProbeQuestion(self.method, self.params)


class ProbeTable(StrictTable):
    """`[[probe]]`."""

    methods: Annotated[list[MethodPattern], Field(min_length=1)]
    topic: Topic
    done: Annotated[_Conditions, Field(min_length=1)]
    not_done: _Conditions = Field(default_factory=list)
    bound: Annotated[list[WishTable], Field(max_length=MOST_CONDITIONS)] = Field(default_factory=list)
    goal: bool = False
    within: Annotated[timedelta, BeforeValidator(duration_between(SHORTEST, LONGEST)), DURATION_SCHEMA] = USUAL
    after: Annotated[timedelta, BeforeValidator(duration_between(timedelta(), LONGEST_DOING)), DURATION_SCHEMA] = (
        timedelta()
    )
    ask: QuestionTable | None = None
    database: DatabaseName | None = None

    @property
    def tells_of_failure(self) -> bool:
        """True if a goal that was not reached is a failure, which only an answered question can show."""
        return self.goal and bool(self.not_done)

    @model_validator(mode="after")
    def _settles_something(self) -> ProbeTable:
        refuse(self._faults())
        return self

    def _faults(self) -> Iterator[ProfileFault]:
        if self.goal == bool(self.bound):
            yield ProfileFault(
                (), "needs either goal = true, or bound with what in the state names the command, and not both"
            )
        if self.tells_of_failure and self.ask is None:
            yield ProfileFault(
                ("not_done",),
                "goes with bound, or with ask: a state that names no command may be of a device that lacks it; "
                "allowed: done alone",
            )
        if self.after and not self.tells_of_failure:
            yield ProfileFault(("after",), "goes with goal and not_done: what was done is believed at once")
        elif self.tells_of_failure and self.after + AHEAD >= self.within:
            sentence = (
                f"leaves no time: within has to be longer by more than {format_duration(AHEAD)}, as clocks differ"
            )
            yield ProfileFault(("after",), sentence)
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
            ask=None if self.ask is None else self.ask.build(),
            after=self.after,
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
