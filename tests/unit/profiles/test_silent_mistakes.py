"""Mistakes that were once silent, one by one: refused with file, line, key and what is allowed, or read right.

The list is that of the measurements with real device software. Refusals that are about one key each stand in
test_loader.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from app.core.commands.command import CommandState
from app.core.errors import ConfigurationError, InvalidInputError
from app.core.messages import ReceivedMessage
from app.core.payload import JsonValue
from app.core.profiles.profile import DeviceProfile
from app.core.profiles.response_reader import ResponseReader
from app.core.profiles.templates import CommandFacts
from app.profiles.loader import load_profiles, parse_profile
from tests.unit.profiles.corpora import CREATED, ID, PROFILES

LAMP = """\
name = "lamp"
description = "A lamp"
[request]
topic = "lamps/{device_id}/set"
payload = { ref = "{id}", do = "{method}", as = "fixed", with = "{params.x}" }
[[response]]
name = "done"
topic = "lamps/{device_id}/done"
correlation = "id"
sources = [{ path = "ref" }]
rules = [{ state = "succeeded" }]
"""
EVENT = '[[event]]\nname = "note"\ntopic = "TOPIC"\n'
PRESENCE = '[[presence]]\ntopic = "TOPIC"\noffline_after = "90s"\n'
REPLY = '[[reply]]\nname = "time"\ntopic = "TOPIC"\nto = "lamps/{device_id}/told"\npayload = {}\n'
OWN = "lamps/{device_id}/set"
CONTRADICTION = """\
match = [{ path = "a", is_in = [1] }]
rules = [{ state = "succeeded", when = [{ path = "a", is_in = [2] }] }]"""
SAME = "is the topic of the request as well, so that each command would be"
ALLOWED = "allowed: another topic, or a match that no request satisfies"
NO_WORD = "has no level that is a word, so that it matches all messages of as many levels"


def refused(text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        parse_profile(text, "lamp.toml")
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        # A fact that there is not, spelt nearly right, went out as text.
        ('"{id}"', '"{ID}"', "5: request.payload: {ID} is unknown; allowed: {id}, "),
        ('"{id}"', '"{ id }"', "5: request.payload: { id } is unknown; allowed: {id}, "),
        # The whole payload as an id: no message was ever recognised.
        ('path = "ref"', 'path = "$"', "10: response.0.sources.0.path: the whole payload is no id; allowed: the path"),
        # A device that never gets the id cannot give it back.
        ('"{id}"', '"x"', "3: request: carries {id} nowhere, so that no response can; allowed: {id} in topic or"),
        # A rule, or a kind, behind one that takes everything.
        (
            "[{ state =",
            '[{ state = "failed" }, { state =',
            "11: response.0.rules.1: is never reached: rules.0 before it holds whenever this one does",
        ),
        # What every command has in common tells none from another.
        (
            'correlation = "id"',
            'correlation = "value"\nvalue = "F1"',
            "10: response.0.value: 'F1' is the same for every command, so it tells none from another; allowed: what",
        ),
        # [response] for [[response]] was told in the words of a validator.
        ("[[response]]", "[response]", "6: response: is a table; allowed: one or more tables, each begun with [["),
        # Commands that can only time out.
        (
            '"succeeded"',
            '"running"',
            "11: response.0.rules: leave each command running for ever; allowed: a rule with 'succeeded' or 'failed'",
        ),
        # Conditions that no message satisfies.
        (
            "rules = [",
            'match = [{ path = "a", is_in = [1] }, { path = "a", present = false }]\nrules = [',
            "11: response.0.match.1: never holds, as another condition on a before it says the contrary",
        ),
        (
            'rules = [{ state = "succeeded" }]',
            CONTRADICTION,
            "12: response.0.rules.0.when.0: never holds, as another condition on a before it or the match says the",
        ),
        # Our own publication as its answer, with or without a match.
        ("/done", "/set", f"8: response.0.topic: {SAME} read as its own response; {ALLOWED}"),
        (
            '/done"',
            '/set"\nmatch = [{ path = "as", is_in = ["fixed"] }]',
            f"8: response.0.topic: {SAME} read as its own response; {ALLOWED}",
        ),
        (
            '/done"',
            '/set"\nmatch = [{ path = "with.deep", present = true }]',
            f"8: response.0.topic: {SAME} read as its own response; {ALLOWED}",
        ),
        # A topic of everybody.
        ("lamps/{device_id}/done", "{device_id}/{_any}", f"8: response.0.topic: {NO_WORD}"),
        ("lamps/{device_id}/done", "{device_id}", f"8: response.0.topic: {NO_WORD}"),
    ],
)
def test_it_is_refused_with_file_line_key_and_what_is_allowed(old: str, new: str, sentence: str) -> None:
    assert old in LAMP
    said = refused(LAMP.replace(old, new, 1))
    assert [line for line in said if line.startswith(f"lamp.toml:{sentence}")], said


@pytest.mark.parametrize(
    ("table", "topic", "sentence"),
    [
        (EVENT, OWN, f"14: event.0.topic: {SAME} kept as an event of its device; {ALLOWED}"),
        (PRESENCE, OWN, f"13: presence.0.topic: {SAME} a sign of life of its device; {ALLOWED}"),
        (REPLY, OWN, f"14: reply.0.topic: {SAME} answered by Homing itself; {ALLOWED}"),
        (EVENT, "{device_id}/{_a}/{_b*}", f"14: event.0.topic: {NO_WORD}"),
        (PRESENCE, "{device_id}/{_a}", f"13: presence.0.topic: {NO_WORD}"),
        (REPLY, "{device_id}/{_a}", f"14: reply.0.topic: {NO_WORD}"),
        (REPLY, "lamps/{device_id}/told", "15: reply.0.to: is a topic that this reply is to, so that it would answer"),
        (
            REPLY.replace("/told", "/done"),
            "lamps/{device_id}/ask",
            "15: reply.0.to: is read by Homing itself, as lamps/{device_id}/done; allowed: a topic of devices",
        ),
        (
            EVENT.replace("TOPIC", "lamps/{device_id}/told") + REPLY,
            "lamps/{device_id}/ask",
            "18: reply.0.to: is read by Homing itself, as lamps/{device_id}/told; allowed: a topic of devices",
        ),
        (
            REPLY.replace("/told", "/{what}"),
            "lamps/{device_id}/ask/{what}",
            "15: reply.0.to: a message could choose lamps/{device_id}/done, which Homing reads itself",
        ),
    ],
)
def test_nothing_that_homing_says_is_heard_by_itself(table: str, topic: str, sentence: str) -> None:
    said = refused(LAMP + table.replace("TOPIC", topic))
    assert [line for line in said if line.startswith(f"lamp.toml:{sentence}")], said


def test_a_method_whose_kinds_never_end_it_is_refused_and_one_that_another_kind_ends_is_not() -> None:
    job = LAMP[LAMP.index("[[response]]") :].replace('"done"', '"job"').replace('"succeeded"', '"running"')
    of_fly = job.replace('correlation = "id"', 'methods = ["fly"]\ncorrelation = "id"')
    [said] = refused(LAMP + of_fly)
    assert said.startswith("lamp.toml:18: response.1.rules: leave each command of fly running for ever; allowed: ")
    end = of_fly.replace('"job"', '"landed"').replace("/done", "/landed").replace('"running"', '"succeeded"')
    assert len(parse_profile(LAMP + of_fly + end, "lamp.toml").responses) == 3


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.toml").write_text(LAMP)
    with pytest.raises(ConfigurationError, match=r"b\.toml: name: 'lamp' is the name of .*a\.toml, too; allowed: one"):
        load_profiles(tmp_path)


def facts(method: str = "on", params: JsonValue = None, device: str = "l1") -> CommandFacts:
    return CommandFacts(ID, device, method, params, CREATED, CREATED + 10_000_000)


def states(profiles: list[DeviceProfile], topic: str, payload: str) -> dict[str, CommandState]:
    answer = ResponseReader(profiles).read(ReceivedMessage(topic, payload.encode()))
    return {one.profile: one.state for one in (answer, *answer.others)}


def test_a_report_of_progress_without_a_code_is_no_failure() -> None:
    """An absent path was `is_not` everything, also in the example of the page."""
    rules = """[
    { state = "failed", when = [{ path = "code", is_not = [0] }] },
    { state = "running", when = [{ path = "percent", present = true }] },
    { state = "succeeded" },
]"""
    lamp = parse_profile(LAMP.replace('[{ state = "succeeded" }]', rules), "lamp.toml")
    assert states([lamp], "lamps/l1/done", '{"ref": "x", "percent": 40}') == {"lamp": CommandState.RUNNING}


def test_two_profiles_on_one_topic_each_read_the_answer_of_their_own_commands() -> None:
    """The first kind that fitted was taken, whosever the command was."""
    one = parse_profile(LAMP, "lamp.toml")
    other = parse_profile(LAMP.replace('"lamp"', '"bulb"').replace('"succeeded"', '"failed"'), "bulb.toml")
    read = states([one, other], "lamps/l1/done", '{"ref": "x"}')
    assert read == {"lamp": CommandState.SUCCEEDED, "bulb": CommandState.FAILED}


@pytest.mark.parametrize("value", ["{params.flight}", "f-{params.flight}"])
def test_a_command_that_no_answer_could_name_expects_none_and_so_is_refused(value: str) -> None:
    """It was sent, and could only time out."""
    text = LAMP.replace('correlation = "id"', f'correlation = "value"\nvalue = "{value}"')
    flying = parse_profile(text, "lamp.toml")
    assert flying.expectations(facts()) == ()
    assert len(flying.expectations(facts(params={"flight": "F1"}))) == 1


def test_a_result_of_a_device_that_is_not_there_ends_no_command() -> None:
    """`stat/tas9/RESULT` made POWER succeed at another device."""
    tasmota = PROFILES["tasmota"]
    answer = ResponseReader([tasmota]).read(ReceivedMessage("stat/tas9/RESULT", b'{"POWER": "ON"}'))
    expected = tasmota.expectations(facts("POWER", {"value": "ON"}, device="tas1"))
    assert {one.device_id for one in (answer, *answer.others)} == {"tas9"}
    assert {one.topic.partition("#")[0] for one in expected} == {"stat/tas1/RESULT"}


def test_an_id_for_devices_that_read_it_as_a_number_is_one() -> None:
    """Our id of 30 characters ended a client of ThingsBoard: `int(request_id)`."""
    topic = PROFILES["thingsboard"].compose(facts()).topic
    assert 0 <= int(topic.rpartition("/")[2]) < 2**31


def test_absent_params_are_left_out_where_the_profile_says_so_and_methods_with_slashes_are_told_apart() -> None:
    lamp = parse_profile(LAMP.replace("[request]", "[request]\nomit_absent = true"), "lamp.toml")
    assert b"with" not in lamp.compose(facts()).payload
    assert PROFILES["zigbee2mqtt-bridge"].compose(facts("device/rename", {})).topic == "l1/bridge/request/device/rename"
    with pytest.raises(InvalidInputError, match="is no method of zigbee2mqtt"):
        PROFILES["zigbee2mqtt"].compose(facts("device/rename"))
