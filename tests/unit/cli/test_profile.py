"""`homing profile check`, and how wrong profiles are told on the command line."""

from __future__ import annotations

import json
import tomllib
from importlib import resources
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from app.profiles.loader import shipped_names
from tests.unit.cli.conftest import Homing

LAMP = """
name = "lamp"
description = "A lamp with ids"
[request]
topic = "lamps/{device_id}/set"
payload = { ref = "{id}", do = "{method}", with = "{params}" }
repeatable = ["on"]
[[response]]
name = "done"
topic = "lamps/{device_id}/done"
correlation = "id"
sources = [{ path = "ref" }]
result = "state"
error_code = "code"
rules = [
    { state = "failed", when = [{ path = "code", is_not = [0] }] },
    { state = "running", when = [{ path = "percent", present = true }] },
    { state = "succeeded" },
]
"""


@pytest.fixture
def lamp(tmp_path: Path) -> str:
    file = tmp_path / "lamp.toml"
    file.write_text(LAMP)
    return str(file)


def test_it_shows_what_a_command_publishes_and_expects_and_how_answers_are_read(homing: Homing, lamp: str) -> None:
    code, out, err = homing("profile", "check", lamp, "--device", "l1", "--method", "on", "--params", '{"n":1}')
    assert (code, err) == (0, "")
    for line in (
        "on to l1:",
        "  publishes to lamps/l1/set, QoS 1:",
        '"do":"on","with":{"n":1}}',
        "  expects responses at lamps/l1/done, by its id",
        "  may be repeated when its node dies over it",
        "  done, on lamps/{device_id}/done:",
        "    rules.0: failed when code is not 0",
        "    rules.1: running when percent is present",
        "    rules.2: succeeded in every other case",
    ):
        assert f"{line}\n" in out, out


@pytest.mark.parametrize(
    ("message", "said", "code"),
    [
        ('{"ref":"{id}","percent":40}', "at lamps/device-1/done: done, rules.1: running, of this command", 0),
        ('{"ref":"{id}","code":7}', 'error: {"code":7,"message":"the device refused"}', 0),
        ('{"ref":"{id}","state":"on"}', 'result: "on"', 0),
        ('{"ref":"x"}', "rules.2: succeeded, of another command ('x')", 1),
        ("{}", "dropped as no_correlation: no source has a value, so it names no command", 1),
        ("on", "dropped as not_json: its codec cannot read it", 1),
    ],
)
def test_it_reads_a_message(homing: Homing, lamp: str, message: str, said: str, code: int) -> None:
    ended, out, _ = homing("profile", "check", lamp, "--message", message)
    assert said in out
    assert ended == code


def test_it_says_when_no_answer_could_be_recognised(homing: Homing, lamp: str, tmp_path: Path) -> None:
    text = LAMP.replace('correlation = "id"', 'correlation = "value"\nvalue = "{params.flight}"')
    (tmp_path / "flight.toml").write_text(text)
    code, out, _ = homing("profile", "check", str(tmp_path / "flight.toml"), "--params", "{}")
    assert code == 1
    assert "expects no response that it could recognise: it is refused with 422, unless it is one-way" in out
    assert homing("profile", "check", str(tmp_path / "flight.toml"), "--params", '{"flight":7}')[0] == 0
    code, out, _ = homing("profile", "check", str(tmp_path / "flight.toml"))
    assert code == 0
    assert 'method to device-1 with {"flight": "1"}:\n' in out


@pytest.mark.parametrize("name", shipped_names())
def test_each_shipped_profile_is_checked_by_its_name_with_a_command_made_of_itself(homing: Homing, name: str) -> None:
    code, out, err = homing("profile", "check", name)
    assert (code, err) == (0, ""), out
    assert out.startswith(f"{name}: profile {name!r} is well formed\n\n")


def test_a_command_that_there_is_not_is_no_command_that_nobody_answers(homing: Homing) -> None:
    code, out, _ = homing("profile", "check", "jetlinks", "--device", "device-1")
    assert code == 5
    assert "is refused with 422: device_id: profile 'jetlinks' has ids of the form {product}:{serial}" in out
    code, _, err = homing("profile", "check", "nowhere")
    assert code == 2
    assert "nowhere: no such profile is shipped; allowed: alibaba-rrpc, aws-commands," in err


