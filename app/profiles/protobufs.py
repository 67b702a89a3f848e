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
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from app.core.errors import ConfigurationError, InvalidInputError, UndecodableMessageError
from app.core.payload import MAX_BYTES, MAX_DEPTH, JsonValue
from app.core.sources import Decode

Encode = Callable[[JsonValue], bytes]
MOST_DESCRIPTOR: Final = 1_000_000
"""Bytes of the largest descriptor file."""


@lru_cache(maxsize=256)
def protobuf(descriptor: bytes, name: str) -> tuple[Encode, Decode]:
    """How messages of this full name are written and read; ConfigurationError when the descriptor has none."""
    made = _message_class(descriptor, name)

    def encode(value: JsonValue) -> bytes:
        try:
            fields: dict[str, Any] = {} if value is None else value  # type: ignore[assignment]  # ParseDict tells
            return json_format.ParseDict(fields, made()).SerializeToString(deterministic=True)
        except (json_format.ParseError, ValueError, TypeError, AttributeError) as error:
            raise InvalidInputError("params", f"make no {name}: {str(error)[:200]}") from None

    def decode(data: bytes) -> JsonValue:
        if len(data) > MAX_BYTES:
            raise UndecodableMessageError("too_large")
        try:
            return _plain(made.FromString(data), MAX_DEPTH)
        except (DecodeError, UnicodeDecodeError):
            raise UndecodableMessageError("not_protobuf") from None

    return encode, decode


def _message_class(descriptor: bytes, name: str) -> type[Message]:
    if len(descriptor) > MOST_DESCRIPTOR:
        raise ConfigurationError(f"the descriptor has {len(descriptor)} bytes; allowed are {MOST_DESCRIPTOR}")
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptor)
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except (DecodeError, TypeError) as error:
        raise ConfigurationError(f"the descriptor cannot be read: {str(error)[:200]}") from None
    except KeyError:
        known = sorted(f"{file.package}.{one.name}".lstrip(".") for file in files.file for one in file.message_type)
        raise ConfigurationError(
            f"{name!a} is no message of the descriptor; allowed: {', '.join(known) or 'none'}"
        ) from None


def _plain(message: Message, depth: int) -> JsonValue:
    if depth == 0:
        raise UndecodableMessageError("too_deep")
    return {field.name: _field(field, value, depth - 1) for field, value in message.ListFields()}


def _field(field: FieldDescriptor, value: Any, depth: int) -> JsonValue:  # noqa: ANN401 - as the library has it
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        inner = kind.fields_by_name["value"]
        return {_key(key): _single(inner, value[key], depth) for key in value}
    if field.is_repeated:
        return [_single(field, one, depth) for one in value]
    return _single(field, value, depth)


def _single(field: FieldDescriptor, value: Any, depth: int) -> JsonValue:  # noqa: ANN401
    if isinstance(value, Message):
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
