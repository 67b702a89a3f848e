"""Identifiers and their allow-lists; partitions, which say where in the store everything of a device lives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from app.core.characters import named
from app.core.errors import InvalidInputError

PARTITIONS: Final = 256
"""Never changes: keys in Redis and command ids carry the partition."""

CANARY: Final = "homing-canary"
"""In the place of a device id in what nodes send to themselves; no device may be called so."""


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
_METHOD: Final = _AllowList("method", "A-Za-z0-9_.:/-", "A-Z a-z 0-9 _ . : / -", 128)  # such as device/rename
_NODE_ID: Final = _AllowList("node_id", "A-Za-z0-9_.-", "A-Z a-z 0-9 _ . -", 64)
_IDEMPOTENCY_KEY: Final = _AllowList("idempotency_key", "!-~", "the visible ASCII characters (no space)", 255)

_DEVICE_ID_PATTERN: Final = _DEVICE_ID.compiled()
_NODE_ID_PATTERN: Final = _NODE_ID.compiled()
_IDEMPOTENCY_KEY_PATTERN: Final = _IDEMPOTENCY_KEY.compiled()
_DOTS: Final = (".", "..")  # HTTP clients and file systems take these as "here" and "above"
_NO_DEVICES: Final = (*_DOTS, CANARY)

_NO_DOTS: Final = r"(?!\.\.?$)"
DEVICE_ID: Final = _NO_DOTS + _DEVICE_ID.pattern
"""What a device id looks like, as a regular expression for documentation; the other patterns likewise."""
METHOD: Final = r"(?!(?:.*/)?\.{0,2}(?:/|$))" + _METHOD.pattern
_METHOD_PATTERN: Final = re.compile(METHOD)
IDEMPOTENCY_KEY: Final = _IDEMPOTENCY_KEY.pattern
COMMAND_ID: Final = "(?:[01][0-9][0-9]|2[0-4][0-9]|25[0-5])-[0-7][0-9A-HJKMNP-TV-Z]{25}"  # a ULID has no I, L, O, U
_COMMAND_ID_PATTERN: Final = re.compile(COMMAND_ID)
_COMMAND_ID_LENGTH: Final = 30


def validate_device_id(device_id: str) -> str:
    """The device id itself when it is `[A-Za-z0-9_.:-]{1,128}`, not `.`, `..` or CANARY; raises InvalidInputError."""
    if not _DEVICE_ID_PATTERN.fullmatch(device_id) or device_id in _NO_DEVICES:
        raise _DEVICE_ID.error(device_id)
    return device_id


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


def validate_command_id(command_id: str) -> str:
    """The command id itself when it is a partition, `-` and a ULID (`042-01J…`); raises InvalidInputError."""
    if not _COMMAND_ID_PATTERN.fullmatch(command_id):
        raise InvalidInputError("command_id", f"{_command_id_fault(command_id)}; {_COMMAND_ID_ALLOWED}")
    return command_id


def is_command_id(value: str) -> bool:
    """Whether it is a command id."""
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
