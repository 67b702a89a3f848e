"""The properties beside a payload in MQTT 5, as profiles write and read them: correlation data, user properties."""

from __future__ import annotations

from uuid import UUID

import pytest

from app.core.commands.callback import Expectation
from app.core.errors import ConfigurationError, UndecodableMessageError
from app.core.messages import ReceivedMessage, UserProperties
from app.core.profiles.correlation import Correlation
from app.core.profiles.device_events import DeviceEvent, PresenceSign
from app.core.profiles.event_reader import EventReader, ReplyReader
from app.core.profiles.response_reader import ResponseReader, names
from app.core.profiles.templates import CommandFacts
from app.profiles.loader import parse_profile

ID = "042-01JCZX0000000000000000000A"
FACTS = CommandFacts(ID, "oven-1", "m", {"a": 1}, 0, 9_400_000)
REQUEST = """
name = "p"
description = ""
[request]
topic = "c/{device_id}"
payload = "{params}"
properties = "uuid"
user_properties = { from = "homing", device = "{device_id}", left = "{timeout_ms} ms" }
"""
RESPONSE = """
[[response]]
name = "r"
topic = "answers"
device = { path = "{user.__srcId}" }
correlation = "value"
value = "{id_uuid}"
sources = [{ property = "uuid" }]
rules = [{ state = "failed", when = [{ path = "{user.s-t}", is_in = ["500"] }] }, { state = "succeeded" }]
"""
SOURCE: UserProperties = (("__srcId", "oven-1"),)


def test_a_command_has_sixteen_bytes_of_a_uuid_and_user_properties() -> None:
    published = parse_profile(REQUEST + RESPONSE, "p.toml").compose(FACTS)
    data = published.correlation_data
    assert data is not None
    assert UUID(bytes=data).version == 4
    assert published.user_properties == (("from", "homing"), ("device", "oven-1"), ("left", "9400 ms"))


def test_an_answer_is_known_by_those_bytes_and_its_device_by_a_user_property() -> None:
    profile = parse_profile(REQUEST + RESPONSE, "p.toml")
    data = profile.compose(FACTS).correlation_data
    assert data is not None
    assert profile.expectations(FACTS) == (Expectation("answers", Correlation.VALUE, str(UUID(bytes=data))),)
    user = (*SOURCE, ("s-t", "500"))
    answer = ResponseReader([profile]).read(
        ReceivedMessage("answers", b"{}", correlation_data=data, user_properties=user)
    )
    assert (answer.device_id, answer.state.value) == ("oven-1", "failed")
    assert names(profile, FACTS, answer)
    other = ReceivedMessage("answers", b"{}", correlation_data=data, user_properties=(("__srcId", "oven-2"),))
    assert not names(profile, FACTS, ResponseReader([profile]).read(other))


def test_of_two_user_properties_of_one_name_the_first_counts() -> None:
    profile = parse_profile(REQUEST + RESPONSE, "p.toml")
    user = (*SOURCE, ("__srcId", "oven-2"))
    answer = ResponseReader([profile]).read(
        ReceivedMessage("answers", b"{}", correlation_data=bytes(16), user_properties=user)
    )
    assert answer.device_id == "oven-1"


@pytest.mark.parametrize(
    ("data", "user", "reason"),
    [
        (None, SOURCE, "no_correlation"),
        (bytes(15), SOURCE, "no_correlation"),
        (ID.encode(), SOURCE, "no_correlation"),
        (bytes(16), (), "no_device"),
        (bytes(16), (("__srcid", "oven-1"),), "no_device"),
    ],
)
def test_an_answer_without_either_is_none(data: bytes | None, user: UserProperties, reason: str) -> None:
    reader = ResponseReader([parse_profile(REQUEST + RESPONSE, "p.toml")])
    with pytest.raises(UndecodableMessageError) as raised:
        reader.read(ReceivedMessage("answers", b"{}", correlation_data=data, user_properties=user))
    assert raised.value.reason == reason


def test_events_presence_and_replies_read_them_too() -> None:
    heard = """
[[event]]
name = "e"
topic = "events"
device = { path = "{user.__srcId}" }
type = "{user.type}"
[[presence]]
topic = "events"
device = { path = "{user.__srcId}" }
offline = [{ path = "{user.type}", is_in = ["gone"] }]
[[reply]]
name = "a"
topic = "questions"
device = { path = "{user.__srcId}" }
match = [{ path = "{user.type}", is_in = ["time"] }]
to = "replies/{device_id}"
payload = { now = "{now_ms}" }
"""
    profile = parse_profile(REQUEST + RESPONSE + heard, "p.toml")
    event = ReceivedMessage("events", b"{}", user_properties=(*SOURCE, ("type", "gone")))
    assert EventReader([profile]).read(event) == [
        DeviceEvent("p", "e", "events", "oven-1", "gone"),
        PresenceSign("p", "events", "oven-1", online=False),
    ]
    asked = ReceivedMessage("questions", b"{}", user_properties=(*SOURCE, ("type", "time")))
    (candidate,) = ReplyReader([profile]).read(asked, 7)
    reply = candidate.reply(None)
    assert reply is not None
    assert (reply.topic, reply.payload) == ("replies/oven-1", b'{"now":7}')
    assert ReplyReader([profile]).read(ReceivedMessage("questions", b"{}", user_properties=SOURCE), 7) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('properties = "uuid"', "", "carries {id_uuid} nowhere, so that no response can"),
        ('properties = "uuid"', "properties = true", "carries {id_uuid} nowhere, so that no response can"),
        ('correlation = "value"\nvalue = "{id_uuid}"', 'correlation = "id"', "a UUID is no id of ours"),
        ('is_in = ["500"]', "is_in = [500]", "{user.s-t} is text beside the payload; allowed: text to compare it with"),
        ('from = "homing"', 'from = "{params.a}"', "user_properties.from: names the params"),
        ('from = "homing"', 'from = "{nobody}"', "{nobody} is unknown"),
        ('from = "homing"', '"a b" = "x"', "user_properties"),
        ('from = "homing"', 'from = "a\\u0000b"', "user_properties.from"),
        ("{user.__srcId}", "{user.}", "'{user.}' cannot be read"),
    ],
)
def test_what_could_never_work_is_refused(old: str, new: str, said: str) -> None:
    text = REQUEST + RESPONSE
    assert old in text
    with pytest.raises(ConfigurationError) as raised:
        parse_profile(text.replace(old, new), "p.toml")
    assert said in str(raised.value)
