"""Devices speak without being asked: events and presence, as profiles declare them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import ConfigurationError
from app.core.messages import ReceivedMessage
from app.core.payload import JsonValue, decode_json
from app.core.profiles.conditions import condition
from app.core.profiles.device_events import DeviceEvent, PresenceSign
from app.core.profiles.event_reader import EventReader
from app.profiles.loader import load_profiles, parse_profile

PROFILES = load_profiles()
READER = EventReader(PROFILES.values())
PLAIN = """
name = "p"
description = ""
[request]
topic = "c/{device_id}"
payload = { id = "{id}" }
[[response]]
name = "r"
topic = "r/{device_id}"
correlation = "id"
sources = [{ path = "id" }]
rules = [{ state = "succeeded" }]
"""


def read(topic: str, payload: object, reader: EventReader = READER) -> list[DeviceEvent | PresenceSign]:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return reader.read(ReceivedMessage(topic, data))


def own(text: str) -> EventReader:
    return EventReader([parse_profile(PLAIN + text, "p.toml")])


def test_a_dji_event_has_its_method_as_type_and_a_repetition_is_known_by_its_tid() -> None:
    body = {"tid": "t1", "bid": "b", "method": "hms", "need_reply": 1, "data": {}}
    topic = "thing/product/D1/events"
    assert read(topic, body) == [DeviceEvent("dji", "event", topic, "D1", "hms", "t1", "events")]
    assert read(topic, body | {"timestamp": 7}) == read(topic, body)


def test_telemetry_of_a_dji_dock_is_a_sign_of_life_as_well() -> None:
    topic = "thing/product/D1/osd"
    assert read(topic, {"data": {}}) == [
        DeviceEvent("dji", "osd", topic, "D1", database="telemetry"),
        PresenceSign("dji", topic, "D1", online=True, offline_after=timedelta(seconds=90)),
    ]


@pytest.mark.parametrize("online", [True, False])
def test_a_homing_device_says_whether_it_is_there(online: bool) -> None:  # noqa: FBT001 - a parameter of the test
    topic = "homing/d1/presence"
    assert read(topic, {"online": online}) == [PresenceSign("homing", topic, "d1", online=online)]


@pytest.mark.parametrize("payload", [b"", b"\xff", {}, {"online": 1}, {"online": "false"}, []])
def test_what_says_neither_decides_nothing(payload: object) -> None:
    assert read("homing/d1/presence", payload) == []


UNREADABLE = [
    b'{"tid": "t1", "da',
    b"\xff\x00",
    b"",
    b'{"n": NaN}',
    b'{"tid": "a", "tid": "b"}',
    b'{"tid": "a", "n": 18446744073709551616}',
    b'{"tid": "a", "online" :true, "online":false}',
    b"[" * 33 + b"]" * 33,
]


@pytest.mark.parametrize("payload", UNREADABLE)
def test_what_nobody_can_read_is_an_event_of_the_device_in_its_topic_without_an_id(payload: bytes) -> None:
    topic = "thing/product/D1/events"
    assert read(topic, payload) == [DeviceEvent("dji", "event", topic, "D1", database="events")]
    assert [type(one) for one in read("homing/d1/event", payload)] == [DeviceEvent]


@pytest.mark.parametrize("payload", UNREADABLE)
def test_it_tells_nothing_of_presence_where_a_rule_asks_for_it(payload: bytes) -> None:
    assert read("homing/d1/presence", payload) == []


def test_where_no_rule_asks_its_topic_is_the_sign_of_life_but_for_an_empty_payload() -> None:
    """An empty payload is how anybody takes a retained message away."""
    topic = "thing/product/D1/osd"
    kept = DeviceEvent("dji", "osd", topic, "D1", database="telemetry")
    there = PresenceSign("dji", topic, "D1", online=True, offline_after=timedelta(seconds=90))
    assert read(topic, b"\xff") == [kept, there]
    assert read(topic, b"") == [kept]


def test_of_a_kind_that_selects_it_is_an_event_whose_kind_nobody_knows() -> None:
    reader = own(
        """
[[event]]
name = "alarm"
topic = "e/{device_id}"
match = [{ path = "level", present = false }]
database = "alarms"
"""
    )
    assert read("e/d", b"{", reader) == [DeviceEvent("p", "", "e/d", "d", database="alarms")]
    assert read("e/d", {"level": 1}, reader) == []


def test_what_the_topic_must_be_is_asked_of_it_all_the_same() -> None:
    reader = own(
        """
