"""Payloads in Protocol Buffers: as the descriptor of Eclipse Tahu and one of our own have them."""

from __future__ import annotations

from contextlib import suppress
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import ConfigurationError, InvalidInputError, UndecodableMessageError
from app.core.payload import MAX_BYTES, JsonValue
from app.profiles.loader import parse_profile
from app.profiles.protobufs import protobuf

TAHU = (resources.files("app.profiles.shipped") / "sparkplug_b.desc").read_bytes()
PAYLOAD = "org.eclipse.tahu.protobuf.Payload"
ENCODE, DECODE = protobuf(TAHU, PAYLOAD)
PROFILE = """
name = "p"
description = ""
[request]
topic = "c/{device_id}"
codec = { protobuf = "org.eclipse.tahu.protobuf.Payload", descriptor = "a.desc" }
payload = { uuid = "{id}" }
[[response]]
name = "r"
topic = "r/{device_id}"
correlation = "id"
sources = [{ path = "uuid" }]
rules = [{ state = "succeeded" }]
"""


@pytest.mark.parametrize(
    "value",
    [
        {"timestamp": 1_732_000_000_500, "seq": 0, "metrics": [{"name": "a/b", "long_value": 2**63, "is_null": False}]},
        {"metrics": [{"bytes_value": "AP8="}, {"template_value": {"version": "1", "parameters": [{"int_value": 1}]}}]},
        {},
    ],
)
def test_what_is_written_is_read_with_64_bits_as_numbers_and_bytes_as_base64(value: JsonValue) -> None:
    assert DECODE(ENCODE(value)) == value


@pytest.mark.parametrize("value", [{"seq": "many"}, {"nothing_of_this": 1}, [1], "text", {"metrics": 7}])
def test_what_does_not_fit_is_refused(value: JsonValue) -> None:
    with pytest.raises(InvalidInputError, match="make no org"):
        ENCODE(value)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_said_to_be_none(data: bytes) -> None:
    with suppress(UndecodableMessageError):
        assert isinstance(DECODE(data), dict)


def test_what_is_too_large_or_too_deep_is_not_read() -> None:
    with pytest.raises(UndecodableMessageError, match="too_large"):
        DECODE(b"\0" * (MAX_BYTES + 1))
    deep: JsonValue = {"name": "x"}
    for _ in range(40):
        deep = {"template_value": {"metrics": [deep]}}
    with pytest.raises(UndecodableMessageError):
        DECODE(ENCODE({"metrics": [deep]}))


@pytest.mark.parametrize(
    ("descriptor", "name", "sentence"),
    [
        (TAHU, "Paylod", "allowed: org.eclipse.tahu.protobuf.Payload"),
        (b"\xff\xff", PAYLOAD, "cannot be read"),
        (b"", PAYLOAD, "allowed: none"),
    ],
)
def test_a_wrong_descriptor_is_refused_with_what_is_allowed(descriptor: bytes, name: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        protobuf(descriptor, name)


def test_a_profile_reads_its_descriptor_from_the_folder_that_it_lies_in() -> None:
    asked = []

    def read(name: str) -> bytes:
        asked.append(name)
        return TAHU

    parse_profile(PROFILE, "p.toml", read_file=read)
    assert asked == ["a.desc"]
    with pytest.raises(ConfigurationError, match=r"p.toml:6: request.codec: .*a.desc: cannot be read"):
        parse_profile(PROFILE, "p.toml")
