from __future__ import annotations

import base64
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.errors import InvalidInputError, UndecodableMessageError
from app.core.payload import MAX_BYTES, MAX_DEPTH, JsonValue, decode_json
from app.core.profiles.profile import to_json
from app.profiles.codecs import CODECS

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(SCALARS, lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text("ab0", max_size=3), one))


def reason_of(codec: str, data: bytes) -> str:
    with pytest.raises(UndecodableMessageError) as caught:
        CODECS[codec][1](data)
    assert caught.value.__cause__ is None
    return caught.value.reason


@settings(deadline=None)
@given(JSON, st.sampled_from(["json", "cbor", "msgpack"]))
def test_what_is_written_is_read_again(value: JsonValue, codec: str) -> None:
    encode, decode = CODECS[codec]
    assert decode(encode(value)) == value


@settings(deadline=None)
@given(st.binary(max_size=200), st.sampled_from(list(CODECS)))
def test_whatever_the_bytes_are_it_is_json_or_refused(data: bytes, codec: str) -> None:
    try:
        value = CODECS[codec][1](data)
    except UndecodableMessageError as error:
        assert error.reason.isidentifier()  # noqa: PT017 - either way is right
    else:
        assert decode_json(to_json(value)) == value or isinstance(value, str)


@pytest.mark.parametrize(
    ("codec", "data", "value"),
    [
        ("text", b"ON", "ON"),
        ("text", b"", ""),
        ("empty", b"", None),
        ("raw", b"\x00\xff", "AP8="),
        ("cbor", bytes.fromhex("a2616101625061f4"), {"a": 1, "Pa": False}),
        ("cbor", bytes.fromhex("a1014102"), {"1": "Ag=="}),
        ("cbor", bytes.fromhex("d9d9f781f6"), [None]),
        ("msgpack", bytes.fromhex("82a161010203"), {"a": 1, "2": 3}),
        ("msgpack", bytes.fromhex("c4020102"), "AQI="),
    ],
)
def test_payloads_become_json(codec: str, data: bytes, value: object) -> None:
    assert CODECS[codec][1](data) == value


@pytest.mark.parametrize(
    ("codec", "data", "reason"),
    [
        ("text", b"\xff", "not_utf8"),
        ("text", b"a" * (MAX_BYTES + 1), "too_large"),
        ("raw", b"a" * (MAX_BYTES + 1), "too_large"),
        ("cbor", b"\x40" * (MAX_BYTES + 1), "too_large"),
        ("msgpack", b"\x01" * (MAX_BYTES + 1), "too_large"),
        ("empty", b" ", "not_empty"),
        ("cbor", b"", "not_cbor"),
        ("cbor", b"\x01\x01", "not_cbor"),
        ("cbor", bytes.fromhex("a2616101616102"), "not_cbor"),  # a key twice
        ("cbor", bytes.fromhex("a20102613103"), "duplicate_key"),  # 1 and "1"
        ("cbor", b"\x81" * (MAX_DEPTH + 1) + b"\x01", "not_cbor"),
        ("cbor", b"\xd8\x18" * 1000 + b"\x01", "not_cbor"),
        ("cbor", bytes.fromhex("d81c81d81d00"), "not_cbor"),  # a list that has itself in it
        ("cbor", bytes.fromhex("c11a514b67b0"), "not_cbor"),  # a date
        ("cbor", bytes.fromhex("d8236228 2b".replace(" ", "")), "not_cbor"),  # a pattern
        ("cbor", bytes.fromhex("c249010000000000000000"), "not_cbor"),  # a large number
        ("cbor", bytes.fromhex("3bffffffffffffffff"), "number_out_of_range"),
        ("cbor", bytes.fromhex("f97e00"), "not_a_number"),
        ("cbor", bytes.fromhex("f7"), "no_json_value"),
        ("msgpack", b"", "not_msgpack"),
        ("msgpack", b"\xc0\xc0", "not_msgpack"),
        ("msgpack", bytes.fromhex("82a16101a16102"), "duplicate_key"),
        ("msgpack", bytes.fromhex("82010 1a13102".replace(" ", "")), "duplicate_key"),
        ("msgpack", b"\x91" * (MAX_DEPTH + 1) + b"\x01", "too_deep"),
        ("msgpack", b"\x91" * 100_000 + b"\x01", "not_msgpack"),
        ("msgpack", b"\xdd\xff\xff\xff\xff", "not_msgpack"),
        ("msgpack", bytes.fromhex("d6ff00000000"), "no_json_value"),  # an instant
        ("msgpack", bytes.fromhex("cb7ff8000000000000"), "not_a_number"),
        ("msgpack", bytes.fromhex("81c0c0"), "no_json_value"),
    ],
)
def test_what_is_out_of_bounds_is_refused_with_the_reason(codec: str, data: bytes, reason: str) -> None:
    assert reason_of(codec, data) == reason


def test_what_is_as_deep_as_json_may_be_is_read() -> None:
    for codec, one in (("cbor", b"\x81"), ("msgpack", b"\x91")):
        assert CODECS[codec][1](one * MAX_DEPTH + b"\x01") == decode_json(b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH)


@pytest.mark.parametrize(
    ("codec", "value", "data"),
    [
        ("text", "ON", b"ON"),
        ("text", True, b"true"),
        ("text", 21.0, b"21"),
        ("text", None, b""),
        ("text", {"a": [1]}, b'{"a":[1]}'),
        ("empty", {"a": 1}, b""),
        ("raw", base64.b64encode(b"\x00\xff").decode(), b"\x00\xff"),
        ("raw", None, b""),
    ],
)
def test_payloads_are_written(codec: str, value: JsonValue, data: bytes) -> None:
    assert CODECS[codec][0](value) == data


@pytest.mark.parametrize("value", ["a", "é", 7, {}, math.pi, "AP8=\n"])
def test_what_is_no_base64_is_refused(value: JsonValue) -> None:
    with pytest.raises(InvalidInputError, match="params: have no Base64"):
        CODECS["raw"][0](value)
