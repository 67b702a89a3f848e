"""The settings of the event log."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from app.core.addresses import events_kind
from app.core.events.event import MAX_ENTRIES, MOST_VALUE_BYTES, MOST_VALUES
from app.core.events.plan import NamedDatabase, parse_databases
from app.core.events.quota import Quota, parse_quotas
from app.settings.fields import Duration, SettingsGroup


class EventsSettings(SettingsGroup):
    """The event log of what devices send unasked."""

    url: str = ""
    """The URL of the event log: `redis://…`, `redis+sentinel://…` or `redis+cluster://…`; for a single node,
    `rocks:///folder` or `memory://`. None if empty."""
    databases: str = "events=720h,telemetry=24h"
    """The databases with their retentions. The first one has all events that no profile assigns to another."""
    shards: Annotated[int, Field(ge=1, le=256)] = 4
    """The number of shards of a new database. It cannot be changed afterwards."""
    intake: Literal["ordered", "shared"] = "ordered"
    """The way to take events from the broker: one node at a time, in the broker's order (`ordered`), or all nodes, each
    its share (`shared`), which handles more events per second but keeps no order."""
    flush_interval: Annotated[Duration, Field(ge=timedelta(milliseconds=1), le=timedelta(seconds=1))] = timedelta(
        milliseconds=5
    )
    """The time for which an event may wait for others to be written with it."""
    max_items: Annotated[int, Field(ge=1, le=MAX_ENTRIES)] = 64
    """The maximum number of events that are written together."""
    receive_maximum: Annotated[int, Field(ge=1, le=65535)] = 1024
    """The number of events that the broker may send before this node has acknowledged them."""
    generation_bytes: Annotated[int, Field(ge=1_000_000, le=2**40)] = 64 * 1024 * 1024
    """The size at which a generation ends. It ends earlier after a 24th of the retention."""
    quota_bytes: Annotated[int, Field(ge=10_000_000, le=2**50)] = 2 * 1024 * 1024 * 1024
    """The maximum size of all events, counted as they were received."""
    discard: Literal["new", "old"] = "new"
    """The policy at the quota: refuse `new` events, which wait at the broker, or drop `old` generations."""
    values: Annotated[int, Field(ge=1_000, le=100_000_000)] = MOST_VALUES
    """The maximum number of topics with a last value in each database. Events of more topics are in the log only."""
    values_bytes: Annotated[int, Field(ge=1_000_000, le=2**40)] = MOST_VALUE_BYTES
    """The maximum size of the last values in each database, with their topics. Any more values are in the log only."""
    quotas: str = ""
    """Additional quotas for groups of databases, and what happens when one is reached:
    `telemetry=500000000:old,events+alarms=1000000000:new`."""
    cold: str = ""
    """The folder or URL, such as `s3://bucket/events`, to which sealed generations are moved as Parquet files. If
    empty, there is no cold tier."""
    hot: Annotated[Duration, Field(ge=timedelta(0), le=timedelta(days=365))] = timedelta(hours=1)
    """The time for which events stay in the log itself before they move to the cold tier."""

    @property
    def kept(self) -> tuple[NamedDatabase, ...]:
        """The databases in `databases`."""
        return parse_databases(self.databases)

    @property
    def groups(self) -> tuple[Quota, ...]:
        """The quotas in `quotas`."""
        return parse_quotas(self.quotas, [one.name for one in self.kept])

    @model_validator(mode="after")
    def _quotas_of_databases(self) -> Self:
        try:
            parse_quotas(self.quotas, [one.name for one in self.kept])
        except ValueError as error:
            raise ValueError(f"HOMING_EVENTS_QUOTAS: {error}") from None
        return self

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        if value:
            events_kind(value)
        return value

    @field_validator("databases")
    @classmethod
    def _readable(cls, value: str) -> str:
        parse_databases(value)
        return value
