"""Models of events, for `/docs` and `/openapi.json`."""

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
    """An event of the log. `data` has the message if it is portable JSON; any other message is in `data_base64`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    position: Annotated[
        int, Field(description="The position of the event in microseconds since 1970, which is unique in its shard.")
    ]
    at: Annotated[AwareDatetime, Field(description="`position` as an instant in RFC 3339.")]
    topic: str
    device_id: Annotated[str | None, Field(description="The device that sent the event, if known.")]
    kind: Annotated[str | None, Field(description="The profile and its name for the event: `profile:name`.")]
    id: Annotated[str | None, Field(description="The id of the message, which a repetition of it has as well.")]
    not_before: Annotated[
        AwareDatetime | None, Field(description="The instant before which queues do not lend it; given if it is dated.")
    ] = None
    data: JsonValue = None
    data_base64: str | None = None


class EventPage(_EventModel):
    """A page of events, ordered by position."""

    events: list[Event]
    cursor: Annotated[str, Field(description="Pass it as `cursor` to continue from here, on any node, now or later.")]
    more: Annotated[bool, Field(description="True if there may be more events right now.")]
    lost: Annotated[
        AwareDatetime | None,
        Field(
            description="The instant up to which events are missing from this page: they are damaged, or Redis has "
            "forgotten them; null if none are."
        ),
    ]
    databases: Annotated[list[str], Field(description="The databases that were read.")]


class EventValue(_EventModel):
    """The content of an event: `data` as JSON, or `data_base64`."""

    data: JsonValue = None
    data_base64: str | None = None


class Said(EventValue):
    """An event that a backend publishes, with `data` as JSON or `data_base64`."""

    topic: Annotated[str, Field(description="The topic name of the event.", max_length=MAX_TOPIC_BYTES)]


class Published(_EventModel):
    """The positions of the published events."""

    positions: list[int]


class Topic(_EventModel):
    """A topic that has a last value, and the position of that value."""

    topic: str
    position: int
    at: AwareDatetime
    device_id: str | None
    kind: str | None


class TopicPage(_EventModel):
    """A page of topics, in byte order."""

    topics: list[Topic]
    cursor: Annotated[str | None, Field(description="Pass it as `cursor` to get the next page; null on the last page.")]


class Structure(_EventModel):
    """A pattern that topics have in common; `+` stands for a level that varies."""

    structure: str
    database: str


class Streams(_EventModel):
    """The structures of a database, or of all databases if none was named."""

    database: str | None
    streams: list[Structure]


class Generation(_EventModel):
    """A part of a database that is dropped as a whole."""

    number: int
    state: Literal["current", "sealed", "cold", "damaged"]
    first: AwareDatetime | None
    last: AwareDatetime | None
    events: int
    bytes: Annotated[
        int, Field(description="The size as quotas count it: the messages and the metadata stored with them.")
    ]
    files: Annotated[int, Field(description="The number of files in the cold tier.")]
    file_bytes: Annotated[int, Field(description="The total size of these files.")]
    note: str | None


class Database(_EventModel):
    """A named set of events."""

    name: str
    retention: str
    shards: int
    generations: list[Generation]


class Databases(_EventModel):
    """All databases of events."""

    databases: list[Database]


class Presence(_EventModel):
    """The presence of a device; null where it is not known."""

    online: bool | None
    since: Annotated[AwareDatetime | None, Field(description="The instant when this state was noticed.")]
    last_seen: Annotated[
        AwareDatetime | None, Field(description="The instant of the device's latest message in the event log.")
    ]


class StateOf(_EventModel):
    """The last values of a device, by topic."""

    device_id: str
    presence: Presence
    values: list[Event]


class Stated(_EventModel):
    """The new position of the value."""

    position: int


class Condition(_EventModel):
    """A condition on a last value: it is at this position, or there is no value."""

    topic: str
    position: StrictInt | None = None
    absent: Literal[True] | None = None


class TransactionBody(_EventModel):
    """A transaction: all of its changes are made, or none."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    when: Annotated[list[Condition], Field(alias="if", max_length=MOST_PARTS)] = []
    write: Annotated[list[Said], Field(max_length=MOST_PARTS)] = []
    delete: Annotated[
        list[str], Field(max_length=MOST_PARTS, description="The topics whose last values are deleted.")
    ] = []


class CursorCommit(_EventModel):
    """The place that a reader of events has come to."""

    cursor: Annotated[
        str,
        Field(
            description="The cursor behind the last event that was handled, as an answer of this API gave it.",
            min_length=1,
            max_length=8192,
        ),
    ]
    topic: Annotated[
        str, Field(description="The topic filter that the cursor was given for.", max_length=MAX_TOPIC_BYTES)
    ] = "#"


class KeptCursor(_EventModel):
    """A cursor that is kept under a name."""

    name: str
    topic: Annotated[str, Field(description="The topic filter of its reader.")]
    cursor: Annotated[str, Field(description="Pass it as `cursor`, with `topic`, to continue from here, on any node.")]
    committed_at: AwareDatetime


class KeptCursors(_EventModel):
    """The cursors of the caller."""

    cursors: list[KeptCursor]
