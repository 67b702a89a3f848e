"""JSON that is read in the quick way is read as strictly; and what of an event is shown as JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.api.event_json import event_json
from app.core.errors import UndecodableMessageError
from app.core.events.event import Entry, Event
from app.core.payload import MISSING, decode_json
from app.profiles.quick_json import plain

FRAGMENTS = rb'[ ] { } , : " \\ \u d800 de00 1 - e9 e+309 E999 .0 null NaN "a": "b" 9223372036854775808'.split()
NEAR_JSON = st.lists(st.sampled_from([*FRAGMENTS, b" ", b"\n", b"\xc3"]), max_size=60).map(b"".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=5) | st.dictionaries(st.text(max_size=5), children, max_size=5),
    max_leaves=30,
)


@settings(deadline=None, max_examples=1_000)
@given(NEAR_JSON | VALUES.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=100))
@example(b'{"a":1,"a" :2}')
@example(b'{"a":":","a":2}')
@example(b'{"a":"\\":","a":2}')
@example(b'{"a":1,"\\u0061":2}')
@example(b"[9223372036854775808,-9223372036854775809]")
@example(b"[-0,-0.0,1e400,1e-400]")
@example(b"1" * 400)
@example(b"[" * 33 + b"]" * 33)
def test_what_is_plain_is_what_strict_reading_gives(value: bytes) -> None:
    read = plain(value)
    if read is not MISSING:
        assert repr(read) == repr(decode_json(value))


@pytest.mark.parametrize(
    "value", [b'{"a":1,"b":[{"c":-2.5},{"c":"10:30"}]}', b'{"a": 1}', b"-0", b"true", b'"x"', b"[]"]
)
def test_what_devices_usually_say_is_plain(value: bytes) -> None:
    assert plain(value) is not MISSING


@given(NEAR_JSON)
@example(b'{"a" :1}')
def test_an_event_shows_what_was_said_or_its_bytes(value: bytes) -> None:
    shown = event_json(Event(1, 0, Entry("a", value)))
    try:
        decode_json(value)
    except UndecodableMessageError:
        assert set(json.loads(shown)) >= {"data_base64"}
    else:
        assert b'"data":' + value in shown
