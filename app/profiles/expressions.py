"""Payloads of replies: templates over what is known, and JMESPath where a path is not enough.

The library has a grammar of its own, without loops, assignments or access to Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import jmespath
from jmespath.exceptions import JMESPathError

from app.core.errors import InvalidInputError
from app.core.paths import Path
from app.core.payload import MISSING, JsonValue, Missing
from app.core.payload import lookup as plain_lookup
from app.core.replies.reply import Document
from app.profiles.language.faults import ProfileFault
from app.profiles.language.positions import Location

Made: TypeAlias = "JsonValue | Missing"
Make: TypeAlias = "Callable[[Document], Made]"

KEY: Final = "jmespath"
"""The only key of a table that stands for the value of an expression."""
EACH: Final = frozenset({"each", "as"})
"""The keys of a table that stands for a list: `as` for each element at the path `each`, which is `{item}` there."""
MOST: Final = 1000
"""Elements of such a list."""
FACTS: Final = (
    "message",
    "topic",
    "device_id",
    "now",
    "now_ms",
    "now_s",
    "values",
    "command",
    "state",
    "handler",
    "item",
)
_PLACEHOLDER: Final = re.compile(r"\{([a-z_]+(?:\.[^{}.\s]+)*)\}")
_LONGEST: Final = 2000
_ALLOWED: Final = (
    "{device_id}, {now}, {now_ms}, {now_s}, {message.…}, {topic.…}, {values.…}, {command.…}, {state.…}, {handler.…}"
)


def maker(template: JsonValue) -> Callable[[Document], JsonValue]:
    """Make what fills in a checked template; a member or element that is one absent placeholder is left out."""
    make = _maker(template)

    def made(document: Document) -> JsonValue:
        found = make(document)
        return None if found is MISSING else found

    return made


def path_of_fact(name: str) -> Path:
    """The path of a placeholder into the document."""
    return tuple(name.split("."))


def names_in(template: JsonValue) -> Iterator[str]:
    """The placeholders of a template, without those of expressions."""
    if isinstance(template, dict):
        if set(template) == EACH:
            yield str(template["each"])
        if set(template) != {KEY}:
            for key, value in template.items():
                if key != "each" or set(template) != EACH:
                    yield from names_in(value)
    elif isinstance(template, list):
        for value in template:
            yield from names_in(value)
    elif isinstance(template, str):
        yield from _PLACEHOLDER.findall(template)


def expressions_in(template: JsonValue) -> Iterator[str]:
    """The expressions of a template."""
    if isinstance(template, dict):
        if set(template) == {KEY}:
            yield str(template[KEY])
        else:
            for value in template.values():
                yield from expressions_in(value)
    elif isinstance(template, list):
        for value in template:
            yield from expressions_in(value)


def faults_in(template: JsonValue, place: Location) -> Iterator[ProfileFault]:
    """Return what is wrong with a template."""
    for name in names_in(template):
        if name.partition(".")[0] not in FACTS:
            yield ProfileFault(place, f"{{{name}}} is unknown; allowed: {_ALLOWED}")
    for text in expressions_in(template):
        if (wrong := fault_of(text)) is not None:
            yield ProfileFault(place, wrong)


def fault_of(text: str) -> str | None:
    """Return what is wrong with an expression; None when it is one."""
    if len(text) > _LONGEST:
        return f"an expression has {len(text)} characters; allowed are {_LONGEST}"
    try:
        jmespath.compile(text)
    except (JMESPathError, ValueError) as error:
        return f"{text[:64]!a} is no JMESPath: {str(error).splitlines()[0]}"
    return None


def _maker(template: JsonValue) -> Make:
    if isinstance(template, dict):
        if set(template) == EACH:
            return _each(path_of_fact(str(template["each"])), _maker(template["as"]))
        return expression(str(template[KEY])) if set(template) == {KEY} else _object(template)
    if isinstance(template, list):
        return _list(template)
    return _text(template) if isinstance(template, str) else lambda _document: template


def _object(template: dict[str, JsonValue]) -> Make:
    members = {key: _maker(one) for key, one in template.items()}

    def made(document: Document) -> Made:
        found = {key: make(document) for key, make in members.items()}
        return {key: one for key, one in found.items() if one is not MISSING}

    return made


def _list(template: list[JsonValue]) -> Make:
    elements = [_maker(one) for one in template]

    def made(document: Document) -> Made:
        return [one for make in elements if (one := make(document)) is not MISSING]

    return made


def _each(path: Path, make: Make) -> Make:
    def made(document: Document) -> Made:
        found = plain_lookup(document, path)
        elements = found[:MOST] if isinstance(found, list) else []
        return [one for item in elements if (one := make({**document, "item": item})) is not MISSING]

    return made


def _text(template: str) -> Make:
    whole = _PLACEHOLDER.fullmatch(template)
    if whole is not None:
        path = path_of_fact(whole[1])
        return lambda document: plain_lookup(document, path)

    def filled(document: Document) -> Made:
        def one(found: re.Match[str]) -> str:
            value = plain_lookup(document, path_of_fact(found[1]))
            return "" if value is MISSING or value is None else str(value)

        return _PLACEHOLDER.sub(one, template)

    return filled


def expression(text: str) -> Callable[[JsonValue], JsonValue]:
    """Return what JMESPath finds in a value; InvalidInputError when it finds that it cannot be asked."""
    compiled = jmespath.compile(text)

    def made(document: JsonValue) -> JsonValue:
        try:
            found: JsonValue = compiled.search(document)
        except (JMESPathError, RecursionError, ValueError, TypeError) as error:
            raise InvalidInputError("payload", f"{text[:64]!a} fails: {error}") from None
        return found

    return made
