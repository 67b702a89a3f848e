"""Events: what somebody said on a topic, where it stands in the log, and in which shard."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from app.core.errors import InvalidInputError, PayloadTooLargeError
from app.core.identifiers import PARTITIONS, partition_of
from app.core.payload import MAX_BYTES
from app.core.topics import validate_filter, validate_topic

Position = int
"""Microseconds since the epoch on the clock of the log's engine, made unique and growing within a shard.

An instant and an order: `max(last + 1, now)`.
"""

BEGINNING: Final[Position] = 0
"""The position before the first event."""
END: Final[Position] = 2**62
"""The position after every event."""
OWN: Final = "$homing/"
"""The beginning of the topics of Homing itself."""
EXCHANGES: Final = "$exchange/"
"""The beginning of the topics of messages in exchanges; tenant, name and key follow."""
RESERVED: Final = (OWN, "$SYS/", EXCHANGES)
"""The beginnings of topics on which callers say nothing: forged presence would end commands, and so on."""
MOST_VALUES: Final = 100_000
MOST_VALUE_BYTES: Final = 256 * 1024 * 1024
MAX_TOPIC_BYTES: Final = 1024
MAX_VALUE_BYTES: Final = MAX_BYTES
OWN_BYTES: Final = 4096
"""The bytes that Homing's own entries may have beside that: an envelope around a device's message fits."""
MAX_ENTRIES: Final = 512
"""Entries of one append."""

_DATABASE: Final = re.compile("[a-z][a-z0-9_-]{0,31}", re.ASCII)


@dataclass(frozen=True, slots=True)
class TenantShares:
    """Among whom the room for last values is divided, where there are several. Any thread may ask.

    `known` tells how many there are, `owner` to whom a device belongs, or "".
    """

    known: Callable[[], int] = lambda: 0
    owner: Callable[[str], str] = lambda _device: ""

    def count(self) -> int:
        """The number of parts: what belongs to no tenant has one, too. 0 where nothing is divided."""
        known = self.known()
        return known + 1 if known > 1 else 0

    def of(self, device: str) -> str:
        """To whom the last values of a device count; "" where it is nobody's, or nothing is divided."""
        return self.owner(device) if device and self.known() > 1 else ""


@dataclass(frozen=True, slots=True)
class Database:
    """A named set of events. Its number of shards is for ever: the order of a topic is that of its shard."""

    name: str
    shards: int = 4
    taught: tuple[str, ...] = ()
    """Structures of topics that are known before the first event."""
    most_values: int = MOST_VALUES
    """The topics with a last value, shared out among the shards: who makes topics up must not fill the store."""
    most_value_bytes: int = MOST_VALUE_BYTES
    """The bytes that last values take, with their topics, shared out as well."""
    tenants: TenantShares = field(default=TenantShares(), compare=False)

    def shard(self, key: str) -> Shard:
        """The shard of everything that is kept under this key: the device, else the topic."""
        return Shard(self.name, shard_number(key, self.shards))

    def values_allowed(self, topic: str) -> int:
        """The number of topics in the shard of this one that may have a last value.

        Homing's own have room that others lack.
        """
        most = max(1, self.most_values // self.shards)
        return 2 * most if topic.startswith(OWN) else most

    def value_bytes_allowed(self, topic: str) -> int:
        """The number of bytes that last values in the shard of this topic may take.

        Homing's own have room that others lack.
        """
        most = self.most_value_bytes // self.shards
        return 2 * most if topic.startswith(OWN) else most

    def all_shards(self) -> tuple[Shard, ...]:
        """The shards of the database, by number."""
        return tuple(Shard(self.name, number) for number in range(self.shards))


class Shard(NamedTuple):
    """A part of a database: within it there is one order, the same for all readers."""

    database: str
    number: int

    def __str__(self) -> str:
        return f"{self.database}.{self.number}"


class Entry(NamedTuple):
    """An event that has no position yet. `device`, `kind` (`profile:name`) and `id` are empty where nobody knows them.

    `id` is what a repetition of the same event has in common with it.
    """

    topic: str
    value: bytes
    device: str = ""
    kind: str = ""
    id: str = ""


class Event(NamedTuple):
    """An entry in its place. Where several databases are read as one, `shard` counts the shards of all of them."""

    position: Position
    shard: int
    entry: Entry


def validate_database(name: str) -> str:
    """The name itself when it is one of a database; raises InvalidInputError otherwise."""
    if not _DATABASE.fullmatch(name):
        raise InvalidInputError(
            "database", f"{name[:64]!a} is no name of one; allowed: a-z, then a-z 0-9 _ -, up to 32"
        )
    return name


def validate_entry(entry: Entry) -> Entry:
    """The entry itself when a log takes it; raises InvalidInputError, which names what is wrong with it, otherwise."""
    validate_topic(entry.topic)
    size = len(entry.topic.encode())
    if size > MAX_TOPIC_BYTES:
        raise InvalidInputError("topic", f"has {size} bytes in UTF-8; allowed are {MAX_TOPIC_BYTES}")
    most = MAX_VALUE_BYTES + (OWN_BYTES if entry.topic.startswith(OWN) else 0)
    if len(entry.value) > most:
        raise PayloadTooLargeError("data", f"has {len(entry.value)} bytes; allowed are {most}")
    return entry


def validate_writable(topic: str, field: str = "topic") -> str:
    """The topic itself when a caller may say something on it; InvalidInputError: nodes and brokers alone may."""
    for reserved in RESERVED:
        if topic.startswith(reserved):
            raise InvalidInputError(field, f"begins with {reserved}, where nobody says anything but Homing itself")
    return topic


def validate_reading_filter(topic_filter: str) -> str:
    """The filter itself when events can be read by it; raises InvalidInputError otherwise."""
    if topic_filter.startswith("$share/"):
        raise InvalidInputError("topic", "is a shared subscription; allowed: a topic filter such as a/+/b or #")
    levels = topic_filter.split("/")
    if " " in levels:
        meant = "/".join("%2B" if level == " " else level for level in levels)
        raise InvalidInputError(
            "topic", f"has a level that is a blank: did you mean {meant[:256]!a}? + in a URL is one"
        )
    try:
        return validate_filter(topic_filter)
    except InvalidInputError as error:
        raise InvalidInputError("topic", error.reason) from None


@lru_cache(maxsize=16_384)
def shard_number(key: str, shards: int) -> int:
    """The number of the shard, of so many, for what is kept under this key: the device, else the topic."""
    return partition_of(key) * shards // PARTITIONS


def size_of(entry: Entry) -> int:
    """The bytes of quota that an entry takes: what was said, and what is kept beside it."""
    return len(entry.value) + len(entry.topic) + len(entry.device) + len(entry.kind) + len(entry.id) + 16
