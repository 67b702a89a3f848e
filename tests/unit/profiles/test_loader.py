from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.core.errors import ConfigurationError
from app.core.profiles.correlation import Correlation
from app.core.profiles.templates import CommandFacts
from app.profiles.loader import load_profiles, load_what_can_be, parse_profile

GOOD = """
name = "lamp"
description = "a lamp without ids"
quarantine_seconds = 5
[request]
topic = "lamps/{device_id}/set"
payload = { state = "{params.state}" }
[[response]]
name = "state"
topic = "lamps/{device_id}"
correlation = "order"
rules = [{ state = "succeeded" }]
"""


def test_a_profile_is_read_from_toml() -> None:
    profile = parse_profile(GOOD, "lamp.toml")
    assert profile.name == "lamp"
    assert profile.quarantine.total_seconds() == 5
    assert profile.responses[0].correlation is Correlation.ORDER


WITH_ID = """\
name = "lamp"
description = "a lamp with ids"

[request]
topic = "lamps/{device_id}/set"
payload = { ref = "{id}", do = "{method}" }

[[response]]
name = "done"
topic = "lamps/{device_id}/done"
correlation = "id"
sources = [{ path = "ref" }]
rules = [
    { state = "failed", when = [{ path = "code", is_not = [0] }] },
    { state = "running", when = [{ path = "percent", present = true }] },
    { state = "succeeded" },
]
"""

BY_VALUE = WITH_ID.replace('correlation = "id"', 'correlation = "value"\nvalue = "{params.flight}"')


