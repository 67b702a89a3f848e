"""The tables of a profile file for lanes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from app.core.access.patterns import fits
from app.core.profiles.lanes import (
    FASTEST_PACE,
    LONGEST_REST,
    MOST_LANES,
    SLOWEST_PACE,
    WIDEST,
    CommandLane,
    LaneOrder,
    LaneRule,
)
from app.profiles.language.faults import ProfileFault
from app.profiles.language.fields import DURATION_SCHEMA, MethodPattern, StrictTable, TableName, duration_between

LONGEST_HOLD: Final = timedelta(days=30)
_PACE: Final = re.compile(r"([1-9][0-9]{0,2})/([sm])", re.ASCII)
PACE_SCHEMA: Final = WithJsonSchema({"type": "string", "pattern": f"^{_PACE.pattern}$"})
_UNITS: Final = {"s": timedelta(seconds=1), "m": timedelta(minutes=1)}


def _gap_of(pace: object) -> object:
    """Return the time between two commands, as `2/s` says it: half a second."""
    found = _PACE.fullmatch(pace) if isinstance(pace, str) else None
    gap = None if found is None else _UNITS[found[2]] / int(found[1])
    if gap is None or not FASTEST_PACE <= gap <= SLOWEST_PACE:
        raise ValueError("is no pace; allowed: such as 2/s or 30/m, from 1/m to 10/s")
    return gap


class LaneTable(StrictTable):
    """`[[lane]]`."""

    name: TableName
    methods: Annotated[list[MethodPattern], Field(min_length=1)]
    order: Literal["parallel", "fifo", "fifo_ack", "lifo", "latest"] = "parallel"
    width: Annotated[int, Field(ge=1, le=WIDEST)] = 1
    rest: Annotated[timedelta, BeforeValidator(duration_between(timedelta(), LONGEST_REST)), DURATION_SCHEMA] = (
        timedelta()
    )
    hold: Annotated[timedelta, BeforeValidator(duration_between(timedelta(), LONGEST_HOLD)), DURATION_SCHEMA] = (
        timedelta(seconds=30)
    )
    pace: Annotated[timedelta | None, BeforeValidator(_gap_of), PACE_SCHEMA] = None
    on_failure: Literal["go_on", "stop"] = "go_on"
    excludes: Annotated[list[TableName], Field(default_factory=list, max_length=MOST_LANES)]

    @model_validator(mode="after")
    def _has_its_width(self) -> LaneTable:
        order = LaneOrder(self.order)
        if self.width > 1 and not order.wide:
            raise ValueError(f"width: is {self.width}, and a lane of order {self.order} has one at a time; allowed: 1")
        if self.rest and order is LaneOrder.FIFO_ACK:
            raise ValueError("rest: follows an outcome, for which a lane of order fifo_ack does not wait; allowed: 0s")
        return self

    def build(self, tables: Sequence[LaneTable]) -> LaneRule:
        """The lane that the table describes, among all of the file."""
        lane = CommandLane(
            self.name,
            LaneOrder(self.order),
            self.width,
            self.rest,
            pace=self.pace or timedelta(),
            excludes=tuple(sorted(self.excludes)),
            excluded_by=tuple(sorted(one.name for one in tables if self.name in one.excludes)),
            stops=self.on_failure == "stop",
        )
        return LaneRule(lane, tuple(self.methods), self.hold)


def lane_faults(tables: Sequence[LaneTable], known: Collection[str] | None) -> Iterator[ProfileFault]:
    """The faults of the lanes of a file. `known` are its methods; None where it takes any."""
    if len(tables) > MOST_LANES:
        yield ProfileFault(("lane", MOST_LANES), f"is one too many: {len(tables)}; allowed: {MOST_LANES} lanes")
    for index, table in enumerate(tables):
        yield from _exclusion_faults(index, table, tables)
        earlier = tables[:index]
        if any(one.name == table.name for one in earlier):
            yield ProfileFault(("lane", index, "name"), f"{table.name} is there already; allowed: each name once")
        for at, pattern in enumerate(table.methods):
            place = ("lane", index, "methods", at)
            if known is not None and not any(fits(pattern, one) for one in known):
                yield ProfileFault(place, f"{pattern!a} fits no method of the profile: {', '.join(sorted(known))}")
            for other in earlier:
                if (shared := shared_method(pattern, other.methods, known)) is not None:
                    sentence = f"{shared!a} is in lane {other.name} already; allowed: each method in one lane"
                    yield ProfileFault(place, sentence)


def _exclusion_faults(index: int, table: LaneTable, tables: Sequence[LaneTable]) -> Iterator[ProfileFault]:
    others = {one.name: one for one in tables if one.name != table.name}
    for at, name in enumerate(table.excludes):
        place = ("lane", index, "excludes", at)
        if name not in others:
            allowed = ", ".join(sorted(others)) or "nothing, as the file has no other lane"
            yield ProfileFault(place, f"{name!a} is no other lane of the file; allowed: {allowed}")
        elif LaneOrder(others[name].order) is LaneOrder.FIFO_ACK:
            sentence = f"{name} has order fifo_ack, and nobody knows when nothing of it is in flight any more"
            yield ProfileFault(place, f"{sentence}; allowed: lanes of another order")
        elif name in table.excludes[:at]:
            yield ProfileFault(place, f"{name} is there already; allowed: each name once")


def shared_method(pattern: str, others: Sequence[str], known: Collection[str] | None) -> str | None:
    """Return a method that a pattern and one of the others fit, or a pattern that stands for some of them."""
    named = sorted(known) if known is not None else [pattern, *others]
    for one in named:
        if fits(pattern, one) and any(fits(other, one) for other in others):
            return one
    return None
