"""The tables of a profile file for interlocks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from app.core.access.patterns import fits
from app.core.paths import is_plain
from app.core.profiles.interlocks import INPUTS, PARAMS, Interlock, InterlockCondition, InterlockInput
from app.core.profiles.places import GeoCircle, GeoPoint
from app.core.profiles.sources import Decode
from app.profiles.language.faults import ProfileFault, refuse
from app.profiles.language.fields import (
    DURATION_SCHEMA,
    DatabaseName,
    MethodPattern,
    Scalar,
    StrictTable,
    TableName,
    Topic,
    duration_between,
    pair_of,
    template,
)
from app.profiles.language.paths import parse_path
from app.profiles.language.rules import hears
from app.profiles.language.unasked import EventTable
from app.profiles.quick_json import read_json

SHORTEST_AGE: Final = timedelta(seconds=2)
"""A shorter one would refuse at times only because clocks differ."""
LONGEST_AGE: Final = timedelta(days=1)
_Number = Annotated[float, Field(allow_inf_nan=False)]


def _keys(text: str) -> str:
    place = parse_path(text)
    if place.is_text or not is_plain(place.path):
        raise ValueError(f"{text!a} is no path of keys; allowed: keys of nested objects with dots between")
    return text


def _steps(path: str) -> tuple[str, ...]:
    return tuple(str(step) for step in parse_path(path).path)


_Keys = Annotated[str, AfterValidator(_keys)]


class InterlockInputTable(StrictTable):
    """`inputs.NAME = { topic = …, path = …, max_age = … }`."""

    topic: Topic
    path: _Keys
    max_age: Annotated[timedelta, BeforeValidator(duration_between(SHORTEST_AGE, LONGEST_AGE)), DURATION_SCHEMA]
    database: DatabaseName | None = None

    def build(self, name: str, events: Sequence[EventTable]) -> InterlockInput:
        """The input that the table describes, read as the event is whose topic it has."""
        event = kept_of(self.topic, events)[0]
        return InterlockInput(
            name,
            template(self.topic),
            _steps(self.path),
            self.max_age,
            decode_of(event),
            self.database or event.database,
        )


class ComparisonTable(StrictTable):
    """`{ path = "inputs.NAME", at_most = … }`."""

    path: _Keys
    is_in: Annotated[list[Scalar], Field(min_length=1)] | None = None
    is_not: Annotated[list[Scalar], Field(min_length=1)] | None = None
    at_least: _Number | None = None
    at_most: _Number | None = None
    above: _Number | None = None
    below: _Number | None = None

    @model_validator(mode="after")
    def _can_hold(self) -> ComparisonTable:
        if not self.build().wanted():
            *most, last = (name for name in type(self).model_fields if name != "path")
            raise ValueError(f"needs {', '.join(most)} or {last}")
        low = max((one for one in (self.at_least, self.above) if one is not None), default=None)
        high = min((one for one in (self.at_most, self.below) if one is not None), default=None)
        if low is None or high is None:
            return self
        if low > high or (low == high and (low == self.above or high == self.below)):
            raise ValueError(f"never holds: no number is between {low} and {high}")
        return self

    @property
    def keys(self) -> tuple[str, ...]:
        """The path, by its keys."""
        return _steps(self.path)

    def build(self) -> InterlockCondition:
        """The condition that the table describes."""
        return InterlockCondition(
            self.keys,
            None if self.is_in is None else tuple(self.is_in),
            None if self.is_not is None else tuple(self.is_not),
            self.at_least,
            self.at_most,
            self.above,
            self.below,
        )


class CircleTable(StrictTable):
    """`within = { latitude = …, longitude = …, metres = … }`, or `within = { of = "inputs.NAME", metres = … }`."""

    metres: Annotated[float, Field(allow_inf_nan=False, gt=0, le=1_000_000)]
    latitude: Annotated[float, Field(allow_inf_nan=False, ge=-90, le=90)] | None = None
    longitude: Annotated[float, Field(allow_inf_nan=False, ge=-180, le=180)] | None = None
    of: _Keys | None = None

    @model_validator(mode="after")
    def _has_one_centre(self) -> CircleTable:
        given = [name for name in ("latitude", "longitude", "of") if getattr(self, name) is not None]
        if given not in (["latitude", "longitude"], ["of"]):
            raise ValueError("needs a centre: latitude and longitude, or else the path `of` a place")
        return self

    def build(self) -> GeoCircle:
        """The circle that the table describes."""
        if self.latitude is not None and self.longitude is not None:
            return GeoCircle(self.metres, GeoPoint(self.latitude, self.longitude))
        return GeoCircle(self.metres, of=_steps(self.of or ""))


class NeedTable(ComparisonTable):
    """A row of `when` of an interlock: a comparison, or `{ path = "inputs.NAME", within = … }`."""

    within: CircleTable | None = None

    @model_validator(mode="after")
    def _is_alone(self) -> NeedTable:
        if self.within is not None and len(self.build().wanted()) > 1:
            raise ValueError("has `within` and a comparison; allowed: one of them, and two conditions for both")
        return self

    @property
    def places(self) -> list[tuple[str, str]]:
        """The paths that the row reads, by the keys under which they stand."""
        of = None if self.within is None else self.within.of
        return [("path", self.path), *([] if of is None else [("within.of", of)])]

    def build(self) -> InterlockCondition:
        """The condition that the table describes."""
        return replace(super().build(), within=None if self.within is None else self.within.build())


class InterlockTable(StrictTable):
    """`[[interlock]]`."""

    name: TableName
    methods: Annotated[list[MethodPattern], Field(min_length=1)]
    inputs: dict[TableName, InterlockInputTable] = Field(default_factory=dict)
    when: Annotated[list[NeedTable], Field(min_length=1)]
    say: Annotated[str, Field(min_length=1, max_length=200)]

    @model_validator(mode="after")
    def _fits_together(self) -> InterlockTable:
        refuse(self._faults())
        return self

    def _faults(self) -> Iterator[ProfileFault]:
        used = set()
        for index, row in enumerate(self.when):
            for key, path in row.places:
                head, *rest = _steps(path)
                if head == INPUTS and rest and rest[0] in self.inputs:
                    used.add(rest[0])
                elif head != PARAMS:
                    known = ", ".join(f"{INPUTS}.{name}" for name in self.inputs)
                    sentence = f"{path!a} leads nowhere; allowed: {known or 'inputs, once there are some'}, {PARAMS}.…"
                    yield ProfileFault(("when", index, *key.split(".")), sentence)
        for name in self.inputs:
            if name not in used:
                yield ProfileFault((INPUTS, name), "is in no condition; allowed: inputs that `when` compares")

    def build(self, events: Sequence[EventTable]) -> Interlock:
        """The interlock that the table describes."""
        return Interlock(
            self.name,
            tuple(self.methods),
            tuple(one.build(name, events) for name, one in self.inputs.items()),
            tuple(one.build() for one in self.when),
            self.say,
        )


def interlock_faults(
    tables: Sequence[InterlockTable],
    events: Sequence[EventTable],
    parts: Collection[str],
    known: Collection[str] | None,
    repeatable: Collection[str],
) -> Iterator[ProfileFault]:
    """The faults of the interlocks of a file. `known` are its methods; None where it takes any."""
    seen: set[str] = set()
    for index, table in enumerate(tables):
        if table.name in seen:
            yield ProfileFault(("interlock", index, "name"), f"{table.name} is there already; allowed: each name once")
        seen.add(table.name)
        for at, pattern in enumerate(table.methods):
            place = ("interlock", index, "methods", at)
            if known is not None and not any(fits(pattern, one) for one in known):
                yield ProfileFault(place, f"{pattern!a} fits no method of the profile: {', '.join(sorted(known))}")
            if again := sorted(one for one in repeatable if fits(pattern, one)):
                sentence = f"{pattern!a} fits {', '.join(again)}, which is repeatable: a repetition is not judged again"
                yield ProfileFault(place, sentence)
        for name, one in table.inputs.items():
            for sentence in state_topic_faults(one.topic, events, parts):
                yield ProfileFault(("interlock", index, INPUTS, name, "topic"), sentence)


def state_topic_faults(topic: str, events: Sequence[EventTable], parts: Collection[str]) -> Iterator[str]:
    """Return the faults of a topic whose last value is to tell the state of a device with these parts of its id."""
    strangers = sorted(set(template(topic).names) - {"device_id", *parts})
    if strangers:
        allowed = ", ".join(f"{{{one}}}" for one in ("device_id", *parts))
        yield f"has {{{strangers[0]}}}, which is not known of a device; allowed: {allowed}"
        return
    heard = kept_of(topic, events)
    if not heard:
        told = ", ".join(one.topic for one in events)
        yield f"is the topic of no [[event]], so it never has a value; allowed: {told or 'topics of events'}"
    elif any(one.codec != heard[0].codec for one in heard):
        yield "is the topic of events with several codecs; allowed: topics whose events have one codec"


def decode_of(event: EventTable) -> Decode:
    """Return what reads the values of an event."""
    return read_json if event.codec == "json" else pair_of(event.codec)[1]


def kept_of(topic: str, events: Sequence[EventTable]) -> list[EventTable]:
    """The events that are kept of this topic."""
    return [one for one in events if hears(template(one.topic), template(topic))]
