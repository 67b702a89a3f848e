"""The tables of a profile file that say how a message is told, and which device it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from app.core.errors import InvalidInputError
from app.core.identifiers import validate_device_id
from app.core.paths import Path
from app.core.profiles import templates
from app.core.profiles.conditions import PathCondition, condition
from app.core.profiles.profile import Part
from app.core.profiles.sources import CorrelationSource, DeviceSource
from app.profiles.expressions import expression, fault_of
from app.profiles.language.faults import ProfileFault
from app.profiles.language.fields import Codec, Dotted, Scalar, StrictTable, Topic, form_of_ids, template
from app.profiles.language.paths import parse_path, shown
from app.profiles.language.rules import contradicting, impossible


def path_of(dotted: str | None, *, wide: bool = False) -> Path | None:
    """The path of a text that was checked already; `wide` as in ResponseSpec."""
    return None if dotted is None else parse_path(dotted).within(wide=wide)


def capture_of(dotted: str | None) -> str | None:
    """The placeholder of the topic that the path leads to."""
    return None if dotted is None else parse_path(dotted).capture


class ConditionTable(StrictTable):
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
        place = parse_path(self.path)
        if place.is_text and not all(isinstance(one, str) for one in (*(self.is_in or ()), *(self.is_not or ()))):
            where = "of the topic" if place.capture else "beside the payload"
            raise ValueError(f"{self.path} is text {where}; allowed: text to compare it with")
        return self

    def build(self, *, wide: bool = False) -> PathCondition:
        """The condition that the table describes."""
        return condition(
            parse_path(self.path).within(wide=wide),
            None if self.is_in is None else tuple(self.is_in),
            None if self.is_not is None else tuple(self.is_not),
            present=self.present,
        )


Property = bool | Literal["uuid"]
"""The correlation data of MQTT 5: text, or the bytes of a UUID."""


class PartTable(StrictTable):
    """An element of `all` in a source."""

    property: Property = False
    topic_level: str | None = None
    path: Dotted | None = None

    @model_validator(mode="after")
    def _is_one(self) -> PartTable:
        if sum((bool(self.property), self.topic_level is not None, self.path is not None)) != 1:
            raise ValueError("needs exactly one of property = true, topic_level, path")
        return self

    def build(self, *, wide: bool) -> CorrelationSource:
        """The source that the table describes."""
        uuid = self.property == "uuid"
        return CorrelationSource(bool(self.property), self.topic_level, path_of(self.path, wide=wide), uuid=uuid)


class SourceTable(StrictTable):
    """`{ path = … }`."""

    property: Property = False
    topic_level: str | None = None
    path: Dotted | None = None
    keys: Dotted | None = None
    all: Annotated[list[PartTable], Field(min_length=2)] | None = None

    @model_validator(mode="after")
    def _is_one(self) -> SourceTable:
        given = (bool(self.property), *(one is not None for one in (self.topic_level, self.path, self.keys, self.all)))
        if sum(given) != 1:
            raise ValueError("needs exactly one of property = true, topic_level, path, keys, all")
        return self

    def leaves(self) -> Sequence[SourceTable | PartTable]:
        """Return what is read, one by one."""
        return [self] if self.all is None else self.all

    def build(self, *, wide: bool) -> CorrelationSource:
        """The source that the table describes."""
        return CorrelationSource(
            bool(self.property),
            self.topic_level,
            path_of(self.path, wide=wide),
            path_of(self.keys, wide=wide),
            tuple(part.build(wide=wide) for part in self.all or ()),
            uuid=self.property == "uuid",
        )


def _device(device_id: str) -> str:
    try:
        return validate_device_id(device_id)
    except InvalidInputError as error:
        raise ValueError(error.reason) from None


class DeviceTable(StrictTable):
    """`device = { path = … }`."""

    path: Dotted | None = None
    fixed: Annotated[str, AfterValidator(_device)] | None = None

    @model_validator(mode="after")
    def _is_one(self) -> DeviceTable:
        if (self.path is None) == (self.fixed is None):
            raise ValueError("needs exactly one of path, fixed")
        return self


class ExpressionTable(StrictTable):
    """`{ jmespath = "…" }`, where a path is not enough."""

    jmespath: str

    @model_validator(mode="after")
    def _is_one(self) -> ExpressionTable:
        if (wrong := fault_of(self.jmespath)) is not None:
            raise ValueError(wrong)
        return self


def _place(value: object) -> str:
    return "<table>" if isinstance(value, dict | ExpressionTable) else "<path>"


Place = Annotated[Annotated[Dotted, Tag("<path>")] | Annotated[ExpressionTable, Tag("<table>")], Discriminator(_place)]
"""The place of something in a message."""


def part_of(place: str | ExpressionTable | None, *, wide: bool = False) -> Part | None:
    """Return what finds it; `wide` as in ResponseSpec."""
    if not isinstance(place, ExpressionTable):
        return path_of(place, wide=wide)
    find = expression(place.jmespath)
    return (lambda document: find(document["payload"]) if isinstance(document, dict) else None) if wide else find


def contradictions(
    conditions: Sequence[PathCondition], key: str, besides: Sequence[PathCondition] = ()
) -> Iterator[ProfileFault]:
    """Conditions that never hold together, or never with those `besides` them, of the match."""
    index = contradicting(conditions, besides)
    if index is not None:
        path = shown(conditions[index].path)
        with_match = " or the match" if besides else ""
        yield ProfileFault(
            (key, index), f"never holds, as another condition on {path} before it{with_match} says the contrary"
        )


class HeardTable(StrictTable):
    """The messages that are heard from devices: those of a topic, or those of them that match."""

    topic: Topic
    codec: Codec = "json"
    match: list[ConditionTable] = Field(default_factory=list)
    device: DeviceTable | None = None

    @property
    def paths(self) -> Iterator[str]:
        """All paths of the table."""
        yield from (one.path for one in self.match)
        if self.device is not None and self.device.path is not None:
            yield self.device.path

    @property
    def levels_read(self) -> set[str]:
        """The placeholders of the topic that are read by name, without a path."""
        return set()

    @property
    def captures_used(self) -> set[str]:
        """The placeholders of the topic that paths name."""
        return {name for path in self.paths if (name := capture_of(path)) is not None}

    @property
    def wide(self) -> bool:
        """True if a path leads elsewhere than into the payload."""
        return any(parse_path(path).is_text for path in self.paths)

    def captures(self, parts: Sequence[str]) -> tuple[str, ...]:
        """The placeholders of the topic that a command does not know; `parts` are those of the device id."""
        known = {"device_id", *parts}
        return tuple(
            name
            for name in template(self.topic).names
            if name not in known and (name in templates.INSTANTS or not templates.is_fact(name))
        )

    def common_faults(self) -> Iterator[ProfileFault]:
        """Return what is wrong with the table by itself."""
        names = template(self.topic).names
        if not any(template(self.topic).levels):
            yield ProfileFault(
                ("topic",),
                "has no level that is a word, so that it matches all messages of as many levels, whoever they are of; "
                "allowed: one such level at least",
            )
        yield from contradictions([one.build() for one in self.match], "match")
        if self.device is not None and "device_id" in names:
            yield ProfileFault(("device",), "the topic has a placeholder {device_id} already; allowed: one of both")
        for used in sorted(self.captures_used):
            if used not in names:
                yield ProfileFault(
                    (), f"{{{used}}} is no placeholder of the topic; it has: {', '.join(names) or 'none'}"
                )

    def faults_in(self, form: str | None) -> Iterator[ProfileFault]:
        """Return what is wrong with the table in its file; `form` is how ids of devices are put together."""
        names = set(template(self.topic).names)
        parts = () if form is None else template(form).names
        if self.device is None and "device_id" not in names and not set(parts) & names:
            yield ProfileFault(
                ("topic",),
                "needs a level {device_id}: a message must tell which device it comes from; "
                "allowed: device = { path = … } or { fixed = … } instead",
            )
        elif self.device is None and "device_id" not in names and not set(parts) <= names:
            yield ProfileFault(("topic",), f"has not all parts of device_id, {form}")
        used = self.captures_used | self.levels_read
        for name in self.captures(parts):
            if name not in used and not name.startswith("_"):
                sentence = (
                    f"{{{name}}} is unknown, and nothing reads it; allowed: a fact of the command, or {{_{name}}}"
                )
                yield ProfileFault(("topic",), sentence)

    def source_of_device(self, form: str | None, *, wide: bool) -> DeviceSource | None:
        """Return where a message says which device it comes from; None where a level of the topic does."""
        if self.device is not None:
            return DeviceSource(self.device.fixed, path_of(self.device.path, wide=wide))
        if "device_id" in template(self.topic).names:
            return None
        return None if form is None else DeviceSource(form=form_of_ids(form))
