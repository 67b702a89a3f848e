"""Cursors that are kept under a name: how far a reader has come, who may be another process tomorrow."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from app.core.errors import CapacityError, InvalidInputError
from app.core.events.event import MAX_TOPIC_BYTES

NAME: Final = "[a-z0-9][a-z0-9._-]{0,63}"
MOST_OF_OWNER: Final = 256
"""Cursors of one caller."""
MOST_CURSOR_BYTES: Final = 8192
KEPT: Final = timedelta(days=365)
"""The time for which Redis keeps the cursors of a caller who commits none."""
_NAME: Final = re.compile(NAME, re.ASCII)
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class NamedCursor:
    """A cursor that was committed: `text` is where the reader goes on with what matches `topic`.

    `committed_us` is the instant in microseconds since 1970.
    """

    name: str
    topic: str
    text: str
    committed_us: int

    def is_at(self, topic: str, text: str) -> bool:
        """True if the reader stands there already."""
        return (self.topic, self.text) == (topic, text)


def validate_cursor_name(name: str) -> str:
    """The name itself when a cursor may have it; InvalidInputError."""
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            "name", f"{name[:64]!a} is no name of a cursor; allowed: a-z 0-9, then a-z 0-9 . _ -, up to 64"
        )
    return name


def validate_size(cursor: NamedCursor) -> NamedCursor:
    """The cursor itself when it is not too long; InvalidInputError."""
    for field, text, most in (("topic", cursor.topic, MAX_TOPIC_BYTES), ("cursor", cursor.text, MOST_CURSOR_BYTES)):
        if len(text.encode()) > most:
            raise InvalidInputError(field, f"has {len(text.encode())} bytes; allowed are {most}")
    return cursor


def encode_cursor(cursor: NamedCursor) -> bytes:
    """Encode a cursor, to be kept. Fields that a later version adds are optional."""
    told = {"v": _VERSION, "topic": cursor.topic, "cursor": cursor.text, "at": cursor.committed_us}
    return json.dumps(told, separators=(",", ":"), sort_keys=True).encode()


def decode_cursor(name: str, document: bytes) -> NamedCursor | None:
    """The cursor that is kept so; None where this version cannot read it."""
    try:
        told = json.loads(document)
        if told["v"] != _VERSION:
            return None
        return NamedCursor(name, str(told["topic"]), str(told["cursor"]), int(told["at"]))
    except (ValueError, KeyError, TypeError):
        return None


def check_room(known: Mapping[str, bytes], name: str) -> None:
    """CapacityError where there is no room for one more name."""
    if name not in known and len(known) >= MOST_OF_OWNER:
        raise no_room()


def no_room() -> CapacityError:
    """The error of a caller who has as many as there may be."""
    return CapacityError(f"this caller has {MOST_OF_OWNER} cursors, which is all that one can have; delete some")