def refused(text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        parse_profile(text, "lamp.toml")
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('name = "lamp"', 'name = "Lamp!"', "1: name: is 'Lamp!'; allowed: a lower-case letter, then up to 31 of a-z"),
        ('name = "lamp"', "name = 7", "1: name: is a number; allowed: text"),
        ('name = "lamp"\n', "", "1: name: is missing; needed: a value"),
        ("[request]", "[[request]]\nQos = 1", "5: request.0.Qos: is unknown; is qos meant?; allowed: topic, payload"),
        ("[request]", "[requests]", "4: requests: is unknown; is request meant?; allowed: name, description, request"),
        ("[request]", "[request]\nQos = 1", "5: request.Qos: is unknown; is qos meant?; allowed: topic, payload"),
        ("[request]", "[request]\nqos = 2", "5: request.qos: is 2; allowed: at most 1"),
        ("[request]", '[request]\nqos = "1"', "5: request.qos: is text; allowed: a whole number"),
        ("[request]", "[request]\nproperties = 1", "5: request.properties"),
        ("[request]", '[request]\ntraceparent = "ref"', "5: request.traceparent: 'ref' is no free place in an object"),
        ("[request]", '[request]\ntraceparent = "do.x"', "5: request.traceparent: 'do.x' is no free place"),
        ("[request]", "[request]\nrepeatable = true", "5: request.repeatable: is true or false; allowed: a list"),
        (
            "[request]",
            '[request]\nrepeatable = ["a b"]',
            "5: request.repeatable.0: U+0020 at index 1 is not allowed; allowed",
        ),
        ("[request]", '[request]\nrepeatable = ["on", "on"]', "5: request.repeatable: has on twice; allowed: each"),
        ("lamps/{device_id}/set", "lamps/{serial}/set", "5: request.topic: topic template"),
        ("lamps/{device_id}/set", "lamps/+/set", "5: request.topic: topic template 'lamps/+/set': '+'"),
        ('"{id}"', '"{ID}"', "6: request.payload: {ID} is unknown; allowed: {id}, {device_id}"),
        ('"{id}"', '"{ id }"', "6: request.payload: { id } is unknown; allowed: {id}"),
        ('"{id}"', '"{parms}"', "6: request.payload: {parms} is unknown; allowed: {id}"),
        ('"{id}"', '"{params.a b}"', "6: request.payload: {params.a b} is unknown; allowed: {id}"),
        ("ref =", '"{id}" =', "6: request.payload: {id} stands in the name of a member"),
        ('"{id}"', "nan", "6: request.payload: nan is no number of JSON"),
        ('"{id}"', "1979-05-27", "6: request.payload.ref: is a date or time, which JSON does not have; allowed: text"),
        (
            '"{id}"',
            '"42"',
            "4: request: carries {id} nowhere, so that no response can; allowed: {id} in topic or payload",
        ),
        (
            "[[response]]",
            "[response]",
            "8: response: is a table; allowed: one or more tables, each begun with [[response]]",
        ),
        ('"lamps/{device_id}/done"', '"lamps/all"', "10: response.0.topic: needs a level {device_id}"),
        ("/done", "/set", "10: response.0.topic: is the topic of the request as well, so that each command"),
        ("/done", "/{method}", "10: response.0.topic: is the topic of the request as well, so that each command"),
        ('"id"', '"luck"', "11: response.0.correlation: is 'luck'; allowed: 'id', 'value', 'echo' or 'order'"),
        ('"id"', '"order"', "8: response.0: correlation 'order' has no sources, every other one needs at least one"),
        ('"id"', '"value"', "8: response.0: value goes with correlation 'value', and only with it"),
        (
            'path = "ref"',
            'path = "$"',
            "12: response.0.sources.0.path: the whole payload is no id; allowed: the path to it, or codec = 'text'",
        ),
        ('path = "ref"', 'path = "$.ref"', "12: response.0.sources.0.path: '$.ref' is a path of another language"),
        ('path = "ref"', 'path = "a[x]"', "12: response.0.sources.0.path: 'a[x]' cannot be read; allowed: keys of"),
        ('path = "ref"', 'path = "a..b"', "12: response.0.sources.0.path: 'a..b' has an empty key; allowed: keys"),
        (
            'path = "ref"',
            'topic_level = "id"',
            "12: response.0.sources.0.topic_level: 'id' is no placeholder of the topic",
        ),
        ('{ path = "ref" }', '"ref"', "12: response.0.sources.0: is text; allowed: a table"),
        ('{ path = "ref" }', "{}", "12: response.0.sources.0: needs exactly one of property = true, topic_level, path"),
        (
            'state = "failed"',
            'state = "done"',
            "14: response.0.rules.0.state: is 'done'; allowed: 'running', 'succeeded'",
        ),
        ("[0]", "0", "14: response.0.rules.0.when.0.is_not: is a number; allowed: a list"),
        ("[0]", "[]", "14: response.0.rules.0.when.0: has an empty list; allowed: one or more values"),
        ("[0]", "[{}]", "14: response.0.rules.0.when.0.is_not.0: is a table; allowed: text, numbers, true, false"),
        (", is_not = [0]", "", "14: response.0.rules.0.when.0: needs is_in, is_not or present"),
        ("[0]", "[0], is_in = [0]", "14: response.0.rules.0.when.0: never holds: all of is_in stand in is_not"),
        ("[0]", "[0], present = false", "14: response.0.rules.0.when.0: never holds: what is not present is neither"),
        (
            ', when = [{ path = "code", is_not = [0] }]',
            "",
            "15: response.0.rules.1: is never reached: rules.0 before it",
        ),
        (
            'path = "percent", present = true',
            'path = "code", is_in = [7]',
            "15: response.0.rules.1: is never reached: rules.0",
        ),
        ("rules = [\n", "rules = [] # [\nx = [\n", "13: response.0.rules: is empty; allowed: one or more"),
        ("[[response]]", "quarantine_seconds = 5\n[[response]]", "8: request.quarantine_seconds: is unknown"),
        ("[request]", "quarantine_seconds = 5\n[request]", "4: quarantine_seconds: quarantine_seconds goes with"),
        (
            "description =",
            "quarantine_seconds = 3601\ndescription =",
            "2: quarantine_seconds: is 3601; allowed: at most 3600",
        ),
    ],
)
def test_a_wrong_profile_is_refused_with_file_line_key_and_what_is_allowed(old: str, new: str, sentence: str) -> None:
    assert old in WITH_ID
    said = refused(WITH_ID.replace(old, new, 1))
    assert [line for line in said if line.startswith(f"lamp.toml:{sentence}")], said


def test_what_is_no_toml_is_refused_with_its_line() -> None:
    assert refused('name = "lamp"\ndescription = \n') == ["lamp.toml:2: is no TOML at column 15: Invalid value"]


def test_a_value_that_is_the_same_for_every_command_is_refused() -> None:
    assert parse_profile(BY_VALUE, "lamp.toml").responses[0].value == ("{params.flight}",)
    said = refused(BY_VALUE.replace("{params.flight}", "F1"))
    sentence = "'F1' is the same for every command, so it tells none from another; allowed: what the command has"
    assert said == [f"lamp.toml:12: response.0.value: {sentence}, such as {{params.flight_id}}"]


def test_a_kind_that_another_one_hides_is_refused() -> None:
    second = WITH_ID[WITH_ID.index("[[response]]") :]
    assert refused(WITH_ID + second) == [
        "lamp.toml:18: response.1: is never reached: response.0 before it takes all that this one matches"
    ]
    told_apart = second.replace("rules =", 'match = [{ path = "a", present = true }]\nrules =')
    assert len(parse_profile(told_apart.join([WITH_ID[: WITH_ID.index("[[response]]")], second]), "x").responses) == 2


