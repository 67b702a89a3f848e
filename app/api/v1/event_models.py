"""What goes in and out about events, for `/docs` and `/openapi.json`."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, StrictInt

from app.core.events.event import MAX_TOPIC_BYTES
from app.core.events.transaction import MOST_PARTS

MOST_PUBLISHED: Final = 512
"""Events of one request."""
_EXAMPLE: Final[dict[str, Any]] = {
    "position": 1772352000000000,
    "at": "2026-03-01T08:00:00.000Z",
    "topic": "thing/product/dock-1/events",
    "device_id": "dock-1",
    "kind": "dji:event",
    "id": "e-17",
    "data": {"method": "hms", "data": {"list": []}},
}


class _EventModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Event(_EventModel):
    """What somebody said. `data` is the message where it is JSON that all readers take alike, else `data_base64` is."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    position: Annotated[
        int, Field(description="Microseconds since 1970, unique in its shard: an instant and an order.")
    ]
    at: Annotated[AwareDatetime, Field(description="The same, to read.")]
    topic: str
    device_id: Annotated[str | None, Field(description="Whom it comes from, where that is known.")]
    kind: Annotated[str | None, Field(description="What its profile calls it: `profile:name`.")]
    id: Annotated[str | None, Field(description="What a repetition has in common with it.")]
    data: JsonValue = None
    data_base64: str | None = None


class EventPage(_EventModel):
    """Events by position."""

    events: list[Event]
    cursor: Annotated[str, Field(description="Reads on from here, on any node, now or later.")]
    more: Annotated[bool, Field(description="Whether there may be more right now.")]
    lost: Annotated[
        AwareDatetime | None,
        Field(description="Until when events of this page are missing, as they cannot be read any more; null: none."),
    ]
    databases: Annotated[list[str], Field(description="Which databases were read.")]


class Said(_EventModel):
    """What a backend says: `data` as JSON, or `data_base64`."""

    topic: Annotated[str, Field(description="A topic name.", max_length=MAX_TOPIC_BYTES)]
    data: JsonValue = None
    data_base64: str | None = None


class Published(_EventModel):
    """Where they stand."""

    positions: list[int]


class Topic(_EventModel):
    """A topic that has a last value, and where that stands."""

    topic: str
    position: int
    at: AwareDatetime
    device_id: str | None
    kind: str | None


class TopicPage(_EventModel):
    """Topics in the order of their bytes."""

    topics: list[Topic]
    cursor: Annotated[str | None, Field(description="Give it to get the next page; null on the last one.")]


class Structure(_EventModel):
    """What topics have in common: `+` is a level that varies."""

    structure: str
    database: str


class Streams(_EventModel):
    """The structures of a database, taught and learned; of all where none was named."""

    database: str | None
    streams: list[Structure]


class Generation(_EventModel):
    """A part of a database, which is dropped whole."""

    number: int
    state: Literal["current", "sealed", "cold", "damaged"]
    first: AwareDatetime | None
    last: AwareDatetime | None
    events: int
    bytes: Annotated[int, Field(description="As quotas count them: what was said, and what is kept beside it.")]
    files: Annotated[int, Field(description="Of the cold tier.")]
    file_bytes: Annotated[int, Field(description="What these files take there.")]
    note: str | None


class Database(_EventModel):
    """A named set of events."""

    name: str
    retention: str
    shards: int
    generations: list[Generation]


class Databases(_EventModel):
    """All of them."""

    databases: list[Database]


class Presence(_EventModel):
    """Whether a device is there; null where nobody knows."""

    online: bool | None
    since: Annotated[AwareDatetime | None, Field(description="When that was noticed.")]
    last_seen: Annotated[AwareDatetime | None, Field(description="When it last said something that is kept.")]


class StateOf(_EventModel):
    """Last values of a device, by topic."""

    device_id: str
    presence: Presence
    values: list[Event]


class Stated(_EventModel):
    """Where the value stands now."""

    position: int


class Condition(_EventModel):
    """What must hold of a last value: it stands at this position, or there is none."""

    topic: str
    position: StrictInt | None = None
    absent: Literal[True] | None = None


class TransactionBody(_EventModel):
    """All of it is done, or nothing."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    when: Annotated[list[Condition], Field(alias="if", max_length=MOST_PARTS)] = []
    write: Annotated[list[Said], Field(max_length=MOST_PARTS)] = []
    delete: Annotated[list[str], Field(max_length=MOST_PARTS, description="Topics whose last value goes.")] = []