[[event]]
name = "alarm"
topic = "e/{device_id}/{kind}"
match = [{ path = "{kind}", is_in = ["alarm"] }]
id = [{ all = [{ topic_level = "kind" }, { path = "n" }] }]
[[event]]
name = "loud"
topic = "l/{device_id}/{kind}"
match = [{ path = "{kind}", is_in = ["alarm"] }, { path = "loud", present = true }]
"""
    )
    assert read("e/d/alarm", b"{", reader) == [DeviceEvent("p", "alarm", "e/d/alarm", "d")]
    assert read("e/d/note", b"{", reader) == []
    assert read("l/d/alarm", b"{", reader) == [DeviceEvent("p", "", "l/d/alarm", "d")]
    assert read("l/d/note", b"{", reader) == []


def test_a_message_that_says_no_device_is_an_event_of_none() -> None:
    reader = own('[[event]]\nname = "e"\ntopic = "gateway/up"\ndevice = { path = "from" }\nid = [{ path = "n" }]')
    assert read("gateway/up", {"from": "d", "n": 1}, reader) == [DeviceEvent("p", "e", "gateway/up", "d", identity="1")]
    assert read("gateway/up", {"n": 1}, reader) == [DeviceEvent("p", "e", "gateway/up", "", identity="1")]
    assert read("gateway/up", b"\x00", reader) == [DeviceEvent("p", "e", "gateway/up", "")]


@pytest.mark.parametrize("device", ["D1", "D" * 300])
def test_a_topic_that_comes_again_is_read_as_the_first_time(device: str) -> None:
    reader = EventReader(PROFILES.values())
    topic = f"thing/product/{device}/events"
    (first,), (second,) = (read(topic, {"tid": tid}, reader) for tid in ("1", "2"))
    assert isinstance(first, DeviceEvent)
    assert second == first._replace(identity="2")


def test_a_payload_is_read_once_at_most_and_not_at_all_where_no_rule_asks() -> None:
    reads: list[bytes] = []

    def counted(data: bytes) -> JsonValue:
        reads.append(data)
        return decode_json(data)

    kinds = tuple(replace(one, decode=counted) for one in PROFILES["dji"].events)
    signs = tuple(
        replace(one, decode=counted, offline=(condition(("gone",), (True,)),)) for one in PROFILES["dji"].presence
    )
    asking = EventReader([replace(PROFILES["dji"], events=kinds, presence=signs)])
    assert len(read("sys/product/D1/status", {"tid": "t"}, asking)) == 2
    assert len(reads) == 1
    plain = EventReader([replace(PROFILES["dji"], events=kinds)])
    assert len(read("thing/product/D1/osd", b'{"tid": "t"}', plain)) == 2
    assert len(reads) == 1


def test_without_type_and_id_a_homing_event_is_an_event_nevertheless() -> None:
    assert read("homing/d1/event", {}) == [DeviceEvent("homing", "event", "homing/d1/event", "d1", database="events")]


def test_text_and_topics_say_it_as_well_and_the_first_kind_that_fits_counts() -> None:
    reader = own(
        """
[[event]]
name = "alarm"
topic = "e/{device_id}/{kind}"
codec = "text"
match = [{ path = "{kind}", is_in = ["alarm"] }]
[[event]]
name = "other"
topic = "e/{device_id}/{kind}"
codec = "text"
type = "{kind}"
id = [{ all = [{ topic_level = "kind" }, { path = "$" }] }]
[[presence]]
topic = "lwt/{device_id}"
codec = "text"
offline = [{ path = "$", is_in = ["Offline"] }]
"""
    )
    assert read("e/d/alarm", b"7", reader) == [DeviceEvent("p", "alarm", "e/d/alarm", "d")]
    assert read("e/d/note", b"7", reader) == [DeviceEvent("p", "other", "e/d/note", "d", "note", "note\x1f7")]
    assert read("lwt/d", b"Offline", reader) == [PresenceSign("p", "lwt/d", "d", online=False)]
    assert read("lwt/d", b"Online", reader) == [PresenceSign("p", "lwt/d", "d", online=True)]
    assert reader.filters() == ("e/+/+", "lwt/+")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[event]]\nname = "e"\ntopic = "e"', "p.toml:15: event.0.topic: needs a level {device_id}"),
        (
            '[[event]]\nname = "e"\ntopic = "e/{device_id}/{kind}"',
            "p.toml:15: event.0.topic: {kind} is unknown, and nothing reads it",
        ),
        (
            '[[event]]\nname = "e"\ntopic = "e/{device_id}"\nid = [{ topic_level = "kind" }]',
            "p.toml:16: event.0.id.0.topic_level: 'kind' is no placeholder of the topic; it has: device_id",
        ),
        (
            '[[event]]\nname = "e"\ntopic = "e/{device_id}"\n[[event]]\nname = "f"\ntopic = "e/{device_id}"',
            "p.toml:16: event.1: is never reached: event.0 before it takes all that it matches",
        ),
        ('[[presence]]\ntopic = "e/{device_id}"', "p.toml:13: presence.0: says never that the device has gone"),
        (
            '[[presence]]\ntopic = "e/{device_id}"\noffline_after = 90',
            "p.toml:15: presence.0.offline_after: is not text: write a number and its unit, such as '90s'",
        ),
        (
            '[[presence]]\ntopic = "e/{device_id}"\noffline_after = "5ms"',
            "p.toml:15: presence.0.offline_after: 5ms is out of range; allowed: 1s to 720h",
        ),
        (
            '[[presence]]\ntopic = "e/{device_id}"\noffline_after = "5m"\nready_after = "11m"',
            "p.toml:16: presence.0.ready_after: 11m is out of range; allowed: 0ms to 10m",
        ),
    ],
)
def test_what_can_never_hold_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        own(text)
    assert said in str(refused.value)


@given(st.binary(max_size=60), st.sampled_from(["events", "osd", "status"]))
def test_whatever_comes_nothing_is_raised(payload: bytes, end: str) -> None:
    for topic in (f"thing/product/x/{end}", f"homing/x/{end}", "homing/x/presence", "homing/x/event"):
        READER.read(ReceivedMessage(topic, payload))