def test_the_topic_of_the_request_may_be_that_of_responses_which_it_cannot_match() -> None:
    same = WITH_ID.replace("/done", "/set").replace("rules =", 'match = [{ path = "code", present = true }]\nrules =')
    assert parse_profile(same, "lamp.toml").responses[0].topic.text == "lamps/{device_id}/set"


def test_braces_that_are_json_are_left_alone() -> None:
    text = WITH_ID.replace('"{method}"', '\'{"a": {}, "b": 1}\'')
    facts = CommandFacts("042-A", "l1", "set", None, 0, 1_000_000)
    assert json.loads(parse_profile(text, "lamp.toml").compose(facts).payload)["do"] == '{"a": {}, "b": 1}'


def test_all_faults_of_a_file_are_told_at_once_in_its_order() -> None:
    text = WITH_ID
    for old, new in (
        ("{id}", "{ID}"),
        ('"done"', "1"),
        ('"failed"', '"no"'),
        ("[0]", "0"),
        ('name = "lamp"', "nam = 1"),
    ):
        text = text.replace(old, new, 1)
    assert [line.split(": ")[:2] for line in refused(text)] == [
        ["lamp.toml:1", "nam"],
        ["lamp.toml:1", "name"],
        ["lamp.toml:6", "request.payload"],
        ["lamp.toml:9", "response.0.name"],
        ["lamp.toml:14", "response.0.rules.0.state"],
        ["lamp.toml:14", "response.0.rules.0.when.0.is_not"],
    ]


def test_a_traced_command_carries_its_context_where_the_profile_has_room() -> None:
    nested = GOOD.replace('{ state = "{params.state}" }', '{ state = "{params.state}", header = {} }')
    profile = parse_profile(nested.replace("[request]", '[request]\ntraceparent = "header.trace"'), "lamp.toml")
    facts = CommandFacts("042-A", "l1", "set", {"state": "on"}, 0, 1_000_000)
    assert json.loads(profile.compose(facts, "00-aa-bb-01").payload) == {
        "state": "on",
        "header": {"trace": "00-aa-bb-01"},
    }
    assert json.loads(profile.compose(facts).payload) == {"state": "on", "header": {}}


def test_own_profiles_join_and_replace_the_shipped_ones(tmp_path: Path) -> None:
    (tmp_path / "lamp.toml").write_text(GOOD)
    (tmp_path / "homing.toml").write_text(GOOD.replace('"lamp"', '"homing"'))
    profiles = load_profiles(tmp_path)
    assert set(profiles) == {"dji", "homing", "lamp"}
    assert profiles["homing"].description == "a lamp without ids"


def test_shipped_profiles_are_spoken_when_they_are_named() -> None:
    assert set(load_profiles()) == {"dji", "homing"}
    assert set(load_profiles(shipped=["tasmota", "homing"])) == {"homing", "tasmota"}
    assert len(load_profiles(shipped=["all"])) == 23
    with pytest.raises(ConfigurationError, match="HOMING_PROFILES_SHIPPED: x: no such profile is shipped; allowed: al"):
        load_profiles(shipped=["homing", "x"])


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(GOOD)
    (tmp_path / "b.toml").write_text(GOOD)
    with pytest.raises(
        ConfigurationError, match=r"b\.toml: name: 'lamp' is the name of .*a\.toml, too; allowed: one file"
    ):
        load_profiles(tmp_path)


def test_the_faults_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("name = ")
    (tmp_path / "b.toml").write_text(GOOD.replace('"lamp"', '"Lamp"'))
    with pytest.raises(ConfigurationError) as caught:
        load_profiles(tmp_path)
    assert [Path(line.split(":")[0]).name for line in str(caught.value).splitlines()] == ["a.toml", "b.toml"]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nowhere: no such folder"):
        load_profiles(tmp_path / "nowhere")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match=r"bad\.toml:1: is no UTF-8"):
        load_profiles(tmp_path)


def test_what_can_be_is_loaded_and_the_rest_is_named(tmp_path: Path) -> None:
    """A node goes on with its other families; and not with the shipped one that the wrong file was to replace."""
    (tmp_path / "good.toml").write_text(GOOD)
    (tmp_path / "our-dji.toml").write_text('name = "dji"\ndescription = 7\n')
    (tmp_path / "torn.toml").write_text("name = ")
    found, refused = load_what_can_be(tmp_path)
    assert set(found) == {"homing", "lamp"}
    assert [(one.file.name, one.name) for one in refused] == [("our-dji.toml", "dji"), ("torn.toml", "torn")]
    assert "torn.toml:1: is no TOML" in refused[1].first
