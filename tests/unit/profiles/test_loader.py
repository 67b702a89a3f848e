from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.core.callback import Correlation
from app.core.errors import ConfigurationError
from app.core.templating import CommandFacts
from app.profiles.loader import load_profiles, parse_profile

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


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('name = "lamp"', "name = ", "lamp.toml: not TOML"),
        ('name = "lamp"', 'name = "Lamp!"', "lamp.toml: name: String should match pattern"),
        ("[request]", '[request]\ntraceparent = "state"', "lamp.toml: request: traceparent 'state' is no free place"),
        (
            "[request]",
            '[request]\ntraceparent = "state.x"',
            "lamp.toml: request: traceparent 'state.x' is no free place",
        ),
        ("quarantine_seconds = 5", "", "lamp.toml: the file: quarantine_seconds goes with correlation 'order'"),
        ("quarantine_seconds = 5", "quarantine = 5", "lamp.toml: quarantine: Extra inputs are not permitted"),
        ("lamps/{device_id}/set", "lamps/{serial}/set", "lamp.toml: request.topic: .*{serial} is unknown; allowed:"),
        ("lamps/{device_id}/set", "lamps/+/set", "lamp.toml: request.topic: .*wildcard"),
        ("{params.state}", "{parms}", "lamp.toml: request.payload: {parms} is unknown; allowed: {id}"),
        ('"lamps/{device_id}"', '"lamps/all"', r"lamp.toml: response.0.topic: needs a level \{device_id\}"),
        ('"order"', '"luck"', "lamp.toml: response.0.correlation: Input should be 'id', 'value' or 'order'"),
        ('"order"', '"id"', "lamp.toml: response.0: correlation 'order' has no sources, every other one needs"),
        ('state = "succeeded"', 'state = "done"', "lamp.toml: response.0.rules.0.state: Input should be 'running'"),
        ('[{ state = "succeeded" }]', "[]", "lamp.toml: response.0.rules: List should have at least 1 item"),
        (
            '{ state = "succeeded" }',
            '{ state = "succeeded", when = [{ path = "a" }] }',
            "lamp.toml: response.0.rules.0.when.0: needs is_in, is_not or present",
        ),
    ],
)
def test_a_wrong_profile_is_refused_with_file_key_and_reason(old: str, new: str, sentence: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigurationError, match=sentence):
        parse_profile(GOOD.replace(old, new, 1), "lamp.toml")


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


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nowhere: no such folder"):
        load_profiles(tmp_path / "nowhere")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match=r"bad\.toml: cannot be read"):
        load_profiles(tmp_path)
