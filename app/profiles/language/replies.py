"""The tables of a profile file for what Homing says to devices that ask."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Annotated, Final

from pydantic import AfterValidator, Field, JsonValue, model_validator

from app.core.payload import MISSING
from app.core.replies.handlers import HANDLER_NAME
from app.core.replies.reply import LastCommand, LastValue, ReplySpec
from app.core.topics import TopicTemplate
from app.profiles.expressions import FACTS, expressions_in, faults_in, maker, names_in, path_of_fact
from app.profiles.language.faults import ProfileFault, refuse
from app.profiles.language.fields import Codec, DatabaseName, Dotted, Methods, StrictTable, Topic, pair_of, template
from app.profiles.language.heard import HeardTable
from app.profiles.language.paths import parse_path
from app.profiles.language.positions import Location
from app.profiles.language.rules import hears

MOST_VALUES: Final = 8
"""Last values that one kind of reply may speak of; each is read for each message."""


WHOLE_ANSWER: Final = "{handler}"
"""The payload of a reply that a handler makes and the profile does not."""
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")


class LastTable(StrictTable):
    """`last = { methods = […], same = { "path in params" = "path in message" } }`."""

    methods: Annotated[Methods, Field(min_length=1)]
    same: dict[Dotted, Dotted] = Field(default_factory=dict)
    open: bool = False

    def build(self) -> LastCommand:
        """Return what the table describes."""
        same = tuple((parse_path(there).path, parse_path(here).path) for there, here in self.same.items())
        return LastCommand(frozenset(self.methods), same, self.open)


def _handler(name: str) -> str:
    if not HANDLER_NAME.fullmatch(name):
        raise ValueError(
            f"{name[:64]!a} is no name; allowed: a lower-case letter, then up to 31 of a-z 0-9 _ -. Where it is, and "
            "its secret, are the operator's: they stand under the name in the file of HOMING_REPLY_HANDLERS"
        )
    return name


class StateTable(StrictTable):
    """`state.position = { topic = "lamps/{device_id}/position" }`."""

    topic: Topic
    codec: Codec = "json"
    database: DatabaseName | None = None
    default: JsonValue = None

    def build(self, name: str, proposed: Mapping[TopicTemplate, str | None]) -> LastValue:
        """The value that the table describes; `proposed` are the databases of the events of its file by their topic."""
        topic = template(self.topic)
        database = self.database or next((there for one, there in proposed.items() if hears(one, topic)), None)
        default = self.default if "default" in self.model_fields_set else MISSING
        return LastValue(name, topic, database, pair_of(self.codec)[1], default)


class ReplyTable(HeardTable):
    """`[[reply]]`."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    to: Topic
    payload: JsonValue = None
    reply_codec: Codec | None = None
    qos: Annotated[int, Field(ge=0, le=1)] = 1
    needs: list[str] = Field(default_factory=list)
    last: LastTable | None = None
    state: dict[str, StateTable] = Field(default_factory=dict)
    handler: Annotated[str, AfterValidator(_handler)] | None = None

    @model_validator(mode="after")
    def _makes_sense(self) -> ReplyTable:
        refuse(self._faults())
        return self

    def _faults(self) -> Iterator[ProfileFault]:
        yield from self.common_faults()
        yield from faults_in(self.payload, ("payload",))
        names = {"device_id", *template(self.topic).names}
        unknown = sorted(set(template(self.to).names) - names)
        if unknown:
            known = ", ".join(f"{{{one}}}" for one in sorted(names))
            yield ProfileFault(("to",), f"{{{unknown[0]}}} is unknown; allowed: {known}")
        elif hears(template(self.topic), template(self.to)):
            yield ProfileFault(("to",), "is a topic that this reply is to, so that it would answer itself for ever")
        for index, name in enumerate(self.needs):
            if name.partition(".")[0] not in FACTS:
                yield ProfileFault(
                    ("needs", index), f"{name!a} is unknown; allowed: {', '.join(FACTS)}, with a path behind"
                )
        if self.last is None and any(one.split(".")[0] == "command" for one in names_in(self.payload)):
            yield ProfileFault(("payload",), "speaks of {command…}, which goes with last = { methods = […] }")
        if self.handler is None and any(one.split(".")[0] == "handler" for one in names_in(self.payload)):
            yield ProfileFault(("payload",), 'speaks of {handler…}, which goes with handler = "name"')
        yield from self._state_faults(names)

    def _state_faults(self, names: AbstractSet[str]) -> Iterator[ProfileFault]:
        known = ", ".join(f"{{state.{one}}}" for one in self.state) or "none, as there is no state = { … }"
        spoken: list[tuple[Location, str]] = [(("payload",), name) for name in names_in(self.payload)]
        spoken += [(("needs", index), name) for index, name in enumerate(self.needs)]
        for place, name in spoken:
            fact, _, rest = name.partition(".")
            if fact == "state" and rest.partition(".")[0] not in self.state:
                yield ProfileFault(place, f"{{{name}}} is unknown; allowed: {known}")
        if len(self.state) > MOST_VALUES:
            yield ProfileFault(("state",), f"has {len(self.state)} values; allowed are {MOST_VALUES}")
        for name, table in self.state.items():
            if not _NAME.fullmatch(name):
                sentence = f"{name!a} is no name; allowed: a lower-case letter, then up to 31 of a-z 0-9 _"
                yield ProfileFault(("state", name), sentence)
            unknown = sorted(set(template(table.topic).names) - names)
            if unknown:
                allowed = ", ".join(f"{{{one}}}" for one in sorted(names))
                yield ProfileFault(("state", name, "topic"), f"{{{unknown[0]}}} is unknown; allowed: {allowed}")

    @property
    def _says_payload(self) -> bool:
        return "payload" in self.model_fields_set

    @property
    def levels_read(self) -> set[str]:
        """The placeholders of the topic that are read by name, without a path."""
        named = {one.partition(".")[2] for one in names_in(self.payload) if one.startswith("topic.")}
        spoken = {one for one in template(self.topic).names for text in expressions_in(self.payload) if one in text}
        filled = (self.to, *(one.topic for one in self.state.values()))
        return named | spoken | {name for one in filled for name in template(one).names}

    def values_named(self) -> set[str]:
        """The values of the file that it speaks of."""
        named = [*names_in(self.payload), *self.needs]
        return {one.split(".")[1] for one in named if one.startswith("values.")}

    def build(
        self, form: str | None, values: Mapping[str, JsonValue], events: Mapping[TopicTemplate, str | None]
    ) -> ReplySpec:
        """The kind of reply that the table describes; `form` is how ids of devices are put together.

        `events` are the databases of the events of its file by their topics.
        """
        wide = self.wide
        return ReplySpec(
            name=self.name,
            topic=template(self.topic),
            to=template(self.to),
            render=maker(self.payload if self.handler is None or self._says_payload else WHOLE_ANSWER),
            encode=pair_of(self.reply_codec or self.codec)[0],
            match=tuple(one.build(wide=wide) for one in self.match),
            needs=tuple(path_of_fact(one) for one in self.needs),
            last=None if self.last is None else self.last.build(),
            state=tuple(one.build(name, events) for name, one in self.state.items()),
            handler=self.handler,
            values=values,
            qos=self.qos,
            decode=pair_of(self.codec)[1],
            device=self.source_of_device(form, wide=wide),
            wide=wide,
        )


