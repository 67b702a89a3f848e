"""The values that may stand in the fields of a profile's tables."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from app.core.access.patterns import validate_pattern
from app.core.durations import DURATION, format_duration, parse_duration
from app.core.errors import ConfigurationError, InvalidInputError
from app.core.identifiers import validate_method
from app.core.profiles import templates
from app.core.profiles.sources import Decode
from app.core.topics import TopicTemplate
from app.profiles.codecs import CODECS, Encode
from app.profiles.language.paths import parse_path
from app.profiles.protobufs import protobuf

T = TypeVar("T")


class StrictTable(BaseModel):
    """A table of a profile: no other keys than its own, no values of other types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def template(text: str) -> TopicTemplate:
    """The template of a text that was checked already."""
    return TopicTemplate(text, allowed=None)


def form_of_ids(text: str) -> TopicTemplate:
    """The form of ids of devices: in `{product}:{serial}` the serial has whatever is behind the first colon."""
    return TopicTemplate(text, allowed=None, shortest=True)


def _template(text: str) -> str:
    try:
        template(text)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return text


def parts_of(info: ValidationInfo) -> tuple[str, ...]:
    """The parts of device ids in this file; what is checked may name them."""
    return tuple((info.context or {}).get("parts", ()))


def filled_topic(text: str, info: ValidationInfo) -> str:
    """A template whose placeholders the command fills in, all of them."""
    parts = parts_of(info)
    for name in template(text).names:
        if not templates.is_fact(name, parts):
            known = ", ".join(f"{{{fact}}}" for fact in (*templates.FACTS, *parts))
            raise ValueError(f"topic template {text!a}: {{{name}}} is unknown; allowed: {known}, {{params.…}}")
    return text


def filled(value: T, info: ValidationInfo) -> T:
    """A template of JSON whose placeholders the command fills in."""
    try:
        templates.check(value, parts_of(info))  # type: ignore[arg-type]  # JSON of one type or another
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return value


def _dotted(text: str) -> str:
    parse_path(text)
    return text


def _method(method: str) -> str:
    try:
        return validate_method(method)
    except InvalidInputError as error:
        raise ValueError(error.reason) from None


def duration_between(shortest: timedelta, longest: timedelta) -> Callable[[object], object]:
    """A validator that reads text such as `90s`."""

    def read(value: object) -> object:
        if not isinstance(value, str):
            raise ValueError("is not text: write a number and its unit, such as '90s'")  # noqa: TRY004 - pydantic's way
        duration = parse_duration(value)
        if not shortest <= duration <= longest:
            raise ValueError(
                f"{value} is out of range; allowed: {format_duration(shortest)} to {format_duration(longest)}"
            )
        return duration

    return read


def _pattern(text: str) -> str:
    try:
        return validate_pattern("methods", text)
    except InvalidInputError as error:
        raise ValueError(error.reason) from None


def _methods(methods: list[str]) -> list[str]:
    twice = sorted({method for method in methods if methods.count(method) > 1})
    if twice:
        raise ValueError(f"has {', '.join(twice)} twice; allowed: each method once")
    return methods


def _texts(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _telling(texts: list[str]) -> list[str]:
    names = set().union(*(templates.names_in(text) for text in texts))
    said = repr(texts[0]) if len(texts) == 1 else str(texts)
    if not names:
        raise ValueError(
            f"{said} is the same for every command, so it tells none from another; "
            "allowed: what the command has, such as {params.flight_id}"
        )
    if names & templates.INSTANTS:
        raise ValueError(f"{said} has an instant, which is not known before the command is on record")
    return texts


Topic = Annotated[str, AfterValidator(_template)]
Dotted = Annotated[str, AfterValidator(_dotted)]
TableName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]
MethodPattern = Annotated[str, AfterValidator(_pattern)]
MethodName = Annotated[str, AfterValidator(_method)]
Methods = Annotated[list[MethodName], AfterValidator(_methods)]
Values = Annotated[
    list[str],
    BeforeValidator(_texts),
    AfterValidator(_telling),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
DURATION_SCHEMA = WithJsonSchema({"type": "string", "pattern": f"^{DURATION}$"})


class ProtobufTable(StrictTable):
    """`codec = { protobuf = "package.Message", descriptor = "file.desc" }`."""

    protobuf: Annotated[str, Field(min_length=1, max_length=256)]
    descriptor: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]
    _pair: tuple[Encode, Decode] | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _reads_its_file(self, info: ValidationInfo) -> ProtobufTable:
        read: ReadFile = (info.context or {}).get("read_file", no_files)
        try:
            self._pair = protobuf(read(self.descriptor), self.protobuf)
        except ConfigurationError as error:
            raise ValueError(str(error)) from None
        return self

    def pair(self) -> tuple[Encode, Decode]:
        """Return how it is written and read."""
        if self._pair is None:
            raise ConfigurationError(f"{self.descriptor} was not read")
        return self._pair


ReadFile = Callable[[str], bytes]
"""Reads a file that stands beside the profile; ConfigurationError."""


def no_files(name: str) -> bytes:
    """For profiles that are no files."""
    raise ConfigurationError(f"{name}: cannot be read: the profile is no file")


def _kind_of_codec(value: object) -> str:
    return "<table>" if isinstance(value, dict | ProtobufTable) else "<name>"


Codec = Annotated[
    Annotated[Literal["json", "text", "empty", "cbor", "msgpack", "raw"], Tag("<name>")]
    | Annotated[ProtobufTable, Tag("<table>")],
    Discriminator(_kind_of_codec),
]


def pair_of(codec: str | ProtobufTable) -> tuple[Encode, Decode]:
    """Return how the codec of a table writes and reads."""
    return codec.pair() if isinstance(codec, ProtobufTable) else CODECS[codec]


DatabaseName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]
"""A database of the event log that a profile proposes."""
Scalar = str | int | float | bool | None
