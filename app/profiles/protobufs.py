"""Payloads in Protocol Buffers, by a descriptor file: what `protoc --include_imports --descriptor_set_out` writes.

What is read becomes JSON: members by their names in the file, enumerations by their names, bytes as Base64, integers
of 64 bits as numbers. Fields that the descriptor does not have are left out, and so are those that a message does not
set.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from app.core.errors import ConfigurationError, InvalidInputError, UndecodableMessageError
from app.core.payload import MAX_BYTES, MAX_DEPTH, JsonValue
from app.core.profiles.sources import Decode

Encode = Callable[[JsonValue], bytes]
MOST_DESCRIPTOR: Final = 1_000_000
"""Bytes of the largest descriptor file."""


@lru_cache(maxsize=256)
def protobuf(descriptor: bytes, name: str) -> tuple[Encode, Decode]:
    """Return how messages of this full name are written and read; ConfigurationError when the descriptor has none."""
    made = _message_class(descriptor, name)
    json_format, decode_error = _library("json_format"), _library("message").DecodeError

    def encode(value: JsonValue) -> bytes:
        try:
            fields: dict[str, Any] = {} if value is None else value  # type: ignore[assignment]  # ParseDict tells
            written: bytes = json_format.ParseDict(fields, made()).SerializeToString(deterministic=True)
        except (json_format.ParseError, ValueError, TypeError, AttributeError) as error:
            raise InvalidInputError("params", f"make no {name}: {str(error)[:200]}") from None
        return written

    def decode(data: bytes) -> JsonValue:
        if len(data) > MAX_BYTES:
            raise UndecodableMessageError("too_large")
        try:
            return _plain(made.FromString(data), MAX_DEPTH)
        except (decode_error, UnicodeDecodeError):
            raise UndecodableMessageError("not_protobuf") from None

    return encode, decode


def _library(part: str) -> Any:  # noqa: ANN401 - its types are no part of what is installed
    """Loaded by the first profile that needs it: it is the extra `protobuf`, and in every image."""
    try:
        return import_module(f"google.protobuf.{part}")
    except ModuleNotFoundError:
        raise ConfigurationError("codec protobuf needs the extra protobuf: pip install 'homing[protobuf]'") from None


def _message_class(descriptor: bytes, name: str) -> Any:  # noqa: ANN401
    if len(descriptor) > MOST_DESCRIPTOR:
        raise ConfigurationError(f"the descriptor has {len(descriptor)} bytes; allowed are {MOST_DESCRIPTOR}")
    try:
        files = _library("descriptor_pb2").FileDescriptorSet.FromString(descriptor)
        pool = _library("descriptor_pool").DescriptorPool()
        for file in files.file:
            pool.Add(file)
        return _library("message_factory").GetMessageClass(pool.FindMessageTypeByName(name))
    except (_library("message").DecodeError, TypeError) as error:
        raise ConfigurationError(f"the descriptor cannot be read: {str(error)[:200]}") from None
    except KeyError:
        known = sorted(f"{file.package}.{one.name}".lstrip(".") for file in files.file for one in file.message_type)
        raise ConfigurationError(
            f"{name!a} is no message of the descriptor; allowed: {', '.join(known) or 'none'}"
        ) from None


def _plain(message: Any, depth: int) -> JsonValue:  # noqa: ANN401
    if depth == 0:
        raise UndecodableMessageError("too_deep")
    return {field.name: _field(field, value, depth - 1) for field, value in message.ListFields()}


def _field(field: Any, value: Any, depth: int) -> JsonValue:  # noqa: ANN401 - as the library has it
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        inner = kind.fields_by_name["value"]
        return {_key(key): _single(inner, value[key], depth) for key in value}
    if field.is_repeated:
        return [_single(field, one, depth) for one in value]
    return _single(field, value, depth)


def _single(field: Any, value: Any, depth: int) -> JsonValue:  # noqa: ANN401
    if field.message_type is not None:
        return _plain(value, depth)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return int(value) if known is None else str(known.name)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, float) and not math.isfinite(value):
        raise UndecodableMessageError("not_a_number")
    return value  # type: ignore[no-any-return]  # text, a number, true or false


def _key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)
