"""Identifiers and their allow-lists; partitions, which say where in the store everything of a device lives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final
from urllib.parse import quote, unquote

from app.core.characters import named
from app.core.errors import InvalidInputError

PARTITIONS: Final = 256
"""Never changes: keys in Redis and command ids carry the partition."""

CANARY: Final = "homing-canary"
"""The text in the place of a device id in messages of nodes to themselves; no device may be called so."""


@dataclass(frozen=True, slots=True)
class _AllowList:
    """`characters` is a regular-expression class of ASCII ranges, so that no look-alike is ever a member."""

    field: str
    characters: str
    spelled: str
    max_length: int

    @property
    def pattern(self) -> str:
        return f"[{self.characters}]{{1,{self.max_length}}}"

    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    def error(self, value: str) -> InvalidInputError:
        """Says what is wrong with a value that the pattern refused."""
        return InvalidInputError(self.field, f"{self._fault(value)}; allowed: 1 to {self.max_length} of {self.spelled}")

    def _fault(self, value: str) -> str:
        if not value:
            return "is empty"
        forbidden = re.search(f"[^{self.characters}]", value)
        if forbidden is not None:
            return f"{named(forbidden[0])} at index {forbidden.start()} is not allowed"
        if len(value) > self.max_length:
            return f"has {len(value)} characters"
        if "/" in value:
            return f"'{value[:32]}' has nothing, '.' or '..' before or behind a slash"
        return f"'{value}' alone is not allowed"  # "." or "..", or what nodes use themselves


_DEVICE_ID: Final = _AllowList("device_id", "A-Za-z0-9_.:-", "A-Z a-z 0-9 _ . : -", 128)
"""The letters that stand for themselves; names with others are escaped, see `validate_device_id`."""
_METHOD: Final = _AllowList("method", "A-Za-z0-9_.:/-", "A-Z a-z 0-9 _ . : / -", 128)  # such as device/rename
_NODE_ID: Final = _AllowList("node_id", "A-Za-z0-9_.-", "A-Z a-z 0-9 _ . -", 64)
_IDEMPOTENCY_KEY: Final = _AllowList("idempotency_key", "!-~", "the visible ASCII characters (no space)", 255)
_REPLACES: Final = _AllowList("replaces", "!-~", "the visible ASCII characters (no space)", 64)

_DEVICE_ID_PATTERN: Final = _DEVICE_ID.compiled()
_NODE_ID_PATTERN: Final = _NODE_ID.compiled()
_IDEMPOTENCY_KEY_PATTERN: Final = _IDEMPOTENCY_KEY.compiled()
_REPLACES_PATTERN: Final = _REPLACES.compiled()
_DOTS: Final = (".", "..")  # HTTP clients and file systems take these as "here" and "above"
_NO_LEVELS: Final = frozenset(("", *_DOTS, CANARY))

_NOT_IN_NAMES: Final = frozenset("+#$*%\ufffd")
"""The refused characters, besides unprintable ones: wildcards, the beginnings of brokers' topics and of escapes, and
the one that stands for no UTF-8."""
_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")

DEVICE_ID: Final = r"(?!(?:.*/)?\.{0,2}(?:/|$))(?:[^+#$*%\x00-\x1f\x7f-\x9f]|%[0-9A-Fa-f]{2}){1,128}"
"""The form of a device id, as a regular expression for documentation; so are the other patterns."""
METHOD: Final = r"(?!(?:.*/)?\.{0,2}(?:/|$))" + _METHOD.pattern
_METHOD_PATTERN: Final = re.compile(METHOD)
IDEMPOTENCY_KEY: Final = _IDEMPOTENCY_KEY.pattern
REPLACES: Final = _REPLACES.pattern
COMMAND_ID: Final = "(?:[01][0-9][0-9]|2[0-4][0-9]|25[0-5])-[0-7][0-9A-HJKMNP-TV-Z]{25}"  # a ULID has no I, L, O, U
_COMMAND_ID_PATTERN: Final = re.compile(COMMAND_ID)
_COMMAND_ID_LENGTH: Final = 30


def validate_device_id(device_id: str) -> str:
    """The id of the device that is meant; raises InvalidInputError when there can be none.

    An id is the name of a device, escaped as in a URL where it has more than `[A-Za-z0-9_.:-]`, of 128 characters at
    most. What is asked for may be either: no name has a percent sign, so `living room/lamp` and `living%20room%2Flamp`
    are one device. Nothing between the slashes of a name is empty, `.`, `..` or CANARY.
    """
    if _DEVICE_ID_PATTERN.fullmatch(device_id):
        if device_id in _NO_LEVELS:
            raise _DEVICE_ID.error(device_id)
        return device_id
    return _escaped(device_id)


@lru_cache(maxsize=4096)
def _escaped(text: str) -> str:
    name = unescaped("device_id", text)
    levels = name.split("/")
    if len(levels) > 1 and not _NO_LEVELS.isdisjoint(levels):
        raise InvalidInputError(
            "device_id", f"{name[:32]!a} has nothing, '.', '..' or '{CANARY}' before or behind a slash; allowed: words"
        )
    if name in _NO_LEVELS:
        raise _DEVICE_ID.error(name)
    found = id_of_name(name)
    if len(found) > _DEVICE_ID.max_length:
        escaped = "" if len(found) == len(name) else " when it is escaped"
        raise InvalidInputError("device_id", f"has {len(found)} characters{escaped}; {_DEVICE_ID_ALLOWED}")
    return found


def unescaped(field: str, text: str) -> str:
    """A name, or a part of one, without its escapes; raises InvalidInputError when no name has this in it."""
    name = text
    if not text:
        raise InvalidInputError(field, f"is empty; {_DEVICE_ID_ALLOWED}")
    if len(text) > _LONGEST:
        raise InvalidInputError(field, f"has {len(text)} characters; {_DEVICE_ID_ALLOWED}")
    if "%" in text:
        wrong = _ESCAPE.search(text)
        if wrong is not None:
            raise InvalidInputError(field, f"'%' at index {wrong.start()} is not allowed; {_DEVICE_ID_ALLOWED}")
        try:
            name = unquote(text, errors="strict")
        except UnicodeDecodeError:
            raise InvalidInputError(field, f"has an escape that is no UTF-8; {_DEVICE_ID_ALLOWED}") from None
    if not name.isprintable() or not _NOT_IN_NAMES.isdisjoint(name):
        index = next(i for i, one in enumerate(name) if one in _NOT_IN_NAMES or not one.isprintable())
        where = "" if name != text else f" at index {index}"
        raise InvalidInputError(field, f"{named(name[index])}{where} is not allowed; {_DEVICE_ID_ALLOWED}")
    return name


def id_of_name(name: str) -> str:
    """The id of a device by its name, as topics and payloads have it. Nothing is checked: it may be none of ours.

    Of a name that is too long as much is left as shows that it is. A percent sign is escaped, too, so that no device
    can speak for another whose id is its name.
    """
    if _DEVICE_ID_PATTERN.fullmatch(name):
        return name
    start = name[: _DEVICE_ID.max_length + 1]
    return quote(start, safe=":", errors="surrogatepass").replace("~", "%7E")


def name_of(device_id: str) -> str:
    """The name of a device, as topics and payloads have it, by its id."""
    return unquote(device_id) if "%" in device_id else device_id


def validate_method(method: str) -> str:
    """The method itself when it is `[A-Za-z0-9_.:/-]{1,128}`; raises InvalidInputError.

    Nothing between slashes may be empty, `.` or `..`, as methods become levels of topics.
    """
    if not _METHOD_PATTERN.fullmatch(method):
        raise _METHOD.error(method)
    return method


def validate_node_id(node_id: str) -> str:
    """The node id itself when it is `[A-Za-z0-9_.-]{1,64}` and not `.` or `..`; raises InvalidInputError."""
    if not _NODE_ID_PATTERN.fullmatch(node_id) or node_id in _DOTS:
        raise _NODE_ID.error(node_id)
    return node_id


def validate_idempotency_key(key: str) -> str:
    """The key itself when it is 1 to 255 visible ASCII characters; raises InvalidInputError."""
    if not _IDEMPOTENCY_KEY_PATTERN.fullmatch(key):
        raise _IDEMPOTENCY_KEY.error(key)
    return key


def validate_replaces(key: str) -> str:
    """The key itself under which a command takes the place of others; raises InvalidInputError."""
    if not _REPLACES_PATTERN.fullmatch(key):
        raise _REPLACES.error(key)
    return key


def validate_command_id(command_id: str) -> str:
    """The command id itself when it is a partition, `-` and a ULID (`042-01J…`); raises InvalidInputError."""
    if not _COMMAND_ID_PATTERN.fullmatch(command_id):
        raise InvalidInputError("command_id", f"{_command_id_fault(command_id)}; {_COMMAND_ID_ALLOWED}")
    return command_id


def is_command_id(value: str) -> bool:
    """True if it is a command id."""
    return _COMMAND_ID_PATTERN.fullmatch(value) is not None


@lru_cache(maxsize=16_384)
def partition_of(device_id: str) -> int:
    """The partition of a device: the same in every process and release. The device id is taken as valid."""
    return int.from_bytes(blake2b(device_id.encode(), digest_size=8).digest(), "big") % PARTITIONS


def command_id(device_id: str, ulid: str) -> str:
    """`042-01J…`: the partition of the device in three digits, then the ULID, so that keys follow from the id."""
    return f"{partition_of(device_id):03d}-{ulid}"


def partition_of_command(command_id: str) -> int:
    """The partition that the command id carries; raises InvalidInputError when it is no command id."""
    return int(validate_command_id(command_id)[:3])


_DEVICE_ID_ALLOWED: Final = (
    f"allowed: 1 to {_DEVICE_ID.max_length} of {_DEVICE_ID.spelled}, others escaped as in a URL, "
    "without + # $ * % and unprintable ones"
)
_LONGEST: Final = 3 * _DEVICE_ID.max_length
"""The length of an id in which each letter is escaped without need."""
_COMMAND_ID_ALLOWED: Final = f"allowed: 000 to {PARTITIONS - 1}, '-', and a ULID of 26 characters in upper case"


def _command_id_fault(value: str) -> str:
    if not value:
        return "is empty"
    forbidden = re.search("[^0-9A-HJKMNP-TV-Z-]", value)
    if forbidden is not None:
        return f"{named(forbidden[0])} at index {forbidden.start()} is not allowed"
    if len(value) != _COMMAND_ID_LENGTH:
        return f"has {len(value)} characters, not {_COMMAND_ID_LENGTH}"
    return "does not have the form of one"
