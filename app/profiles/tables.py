"""The tables of a profile file as they stand in TOML, each with what may stand in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from app.core import templating
from app.core.callback import Correlation
from app.core.command import CommandState
from app.core.errors import ConfigurationError, InvalidInputError
from app.core.identifiers import validate_method
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
from app.profiles.faults import Fault, refuse
from app.profiles.rules import hears, impossible, unreachable

MAX_EXPECTATIONS: Final = 4


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


def _constant(value: str) -> str:
    if not templating.names_in(value):
        raise ValueError(
            f"{value!a} is the same for every command, so it tells none from another; "
            "allowed: what the command has, such as {params.flight_id}"
        )
    return value


def _dotted(text: str) -> str:
    keys = text.split(".")
    if not all(keys):
        raise ValueError(
            f"{text!a} has an empty key; allowed: keys of nested objects with dots between, such as data.code"
        )
    if keys[0] == "$" or any(sign in text for sign in "[]*"):
        raise ValueError(
            f"{text!a} is a path of another language; allowed: keys of nested objects with dots between, "
            "such as data.code; lists and the payload as a whole cannot be named"
        )
    return text


def _method(method: str) -> str:
    try:
        return validate_method(method)
    except InvalidInputError as error:
        raise ValueError(error.reason) from None


Topic = Annotated[str, AfterValidator(_template)]
Dotted = Annotated[str, AfterValidator(_dotted)]
Scalar = str | int | float | bool | None


def _path(dotted: str) -> Path:
    return tuple(dotted.split("."))


def _optional_path(dotted: str | None) -> Path | None:
    return None if dotted is None else _path(dotted)


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ConditionTable(_Table):
    """`{ path = …, is_in = […] }`."""

    path: Dotted
    is_in: list[Scalar] | None = None
    is_not: list[Scalar] | None = None
    present: bool | None = None

    @model_validator(mode="after")
    def _says_something(self) -> ConditionTable:
        if self.is_in is None and self.is_not is None and self.present is None:
            raise ValueError("needs is_in, is_not or present")
        if (reason := impossible(self.build())) is not None:
            raise ValueError(reason)
        return self

    def build(self) -> Condition:
        """The condition that the table describes."""
        return Condition(
            _path(self.path),
            None if self.is_in is None else tuple(self.is_in),
            None if self.is_not is None else tuple(self.is_not),
            self.present,
        )


class RuleTable(_Table):
    """`{ state = …, when = […] }`."""

    state: Literal["running", "succeeded", "failed"]
    when: list[ConditionTable] = []

    def build(self) -> Rule:
        """The rule that the table describes."""
        return Rule(CommandState(self.state), tuple(condition.build() for condition in self.when))


class SourceTable(_Table):
    """`{ path = … }`."""

    property: bool = False
    topic_level: str | None = None
    path: Dotted | None = None

    @model_validator(mode="after")
    def _is_one(self) -> SourceTable:
        if sum((self.property, self.topic_level is not None, self.path is not None)) != 1:
            raise ValueError("needs exactly one of property = true, topic_level, path")
        return self

    def build(self) -> CorrelationSource:
        """The source that the table describes."""
        return CorrelationSource(self.property, self.topic_level, _optional_path(self.path))


class ResponseTable(_Table):
    """`[[response]]`."""

    name: str
    topic: Topic
    correlation: Literal["id", "value", "order"]
    sources: list[SourceTable] = []
    rules: Annotated[list[RuleTable], Field(min_length=1)]
    match: list[ConditionTable] = []
    confirm: list[Dotted] = []
    value: Annotated[str, AfterValidator(_placeholders), AfterValidator(_constant)] | None = None
    result: Dotted | None = None
    progress: Dotted | None = None
    error_code: Dotted | None = None
    error_message: Dotted | None = None

    @model_validator(mode="after")
    def _makes_sense(self) -> ResponseTable:
        refuse(self._faults())
        return self

    def _faults(self) -> Iterator[Fault]:
        levels = TopicTemplate(self.topic).names
        if "device_id" not in levels:
            yield Fault(("topic",), "needs a level {device_id}: a response must tell which device it comes from")
        elif self.correlation != "id" and set(levels) != {"device_id"}:
            yield Fault(("topic",), "only correlation 'id' may have more placeholders in its topic than {device_id}")
        if (self.correlation == "order") == bool(self.sources):
            yield Fault((), "correlation 'order' has no sources, every other one needs at least one")
        if (self.correlation == "value") != (self.value is not None):
            yield Fault((), "value goes with correlation 'value', and only with it")
        for index, source in enumerate(self.sources):
            if source.topic_level is not None and source.topic_level not in levels:
                sentence = f"{source.topic_level!r} is no placeholder of the topic; it has: {', '.join(levels)}"
                yield Fault(("sources", index, "topic_level"), sentence)
        for index, earlier in unreachable([rule.build().when for rule in self.rules]):
            sentence = f"is never reached: rules.{earlier} before it holds whenever this one does"
            yield Fault(("rules", index), sentence)

    def build(self) -> ResponseSpec:
        """The kind of response that the table describes."""
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


class RequestTable(_Table):
    """`[request]`."""

    topic: Topic
    payload: Annotated[JsonValue, AfterValidator(_placeholders)]
    qos: Annotated[int, Field(ge=0, le=1)] = 1
    properties: bool = False
    traceparent: Dotted | None = None
    repeatable: list[Annotated[str, AfterValidator(_method)]] = []

    @model_validator(mode="after")
    def _has_room(self) -> RequestTable:
        if self.traceparent is not None:
            *way, name = _path(self.traceparent)
            place = lookup(self.payload, tuple(way)) if way else self.payload
            if not isinstance(place, dict) or name in place:
                sentence = f"{self.traceparent!r} is no free place in an object of the payload"
                refuse([Fault(("traceparent",), sentence)])
        return self

    @field_validator("repeatable")
    @classmethod
    def _once_each(cls, methods: list[str]) -> list[str]:
        twice = sorted(method for method, times in Counter(methods).items() if times > 1)
        if twice:
            raise ValueError(f"has {', '.join(twice)} twice; allowed: each method once")
        return methods

    @property
    def carries_the_id(self) -> bool:
        """Whether a device learns the command id, so that a response can carry it."""
        return self.properties or "id" in TopicTemplate(self.topic).names or "id" in templating.names_in(self.payload)

    def build(self) -> RequestSpec:
        """The request that the table describes."""
        return RequestSpec(
            TopicTemplate(self.topic),
            self.payload,
            self.qos,
            self.properties,
            _optional_path(self.traceparent),
            frozenset(self.repeatable),
        )


class ProfileTable(_Table):
    """A whole file."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]
    description: str
    request: RequestTable
    response: Annotated[list[ResponseTable], Field(min_length=1)]
    quarantine_seconds: Annotated[float, Field(ge=0, le=3600)] | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> ProfileTable:
        refuse(self._faults())
        return self

    def _faults(self) -> Iterator[Fault]:
        places = {(response.topic, response.correlation, response.value) for response in self.response}
        if len(places) > MAX_EXPECTATIONS:
            yield Fault(("response",), f"has {len(places)} kinds of response; allowed are {MAX_EXPECTATIONS}")
        ordered = any(response.correlation == "order" for response in self.response)
        if ordered != (self.quarantine_seconds is not None):
            yield Fault(
                () if ordered else ("quarantine_seconds",),
                "quarantine_seconds goes with correlation 'order', and only with it",
            )
        if any(response.correlation == "id" for response in self.response) and not self.request.carries_the_id:
            yield Fault(
                ("request",),
                "carries {id} nowhere, so that no response can; "
                "allowed: {id} in topic or payload, or properties = true",
            )
        yield from self._topic_faults()

    def _topic_faults(self) -> Iterator[Fault]:
        request = TopicTemplate(self.request.topic)
        for index, response in enumerate(self.response):
            if not response.match and hears(TopicTemplate(response.topic), request):
                yield Fault(
                    ("response", index, "topic"),
                    "is the topic of the request as well, so that each command would be read as its own response; "
                    "allowed: another topic, or a match that no request satisfies",
                )
            same = [one for one in range(index + 1) if self.response[one].topic == response.topic]
            rows = [[condition.build() for condition in self.response[one].match] for one in same]
            for later, earlier in unreachable(rows):
                if same[later] == index:
                    sentence = f"is never reached: response.{same[earlier]} before it takes all that this one matches"
                    yield Fault(("response", index), sentence)

    def build(self) -> DeviceProfile:
        """The profile that the table describes."""
        return DeviceProfile(
            name=self.name,
            description=self.description,
            request=self.request.build(),
            responses=tuple(response.build() for response in self.response),
            quarantine=timedelta(seconds=self.quarantine_seconds or 0),
        )


TABLES: Final[Mapping[str, type[BaseModel]]] = MappingProxyType(
    {
        "": ProfileTable,
        "request": RequestTable,
        "response": ResponseTable,
        "sources": SourceTable,
        "rules": RuleTable,
        "when": ConditionTable,
        "match": ConditionTable,
    }
)
"""By the key that they stand under."""
