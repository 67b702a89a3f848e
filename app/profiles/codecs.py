"""Codecs write and read payloads: JSON, text, nothing, CBOR, MessagePack, or any bytes as Base64.

Whatever the bytes are, what is read is JSON within the bounds of `app/core/payload.py`: at most so many bytes, so deep,
with no number that JSON lacks. Bytes inside of CBOR and MessagePack become Base64 (RFC 4648, with padding).
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from io import BytesIO
from types import MappingProxyType
from typing import Final, NoReturn

import cbor2
import msgpack
import orjson

from app.core.errors import InvalidInputError, UndecodableMessageError
from app.core.payload import MAX_BYTES, MAX_DEPTH, JsonValue, decode_json
from app.core.profiles.profile import to_json
from app.core.profiles.sources import Decode
from app.core.profiles.templates import scalar_text

Encode = Callable[[JsonValue], bytes]

_MIN_INTEGER: Final = -(2**63)
_MAX_INTEGER: Final = 2**64 - 1


def decode_text(data: bytes) -> JsonValue:
    """UTF-8, as it is."""
    try:
        return _bounded(data).decode()
    except UnicodeDecodeError:
        raise UndecodableMessageError("not_utf8") from None


def decode_empty(data: bytes) -> JsonValue:
    """Nothing: null."""
    if data:
        raise UndecodableMessageError("not_empty")
    return None


def decode_raw(data: bytes) -> JsonValue:
    """Any bytes."""
    return base64.b64encode(_bounded(data)).decode("ascii")


def decode_cbor(data: bytes) -> JsonValue:
    """One item of CBOR (RFC 8949) without tags, but that which says that it is CBOR, and with nothing behind it."""
    stream = BytesIO(_bounded(data).removeprefix(_SELF_DESCRIBED))
    try:
        value = cbor2.load(
            stream, max_depth=MAX_DEPTH, allow_duplicate_keys=False, tag_hook=_refuse, semantic_decoders=_TAGS
        )
    except Exception:  # noqa: BLE001 - one class for what is malformed, and others for what Python cannot hold
        raise UndecodableMessageError("not_cbor") from None
    if stream.read(1):
        raise UndecodableMessageError("not_cbor")
    return _plain(value, MAX_DEPTH)


def decode_msgpack(data: bytes) -> JsonValue:
    """One object of MessagePack, with nothing behind it."""
    try:
        value = msgpack.unpackb(_bounded(data), object_pairs_hook=_pairs, strict_map_key=False, timestamp=0)
    except UndecodableMessageError:
        raise
    except Exception:  # noqa: BLE001 - it raises what its hooks and Python's own types do
        raise UndecodableMessageError("not_msgpack") from None
    return _plain(value, MAX_DEPTH)


def encode_text(value: JsonValue) -> bytes:
    """Text as it is, numbers, true and false as JSON has them, absent as nothing, and all else as JSON."""
    text = scalar_text(value)
    if text is not None:
        return text.encode()
    return b"" if value is None else to_json(value)


def encode_empty(_value: JsonValue) -> bytes:
    """Nothing."""
    return b""


def encode_raw(value: JsonValue) -> bytes:
    """The bytes of Base64; InvalidInputError when it is none."""
    try:
        return base64.b64decode("" if value is None else value, validate=True)  # type: ignore[arg-type]  # else it raises TypeError
    except (TypeError, ValueError, binascii.Error):
        raise InvalidInputError("params", "have no Base64 where this profile sends bytes") from None


def encode_cbor(value: JsonValue) -> bytes:
    """One item."""
    return cbor2.dumps(value)


def encode_msgpack(value: JsonValue) -> bytes:
    """One object."""
    packed: bytes = msgpack.packb(value)
    return packed


def _bounded(data: bytes) -> bytes:
    if len(data) > MAX_BYTES:
        raise UndecodableMessageError("too_large")
    return data


def _pairs(pairs: list[tuple[object, object]]) -> dict[object, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise UndecodableMessageError("duplicate_key")
    return found


_SELF_DESCRIBED: Final = b"\xd9\xd9\xf7"
"""RFC 8949, section 3.4.6: a tag that says that what follows is CBOR."""


def _refuse(*_seen: object) -> NoReturn:
    raise ValueError("a tag")


_TAGS: Final = dict.fromkeys(
    (0, 1, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 52, 54, 100, 256, 258, 260, 261, 1004, 43000), _refuse
)
"""Tags that the library would read by itself: dates, fractions, patterns, references. JSON has none of them, and each
is code that a device could reach."""


def _plain(value: object, depth: int) -> JsonValue:
    """Return what a decoder read, as JSON."""
    match value:
        case None | bool() | str():
            return value
        case int():
            return _integer(value)
        case float():
            if not math.isfinite(value):
                raise UndecodableMessageError("not_a_number")
            return value
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case list() | dict() if depth == 0:
            raise UndecodableMessageError("too_deep")
        case list():
            return [_plain(one, depth - 1) for one in value]
        case dict():
            return _object(value, depth - 1)
        case _:
            raise UndecodableMessageError("no_json_value")


def _object(members: dict[object, object], depth: int) -> JsonValue:
    found = {_key(key): _plain(one, depth) for key, one in members.items()}
    if len(found) != len(members):
        raise UndecodableMessageError("duplicate_key")
    return found


def _integer(value: int) -> int:
    if not _MIN_INTEGER <= value <= _MAX_INTEGER:
        raise UndecodableMessageError("number_out_of_range")
    return value


def _key(key: object) -> str:
    """Text and integers are keys: much of what is written in CBOR has numbers for names."""
    if isinstance(key, str):
        return key
    if isinstance(key, int) and not isinstance(key, bool):
        return str(_integer(key))
    raise UndecodableMessageError("no_json_value")


CODECS: Final[Mapping[str, tuple[Encode, Decode]]] = MappingProxyType(
    {
        "json": (orjson.dumps, decode_json),
        "text": (encode_text, decode_text),
        "empty": (encode_empty, decode_empty),
        "cbor": (encode_cbor, decode_cbor),
        "msgpack": (encode_msgpack, decode_msgpack),
        "raw": (encode_raw, decode_raw),
    }
)
"""The codecs, by the name that a profile gives them."""
