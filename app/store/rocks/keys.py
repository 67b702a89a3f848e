r"""Every key in the RocksDB of the event log. Numbers are big-endian, so that keys lie in the order of what they name.

| column family | key | value |
|---|---|---|
| `default` | `d` database | number of shards |
| | `h` shard | its last position and epoch |
| | `b` shard, writer | number of his last batch, and where it ends |
| | `c` shard, call | where a call ended, of those of the last two minutes |
| | `k` owner `\0` name | JSON: the cursor of a reader |
| | `s` database `\0` structure | empty; those of all generations, for 0.2.0 |
| | `g` database `\0` generation | JSON: state, first, last, count, size, note |
| | `o` database `\0` generation | how many of its events `o` below names: all, or 0.2.0 has written there |
| `values` | shard, topic | position, record: the last value of the topic |
| `{database}:{generation}` | `d` number of shard, stream, position | record |
| | `i` number of shard, stream, level, hash of its value, position | empty: for levels that vary, or those in front |
| | `o` number of shard, position of the last event of an append | the stream of each of its events |
| | `s` structure | empty: those of this generation |

A shard is written `database \0 number`. A record is that of app/core/events/record.py.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct, unpack
from typing import Final

from app.core.events.event import Position, Shard

VALUES: Final = "values"
HEAD: Final = Struct(">QQ")
PLACE: Final = Struct(">Q")
TAKEN: Final = Struct(">QQ")
_EVENT: Final = Struct(">cBIQ")
FRONT: Final = 255
"""The level under which events that have no structure are indexed, by what their topics begin with and as a whole."""
FRONT_LEVELS: Final = 2
STRUCTURE: Final = b"s"
"""The beginning of the keys of structures in the family of a generation."""


def family(database: str, generation: int) -> str:
    """The column family of a generation."""
    return f"{database}:{generation:08d}"


def of_database(database: str) -> bytes:
    """Return how many shards it has."""
    return b"d" + database.encode()


def of_head(shard: Shard) -> bytes:
    """Return where a shard ends."""
    return b"h" + of_shard(shard)


def of_writer(shard: Shard, writer: str) -> bytes:
    """Return which batch of a writer was the last one."""
    return b"b%s%s" % (of_shard(shard), writer.encode())


def of_call(shard: Shard, call: str) -> bytes:
    """Return where a call ended."""
    return b"c%s%s" % (of_shard(shard), call.encode())


def of_cursor(owner: str, name: str) -> bytes:
    """Return how far a reader has come."""
    return b"k%s\0%s" % (owner.encode(), name.encode())


def of_shard(shard: Shard) -> bytes:
    """Return what all keys of a shard begin with in the family of last values."""
    return b"%s\0%c" % (shard.database.encode(), shard.number)


def of_structure(database: str, structure: str) -> bytes:
    """The key that says that a structure is known."""
    return b"s%s\0%s" % (database.encode(), structure.encode())


def of_generation(database: str, number: int) -> bytes:
    """The catalogue's entry of a generation."""
    return b"g%s\0%s" % (database.encode(), number.to_bytes(4))


def of_ordered(database: str, number: int) -> bytes:
    """Return how many of its events are named in their order."""
    return b"o%s\0%s" % (database.encode(), number.to_bytes(4))


def of_order(shard: int) -> bytes:
    """Return what the keys begin with that name the events of a shard in their order."""
    return b"o%c" % shard


def of_stream(shard: int, stream: bytes) -> bytes:
    """Return what all events of a stream begin with."""
    return b"d%c%s" % (shard, stream)


def of_event(shard: int, stream: int, position: Position) -> bytes:
    """An event of a stream."""
    return _EVENT.pack(b"d", shard, stream, position)


def streams_of(row: bytes) -> tuple[int, ...]:
    """The streams that an order names, which are these bytes one after the other."""
    return unpack(f">{len(row) // 4}I", row)


def fronts_of(topic: str) -> set[str]:
    """By what a topic without structure is indexed: its first level, its first two, and all of it."""
    levels = topic.split("/", FRONT_LEVELS)
    return {topic, *("/".join(levels[: size + 1]) for size in range(FRONT_LEVELS))}


def front_of(topic_filter: str) -> str | None:
    """Return what of that a filter has; None where it begins with a wildcard."""
    levels = topic_filter.split("/")
    literal = next((place for place, level in enumerate(levels) if level in ("+", "#")), len(levels))
    if literal == len(levels):
        return topic_filter
    return "/".join(levels[: min(literal, FRONT_LEVELS)]) if literal else None


def of_level(shard: int, stream: bytes, level: int, value: str) -> bytes:
    """Return what all index keys begin with of a value in a level that varies."""
    return b"i%c%s%c%s" % (shard, stream, level, _hash(value))


def placed(prefix: bytes, position: Position) -> bytes:
    """The key with this prefix at this position."""
    return prefix + PLACE.pack(position)


def place_of(key: bytes) -> Position:
    """The position at the end of a key."""
    position: int = PLACE.unpack_from(key, len(key) - PLACE.size)[0]
    return position


def _hash(value: str) -> bytes:
    return blake2b(value.encode(), digest_size=4).digest()
