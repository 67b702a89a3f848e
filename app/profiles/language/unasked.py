"""The tables of a profile file for what devices say without being asked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, model_validator

from app.core.payload import decode_json
from app.core.profiles.device_events import EventSpec, PresenceSpec
from app.core.profiles.sources import Decode
from app.profiles.language.faults import ProfileFault, refuse
from app.profiles.language.fields import DURATION_SCHEMA, DatabaseName, Dotted, duration_between, pair_of, template
from app.profiles.language.heard import ConditionTable, HeardTable, SourceTable, path_of
from app.profiles.quick_json import read_json

LATEST_READY: Final = timedelta(minutes=10)


def _quick(decode: Decode) -> Decode:
    """There are more events than answers, by far, so JSON is read in the quick way."""
    return read_json if decode is decode_json else decode


class EventTable(HeardTable):
    """`[[event]]`."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    type: Dotted | None = None
    id: list[SourceTable] = Field(default_factory=list)
    database: DatabaseName | None = None

    @model_validator(mode="after")
    def _makes_sense(self) -> EventTable:
        refuse(self._faults())
        return self

    def _faults(self) -> Iterator[ProfileFault]:
        yield from self.common_faults()
        names = template(self.topic).names
        for index, source in enumerate(self.id):
            if source.keys is not None:
                yield ProfileFault(("id", index), "keys go with responses; allowed: path, property, topic_level, all")
            for leaf in source.leaves():
                if leaf.topic_level is not None and leaf.topic_level not in names:
                    sentence = f"{leaf.topic_level!r} is no placeholder of the topic; it has: {', '.join(names)}"
                    yield ProfileFault(("id", index, "topic_level"), sentence)

    @property
    def paths(self) -> Iterator[str]:
        """All paths of the table."""
        yield from super().paths
        if self.type is not None:
            yield self.type
        for source in self.id:
            yield from (leaf.path for leaf in source.leaves() if leaf.path is not None)

    @property
    def levels_read(self) -> set[str]:
        """The placeholders of the topic that are read by name, without a path."""
        return {leaf.topic_level for one in self.id for leaf in one.leaves() if leaf.topic_level is not None}

    def build(self, form: str | None) -> EventSpec:
        """The kind of event that the table describes; `form` is how ids of devices are put together."""
        wide = self.wide
        return EventSpec(
            name=self.name,
            topic=template(self.topic),
            match=tuple(one.build(wide=wide) for one in self.match),
            type=path_of(self.type, wide=wide),
            sources=tuple(source.build(wide=wide) for source in self.id),
            database=self.database,
            decode=_quick(pair_of(self.codec)[1]),
            device=self.source_of_device(form, wide=wide),
            wide=wide,
        )


class PresenceTable(HeardTable):
    """`[[presence]]`."""

    offline: list[ConditionTable] = Field(default_factory=list)
    offline_after: (
        Annotated[
            timedelta, BeforeValidator(duration_between(timedelta(seconds=1), timedelta(days=30))), DURATION_SCHEMA
        ]
        | None
    ) = None
    ready_after: Annotated[timedelta, BeforeValidator(duration_between(timedelta(), LATEST_READY)), DURATION_SCHEMA] = (
        timedelta()
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> PresenceTable:
        refuse(self._faults())
        return self

    def _faults(self) -> Iterator[ProfileFault]:
        yield from self.common_faults()
        if not self.offline and self.offline_after is None:
            yield ProfileFault(
                (), "says never that the device has gone; allowed: offline = [ … ], offline_after, or both"
            )

    @property
    def paths(self) -> Iterator[str]:
        """All paths of the table."""
        yield from super().paths
        yield from (one.path for one in self.offline)

    def build(self, form: str | None) -> PresenceSpec:
        """Return what the table describes; `form` is how ids of devices are put together."""
        wide = self.wide
        return PresenceSpec(
            topic=template(self.topic),
            match=tuple(one.build(wide=wide) for one in self.match),
            offline=tuple(one.build(wide=wide) for one in self.offline),
            offline_after=self.offline_after,
            ready_after=self.ready_after,
            decode=_quick(pair_of(self.codec)[1]),
            device=self.source_of_device(form, wide=wide),
            wide=wide,
        )
