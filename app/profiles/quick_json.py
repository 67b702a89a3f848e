"""Strict JSON, read by a parser in C that is not strict, where it is certain that strict reading gives the same."""

from __future__ import annotations

from typing import Final

import orjson

from app.core.payload import MAX_DEPTH, MISSING, JsonValue, Missing, decode_json

_COARSE: Final = bytes.maketrans(b"123456789\t\n\r", b"0" * 9 + b" " * 3)
_LONG_NUMBER: Final = b"0" * 19
"""A number with as many digits as the smaller of the limits of integers."""
_HAVE_MEMBERS: Final = (dict, list)


def read_json(data: bytes) -> JsonValue:
    """As `decode_json`, in half of the time for what devices usually say."""
    value = plain(data)
    return decode_json(data) if value is MISSING else value


def plain(data: bytes) -> JsonValue | Missing:
    """Return what strict reading gives; MISSING where that takes a closer look.

    The parser lets pass: large integers, which have many digits in a row; depth, for which there must be brackets; and
    keys that come twice. A key ends with `":` where no colon stands apart. So with no more of these in the text than
    there are keys in the value, no key came twice.
    """
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        return MISSING
    coarse = data.translate(_COARSE)
    if _LONG_NUMBER in coarse or b" :" in coarse:
        return MISSING
    try:
        value: JsonValue = orjson.loads(data)
    except orjson.JSONDecodeError:
        return MISSING
    return value if data.count(b'":') == _keys(value) else MISSING


def _keys(value: JsonValue) -> int:
    """Return how many keys the objects in it have."""
    if isinstance(value, dict):
        return len(value) + sum([_keys(one) for one in value.values() if isinstance(one, _HAVE_MEMBERS)])
    if isinstance(value, list):
        return sum([_keys(one) for one in value if isinstance(one, _HAVE_MEMBERS)])
    return 0
