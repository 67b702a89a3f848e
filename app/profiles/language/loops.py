"""A profile must not harm its own cluster: read what nodes publish, read everything, or never end a command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from app.core.paths import Path, is_plain
from app.core.payload import MISSING, JsonValue, Missing
from app.core.profiles import templates
from app.core.profiles.conditions import PathCondition
from app.profiles.language.faults import ProfileFault
from app.profiles.language.fields import template
from app.profiles.language.heard import ConditionTable, HeardTable
from app.profiles.language.paths import parse_path
from app.profiles.language.rules import hears
from app.profiles.language.tables import RequestTable, ResponseTable

_NEVER_A_CONSTANT = templates.IDS | templates.INSTANTS


def own_command_faults(table: HeardTable, requests: Iterable[RequestTable], becomes: str) -> Iterator[ProfileFault]:
    """True if a command, as nodes publish it, is a message that the table is about; `becomes` says as what."""
    if any(_may_be(table, request) for request in requests):
        yield ProfileFault(
            ("topic",),
            f"is the topic of the request as well, so that each command would be {becomes}; "
            "allowed: another topic, or a match that no request satisfies",
        )


def endless(methods: Iterable[str], kinds: Sequence[tuple[ResponseTable, frozenset[str]]]) -> Iterator[ProfileFault]:
    """Kinds that leave commands of a method without an end; `kinds` are all, with methods that they do not answer."""
    told: set[int] = set()
    for method in methods:
        answering = [
            index
            for index, (one, but_not) in enumerate(kinds)
            if (method in one.methods if one.methods is not None else method not in but_not)
        ]
        rules = [rule for index in answering for rule in kinds[index][0].rules]
        if rules and all(rule.state == "running" for rule in rules) and answering[0] not in told:
            told.add(answering[0])
            of = f" of {method}" if method else ""
            yield ProfileFault(
                ("response", answering[0], "rules"),
                f"leave each command{of} running for ever; allowed: a rule with 'succeeded' or 'failed' here, "
                "or in another kind of response to it",
            )


def _may_be(table: HeardTable, request: RequestTable) -> bool:
    if not hears(template(table.topic), template(request.topic)):
        return False
    if request.codec == "empty" and table.codec not in ("empty", "text", "raw"):
        return False
    return all(_may_hold(one, request) for one in table.match)


def _may_hold(table: ConditionTable, request: RequestTable) -> bool:
    """True if some command satisfies the condition; true where that depends on what people send."""
    condition = table.build()
    if parse_path(table.path).is_text or not is_plain(condition.path):
        return True
    found = _said(request.payload, condition.path, open_ended=request.merge_params)
    if found is None:
        return True
    (value,) = found
    if isinstance(value, str) and (names := templates.names_in(value)):
        return _filled_may_hold(condition, names, may_lack=request.omit_absent)
    return condition.holds(_nested(value, condition.path))


def _filled_may_hold(condition: PathCondition, names: set[str], *, may_lack: bool) -> bool:
    if condition.present is False:
        return may_lack
    return condition.is_in is None or not names <= _NEVER_A_CONSTANT


def _said(payload: JsonValue, path: Path, *, open_ended: bool) -> tuple[JsonValue | Missing] | None:
    """Return what the request has at the path; None where that is up to the command."""
    value: JsonValue | Missing = payload
    for step in path:
        if isinstance(value, str) and templates.names_in(value):
            return None
        if not isinstance(value, dict) or step not in value:
            return None if open_ended and value is payload else (MISSING,)
        value = value[str(step)]
    return (value,)


def _nested(value: JsonValue | Missing, path: Path) -> JsonValue:
    """A document that has the value at the path, and nothing else."""
    if isinstance(value, Missing):
        return {}
    for step in reversed(path):
        value = {str(step): value}
    return value
