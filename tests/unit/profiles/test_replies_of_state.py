"""Replies that speak of the last value that a topic of the device has in the event log."""

from __future__ import annotations

import json

import pytest

from app.core.errors import ConfigurationError
from app.core.events.event import Entry
from app.core.payload import MISSING
from app.core.replies.reply import LastValue
from app.profiles.loader import parse_profile
from app.profiles.tools.trial import replies_of
from tests.unit.profiles.test_replies import PLAIN

ASKS = '[[reply]]\nname = "a"\ntopic = "a/{device_id}"\nto = "b/{device_id}"\n'
KEPT = '[[event]]\nname = "e"\ntopic = "x/{device_id}"\ndatabase = "telemetry"\n'


def value_of(reply: str, head: str = "") -> LastValue:
    (spec,) = parse_profile(PLAIN + head + ASKS + reply, "p.toml").replies
    return spec.state[0]


def test_a_value_is_what_the_device_said_last() -> None:
    one = value_of('payload = "{state.pos.x}"\nstate.pos = { topic = "x/{device_id}" }')
    assert one.of(Entry("x/d", b'{"x":1}', "d"), "d") == {"x": 1}
    assert one.of(Entry("x/d", b'{"x":1}'), "d") == {"x": 1}  # a backend said it, for the device
    for none in (None, Entry("x/d", b"", "d"), Entry("x/d", b"{", "d"), Entry("x/d", b"1", "e")):
        assert one.of(none, "d") is MISSING


def test_a_default_stands_for_a_value_that_is_not_there() -> None:
    one = value_of('payload = "{state.pos}"\nstate.pos = { topic = "x/{device_id}", codec = "text", default = "?" }')
    assert one.of(None, "d") == "?"
    assert one.of(Entry("x/d", b"here", "d"), "d") == "here"
    assert one.of(Entry("x/d", b"there", "another"), "d") == "?"


@pytest.mark.parametrize(
    ("state", "head", "database"),
    [
        ('{ topic = "x/{device_id}" }', "", None),
        ('{ topic = "x/{device_id}" }', KEPT, "telemetry"),
        ('{ topic = "x/{device_id}", database = "events" }', KEPT, "events"),
        ('{ topic = "y/{device_id}" }', KEPT, None),
    ],
)
def test_a_value_is_looked_for_where_the_profile_puts_its_events(state: str, head: str, database: str | None) -> None:
    assert value_of(f'payload = "{{state.pos}}"\nstate.pos = {state}', head).database == database


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (
            'payload = "{state.pos.x}"',
            "p.toml:17: reply.0.payload: {state.pos.x} is unknown; allowed: none, as there is no state = { … }",
        ),
        (
            'payload = "{state.po}"\nneeds = ["state"]\nstate.pos = { topic = "x/{device_id}" }',
            "is unknown; allowed: {state.pos}\np.toml:18: reply.0.needs.0: {state} is unknown; allowed: {state.pos}",
        ),
        ('state.Pos = { topic = "x/{device_id}" }', "p.toml:17: reply.0.state.Pos: 'Pos' is no name; allowed: a lower"),
        (
            'state.pos = { topic = "x/{no}/{device_id}" }',
            "p.toml:17: reply.0.state.pos.topic: {no} is unknown; allowed",
        ),
        (
            'state.pos = { topic = "x/y" }',
            "p.toml:17: reply.0.state.pos.topic: may be the topic of another device; allowed: one with {device_id}",
        ),
        (
            'state.pos = { topic = "x/{device_id}", defalt = 1 }',
            "p.toml:17: reply.0.state.pos.defalt: is unknown; is default meant?; allowed: topic, codec, database, def",
        ),
        (
            'state.pos = { topic = "x/{device_id}", database = "A" }',
            "p.toml:17: reply.0.state.pos.database: is 'A'; allowed: a lower-case letter, then up to 31 of a-z 0-9 _ -",
        ),
        ('state.pos = "x"', "p.toml:17: reply.0.state.pos: is text; allowed: a table"),
        (
            "\n".join(f'state.p{n} = {{ topic = "x/{{device_id}}" }}' for n in range(9)),
            "reply.0.state: has 9 values; allowed are 8",
        ),
    ],
)
def test_a_wrong_value_is_refused_with_its_line(reply: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        value_of(reply)
    assert said in str(refused.value)


def test_a_device_of_parts_has_topics_of_its_parts() -> None:
    profile = PLAIN.replace("{device_id}", "{kind}/{serial}").replace(
        "[request]", 'device_id = "{kind}:{serial}"\n[request]'
    )
    asks = ASKS.replace("{device_id}", "{kind}/{serial}") + 'state.pos = { topic = "TOPIC" }\n'
    for topic in ("x/{kind}/{serial}", "x/{device_id}"):
        (spec,) = parse_profile(profile + asks.replace("TOPIC", topic), "p.toml").replies
        assert spec.state[0].topic.text == topic
    with pytest.raises(ConfigurationError, match=r"allowed: one with \{device_id\}, or with \{kind\} and \{serial\}"):
        parse_profile(profile + asks.replace("TOPIC", "x/{serial}"), "p.toml")


def test_check_shows_what_replies_speak_of() -> None:
    reply = f'payload = "{{state.pos}}"\nstate.pos = {{ topic = "x/{{device_id}}", default = {json.dumps("?")} }}'
    profile = parse_profile(PLAIN + KEPT + ASKS + reply, "p.toml")
    assert list(replies_of(profile)) == [
        "a, to a/{device_id}, on b/{device_id}",
        '  of {state.pos}, the last value of x/{device_id} in telemetry, or else "?"',
    ]
