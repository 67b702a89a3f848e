"""The audit: what was asked, by whom, and how it ended, in chains that show what was done to them.

Each writer has a chain of its own: a line's hash is SHA-256 of the hash before it and the line's bytes, which are kept
as they were hashed. The first hash is made of the writer's name, so that lines of one chain fit no other. Whoever can
write the database can write a whole chain anew; so heads are told to the logs and to the other writers, and a chain
that does not lead to its heads was cut or replaced.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from app.core.access.changes import Change, Put, named
from app.core.access.model import Binding, Credential, Device, Principal, Role, Tenant
from app.core.audit.lines import last_at, things_of

DIRECTORY: Final = "directory"
"""The writer of changes of the access directory: its numbers are the versions that they made."""
REMOVALS: Final = "removals"
"""The writer that tells which old lines were removed. Its own are never removed."""
MANY: Final = "*"
"""The value that stands beside a line that tells of several things, where one of them would be named. No device has
this id."""
MOST_DESCRIBED: Final = 100
"""Changes of one version that are described one by one."""
_LONGEST: Final = 256
"""Characters of a text that a caller gave."""


class ChainLine(NamedTuple):
    """One line of a chain. `seq` counts from 1, without gaps; of the directory it grows."""

    writer: str
    seq: int
    body: bytes
    """JSON, which tells of one thing or of many: `app.core.audit.lines` has its form."""
    hash: bytes


class ChainHead(NamedTuple):
    """The place where a chain was at some time: everything up to there must be as it was."""

    writer: str
    seq: int
    hash: bytes


class ChainFault(NamedTuple):
    """A fault in a chain, and the line where it begins."""

    writer: str
    seq: int
    what: str


class Columns(NamedTuple):
    """The columns beside a line by which it can be looked for. They must be what the line says."""

    at_us: int
    who: str | None
    device: str | None
    tenant: str | None


def columns_of(body: bytes) -> Columns:
    """Read the columns from a line; empty ones, when it cannot be read."""
    try:
        told = json.loads(body)
        if "told" in told:
            return Columns(last_at(told), MANY, MANY, MANY)
        texts = [None if told.get(name) is None else str(told[name]) for name in ("who", "device", "tenant")]
        return Columns(int(told["at"]), *texts)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return Columns(0, None, None, None)


def genesis(writer: str) -> bytes:
    """The hash before the first line of a writer."""
    return hashlib.sha256(b"homing-audit\0" + writer.encode()).digest()


def link(previous: bytes, seq: int, body: bytes) -> bytes:
    """The hash of a line."""
    return hashlib.sha256(previous + seq.to_bytes(8, "big") + body).digest()


class Chain:
    """The end of a chain that this process writes."""

    def __init__(self, writer: str, head: ChainHead | None = None) -> None:
        self.head = ChainHead(writer, 0, genesis(writer)) if head is None else head

    def append(self, body: bytes, seq: int | None = None) -> ChainLine:
        """The next line."""
        number = self.head.seq + 1 if seq is None else seq
        line = ChainLine(self.head.writer, number, body, link(self.head.hash, number, body))
        self.head = ChainHead(line.writer, line.seq, line.hash)
        return line


class Verifier:
    """Reads the lines of one writer in their order, and finds what does not fit. `heads` are where it must have been.

    Everything up to `start` was removed, where it is given. Say `end` when there are no more lines.
    """

    def __init__(self, writer: str, heads: Iterable[ChainHead] = (), start: ChainHead | None = None) -> None:
        self._head = ChainHead(writer, 0, genesis(writer)) if start is None else start
        self._heads: Final[dict[int, set[bytes]]] = {}
        for head in heads:
            if head.seq >= self._head.seq:
                self._heads.setdefault(head.seq, set()).add(head.hash)
        self._began: Final = [] if start is None else list(self._look(start.seq, start.hash))

    @property
    def writer(self) -> str:
        """The writer of these lines."""
        return self._head.writer

    def read(self, line: ChainLine) -> Iterator[ChainFault]:
        """Yield what is wrong with the line."""
        yield from self._beginning()
        writer, seq, _ = self._head
        if line.writer != writer:
            yield ChainFault(writer, line.seq, f"a line of {line.writer} is among them")
        if line.seq <= seq:
            yield ChainFault(writer, line.seq, "there are two lines of this number, or they are in another order")
        elif writer != DIRECTORY and line.seq != seq + 1:
            yield ChainFault(writer, seq + 1, f"lines are missing up to {line.seq}")
        if line.hash != link(self._head.hash, line.seq, line.body):
            yield ChainFault(writer, line.seq, "the line, or one before it, is not what was written")
        yield from self._look(line.seq, line.hash)
        self._head = ChainHead(writer, line.seq, line.hash)

    def end(self) -> Iterator[ChainFault]:
        """Yield what is missing at the end."""
        yield from self._beginning()
        for seq in sorted(self._heads):
            if seq > 0:
                yield ChainFault(self._head.writer, seq, "the line is missing, though somebody has seen it")

    def _beginning(self) -> Iterator[ChainFault]:
        """Yield what is wrong with where the chain starts, once."""
        yield from self._began
        self._began.clear()

    def _look(self, seq: int, found: bytes) -> Iterator[ChainFault]:
        seen = self._heads.pop(seq, {found})
        if seen != {found}:
            yield ChainFault(self._head.writer, seq, "somebody has seen another line here: the chain was written anew")


def heads_of(body: bytes) -> Iterator[ChainHead]:
    """The heads of other chains that a line tells of."""
    yield from _listed(body, "seen")


def removed_of(body: bytes) -> Iterator[ChainHead]:
    """The last lines that were removed, of each chain that a line tells of."""
    yield from _listed(body, "removed")


def listed(heads: Iterable[ChainHead]) -> list[tuple[str, int, str]]:
    """Heads, as a line tells of them."""
    return [(one.writer, one.seq, one.hash.hex()) for one in heads]


def _listed(body: bytes, kind: str) -> Iterator[ChainHead]:
    try:
        for part in things_of(json.loads(body)):
            for one in part[kind] if part["kind"] == kind else ():
                yield ChainHead(str(one[0]), int(one[1]), bytes.fromhex(one[2]))
    except (ValueError, KeyError, TypeError, IndexError):
        return  # whatever it is, its own chain shows it


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """The author of something, as far as they are known; never a secret."""

    principal: str | None = None
    tenant: str | None = None
    key: str | None = None
    """The public id of the key."""
    address: str | None = None
    agent: str | None = None
    via: str = "http"
    at_us: int = 0
    """The instant, in microseconds since 1970, UTC."""

    def said(self) -> dict[str, Any]:
        """The known facts about the author, for a line."""
        known = {
            "who": self.principal,
            "tenant": self.tenant,
            "key": self.key,
            "from": self.address,
            "agent": None if self.agent is None else self.agent[:_LONGEST],
            "via": self.via,
        }
        return {name: value for name, value in known.items() if value is not None}


def body_of(kind: str, at_us: int, facts: Mapping[str, Any]) -> bytes:
    """A line's bytes. None is left out."""
    told = {"at": at_us, "kind": kind, **{name: value for name, value in facts.items() if value is not None}}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def changes_body(changes: Sequence[Change], version: int, author: Author) -> bytes:
    """The line of a change of the access directory: what was changed to what, and never a digest or a hash."""
    told = [_described(one) for one in changes[:MOST_DESCRIBED]]
    more = len(changes) - len(told)
    return body_of(
        "changes", author.at_us, {**author.said(), "version": version, "changes": told, "more": more or None}
    )


def _described(change: Change) -> dict[str, Any]:
    word = type(change).__name__.lower()
    told: dict[str, Any] = {"do": word, "what": named(change)}
    if isinstance(change, Put):
        told["to"] = _open(change.entry)
    return told


def _open(entry: Tenant | Principal | Credential | Role | Binding | Device) -> dict[str, Any]:
    """The part of an entry that may be known."""
    match entry:
        case Tenant():
            return {"name": entry.name, "devices": entry.devices}
        case Principal():
            password = entry.password_hash is not None
            return {"tenant": entry.tenant_id, "disabled": entry.disabled_us is not None, "password": password}
        case Credential():
            end = entry.expires_us
            return {"principal": entry.principal_id, "scheme": entry.scheme, "narrow": entry.narrow, "expires_us": end}
        case Role():
            return {"rules": entry.rules}
        case Binding():
            where = {"tenant": entry.tenant_id, "devices": entry.devices, "expires_us": entry.expires_us}
            return {"subject": entry.subject, "role": entry.role, **where}
        case Device():
            return {"tenant": entry.tenant_id, "profile": entry.profile}
