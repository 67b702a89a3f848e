"""The tables of a profile file as they stand in TOML, each with what may stand in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, JsonValue, Tag, model_validator

from app.core.commands.command import CommandState
from app.core.paths import first, is_plain
from app.core.profiles import templates
from app.core.profiles.conditions import StateRule
from app.core.profiles.correlation import Correlation
from app.core.profiles.echoes import Comparison, Echo, Wish
from app.core.profiles.profile import RequestSpec, ResponseSpec
from app.profiles.expressions import expression
from app.profiles.language.faults import ProfileFault, refuse
from app.profiles.language.fields import (
    DURATION_SCHEMA,
    Codec,
    Dotted,
    Methods,
    StrictTable,
    Topic,
    Values,
    duration_between,
    filled,
    filled_topic,
    pair_of,
    template,
)
from app.profiles.language.heard import (
    ConditionTable,
    ExpressionTable,
    HeardTable,
    Place,
    Property,
    SourceTable,
    contradictions,
    part_of,
    path_of,
)
from app.profiles.language.paths import parse_path
from app.profiles.language.rules import unreachable


class RuleTable(StrictTable):
    """`{ state = …, when = […] }`."""

    state: Literal["running", "succeeded", "failed"]
    when: list[ConditionTable] = Field(default_factory=list)

    def build(self, *, wide: bool = False) -> StateRule:
        """The rule that the table describes."""
        return StateRule(CommandState(self.state), tuple(one.build(wide=wide) for one in self.when))


class WishTable(StrictTable):
    """`echo = [{ path = …, equals = … }]`."""

    path: Dotted
    equals: Annotated[JsonValue, AfterValidator(filled)] = None
    type: Literal["json", "number", "boolean", "text", "contains", "any"] = "json"
    tolerance: Annotated[float, Field(ge=0)] = 0.0

    @model_validator(mode="after")
    def _makes_sense(self) -> WishTable:
        if self.equals is None and (self.tolerance or self.type != "json"):
            raise ValueError("type and tolerance go with equals")
        if self.tolerance and self.type in ("boolean", "text", "any"):
            raise ValueError("a tolerance is for numbers")
        return self

    def build(self, *, wide: bool) -> Wish:
        """The wish that the table describes."""
        return Wish(parse_path(self.path).within(wide=wide), self.equals, Comparison(self.type), self.tolerance)


def _form(value: object) -> str:
    return "<table>" if isinstance(value, dict | ExpressionTable) else "<list>"


State = Annotated[
    Annotated[list[WishTable], Field(min_length=1), Tag("<list>")] | Annotated[ExpressionTable, Tag("<table>")],
    Discriminator(_form),
]
"""The condition under which a state is an answer."""
LONGEST: Final = timedelta(days=30)
Lasting = Annotated[timedelta, BeforeValidator(duration_between(timedelta(seconds=1), LONGEST)), DURATION_SCHEMA]


class ResponseTable(HeardTable):
    """`[[response]]`."""

    name: str
    correlation: Literal["id", "value", "echo", "order"]
    sources: list[SourceTable] = Field(default_factory=list)
    rules: Annotated[list[RuleTable], Field(min_length=1)]
    confirm: list[Dotted] = Field(default_factory=list)
    value: Annotated[Values, AfterValidator(filled)] | None = None
    result: Place | None = None
    progress: Place | None = None
    error_code: Place | None = None
    error_message: Place | None = None
    methods: Annotated[Methods, Field(min_length=1)] | None = None
    not_methods: Methods = Field(default_factory=list)
    also: bool = False
    echo: State | None = None
    within: Lasting | None = None
    no_op: Lasting | None = None

    @model_validator(mode="after")
    def _makes_sense(self) -> ResponseTable:
        refuse(self._faults())
        return self

    def _faults(self) -> Iterator[ProfileFault]:
        yield from self.common_faults()
        names = template(self.topic).names
        if (self.correlation in ("order", "echo")) == bool(self.sources):
            nameless = "echo" if self.correlation == "echo" else "order"
            yield ProfileFault((), f"correlation {nameless!r} has no sources, every other one needs at least one")
        yield from self._echo_faults()
        if self.also and self.correlation not in ("id", "value"):
            yield ProfileFault(
                ("also",), "goes with correlation 'id' or 'value': only what names its command is read twice"
            )
        if self.methods is not None and self.not_methods:
            yield ProfileFault(("not_methods",), "goes without methods; allowed: one of both")
        if (self.correlation == "value") != (self.value is not None):
            yield ProfileFault((), "value goes with correlation 'value', and only with it")
        for index, source in enumerate(self.sources):
            yield from self._source_faults(("sources", index), source, names)
        match = [one.build() for one in self.match]
        for index, rule in enumerate(self.rules):
            for fault in contradictions([one.build() for one in rule.when], "when", match):
                yield ProfileFault(("rules", index, *fault.location), fault.sentence)
        for index, earlier in unreachable([rule.build().when for rule in self.rules]):
            sentence = f"is never reached: rules.{earlier} before it holds whenever this one does"
            yield ProfileFault(("rules", index), sentence)

    def _echo_faults(self) -> Iterator[ProfileFault]:
        is_echo = self.correlation == "echo"
        for key in ("echo", "within"):
            if is_echo != (getattr(self, key) is not None):
                yield ProfileFault(
                    (key,) if not is_echo else (), f"{key} goes with correlation 'echo', and only with it"
                )
        if self.no_op is not None and not is_echo:
            yield ProfileFault(("no_op",), "goes with correlation 'echo', and only with it")
        if isinstance(self.echo, ExpressionTable) and self.wide:
            yield ProfileFault(
                ("echo",),
                "is an expression, of the payload alone; allowed: no path to a placeholder or user property besides",
            )

    def _source_faults(
        self, place: tuple[str | int, ...], source: SourceTable, names: Sequence[str]
    ) -> Iterator[ProfileFault]:
        for leaf in source.leaves():
            if leaf.topic_level is not None and leaf.topic_level not in names:
                sentence = f"{leaf.topic_level!r} is no placeholder of the topic; it has: {', '.join(names)}"
                yield ProfileFault((*place, "topic_level"), sentence)
            if leaf.property == "uuid" and self.correlation != "value":
                sentence = "a UUID is no id of ours; allowed: correlation = 'value' with value = '{id_uuid}'"
                yield ProfileFault((*place, "property"), sentence)
            if leaf.path == "$" and self.correlation == "id" and self.codec not in ("text", "raw"):
                sentence = "the whole payload is no id; allowed: the path to it, or codec = 'text'"
                yield ProfileFault((*place, "path"), sentence)
        if (source.all is not None or source.keys is not None) and self.correlation != "value":
            yield ProfileFault(place, "all and keys go with correlation 'value'; an id of ours is in one place")
        if source.all is not None and self.value is not None and len(source.all) != len(self.value):
            yield ProfileFault(
                place, f"all has {len(source.all)} places and value has {len(self.value)}; allowed: as many"
            )
        if source.all is None and self.value is not None and len(self.value) > 1:
            yield ProfileFault(place, "value has several parts; allowed: all = [ … ] with as many places")

    @property
    def paths(self) -> Iterator[str]:
        """All paths of the table."""
        yield from super().paths
        for rule in self.rules:
            yield from (one.path for one in rule.when)
        yield from self.confirm
        if isinstance(self.echo, list):
            yield from (wish.path for wish in self.echo)
        for source in self.sources:
            yield from (leaf.path for leaf in source.leaves() if leaf.path is not None)
        one_each = (self.result, self.progress, self.error_code, self.error_message)
        yield from (one for one in one_each if isinstance(one, str))

    @property
    def levels_read(self) -> set[str]:
        """The placeholders of the topic that are read by name, without a path."""
        return {leaf.topic_level for one in self.sources for leaf in one.leaves() if leaf.topic_level is not None}

    def build(self, form: str | None, but_not: frozenset[str], texts: Mapping[str, str]) -> ResponseSpec:
        """The kind of response that the table describes; `form` is how ids of devices are put together."""
        topic = template(self.topic)
        wide = self.wide
        at = partial(part_of, wide=wide)
        return ResponseSpec(
            name=self.name,
            topic=topic,
            correlation=Correlation(self.correlation),
            sources=tuple(source.build(wide=wide) for source in self.sources),
            rules=tuple(rule.build(wide=wide) for rule in self.rules),
            match=tuple(one.build(wide=wide) for one in self.match),
            confirm=tuple(parse_path(dotted).within(wide=wide) for dotted in self.confirm),
            value=tuple(self.value or ()),
            result=at(self.result),
            progress=at(self.progress),
            error_code=at(self.error_code),
            error_message=at(self.error_message),
            decode=pair_of(self.codec)[1],
            encode=pair_of(self.codec)[0],
            device=self.source_of_device(form, wide=wide),
            captures={name: f"{{{name}}}" for name in self.captures(() if form is None else template(form).names)},
            wide=wide,
            methods=None if self.methods is None else frozenset(self.methods),
            but_not=but_not.union(self.not_methods) if self.methods is None else frozenset(),
            texts=texts,
            also=self.also,
            echo=self._echo(wide=wide),
        )

    def _echo(self, *, wide: bool) -> Echo | None:
        if self.echo is None or self.within is None:
            return None
        if isinstance(self.echo, ExpressionTable):
            return Echo((), self.within, expression(self.echo.jmespath), self.no_op)
        return Echo(tuple(wish.build(wide=wide) for wish in self.echo), self.within, no_op=self.no_op)


PropertyName = Annotated[str, Field(pattern=r"^[!-z|~]{1,64}$")]
PropertyText = Annotated[str, Field(pattern=r"^[ -~]{0,256}$")]


class RequestTable(StrictTable):
    """`[request]`, or one of several `[[request]]`."""

    topic: Annotated[Topic, AfterValidator(filled_topic)]
    payload: Annotated[JsonValue, AfterValidator(filled)] = None
    codec: Codec = "json"
    qos: Annotated[int, Field(ge=0, le=1)] = 1
    properties: Property = False
    user_properties: dict[PropertyName, Annotated[PropertyText, AfterValidator(filled)]] = Field(default_factory=dict)
    merge_params: bool = False
    omit_absent: bool = False
    traceparent: Dotted | None = None
    repeatable: Methods = Field(default_factory=list)
    methods: Annotated[Methods, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _makes_sense(self) -> RequestTable:
        refuse(self._faults())
        return self

    def _faults(self) -> Iterator[ProfileFault]:
        if ("payload" in self.model_fields_set) == (self.codec == "empty"):
            yield ProfileFault(("payload",), "is needed, unless codec is 'empty', which has none")
        if self.merge_params and (not isinstance(self.payload, dict) or self.codec in ("text", "raw")):
            yield ProfileFault(
                ("merge_params",), "needs a payload that is a table, which the members of the params join"
            )
        if self.codec in ("text", "raw") and not isinstance(self.payload, str):
            yield ProfileFault(("payload",), f"is no text, which codec {self.codec!r} needs")
        if self.traceparent is not None and not self._has_room(self.traceparent):
            yield ProfileFault(("traceparent",), f"{self.traceparent!r} is no free place in an object of the payload")
        for name, text in self.user_properties.items():
            if any(one.startswith("params") for one in templates.names_in(text)):
                sentence = "names the params, which may be longer than MQTT takes here; allowed: all other facts"
                yield ProfileFault(("user_properties", name), sentence)
        strangers = sorted(set(self.repeatable) - set(self.methods or self.repeatable))
        if strangers:
            yield ProfileFault(
                ("repeatable",), f"has {', '.join(strangers)}, which is not among the methods of this request"
            )

    def _has_room(self, dotted: str) -> bool:
        *way, name = parse_path(dotted).path or ((),)
        place = first(self.payload, tuple(way)) if is_plain(tuple(way)) else None
        return isinstance(place, dict) and isinstance(name, str) and name not in place

    @property
    def ids(self) -> set[str]:
        """Return what a device learns of the command id, so that a response can carry it: it, or digests of it."""
        names = {*template(self.topic).names, *templates.names_in(self.payload)}
        names |= templates.names_in(list(self.user_properties.values()))
        if self.properties:
            names.add("id_uuid" if self.properties == "uuid" else "id")
        return names & templates.IDS

    def build(self) -> RequestSpec:
        """The request that the table describes."""
        return RequestSpec(
            topic=template(self.topic),
            payload=self.payload,
            qos=self.qos,
            properties=bool(self.properties),
            uuid=self.properties == "uuid",
            user_properties=self.user_properties,
            traceparent=path_of(self.traceparent),
            repeatable=frozenset(self.repeatable),
            methods=None if self.methods is None else frozenset(self.methods),
            encode=pair_of(self.codec)[0],
            decode=pair_of(self.codec)[1],
            merge_params=self.merge_params,
            omit_absent=self.omit_absent,
        )
