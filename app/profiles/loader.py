"""Reads device profiles from TOML files and refuses wrong ones with file, key and reason."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from datetime import timedelta
from importlib import resources
from pathlib import Path as FilePath
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    field_validator,
    model_validator,
)

from app.core import templating
from app.core.callback import Correlation
from app.core.command import CommandState
from app.core.errors import ConfigurationError
from app.core.payload import lookup
from app.core.profile import (
    Condition,
    CorrelationSource,
    DeviceProfile,
    Path,
    RequestSpec,
    ResponseSpec,
    Rule,
)
from app.core.topics import TopicTemplate

MAX_EXPECTATIONS = 4


def _template(text: str) -> str:
    try:
        TopicTemplate(text)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return text


def _placeholders(value: JsonValue) -> JsonValue:
    try:
        templating.check(value)
    except ConfigurationError as error:
        raise ValueError(str(error)) from None
    return value


Topic = Annotated[str, AfterValidator(_template)]
Dotted = Annotated[str, Field(pattern=r"^[^.]+(\.[^.]+)*$")]
Scalar = str | int | float | bool | None


def _path(dotted: str) -> Path:
    return tuple(dotted.split("."))


def _optional_path(dotted: str | None) -> Path | None:
    return None if dotted is None else _path(dotted)


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _Condition(_Table):
    path: Dotted
    is_in: list[Scalar] | None = None
    is_not: list[Scalar] | None = None
    present: bool | None = None

    @model_validator(mode="after")
    def _says_something(self) -> _Condition:
        if self.is_in is None and self.is_not is None and self.present is None:
            raise ValueError("needs is_in, is_not or present")
        return self

    def build(self) -> Condition:
        return Condition(
            _path(self.path),
            None if self.is_in is None else tuple(self.is_in),
            None if self.is_not is None else tuple(self.is_not),
            self.present,
        )


class _Rule(_Table):
    state: Literal["running", "succeeded", "failed"]
    when: list[_Condition] = []

    def build(self) -> Rule:
        return Rule(CommandState(self.state), tuple(condition.build() for condition in self.when))


class _Source(_Table):
    property: bool = False
    topic_level: str | None = None
    path: Dotted | None = None

    @model_validator(mode="after")
    def _is_one(self) -> _Source:
        if sum((self.property, self.topic_level is not None, self.path is not None)) != 1:
            raise ValueError("needs exactly one of property = true, topic_level, path")
        return self

    def build(self) -> CorrelationSource:
        return CorrelationSource(self.property, self.topic_level, _optional_path(self.path))


class _Response(_Table):
    name: str
    topic: Topic
    correlation: Literal["id", "value", "order"]
    sources: list[_Source] = []
    rules: Annotated[list[_Rule], Field(min_length=1)]
    match: list[_Condition] = []
    confirm: list[Dotted] = []
    value: Annotated[str, AfterValidator(_placeholders)] | None = None
    result: Dotted | None = None
    progress: Dotted | None = None
    error_code: Dotted | None = None
    error_message: Dotted | None = None

    @field_validator("topic")
    @classmethod
    def _names_the_device(cls, topic: str) -> str:
        if "device_id" not in TopicTemplate(topic).names:
            raise ValueError("needs a level {device_id}: a response must tell which device it comes from")
        return topic

    @model_validator(mode="after")
    def _correlates(self) -> _Response:
        if (self.correlation == "order") == bool(self.sources):
            raise ValueError("correlation 'order' has no sources, every other one needs at least one")
        if (self.correlation == "value") != (self.value is not None):
            raise ValueError("value goes with correlation 'value', and only with it")
        levels = TopicTemplate(self.topic).names
        for source in self.sources:
            if source.topic_level is not None and source.topic_level not in levels:
                raise ValueError(f"topic_level {source.topic_level!r} is no placeholder of the topic; it has: {levels}")
        if self.correlation != "id" and set(levels) != {"device_id"}:
            raise ValueError("only correlation 'id' may have more placeholders in its topic than {device_id}")
        return self

    def build(self) -> ResponseSpec:
        return ResponseSpec(
            name=self.name,
            topic=TopicTemplate(self.topic),
            correlation=Correlation(self.correlation),
            sources=tuple(source.build() for source in self.sources),
            rules=tuple(rule.build() for rule in self.rules),
            match=tuple(condition.build() for condition in self.match),
            confirm=tuple(_path(dotted) for dotted in self.confirm),
            value=self.value,
            result=_optional_path(self.result),
            progress=_optional_path(self.progress),
            error_code=_optional_path(self.error_code),
            error_message=_optional_path(self.error_message),
        )


class _Request(_Table):
    topic: Topic
    payload: Annotated[JsonValue, AfterValidator(_placeholders)]
    qos: Annotated[int, Field(ge=0, le=1)] = 1
    properties: bool = False
    traceparent: Dotted | None = None

    @model_validator(mode="after")
    def _has_room(self) -> _Request:
        if self.traceparent is not None:
            *way, name = _path(self.traceparent)
            place = lookup(self.payload, tuple(way)) if way else self.payload
            if not isinstance(place, dict) or name in place:
                raise ValueError(f"traceparent {self.traceparent!r} is no free place in an object of the payload")
        return self


class _Profile(_Table):
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]
    description: str
    request: _Request
    response: Annotated[list[_Response], Field(min_length=1)]
    quarantine_seconds: Annotated[float, Field(ge=0, le=3600)] | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> _Profile:
        topics = {(response.topic, response.correlation, response.value) for response in self.response}
        if len(topics) > MAX_EXPECTATIONS:
            raise ValueError(f"{len(topics)} kinds of response; allowed are {MAX_EXPECTATIONS}")
        ordered = any(response.correlation == "order" for response in self.response)
        if ordered != (self.quarantine_seconds is not None):
            raise ValueError("quarantine_seconds goes with correlation 'order', and only with it")
        return self

    def build(self) -> DeviceProfile:
        request = self.request
        return DeviceProfile(
            name=self.name,
            description=self.description,
            request=RequestSpec(
                TopicTemplate(request.topic),
                request.payload,
                request.qos,
                request.properties,
                _optional_path(request.traceparent),
            ),
            responses=tuple(response.build() for response in self.response),
            quarantine=timedelta(seconds=self.quarantine_seconds or 0),
        )


def parse_profile(text: str, source: str) -> DeviceProfile:
    """Build the profile from TOML text; ConfigurationError names `source`, the key and what is wrong with it."""
    try:
        return _Profile.model_validate(tomllib.loads(text)).build()
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{source}: not TOML: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "the file"
        raise ConfigurationError(f"{source}: {key}: {first['msg'].removeprefix('Value error, ')}") from None


def load_profiles(folder: FilePath | None = None) -> Mapping[str, DeviceProfile]:
    """The shipped profiles and those in `folder`, by name; one in the folder replaces a shipped one of its name."""
    profiles = {}
    shipped = [entry for entry in resources.files("app.profiles").iterdir() if entry.name.endswith(".toml")]
    for entry in sorted(shipped, key=lambda one: one.name):
        profile = parse_profile(entry.read_text("utf-8"), entry.name)
        profiles[profile.name] = profile
    for file in _files(folder):
        try:
            text = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{file}: cannot be read: {error}") from None
        profile = parse_profile(text, str(file))
        profiles[profile.name] = profile
    return profiles


def _files(folder: FilePath | None) -> Iterable[FilePath]:
    if folder is None:
        return ()
    if not folder.is_dir():
        raise ConfigurationError(f"{folder}: no such folder of profiles")
    return sorted(folder.glob("*.toml"))
