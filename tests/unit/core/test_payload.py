from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.core.errors import UndecodableMessageError
from app.core.payload import MAX_BYTES, MISSING, REASONS, JsonValue, Missing, decode_json, lookup

DJI_REPLY = (
    b'{"tid":"6f8c1f0e-8f2a-4b1e-9d3a-2b5f6c7d8e9f","bid":"042-01JABCDEFGHJKMNPQRSTVWXYZ0",'
    b'"timestamp":1700000000123,"method":"takeoff","data":{"result":0}}'
)


def reason_of(data: bytes, **limits: int) -> str:
    with pytest.raises(UndecodableMessageError) as caught:
        decode_json(data, **limits)
    assert caught.value.reason in REASONS
    return caught.value.reason


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def test_a_device_reply_is_decoded() -> None:
    assert decode_json(DJI_REPLY) == json.loads(DJI_REPLY)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"null", None),
        (b"true", True),
        (b' \r\n\t{ "a" : [ 1 , 2.5 , "x" ] } \r\n', {"a": [1, 2.5, "x"]}),
        (b'""', ""),
        (b"{}", {}),
        (b"-0", 0),
        (b"18446744073709551615", 2**64 - 1),
        (b"-9223372036854775808", -(2**63)),
        (b"1e308", 1e308),
        (b"-1.5E-3", -0.0015),
        (b"1e-999", 0.0),
        ('"\u00e9\U0001f681"'.encode(), "é🚁"),
        (rb'"\ud83d\ude81"', "🚁"),
        (rb'"\\ud800"', r"\ud800"),
        (rb'"\u0000\u00e9"', "\x00é"),
        (b'{"":1}', {"": 1}),
        (b'{"a":{"a":1},"b":{"a":2}}', {"a": {"a": 1}, "b": {"a": 2}}),
    ],
)
def test_valid_json_is_accepted(data: bytes, expected: JsonValue) -> None:
    value = decode_json(data)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b" \r\n\t", "empty"),
        (b"\xff", "not_utf8"),
        (b'"\xc3"', "not_utf8"),
        (b'"\xed\xa0\x80"', "not_utf8"),  # a surrogate in UTF-8
        (b'"\xc0\xaf"', "not_utf8"),  # an overlong slash
        ('{"a":1}'.encode("utf-16"), "not_utf8"),
        (b"\xef\xbb\xbf{}", "not_json"),  # a byte order mark
        (b"\x00", "not_json"),
        (b"{}\x00", "not_json"),
        (b"takeoff ok", "not_json"),
        (b"{", "not_json"),
        (b'{"a":1', "not_json"),
        (b'{"a"}', "not_json"),
        (b"{a:1}", "not_json"),
        (b"{'a':1}", "not_json"),
        (b'{"a":1,}', "not_json"),
        (b"[1,]", "not_json"),
        (b"[1 2]", "not_json"),
        (b"{}{}", "not_json"),
        (b"{} x", "not_json"),
        (b"1 2", "not_json"),
        (b"01", "not_json"),
        (b"+1", "not_json"),
        (b".5", "not_json"),
        (b"1.", "not_json"),
        (b"0x10", "not_json"),
        (b"True", "not_json"),
        (b"nan", "not_json"),
        (b'"a\nb"', "not_json"),
        (b'"\\x41"', "not_json"),
        (b'"\\u12"', "not_json"),
        (b"// x\n1", "not_json"),
        ("\u00a01".encode(), "not_json"),  # a space, but not of JSON
        ("١".encode(), "not_json"),
        (b"NaN", "not_a_number"),
        (b"Infinity", "not_a_number"),
        (b'{"a":[-Infinity]}', "not_a_number"),
        (b"1e999", "number_out_of_range"),
        (b"-1e999", "number_out_of_range"),
        (b"18446744073709551616", "number_out_of_range"),
        (b"-9223372036854775809", "number_out_of_range"),
        (b"9" * 5_000, "number_out_of_range"),
        (b"9" * 100_000, "number_out_of_range"),
        (b'{"a":1,"a":1}', "duplicate_key"),
        (rb'{"a":1,"\u0061":2}', "duplicate_key"),
        (b'[{"x":{"b":1,"c":2,"b":null}}]', "duplicate_key"),
        (rb'"\ud800"', "lone_surrogate"),
        (rb'"\uDFFF"', "lone_surrogate"),
        (rb'"\ude81\ud83d"', "lone_surrogate"),
        (rb'{"\udbff":1}', "lone_surrogate"),
        (rb'{"a":["x\ud83d x"]}', "lone_surrogate"),
    ],
)
def test_F92_what_readers_disagree_on_is_refused(data: bytes, reason: str) -> None:
    assert reason_of(data) == reason


def test_every_reason_is_in_the_table_of_reasons() -> None:
    given_reasons = {
        reason_of(data)
        for data in (b"", b"\xff", b"{", b"NaN", b"1e999", b'{"a":1,"a":1}', rb'"\ud800"', nested(33), b" " * 200_000)
    }
    assert given_reasons == REASONS


def test_F91_the_size_limit_is_exact_and_comes_first() -> None:
    assert decode_json(b'"' + b"a" * (MAX_BYTES - 2) + b'"') == "a" * (MAX_BYTES - 2)
    assert reason_of(b'"' + b"a" * (MAX_BYTES - 1) + b'"') == "too_large"
    assert reason_of(b"\xff" * (MAX_BYTES + 1)) == "too_large"
    assert decode_json(b"12", max_bytes=2) == 12
    assert reason_of(b"123", max_bytes=2) == "too_large"


