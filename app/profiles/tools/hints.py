"""Hints name what a profile says in vain: it loads, and something of it never counts. `homing profile check` tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Final

from app.core.profiles import templates
from app.profiles.language.faults import ProfileFault
from app.profiles.language.fields import template
from app.profiles.language.heard import HeardTable
from app.profiles.language.paths import parse_path
from app.profiles.language.positions import Location
from app.profiles.language.tables import RequestTable, ResponseTable
from app.profiles.language.whole import ProfileTable

_PATHS: Final = ("path", "result", "progress", "error_code", "error_message")
_VALUES: Final = ("is_in", "is_not", "equals")


def hints(profile: ProfileTable) -> Iterator[ProfileFault]:
    """Each with its place in the file and what is allowed."""
    for key, tables in (("response", profile.response), ("event", profile.event), ("presence", profile.presence)):
        for index, heard in enumerate(tables):
            yield from _under((key, index), _of_text(heard))
    for index, response in enumerate(profile.response):
        yield from _under(("response", index), _of_response(response, profile))
    for place, request in profile.requests().items():
        yield from _under(place, _of_request(request, profile))


def _under(place: Location, found: Iterator[ProfileFault]) -> Iterator[ProfileFault]:
    for fault in found:
        yield ProfileFault((*place, *fault.location), fault.sentence)


def _of_text(heard: HeardTable) -> Iterator[ProfileFault]:
    if heard.codec != "text":
        return
    for location, path in _paths(heard.model_dump()):
        place = parse_path(path)
        if place.path and not place.is_text:
            sentence = f"leads to {path!a}, and text has nothing inside: it is always absent"
            yield ProfileFault(location, f"{sentence}; allowed: $, or codec = 'json'")


def _paths(value: object, way: Location = ()) -> Iterator[tuple[Location, str]]:
    """All paths of a table as pydantic dumps it, with where they stand."""
    if isinstance(value, dict):
        for key, one in value.items():
            if key in _PATHS and isinstance(one, str):
                yield (*way, key), one
            elif key not in _VALUES:
                yield from _paths(one, (*way, key))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            if way[-1:] == ("confirm",) and isinstance(one, str):
                yield (*way, index), one
            else:
                yield from _paths(one, (*way, index))


def _of_response(response: ResponseTable, profile: ProfileTable) -> Iterator[ProfileFault]:
    for index, wish in enumerate(response.echo if isinstance(response.echo, list) else ()):
        typed = wish.equals is not None and not isinstance(wish.equals, str)
        if response.codec == "text" and wish.type in ("json", "contains") and typed:
            sentence = f"is {wish.equals!a}, and what is read as text never equals it"
            yield ProfileFault(("echo", index, "equals"), f"{sentence}; allowed: type = 'text', 'number' or 'boolean'")
    if response.progress is not None and all(rule.state != "running" for rule in response.rules):
        yield ProfileFault(
            ("progress",), "is never read, as no rule is 'running'; allowed: such a rule, or no progress"
        )
    yield from _unknown("methods", response.methods or (), profile)
    names = templates.names_in(list(response.value or ()))
    yield from _forbidden("value", names, response.methods, profile)


def _of_request(request: RequestTable, profile: ProfileTable) -> Iterator[ProfileFault]:
    yield from _unknown("methods", request.methods or (), profile)
    yield from _unknown("repeatable", request.repeatable, profile)
    yield from _forbidden("topic", template(request.topic).names, request.methods, profile)
    yield from _forbidden("payload", templates.names_in(request.payload), request.methods, profile)


def _unknown(key: str, methods: Sequence[str], profile: ProfileTable) -> Iterator[ProfileFault]:
    """Methods that the catalogue does not have; where it is open, those that are nearly one of it."""
    known = [one.name for one in profile.method]
    for method in methods:
        if not known or method in known:
            continue
        near = get_close_matches(method, known, 1)
        if near or profile.methods != "open":
            meant = f"; is {near[0]} meant?" if near else f"; it has: {', '.join(known)}"
            yield ProfileFault((key,), f"has {method}, which is no [[method]] of the catalogue{meant}")


def _forbidden(
    key: str, names: Sequence[str] | set[str], methods: Sequence[str] | None, profile: ProfileTable
) -> Iterator[ProfileFault]:
    """Params that no method which is meant may have, by its schema."""
    meant = [one for one in profile.method if methods is None or one.name in methods]
    for name in sorted(names):
        _, _, param = name.partition("params.")
        first = param.partition(".")[0]
        if first and meant and all(_forbids(one.params, first) for one in meant):
            of = ", ".join(one.name for one in meant)
            yield ProfileFault((key,), f"has {{{name}}}, and the params of {of} may not have {first} by their schema")


def _forbids(schema: object, param: str) -> bool:
    if not isinstance(schema, dict) or schema.get("additionalProperties") is not False:
        return False
    properties = schema.get("properties", {})
    return isinstance(properties, dict) and param not in properties and "patternProperties" not in schema
