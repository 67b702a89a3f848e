"""The faults of a profile, in sentences: with the line, the key, and what is allowed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ValidationError

from app.profiles.language.positions import Location, line_at


class ProfileFault(NamedTuple):
    """Something wrong at a place in a file."""

    location: Location
    sentence: str


class FaultsError(ValueError):
    """Several faults of one table at once; their locations begin inside of it."""

    def __init__(self, faults: Sequence[ProfileFault]) -> None:
        super().__init__("; ".join(fault.sentence for fault in faults))
        self.faults = faults


def refuse(faults: Iterable[ProfileFault]) -> None:
    """Raise FaultsError when there are any."""
    found = tuple(faults)
    if found:
        raise FaultsError(found)


def listed(source: str, faults: Iterable[ProfileFault], lines: Mapping[Location, int]) -> str:
    """All faults, one a line, in the order of the file: `lamp.toml:7: response.0.topic: …`."""
    placed = sorted({(line_at(lines, fault.location), _key(fault.location), fault.sentence) for fault in faults})
    return "\n".join(f"{source}:{line}: {key}: {sentence}" for line, key, sentence in placed)


def faults_of(error: ValidationError, tables: Mapping[str, type[BaseModel]]) -> Iterator[ProfileFault]:
    """Return what pydantic found, in our words. `tables` are the models by their key; '' is the whole."""
    for found in error.errors(include_url=False):
        location: Location = tuple(part for part in found["loc"] if not str(part).startswith("<"))  # which of two forms
        said = found.get("ctx", {}).get("error")
        if isinstance(said, FaultsError):
            for fault in said.faults:
                yield ProfileFault((*location, *fault.location), fault.sentence)
        elif said is not None:
            yield ProfileFault(location, str(said))
        else:
            kind, context = str(found["type"]), dict(found.get("ctx", {}))
            yield _fault(kind, location, found["input"], context, tables)


_SCALAR_LISTS: Final = ("is_in", "is_not")
_ALLOWED: Final = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "list_type": "a list",
    "model_type": "a table",
    "dict_type": "a table",
}
_HEADED: Final[Mapping[Location, str]] = {
    ("response",): "one or more tables, each begun with [[response]]",
    ("request",): "a table, begun with [request], or several, each begun with [[request]]",
}
_NAME: Final = "a lower-case letter, then up to 31 of a-z 0-9 _ -"
_PATTERNS: Final = {"name": _NAME, "database": _NAME}


def _fault(
    kind: str,
    location: Location,
    value: object,
    context: Mapping[str, Any],
    tables: Mapping[str, type[BaseModel]],
) -> ProfileFault:
    for index, part in enumerate(location):
        if part in _SCALAR_LISTS and index + 1 < len(location):  # pydantic says it once for each type that it is not
            return ProfileFault(location[: index + 2], f"is {_kind(value)}; allowed: text, numbers, true, false")
    if kind == "invalid-json-value":  # the way into JSON names a type before each key
        location = (*location[:2], *location[3::2])
    last = str(location[-1]) if location else ""
    match kind:
        case "missing":
            return ProfileFault(location, f"is missing; needed: {_HEADED.get(location, 'a value')}")
        case "extra_forbidden":
            return ProfileFault(location, _unknown(last, tables[_table(location[:-1], tables)]))
        case "literal_error":
            return ProfileFault(location, f"is {_shown(value)}; allowed: {context['expected']}")
        case "string_pattern_mismatch":
            return ProfileFault(location, f"is {_shown(value)}; allowed: {_PATTERNS.get(last, context.get('pattern'))}")
        case "too_short":
            return ProfileFault(location, "is empty; allowed: one or more")
        case "greater_than_equal" | "less_than_equal":
            bound = f"at least {context['ge']:g}" if "ge" in context else f"at most {context['le']:g}"
            return ProfileFault(location, f"is {value}; allowed: {bound}")
        case _:
            allowed = _HEADED.get(location) or _ALLOWED.get(kind, "text, numbers, true, false, lists and tables")
            return ProfileFault(location, f"is {_kind(value)}; allowed: {allowed}")


def _unknown(name: str, table: type[BaseModel]) -> str:
    near = get_close_matches(name, table.model_fields, 1)
    meant = f"; is {near[0]} meant?" if near else ""
    return f"is unknown{meant}; allowed: {', '.join(table.model_fields)}"


def _table(location: Location, tables: Mapping[str, type[BaseModel]]) -> str:
    """The key of the table; under some keys authors name tables as they like."""
    named = location[:-1] if location[-2:-1] in (("state",), ("inputs",)) else location
    keys = ((f"{named[0]}.{part}", part) for part in reversed(named) if isinstance(part, str))
    return next((key for pair in keys for key in pair if key in tables), "")


def _key(location: Location) -> str:
    return ".".join(str(part) for part in location) or "the file"


def _shown(value: object) -> str:
    return ascii(value)[:64]


def _kind(value: object) -> str:
    """Return what a value of TOML is, in words."""
    match value:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case dt.datetime() | dt.date() | dt.time():
            return "a date or time, which JSON does not have"
        case _:
            return "a table"
