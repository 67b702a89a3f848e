"""A whole profile file, and what its tables must not say together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, JsonValue, model_validator

from app.core.errors import ConfigurationError
from app.core.profiles import templates
from app.core.profiles.profile import DeviceProfile
from app.profiles.language.approvals import ApprovalTable, approval_faults
from app.profiles.language.faults import ProfileFault, refuse
from app.profiles.language.fields import ReadFile, StrictTable, Topic, form_of_ids, no_files, template
from app.profiles.language.heard import ConditionTable, DeviceTable, HeardTable, PartTable, SourceTable
from app.profiles.language.interlocks import (
    CircleTable,
    ComparisonTable,
    InterlockInputTable,
    InterlockTable,
    NeedTable,
    interlock_faults,
)
from app.profiles.language.lanes import LaneTable, lane_faults
from app.profiles.language.loops import endless, own_command_faults
from app.profiles.language.methods import MethodTable, catalogue_faults, catalogue_of
from app.profiles.language.probes import ProbeTable, QuestionTable, probe_faults
from app.profiles.language.questions import QuestionsOfFile
from app.profiles.language.replies import LastTable, ReplyTable, StateTable, reply_faults
from app.profiles.language.rules import unreachable
from app.profiles.language.tables import RequestTable, ResponseTable, RuleTable, WishTable
from app.profiles.language.unasked import EventTable, PresenceTable

MAX_EXPECTATIONS: Final = 4
BECOMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "response": "read as its own response",
        "event": "kept as an event of its device",
        "presence": "a sign of life of its device",
        "reply": "answered by Homing itself",
    }
)
"""The thing that a command of ours would be taken for, by the key of the table that hears it."""


class ProfileTable(StrictTable):
    """A whole file."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]
    description: str
    request: RequestTable
    response: Annotated[list[ResponseTable], Field(min_length=1)]
    quarantine_seconds: Annotated[float, Field(ge=0, le=3600)] | None = None
    device_id: Topic | None = None
    event: list[EventTable] = Field(default_factory=list)
    presence: list[PresenceTable] = Field(default_factory=list)
    reply: list[ReplyTable] = Field(default_factory=list)
    values: dict[str, JsonValue] = Field(default_factory=dict)
    methods: Literal["closed", "guarded", "open"] = "open"
    method: list[MethodTable] = Field(default_factory=list)
    interlock: list[InterlockTable] = Field(default_factory=list)
    lane: list[LaneTable] = Field(default_factory=list)
    approval: list[ApprovalTable] = Field(default_factory=list)
    probe: list[ProbeTable] = Field(default_factory=list)
    codes: dict[str, Annotated[str, Field(min_length=1, max_length=300)]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits_together(self) -> ProfileTable:
        refuse(self._faults())
        return self

    def requests(self) -> Mapping[tuple[str | int, ...], RequestTable]:
        """Return how commands are published, by where it stands in the file."""
        return {("request",): self.request}

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the device id."""
        return () if self.device_id is None else template(self.device_id).names

    def _faults(self) -> Iterator[ProfileFault]:
        yield from self._order_faults()
        yield from self._device_faults()
        yield from self._request_faults()
        yield from self._response_faults()
        yield from catalogue_faults(self.methods, self.method, self._methods())
        for key, tables in (("event", self.event), ("presence", self.presence), ("reply", self.reply)):
            for index, table in enumerate(tables):
                own = own_command_faults(table, self.requests().values(), BECOMES[key])
                for fault in (*table.faults_in(self.device_id), *own):
                    yield ProfileFault((key, index, *fault.location), fault.sentence)
            if key != "reply":  # one that lacks something leaves its message to the next
                yield from _hidden(key, tables)
        read = (self.response, self.event, self.presence)
        yield from interlock_faults(self.interlock, self.event, self.parts, self._closed(), self._repeatable())
        yield from lane_faults(self.lane, self._closed())
        yield from approval_faults(self.approval, self._closed())
        yield from probe_faults(self.probe, self.event, self.parts, self._closed())
        yield from self._questions().faults()
        yield from reply_faults(self.reply, self.values, [one.topic for tables in read for one in tables], self.parts)

    def _questions(self) -> QuestionsOfFile:
        return QuestionsOfFile(
            probes=self.probe,
            requests=tuple(self.requests().values()),
            answering=self._answering,
            catalogue=catalogue_of(self.methods, self.method),
            lanes=self.lane,
            approvals=self.approval,
            parts=self.parts,
            named=sorted(self._methods().union(one.name for one in self.method)),
        )

    def _closed(self) -> set[str] | None:
        """All methods that are sent; None where others are sent as well."""
        return {one.name for one in self.method} if self.methods == "closed" else None

    def _repeatable(self) -> set[str]:
        """All methods that may be executed twice."""
        return set().union(*(one.repeatable for one in self.requests().values()))

    def _order_faults(self) -> Iterator[ProfileFault]:
        ordered = any(response.correlation == "order" for response in self.response)
        if ordered != (self.quarantine_seconds is not None):
            yield ProfileFault(
                () if ordered else ("quarantine_seconds",),
                "quarantine_seconds goes with correlation 'order', and only with it",
            )

    def _device_faults(self) -> Iterator[ProfileFault]:
        if self.device_id is None:
            return
        facts = sorted(name for name in self.parts if templates.is_fact(name))
        if not self.parts or facts or "/" in self.device_id:
            yield ProfileFault(
                ("device_id",),
                f"{self.device_id!a} is no form of ids; allowed: names of your own for its parts, with something "
                "between them, such as {product}:{serial}",
            )

    def _request_faults(self) -> Iterator[ProfileFault]:
        taken: set[str] = set()
        for place, request in self.requests().items():
            again = sorted(taken & set(request.methods or ()))
            if again or None in taken:
                yield ProfileFault(
                    place, f"is never reached for {', '.join(again) or 'any method'}: one before it has them"
                )
            taken |= set(request.methods) if request.methods is not None else {None}  # type: ignore[arg-type]
            for needed in sorted(self._ids_needed(request) - request.ids):
                also = {"id": ", or properties = true", "id_uuid": ", or properties = 'uuid'"}.get(needed, "")
                yield ProfileFault(
                    place,
                    f"carries {{{needed}}} nowhere, so that no response can; "
                    f"allowed: {{{needed}}} in topic or payload{also}",
                )
            if request.properties and self.response[0].captures(self.parts):
                yield ProfileFault(
                    (*place, "properties"), "needs a first kind of response whose topic the command knows"
                )

    def _ids_needed(self, request: RequestTable) -> set[str]:
        """Return what of ids the responses to such a request carry."""
        needed: set[str] = set()
        for response in self.response:
            if not _have_in_common(request.methods, response.methods):
                continue
            if response.correlation == "id":
                needed.add("id")
            needed |= templates.names_in(list(response.value or ())) & templates.IDS
        return needed

    def _response_faults(self) -> Iterator[ProfileFault]:
        known = self._methods()
        for method in sorted(known) or [""]:
            places = {(one.topic, one.correlation, str(one.value)) for one in self._answering(method)}
            if len(places) > MAX_EXPECTATIONS:
                yield ProfileFault(
                    ("response",), f"has {len(places)} kinds of response; allowed are {MAX_EXPECTATIONS}"
                )
                break
        for index, response in enumerate(self.response):
            for fault in self._faults_of(response):
                yield ProfileFault(("response", index, *fault.location), fault.sentence)
            strangers = sorted({*(response.methods or ()), *response.not_methods} - known)
            if strangers and all(one.methods is not None for one in self.requests().values()):
                yield ProfileFault(
                    ("response", index, "methods"), f"has {', '.join(strangers)}, for which there is no request"
                )
            if response.methods is not None and response.name in [one.name for one in self.response[:index]]:
                yield ProfileFault(
                    ("response", index, "name"), f"{response.name!a} is the name of another kind; allowed: one each"
                )
            yield from self._hidden(index)
        open_to_any = any(one.methods is None for one in self.requests().values())
        methods = ["", *sorted(known)] if open_to_any else sorted(known)
        yield from endless(methods, [(one, self._apart(one).union(one.not_methods)) for one in self.response])

    def _faults_of(self, response: ResponseTable) -> Iterator[ProfileFault]:
        yield from response.faults_in(self.device_id)
        yield from own_command_faults(response, self.requests().values(), BECOMES["response"])

    def _hidden(self, index: int) -> Iterator[ProfileFault]:
        """True if an earlier kind of the same topic and methods takes all that this one matches."""
        mine = self.response[index]
        before = [one for one in range(index) if not self.response[one].also]
        same = [] if mine.also else [one for one in (*before, index) if _alike(self.response[one], mine)]
        rows = [[condition.build() for condition in self.response[one].match] for one in same]
        for later, earlier in unreachable(rows):
            if same[later] == index:
                sentence = f"is never reached: response.{same[earlier]} before it takes all that this one matches"
                yield ProfileFault(("response", index), sentence)

    def _methods(self) -> set[str]:
        """All that are named in requests and responses."""
        named: set[str] = set().union(*(one.methods or () for one in self.requests().values()))
        return named or set().union(*(one.methods or () for one in self.response))

    def _answering(self, method: str) -> list[ResponseTable]:
        return [
            one
            for one in self.response
            if (
                method in one.methods
                if one.methods is not None
                else method not in self._apart(one).union(one.not_methods)
            )
        ]

    def _apart(self, response: ResponseTable) -> frozenset[str]:
        """The methods that have a kind of their own on the topic of this one."""
        return frozenset().union(*(one.methods or () for one in self.response if one.topic == response.topic))

    def build(self) -> DeviceProfile:
        """The profile that the table describes."""
        events = {template(one.topic): one.database for one in self.event}
        return DeviceProfile(
            name=self.name,
            description=self.description,
            requests=tuple(request.build() for request in self.requests().values()),
            responses=tuple(one.build(self.device_id, self._apart(one), self.codes) for one in self.response),
            quarantine=timedelta(seconds=self.quarantine_seconds or 0),
            device=None if self.device_id is None else form_of_ids(self.device_id),
            events=tuple(one.build(self.device_id) for one in self.event),
            replies=tuple(one.build(self.device_id, self.values, events) for one in self.reply),
            catalogue=catalogue_of(self.methods, self.method),
            presence=tuple(one.build(self.device_id) for one in self.presence),
            interlocks=tuple(one.build(self.event) for one in self.interlock),
            lanes=tuple(one.build(self.lane) for one in self.lane),
            approvals=tuple(one.build() for one in self.approval),
            probes=tuple(one.build(self.event) for one in self.probe),
        )


class ManyRequestsTable(ProfileTable):
    """A whole file with `[[request]]`."""

    request: Annotated[list[RequestTable], Field(min_length=1)]  # type: ignore[assignment]  # the key's other form

    def requests(self) -> Mapping[tuple[str | int, ...], RequestTable]:
        """Return how commands are published, by where it stands in the file."""
        return {("request", index): one for index, one in enumerate(self.request)}


def checked(data: Mapping[str, Any], read_file: ReadFile = no_files) -> ProfileTable:
    """Return what a file says; ValidationError."""
    table = ManyRequestsTable if isinstance(data.get("request"), list) else ProfileTable
    return table.model_validate(data, context={"parts": _parts(data.get("device_id")), "read_file": read_file})


def _parts(device_id: object) -> tuple[str, ...]:
    try:
        return template(device_id).names if isinstance(device_id, str) else ()
    except ConfigurationError:
        return ()


def _hidden(key: str, tables: Sequence[HeardTable]) -> Iterator[ProfileFault]:
    """Return which of them never read a message, as one before them does."""
    for index, mine in enumerate(tables):
        same = [at for at, one in enumerate(tables[: index + 1]) if (one.topic, one.codec) == (mine.topic, mine.codec)]
        rows = [[condition.build() for condition in tables[at].match] for at in same]
        for later, earlier in unreachable(rows):
            if same[later] == index:
                yield ProfileFault(
                    (key, index), f"is never reached: {key}.{same[earlier]} before it takes all that it matches"
                )


def _alike(one: ResponseTable, other: ResponseTable) -> bool:
    """True if the same messages reach both, and one of them reads each."""
    return (one.topic, one.methods, one.codec) == (other.topic, other.methods, other.codec)


def _have_in_common(some: Sequence[str] | None, others: Sequence[str] | None) -> bool:
    return some is None or others is None or bool(set(some) & set(others))


TABLES: Final[Mapping[str, type[BaseModel]]] = MappingProxyType(
    {
        "": ProfileTable,
        "request": RequestTable,
        "response": ResponseTable,
        "event": EventTable,
        "method": MethodTable,
        "reply": ReplyTable,
        "interlock": InterlockTable,
        "interlock.inputs": InterlockInputTable,
        "interlock.when": NeedTable,
        "within": CircleTable,
        "lane": LaneTable,
        "approval": ApprovalTable,
        "probe": ProbeTable,
        "ask": QuestionTable,
        "done": ComparisonTable,
        "not_done": ComparisonTable,
        "bound": WishTable,
        "last": LastTable,
        "state": StateTable,
        "presence": PresenceTable,
        "sources": SourceTable,
        "echo": WishTable,
        "id": SourceTable,
        "all": PartTable,
        "device": DeviceTable,
        "rules": RuleTable,
        "when": ConditionTable,
        "match": ConditionTable,
        "offline": ConditionTable,
    }
)
"""The models of the tables, by the key that a table stands under."""
