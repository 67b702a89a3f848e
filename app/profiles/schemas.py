"""Params by JSON Schema (draft 2020-12), through its library: compiled once, when the profile is read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.exceptions import best_match

from app.core.catalogue import Check
from app.core.errors import InvalidInputError
from app.core.payload import JsonValue

_REFERENCES: Final = ("$ref", "$dynamicRef")
_LONGEST: Final = 200


def compiled(schema: Mapping[str, JsonValue]) -> Check:
    """The check that a schema stands for; ValueError says what is wrong with the schema."""
    for place, key, value in _members(dict(schema)):
        if key in _REFERENCES:
            raise ValueError(
                f"{place}: references could lead anywhere, and round and round; allowed: the schema itself"
            )
        if key == "pattern" and isinstance(value, str):
            _compile(place, value)
        elif key == "patternProperties" and isinstance(value, dict):
            for pattern in value:
                _compile(place, pattern)
    try:
        Draft202012Validator.check_schema(dict(schema))
    except SchemaError as error:
        raise ValueError(f"{_dotted('params', error.absolute_path)}: {_short(error.message)}") from None
    validator = Draft202012Validator(dict(schema))

    def check(params: JsonValue) -> None:
        error = best_match(validator.iter_errors(params))
        if error is not None:
            raise InvalidInputError(_dotted("params", error.absolute_path), _short(error.message))

    return check


def _compile(place: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{place}: {pattern!a} is no pattern: {error}") from None


def _members(value: JsonValue, place: str = "params") -> Iterator[tuple[str, str, JsonValue]]:
    """All members of the objects in it, with where they stand."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield f"{place}.{key}", key, one
            yield from _members(one, f"{place}.{key}")
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _members(one, f"{place}[{index}]")


def _dotted(start: str, path: object) -> str:
    steps = path if isinstance(path, list | tuple) else list(path)  # type: ignore[call-overload]  # a deque
    return start + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def _short(message: str) -> str:
    return message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…"