def test_F92_the_depth_limit_is_exact() -> None:
    decode_json(nested(32))
    decode_json(b'{"a":' * 32 + b"1" + b"}" * 32)
    decode_json(b"[" + nested(31) + b",{}]")  # 33 brackets, 32 deep
    assert reason_of(nested(33)) == "too_deep"
    assert reason_of(b'{"a":' * 33 + b"1" + b"}" * 33) == "too_deep"
    assert reason_of(b'[{"a":' * 17 + b"1" + b"}]" * 17) == "too_deep"
    assert decode_json(b"1", max_depth=0) == 1
    assert reason_of(b"[]", max_depth=0) == "too_deep"


@pytest.mark.parametrize("levels", [1_000, 65_000, 100_000])
@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"":'])
def test_F92_very_deep_json_is_refused_without_recursion(levels: int, opening: bytes) -> None:
    assert reason_of(opening * levels, max_bytes=10**6) == "too_deep"
    assert reason_of(nested(levels), max_bytes=10**6) == "too_deep"


def test_F92_a_depth_limit_beyond_the_interpreters_is_refused_too() -> None:
    assert reason_of(nested(100_000), max_bytes=10**6, max_depth=10**6) == "too_deep"


def test_many_brackets_that_are_not_deep_are_accepted() -> None:
    assert decode_json(b"[" + b"[]," * 1_000 + b"[]]") == [[]] * 1_001
    assert decode_json(b"[" + b'{"a":[{}]},' * 100 + b"1]") == [{"a": [{}]}] * 100 + [1]


@pytest.mark.parametrize(
    "inside",
    ["[" * 1_000, "{" * 1_000, '\\"' + "[" * 100, "\\\\" * 3 + "[" * 100, "]" * 100 + "[" * 100, '\\"[' * 100],
)
def test_brackets_in_strings_are_not_depth(inside: str) -> None:
    data = f'{{"{inside}":["{inside}"]}}'.encode()
    assert decode_json(data) == json.loads(data)


def test_depth_after_strings_full_of_brackets_is_still_seen() -> None:
    assert reason_of(b'["' + b"]" * 100 + b'\\"",' + nested(32) + b"]") == "too_deep"
    assert decode_json(b'["' + b"]" * 100 + b'\\"",' + nested(31) + b"]") is not None


@pytest.mark.parametrize(
    "data",
    [b"[" * 33 + b'\\"' * 60_000, b'["' + b"[\\" * 60_000, b'"[' * 60_000, b"[]" * 60_000, b"][" * 60_000],
)
def test_F92_garbage_full_of_brackets_is_refused_in_linear_time(data: bytes) -> None:
    assert reason_of(data) in {"too_deep", "not_json"}  # a quadratic scan would run into the timeout of the test


def test_decode_json_leaves_no_chain_to_the_parsers_error() -> None:
    for data in (b"\xff", b"{", nested(33), rb'"\ud800"'):
        with pytest.raises(UndecodableMessageError) as caught:
            decode_json(data)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__ or caught.value.__context__ is None


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children, max_size=5) | st.dictionaries(st.text(max_size=5), children, max_size=5),
    max_leaves=30,
)


@settings(deadline=None)
@given(JSON_VALUES, st.booleans())
def test_all_json_values_survive_a_round_trip(value: Any, ascii_only: bool) -> None:  # noqa: ANN401, FBT001
    assert decode_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


FRAGMENTS = [
    *rb'[ ] { } , : " \ \u d800 de00 1 - e9 999 .0 null NaN Infinity a "a":'.split(),
    *(b" ", b"\n", b"\x00", b"\xc3", b"\xa9", b"\xef\xbb\xbf"),
]
NEAR_JSON = st.lists(st.sampled_from(FRAGMENTS), max_size=120).map(b"".join)


@settings(deadline=None, max_examples=1_000)
@given(st.binary(max_size=200) | NEAR_JSON)
@example(b"[" * 100_000)
@example(b'{"a":' * 20_000)
def test_F90_bytes_are_decoded_as_json_does_or_refused(data: bytes) -> None:
    check_against_the_standard_parser(data)


@settings(deadline=None, max_examples=300)
@given(JSON_VALUES, st.data())
def test_F90_damaged_json_is_decoded_as_json_does_or_refused(value: Any, data: st.DataObject) -> None:  # noqa: ANN401
    text = bytearray(json.dumps(value).encode())
    position = data.draw(st.integers(0, len(text) - 1))
    text[position : position + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    check_against_the_standard_parser(bytes(text))


def check_against_the_standard_parser(data: bytes) -> None:
    try:
        decoded = decode_json(data)
    except UndecodableMessageError:
        return
    assert decoded == json.loads(data.decode())
    assert is_sound(decoded)


def is_sound(value: JsonValue) -> bool:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode() == value
        case float():
            return math.isfinite(value)
        case list():
            return all(is_sound(item) for item in value)
        case dict():
            return all(is_sound(key) and is_sound(item) for key, item in value.items())
        case _:
            return True


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ((), {"data": {"output": {"status": "ok"}, "none": None, "list": [{"a": 1}]}, "": 0}),
        (("data", "output", "status"), "ok"),
        (("data", "none"), None),
        (("",), 0),
        (("data", "output", "status", "x"), MISSING),
        (("data", "none", "x"), MISSING),
        (("data", "list", "0"), MISSING),
        (("data.output.status",), MISSING),
        (("other",), MISSING),
    ],
)
def test_lookup(path: tuple[str, ...], expected: JsonValue | Missing) -> None:
    value: JsonValue = {"data": {"output": {"status": "ok"}, "none": None, "list": [{"a": 1}]}, "": 0}
    assert lookup(value, path) == expected


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "data", []])
def test_lookup_in_what_is_no_object_finds_nothing(value: JsonValue) -> None:
    assert lookup(value, ("data",)) is MISSING
    assert lookup(value, ()) is value
