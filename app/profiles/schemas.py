"""Params by JSON Schema (draft 2020-12): a compiled validator accepts them, and the reference library words refusals.

The compiled one is made when there are params to look at (docs/adr/0084-a-compiled-validator-accepts-params.md). The
reference library is loaded when there is something to refuse: loading it takes a process longer than reading all
profiles. Both are no concern of a node that is idle, so a schema of the keywords that most have is judged without them
(docs/adr/0225-what-else-an-idle-node-has-not-loaded.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

from app.core.errors import InvalidInputError
from app.core.payload import JsonValue
from app.core.profiles.catalogue import Check

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

_REFERENCES: Final = ("$ref", "$dynamicRef")
_PATTERNS: Final = ("pattern", "patternProperties")
_LONGEST: Final = 200
_TYPES: Final = {"null", "boolean", "integer", "number", "string", "array", "object"}
_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"


def compiled(schema: Mapping[str, JsonValue]) -> Check:
    """The check that a schema stands for; ValueError says what is wrong with the schema."""
    _refuse_members(schema)
    if not (_is_plain(dict(schema)) or _is_surely_right(schema)):
        _refuse_schema(schema)

    @cache
    def quick() -> Callable[[JsonValue], bool]:
        return _quick_check(schema)

    @cache
    def reference() -> Validator:
        from jsonschema import Draft202012Validator  # noqa: PLC0415 - see above

        return Draft202012Validator(dict(schema))

    def check(params: JsonValue) -> None:
        if quick()(params):
            return
        from jsonschema.exceptions import best_match  # noqa: PLC0415 - see above

        error = best_match(reference().iter_errors(params))
        if error is not None:
            raise InvalidInputError(_dotted("params", error.absolute_path), _short(error.message))

    return check


def _refuse_members(schema: Mapping[str, JsonValue]) -> None:
    """Raise ValueError for references, and for patterns that are none of Python's."""
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


def _is_plain(schema: JsonValue) -> bool:
    """True for a schema that has only keywords which are known here, each with a value that it may have."""
    return isinstance(schema, dict) and all(key in _FITS and _FITS[key](value) for key, value in schema.items())


def _is_text(value: JsonValue) -> bool:
    return isinstance(value, str)


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: JsonValue) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_names(value: JsonValue) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) and value.count(one) == 1 for one in value)


_FITS: Final[Mapping[str, Callable[[JsonValue], bool]]] = {
    "type": lambda value: isinstance(value, str) and value in _TYPES,
    "enum": lambda value: isinstance(value, list),
    "required": _are_names,
    "items": _is_plain,
    "properties": lambda value: isinstance(value, dict) and all(map(_is_plain, value.values())),
    **dict.fromkeys(("title", "description"), _is_text),
    **dict.fromkeys(("minimum", "maximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_count),
}
"""The keywords of a plain schema, and whether a value is one that they may have."""


def _is_surely_right(schema: Mapping[str, JsonValue]) -> bool:
    import jsonschema_rs  # noqa: PLC0415 - see above

    return schema.get("$schema", _DRAFT) == _DRAFT and jsonschema_rs.meta.is_valid({**schema, "$schema": _DRAFT})


def _refuse_schema(schema: Mapping[str, JsonValue]) -> None:
    """Raise ValueError in the words of the reference library, if it finds something wrong, too."""
    from jsonschema import Draft202012Validator, SchemaError  # noqa: PLC0415 - see above

    try:
        Draft202012Validator.check_schema(dict(schema))
    except SchemaError as error:
        raise ValueError(f"{_dotted('params', error.absolute_path)}: {_short(error.message)}") from None


def _quick_check(schema: Mapping[str, JsonValue]) -> Callable[[JsonValue], bool]:
    """Return a function that says whether params surely fit the schema, at a small part of what a full check costs.

    Patterns of a profile are Python's, and those of the compiled validator ECMA's: a schema that has one is left to the
    full check, as is a schema that the compiled validator does not take.
    """
    if any(key in _PATTERNS for _, key, _ in _members(dict(schema))):
        return _is_unsure
    import jsonschema_rs  # noqa: PLC0415 - see above

    try:
        return jsonschema_rs.Draft202012Validator(dict(schema), offline=True).is_valid
    except ValueError:
        return _is_unsure


def _is_unsure(_params: JsonValue) -> bool:
    return False


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