def reply_faults(
    tables: Sequence[ReplyTable], values: Mapping[str, JsonValue], heard: Sequence[str], parts: Sequence[str]
) -> Iterator[ProfileFault]:
    """Return what is wrong with them in their file; `heard` are the topics of responses, events and presence."""
    topics = [*(one.topic for one in tables), *heard]
    for index, table in enumerate(tables):
        for name, state in table.state.items():
            there = set(template(state.topic).names)
            own = parts if table.device is None else ()
            if "device_id" not in there and not (own and set(own) <= there):
                also = "".join(f" and {{{one}}}" for one in own).removeprefix(" and")
                sentence = "may be the topic of another device; allowed: one with {device_id}"
                yield ProfileFault(("reply", index, "state", name, "topic"), sentence + (also and f", or with{also}"))
        strangers = sorted(table.values_named() - values.keys())
        if strangers:
            known = ", ".join(values) or "none, as there is no [values]"
            yield ProfileFault(("reply", index), f"{{values.{strangers[0]}}} is unknown; allowed: {known}")
        loop = next((one for one in topics if one != table.topic and hears(template(one), template(table.to))), None)
        chosen = next((one for one in topics if _may_choose(table, one, parts)), None)
        if loop is not None:
            yield ProfileFault(
                ("reply", index, "to"), f"is read by Homing itself, as {loop}; allowed: a topic of devices"
            )
        elif chosen is not None:
            sentence = (
                f"a message could choose {chosen}, which Homing reads itself; allowed: a topic that it cannot choose"
            )
            yield ProfileFault(("reply", index, "to"), sentence)


def _may_choose(table: ReplyTable, heard: str, parts: Sequence[str]) -> bool:
    """True if what a message has in its topic can make the reply one of those that are heard."""
    own = [f"{{{name}}}" for name in ("device_id", *parts)]
    levels = table.to.split("/")
    free = ["{" in level and not any(name in level for name in own) for level in levels]
    there = template(heard).levels
    if not any(free) or len(levels) != len(there):
        return False
    return all(chosen or word in (None, level) for chosen, word, level in zip(free, there, levels, strict=True))
