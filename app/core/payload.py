"""Strict reading of JSON that a device sent: what one reader might understand otherwise than the next is refused.

The reasons of UndecodableMessageError are counted and shown, so they are stable words (`REASONS`).
"""

from __future__ import annotations

import enum
import json
import math
import re
from itertools import accumulate
from typing import Final, NoReturn, TypeAlias

from app.core.errors import UndecodableMessageError

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

MAX_BYTES: Final = 131_072
MAX_DEPTH: Final = 32

REASONS: Final = frozenset(
    {
        "duplicate_key",
        "empty",
        "lone_surrogate",
        "not_a_number",
        "not_json",
        "not_utf8",
        "number_out_of_range",
        "too_deep",
        "too_large",
    }
)
"""Every reason that decode_json gives."""

_MIN_INTEGER: Final = -(2**63)
_MAX_INTEGER: Final = 2**64 - 1
_MAX_INTEGER_TEXT: Final = 20  # characters of both limits above
_WHITESPACE: Final = " \t\n\r"

# The closing quote is optional and nothing is given back (`*+`), so that unclosed strings take linear time too.
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?')
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # +1 and -1 as signed bytes
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")


class Missing(enum.Enum):
    """The type of MISSING; not None, which JSON has as a value."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING
"""The value that `lookup` gives when there is nothing at the path."""

A_NUMBER: Final = "a number"
"""The kind of numbers, in words."""


def compact(data: bytes) -> bytes:
    """Return the same bytes for keeping: what orjson returns has a block of 4 KiB, however short it is (3.13)."""
    return bytes(memoryview(data))


def decode_json(data: bytes, *, max_bytes: int = MAX_BYTES, max_depth: int = MAX_DEPTH) -> JsonValue:
    """The JSON value in the payload; raises UndecodableMessageError, and nothing else, when it cannot be read.

    Accepted is RFC 8259 in UTF-8 without a byte order mark, with every object key once, integers from -2^63 to
    2^64-1, finite floats, no lone surrogates, and at most `max_depth` arrays and objects in one another.
    """
    if len(data) > max_bytes:
        raise UndecodableMessageError("too_large")
    try:
        text = data.decode().strip(_WHITESPACE)
    except UnicodeDecodeError:
        raise UndecodableMessageError("not_utf8") from None
    if not text:
        raise UndecodableMessageError("empty")
    if data.count(b"[") + data.count(b"{") > max_depth and _depth(data) > max_depth:
        raise UndecodableMessageError("too_deep")
    try:
        value: JsonValue
        value, end = _DECODER.raw_decode(text)
        if "\\u" in text and _SURROGATE_ESCAPE.search(text):
            _refuse_lone_surrogates(value)
    except RecursionError:  # a caller deep in its own stack, or a max_depth near the limit of the interpreter
        raise UndecodableMessageError("too_deep") from None
    except ValueError:
        raise UndecodableMessageError("not_json") from None
    if end != len(text):
        raise UndecodableMessageError("not_json")
    return value


def lookup(value: JsonValue, path: tuple[object, ...]) -> JsonValue | Missing:
    """Return the value at the path of object keys: `("data", "output", "status")`; MISSING when a step is not there."""
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return MISSING
        value = value[key]
    return value


def kind_in_words(value: object) -> str:
    """The kind of a JSON value, in words."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return A_NUMBER
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


def _depth(data: bytes) -> int:
    """The depth of brackets in one another, strings left out; exact for JSON, meant as a bound for anything else."""
    brackets = _STRING.sub(b"", data).translate(_STEPS, delete=_NOT_BRACKETS)
    return max(accumulate(memoryview(brackets).cast("b")), default=0)


def _object(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise UndecodableMessageError("duplicate_key")
    return result


def _integer(text: str) -> int:
    # JSON has no leading zeros, so a longer text is out of range; int() of a very long one is slow, then refused.
    if len(text) <= _MAX_INTEGER_TEXT:
        number = int(text)
        if _MIN_INTEGER <= number <= _MAX_INTEGER:
            return number
    raise UndecodableMessageError("number_out_of_range")


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise UndecodableMessageError("number_out_of_range")
    return number


def _constant(_text: str) -> NoReturn:
    raise UndecodableMessageError("not_a_number")


def _refuse_lone_surrogates(value: JsonValue) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UndecodableMessageError("lone_surrogate") from None


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
)