def test_hints_are_told_and_are_no_failure(homing: Homing, lamp: str) -> None:
    Path(lamp).write_text(
        LAMP.replace('{ state = "running", when = [{ path = "percent", present = true }] },', "").replace(
            'result = "state"', 'result = "state"\nprogress = "percent"'
        )
    )
    code, out, _ = homing("profile", "check", lamp)
    assert code == 0
    assert f"\nhint: {lamp}:14: response.0.progress: is never read, as no rule is 'running'" in out


def test_how_an_echo_compares_is_told(homing: Homing) -> None:
    _, out, _ = homing("profile", "check", "zigbee2mqtt")
    assert "    echo: state is {params.state}, as text whatever its type, in upper or lower case\n" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "a+b"], "homing: --device: "),
        (["--method", ""], "homing: --method: is empty"),
        (["--params", "{"], "homing: --params: is no JSON that is accepted (not_json)"),
    ],
)
def test_wrong_arguments_are_named(homing: Homing, lamp: str, arguments: list[str], said: str) -> None:
    code, out, err = homing("profile", "check", lamp, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(said)


def test_all_faults_are_told_a_line_each(homing: Homing, lamp: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path(lamp)
    file.write_text(LAMP.replace("{id}", "{ID}").replace('"failed"', '"no"'))
    code, out, err = homing("profile", "check", lamp)
    assert (code, out) == (2, "")
    assert [line.split(": ")[2] for line in err.splitlines()] == ["request.payload", "response.0.rules.0.state"]
    monkeypatch.setenv("HOMING_PROFILES_DIR", str(file.parent))
    code, out, _ = homing("doctor")
    assert code == 1
    assert all(line.removeprefix("homing: ") in out for line in err.splitlines())


def test_a_file_that_is_not_there_is_named(homing: Homing) -> None:
    code, _, err = homing("profile", "check", "nowhere.toml")
    assert code == 2
    assert "nowhere.toml: cannot be read" in err


@pytest.mark.parametrize(
    ("answers", "said", "code"),
    [
        ([], "the command is pending", 1),
        (['{"ref":"{id}","percent":40}'], "the command is running", 1),
        (['{"ref":"{id}","percent":40}', '{"ref":"{id}","state":"on"}'], 'result: "on"\nthe command is succeeded', 0),
        (['{"ref":"{id}","code":7}', '{"ref":"{id}"}'], "it is a duplicate: the command has its outcome", 1),
        (['lamps/device-1/done {"ref":"{id}"}'], "done, rules.2: succeeded, of this command", 0),
        (['lamps/other/done {"ref":"{id}"}'], "of another command", 1),
        (["hex:ff"], "dropped as not_utf8", 1),
    ],
)
def test_a_device_can_be_played(homing: Homing, lamp: str, answers: list[str], said: str, code: int) -> None:
    given = [part for one in answers for part in ("--answer", one)]
    ended, out, err = homing("profile", "try", lamp, "--method", "on", "--params", '{"n":1}', *given)
    assert out.startswith("publishes to lamps/device-1/set, QoS 1:\n")
    assert said in out
    assert (ended, err) == (code, "")


def test_a_command_that_would_be_refused_is_refused_in_play(homing: Homing, tmp_path: Path) -> None:
    file = tmp_path / "lamp.toml"
    file.write_text(LAMP.replace("[request]", '[request]\nmethods = ["on"]'))
    said = "is refused with 422: method: 'off' is no method of lamp; allowed: on\n"
    assert homing("profile", "try", str(file), "--method", "off") == (1, said, "")
    assert said in homing("profile", "check", str(file), "--method", "off", "--message", "{}")[1]
    assert "\non to device-1:\n" in homing("profile", "check", str(file))[1]


def test_try_shows_events_and_presence_as_well(homing: Homing, tmp_path: Path) -> None:
    more = """
[[event]]
name = "note"
topic = "lamps/{device_id}/done"
type = "kind"
id = [{ path = "n" }]
database = "events"
[[presence]]
topic = "lamps/{device_id}/there"
codec = "text"
offline = [{ path = "$", is_in = ["no"] }]
offline_after = "90s"
"""
    (tmp_path / "lamp.toml").write_text(LAMP + more)
    answers = ("lamps/l1/there yes", "lamps/l1/there no", 'lamps/l1/done {"ref": "{id}", "kind": "hot", "n": 7}')
    told = [part for answer in answers for part in ("--answer", answer)]
    code, out, err = homing("profile", "try", str(tmp_path / "lamp.toml"), "--method", "on", "--device", "l1", *told)
    assert (code, err) == (0, "")
    for line in (
        "at lamps/l1/there: l1 is there, and counts as gone after 90s",
        "at lamps/l1/there: l1 has gone",
        "at lamps/l1/done: done, rules.2: succeeded, of this command",
        "at lamps/l1/done: event note of l1 of type 'hot', known by '7', for database events",
    ):
        assert f"{line}\n" in out, out


def test_try_shows_replies(homing: Homing, tmp_path: Path) -> None:
    more = """
[[reply]]
name = "job"
topic = "lamps/{device_id}/ask"
match = [{ path = "what", is_in = ["job"] }]
to = "lamps/{device_id}/told"
payload = { id = "{command.id}", n = "{command.params.n}" }
last = { methods = ["on"], same = { n = "n" } }
[[reply]]
name = "sum"
topic = "lamps/{device_id}/ask"
match = [{ path = "what", is_in = ["sum"] }]
to = "lamps/{device_id}/told"
payload = { n = { jmespath = "sum(message.n)" } }
"""
    (tmp_path / "lamp.toml").write_text(LAMP + more)
    asked = ('{"what":"job","n":7}', '{"what":"job","n":8}', '{"what":"sum","n":[1,2]}', '{"what":"sum","n":1}')
    told = [part for one in asked for part in ("--answer", f"lamps/l1/ask {one}")]
    arguments = ("--method", "on", "--device", "l1", "--params", '{"n":7}', *told)
    _, out, _ = homing("profile", "try", str(tmp_path / "lamp.toml"), *arguments)
    assert 'at lamps/l1/ask: job: is replied on lamps/l1/told:\n  {"id":"' in out
    assert '","n":7}\n' in out
    assert "at lamps/l1/ask: no reply has all that it needs\n" in out
    assert 'is replied on lamps/l1/told:\n  {"n":3}\n' in out
    assert "at lamps/l1/ask: sum: no reply can be made of it: payload: " in out


def test_the_schema_for_editors_takes_every_shipped_profile_and_refuses_what_is_none(homing: Homing) -> None:
    code, out, err = homing("profile", "schema")
    assert (code, err) == (0, "")
    validator = Draft202012Validator(json.loads(out))
    files = [one for one in resources.files("app.profiles.shipped").iterdir() if one.name.endswith(".toml")]
    assert len(files) > 15
    for file in files:
        assert list(validator.iter_errors(tomllib.loads(file.read_text("utf-8")))) == [], file.name
    lamp = tomllib.loads(LAMP)
    for wrong in ({"nmae": "x"}, {"request": 1}, {"response": [{"topic": 1}]}, {"methods": "some"}):
        assert list(validator.iter_errors(lamp | wrong)) != []


def test_a_message_may_have_any_id_of_the_command(homing: Homing, tmp_path: Path) -> None:
    by_number = LAMP.replace('ref = "{id}"', 'ref = "{id_number}"').replace(
        'correlation = "id"', 'correlation = "value"\nvalue = "{id_number}"'
    )
    (tmp_path / "lamp.toml").write_text(by_number)
    code, out, _ = homing("profile", "check", str(tmp_path / "lamp.toml"), "--message", '{"ref":{id_number},"code":0}')
    assert (code, "succeeded" in out) == (0, True), out


def test_try_takes_topics_with_blanks(homing: Homing) -> None:
    file = str(resources.files("app.profiles.shipped").joinpath("zigbee2mqtt.toml"))
    said = ["--method", "set", "--params", '{"state":"ON"}', "--device", "living room/lamp 1"]
    code, out, _ = homing("profile", "try", file, *said, "--answer", 'zigbee2mqtt/living room/lamp 1 {"state":"ON"}')
    assert (code, "zigbee2mqtt/living room/lamp 1/set" in out) == (0, True), out
