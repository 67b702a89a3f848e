"""Params by JSON Schema: the compiled validator accepts what the reference library accepts, which words refusals."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, SchemaError

from app.core.errors import InvalidInputError
from app.core.payload import JsonValue
from app.profiles.schemas import _FITS, _is_plain, compiled

Schema = dict[str, JsonValue]

INTEGERS = st.integers(-(2**63), 2**64 - 1)
SCALARS = st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3)
NAMES = st.sampled_from(["a", "b", "c"])
VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    SCALARS | st.sampled_from([0, 1, 2, 1.0, 2.5, True, "a", "ab"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
"""The values that `decode_json` may give for params."""

TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
SMALL = st.integers(0, 3)
LIMITS = INTEGERS | st.floats(-10, 10)
NAMED: st.SearchStrategy[JsonValue] = st.lists(NAMES, max_size=2, unique=True)


def keywords(inner: st.SearchStrategy[JsonValue]) -> st.SearchStrategy[JsonValue]:
    """Schemas that have any of the keywords of draft 2020-12, but references and patterns."""
    some = st.lists(inner, min_size=1, max_size=2)
    named = st.dictionaries(NAMES, inner, max_size=2)
    limits = dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), LIMITS)
    sizes = dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains"), SMALL
    )
    alone = dict.fromkeys(
        ("items", "contains", "not", "if", "then", "else", "additionalProperties", "propertyNames"), inner
    )
    return st.fixed_dictionaries(
        {},
        optional={
            **limits,
            **sizes,
            **alone,
            **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), some),
            **dict.fromkeys(("properties", "dependentSchemas"), named),
            **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems"), inner),
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
            "enum": st.lists(VALUES, min_size=1, max_size=3),
            "const": VALUES,
            "required": NAMED,
            "dependentRequired": st.dictionaries(NAMES, NAMED, max_size=2),
            "uniqueItems": st.booleans(),
            "multipleOf": st.integers(1, 7),
            "maxContains": SMALL,
            "format": st.sampled_from(["email", "date-time", "ipv4", "uuid"]),
        },
    )


SCHEMAS: st.SearchStrategy[JsonValue] = st.recursive(st.booleans() | keywords(st.booleans()), keywords, max_leaves=4)


def refusal(schema: Schema, params: JsonValue) -> str | None:
    try:
        compiled(schema)(params)
    except InvalidInputError as error:
        return str(error)
    return None


@given(SCHEMAS.filter(lambda schema: isinstance(schema, dict)), VALUES)
def test_params_are_accepted_as_the_reference_library_accepts_them(schema: Schema, params: JsonValue) -> None:
    assert (refusal(schema, params) is None) is Draft202012Validator(schema).is_valid(params)


def refused_schema(schema: Schema) -> str | None:
    try:
        compiled(schema)
    except ValueError as error:
        return str(error)
    return None


@given(
    SCHEMAS.filter(lambda schema: isinstance(schema, dict)),
    st.sampled_from(["type", "items", "required", "minimum", "maxLength", "allOf", "properties", "format", "$schema"]),
    VALUES,
)
def test_schemas_are_refused_as_the_reference_library_refuses_them(schema: Schema, member: str, odd: JsonValue) -> None:
    schema = {**schema, member: odd}
    try:
        Draft202012Validator.check_schema(schema)
        expected = False
    except SchemaError:
        expected = True
    assert (refused_schema(schema) is not None) is expected


ODD: list[JsonValue] = [None, True, -1, 0, 1, 1.5, "x", "integer"]
ODD += [[], ["a"], ["a", "a"], [1], ["integer", "integer"]]
ODD += [{}, {"a": 1}, {"a": {}}, {"a": {"type": "x"}}, {"type": ["x"]}, {"minLength": -1}]


@pytest.mark.parametrize("keyword", [*_FITS, "const", "$schema", "$id", "unknown"])
def test_a_schema_that_is_plain_is_right(keyword: str) -> None:
    fitting = 0
    for odd in ODD:
        schemas: list[Schema] = [{keyword: odd}, {"items": {keyword: odd}}, {"properties": {"a": {keyword: odd}}}]
        for schema in schemas:
            if _is_plain(schema):
                Draft202012Validator.check_schema(schema)
                fitting += 1
    assert (fitting > 0) is (keyword in _FITS)


def test_schemas_of_the_profiles_that_nodes_speak_by_default_need_no_library() -> None:
    program = (
        "import sys; from app.profiles.loader import load_profiles; profiles = load_profiles(); "
        "check = profiles['dji'].catalogue.methods['flighttask_prepare'].check; "
        "early = sorted({'jsonschema', 'jsonschema_rs'} & sys.modules.keys()); check({'flight_id': 'a'}); "
        "print(early, 'jsonschema_rs' in sys.modules)"
    )
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert printed == "[] True\n"


def test_the_reference_library_is_loaded_when_there_is_something_to_refuse() -> None:
    program = (
        "import sys; from app.profiles.schemas import compiled; check = compiled({'type': 'integer'}); check(1); "
        "early = 'jsonschema' in sys.modules; "
        "from app.core.errors import InvalidInputError\n"
        "try: check('x')\nexcept InvalidInputError as error: print(early, 'jsonschema' in sys.modules, error)"
    )
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert printed == "False True params: 'x' is not of type 'integer'\n"


@pytest.mark.parametrize(
    ("schema", "params", "said"),
    [
        ({"type": "integer"}, True, "params: True is not of type 'integer'"),
        ({"required": ["a"]}, {}, "params: 'a' is a required property"),
        (
            {"properties": {"a": {"items": {"anyOf": [{"type": "string"}, {"maximum": 3}]}}}},
            {"a": [1, 4]},
            "params.a[1]: 4 is not valid under any of the given schemas",
        ),
        ({"maxLength": 1}, "x" * 300, f"params: '{'x' * 199}…"),
    ],
)
def test_a_refusal_names_the_place_and_what_is_allowed(schema: Schema, params: JsonValue, said: str) -> None:
    assert refusal(schema, params) == said


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        (r"\AF\d\Z", "F1", True),
        (r"\AF\d\Z", "F1\n", False),
        (r"^F\d$", "F٣", True),
        (r"^\s$", "\ufeff", False),
        (r"^(?P<letter>a)(?P=letter)$", "aa", True),
    ],
)
def test_patterns_are_those_of_python(pattern: str, text: str, *, fits: bool) -> None:
    assert (refusal({"pattern": pattern}, text) is None) is fits
    assert (refusal({"patternProperties": {pattern: False}}, {text: 1}) is None) is not fits
    assert (refusal({"additionalProperties": {"allOf": [{"pattern": pattern}]}}, {"a": text}) is None) is fits


def test_multiples_are_those_of_the_numbers_as_they_are_written() -> None:
    assert refusal({"multipleOf": 0.1}, 0.3) is None
    assert refusal({"multipleOf": 0.1}, 0.35) == "params: 0.35 is not a multiple of 0.1"


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": [float("inf"), 1]},
        {"maximum": float("inf")},
        {"const": "\ud800"},
        {"$schema": "http://127.0.0.1:1/x", "type": "integer"},
        {"properties": {"a": {"$id": "http://127.0.0.1:1/y"}}},
        {"dependencies": {"a": ["b"]}},
    ],
    ids=json.dumps,
)
def test_an_odd_schema_is_taken_as_the_reference_library_takes_it(schema: Schema) -> None:
    several: tuple[JsonValue, ...] = (1, "x", {"a": 1}, {"a": 1, "b": 2})
    for params in several:
        assert (refusal(schema, params) is None) is Draft202012Validator(schema).is_valid(params)
