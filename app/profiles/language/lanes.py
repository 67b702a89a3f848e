"""The tables of a profile file for lanes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, model_validator

from app.core.access.patterns import fits
from app.core.profiles.lanes import MOST_LANES, WIDEST, CommandLane, LaneOrder, LaneRule
from app.profiles.language.faults import ProfileFault
from app.profiles.language.fields import DURATION_SCHEMA, MethodPattern, StrictTable, TableName, duration_between

LONGEST_REST: Final = timedelta(hours=1)
LONGEST_HOLD: Final = timedelta(days=30)


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

    @model_validator(mode="after")
    def _has_its_width(self) -> LaneTable:
        order = LaneOrder(self.order)
        if self.width > 1 and not order.wide:
            raise ValueError(f"width: is {self.width}, and a lane of order {self.order} has one at a time; allowed: 1")
        if self.rest and order is LaneOrder.FIFO_ACK:
            raise ValueError("rest: follows an outcome, for which a lane of order fifo_ack does not wait; allowed: 0s")
        return self

    def build(self) -> LaneRule:
        """The lane that the table describes."""
        return LaneRule(
            CommandLane(self.name, LaneOrder(self.order), self.width, self.rest), tuple(self.methods), self.hold
        )


def lane_faults(tables: Sequence[LaneTable], known: Collection[str] | None) -> Iterator[ProfileFault]:
    """The faults of the lanes of a file. `known` are its methods; None where it takes any."""
    if len(tables) > MOST_LANES:
        yield ProfileFault(("lane", MOST_LANES), f"is one too many: {len(tables)}; allowed: {MOST_LANES} lanes")
    for index, table in enumerate(tables):
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


def shared_method(pattern: str, others: Sequence[str], known: Collection[str] | None) -> str | None:
    """Return a method that a pattern and one of the others fit, or a pattern that stands for some of them."""
    named = sorted(known) if known is not None else [pattern, *others]
    for one in named:
        if fits(pattern, one) and any(fits(other, one) for other in others):
            return one
    return None
