r"""Queues in memory, as rows, and back. Numbers are big-endian; a source is `queue id`, a space, `database.shard[d]`.

| key | value |
|---|---|
| `v` | version of what is declared |
| `n` name | a document that is declared |
| `w` source `\0f` | JSON: facts of a window; fields that a later version adds are optional |
| `w` source `\0r` place | a group that is ready: deliveries (1 byte), references |
| `w` source `\0l` number | a loan: a line of JSON, references |
| `w` source `\0t` number | a group for later: instant (8 bytes), deliveries (1 byte), references |
| `w` source `\0o` device | the order of a device: who holds it (8 bytes), references that wait |
| `y` shard `\0` number | JSON: a reference that is on the way to become a dead letter |
| `z` shard | JSON: the last of those numbers, and how many are being buried |
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from struct import Struct
from typing import Any, Final

from app.core.errors import DamagedEventsError
from app.core.events.event import Shard
from app.core.queues.loans import (
    DatedGroup,
    Dying,
    QueueSource,
    Reference,
    ReferenceGroup,
    pack_references,
    unpack_references,
)
from app.core.queues.memoir import KeptLoan, KeptOrder, WindowFacts, WindowMemoir
from app.store.memory.queues import Cemetery

VERSION_KEY: Final = b"v"
_PLACE: Final = Struct(">q")
_INSTANT: Final = Struct(">Q")
_FACTS: Final = "f"
_NOBODY: Final = WindowMemoir(WindowFacts(life="", fed=0), {}, {}, {}, {})

_Rows = dict[bytes, bytes | None]


@dataclass
class KeptQueues:
    """All rows, read."""

    version: int = 0
    documents: dict[str, bytes] = field(default_factory=dict)
    windows: dict[QueueSource, WindowMemoir] = field(default_factory=dict)
    cemeteries: dict[Shard, Cemetery] = field(default_factory=dict)


def document_key(name: str) -> bytes:
    """Return where a document is."""
    return b"n" + name.encode()


def window_rows(source: QueueSource, before: WindowMemoir | None, after: WindowMemoir | None) -> _Rows:
    """Return what differs between two memoirs of a window; None: there was, or is, no window."""
    rows: _Rows = {}
    old, new = before or _NOBODY, after or _NOBODY
    for kind, had, has in (
        ("r", old.ready, new.ready),
        ("l", old.loans, new.loans),
        ("t", old.later, new.later),
        ("o", old.orders, new.orders),
    ):
        rows |= {_part(source, kind, one): None for one in had if one not in has}
        rows |= {_part(source, kind, one): _written(value) for one, value in has.items() if had.get(one) != value}
    if after is None:
        rows[_part(source, _FACTS)] = None
    elif old.facts != new.facts:
        rows[_part(source, _FACTS)] = json.dumps(asdict(new.facts)).encode()
    return rows


def dying_row(shard: Shard, dying: Dying) -> tuple[bytes, bytes]:
    """The row of a reference that is dying."""
    told = [dying.source.queue_id, dying.source.dead, dying.deliveries, dying.reason, dying.consumer, *dying.reference]
    return dying_key(shard, dying.number), json.dumps(told).encode()


def dying_key(shard: Shard, number: int) -> bytes:
    """Return where it is."""
    return b"y%s\0%s" % (str(shard).encode(), _INSTANT.pack(number))


def cemetery_row(shard: Shard, cemetery: Cemetery) -> tuple[bytes, bytes]:
    """The row about all that is dying in a shard."""
    return b"z" + str(shard).encode(), json.dumps([cemetery.sealed, cemetery.last]).encode()


def read_rows(rows: Mapping[bytes, bytes]) -> KeptQueues:
    """All that is in these rows; DamagedEventsError for one that this version does not write."""
    kept = KeptQueues()
    windows: defaultdict[QueueSource, dict[str, dict[int, bytes]]] = defaultdict(lambda: defaultdict(dict))
    dying: defaultdict[Shard, list[Dying]] = defaultdict(list)
    abouts: dict[Shard, tuple[int, int]] = {}
    for key, row in rows.items():
        try:
            letter, (name, _, rest) = key[:1], key[1:].partition(b"\0")
            if letter == b"v":
                kept.version = int(row)
            elif letter == b"n":
                kept.documents[name.decode()] = row
            elif letter == b"w":
                place = _PLACE.unpack(rest[1:])[0] if rest[1:] else 0
                windows[_source(name.decode())][rest[:1].decode()][place] = row
            elif letter == b"y":
                shard = _shard(name.decode())
                dying[shard].append(_dying(shard, _INSTANT.unpack(rest)[0], json.loads(row)))
            elif letter == b"z":
                sealed, last = json.loads(row)
                abouts[_shard(name.decode())] = sealed, last
        except Exception as error:  # noqa: BLE001 - a row may be damaged in any way
            raise DamagedEventsError(f"{key[:64]!a}: {type(error).__name__}: {error}"[:200]) from None
    for source, parts in windows.items():
        kept.windows[source] = _memoir(source, parts)
    for shard in {*dying, *abouts}:
        kept.cemeteries[shard] = Cemetery(sorted(dying[shard]), *abouts.get(shard, (0, 0)))
    return kept


def _part(source: QueueSource, kind: str, number: int | None = None) -> bytes:
    name = f"w{source.queue_id} {source}\0{kind}".encode()
    return name if number is None else name + _PLACE.pack(number)


def _written(value: ReferenceGroup | KeptLoan | DatedGroup | KeptOrder) -> bytes:
    match value:
        case ReferenceGroup():
            return b"%c%s" % (value.deliveries, pack_references(value.references))
        case DatedGroup():
            return _INSTANT.pack(value.at) + _written(value.group)
        case KeptOrder():
            return _INSTANT.pack(value.holder) + pack_references(value.parked)
        case KeptLoan():
            line = [value.consumer, value.deliveries, value.deadline, sorted(value.outstanding)]
            return json.dumps(line).encode() + b"\n" + pack_references(value.references)


def _memoir(source: QueueSource, parts: Mapping[str, Mapping[int, bytes]]) -> WindowMemoir:
    try:
        facts = json.loads(parts[_FACTS][0])
        known = {name: facts[name] for name in WindowFacts.__dataclass_fields__ if name in facts}
        known["consumers"] = tuple((name, at) for name, at in known["consumers"])
        return WindowMemoir(
            WindowFacts(**known),
            {place: _group(row) for place, row in parts["r"].items()},
            {number: _loan(row) for number, row in parts["l"].items()},
            {
                number: DatedGroup(_INSTANT.unpack_from(row)[0], _group(row[_INSTANT.size :]))
                for number, row in parts["t"].items()
            },
            {
                device: KeptOrder(_INSTANT.unpack_from(row)[0], unpack_references(row[_INSTANT.size :]))
                for device, row in parts["o"].items()
            },
        )
    except Exception as error:  # noqa: BLE001 - a row may be damaged in any way
        raise DamagedEventsError(f"the window of {source}: {type(error).__name__}: {error}"[:200]) from None


def _group(row: bytes) -> ReferenceGroup:
    return ReferenceGroup(row[0], unpack_references(row[1:]))


def _loan(row: bytes) -> KeptLoan:
    line, _, references = row.partition(b"\n")
    consumer, deliveries, deadline, outstanding = json.loads(line)
    return KeptLoan(consumer, deliveries, deadline, unpack_references(references), frozenset(outstanding))


def _source(name: str) -> QueueSource:
    queue_id, _, place = name.partition(" ")
    return QueueSource(queue_id, _shard(place.removesuffix("d")), place.endswith("d"))


def _shard(name: str) -> Shard:
    database, _, number = name.rpartition(".")
    return Shard(database, int(number))


def _dying(shard: Shard, number: int, told: list[Any]) -> Dying:
    queue_id, dead, deliveries, reason, consumer, *reference = told
    return Dying(number, QueueSource(queue_id, shard, dead), deliveries, reason, consumer, Reference(*reference))
