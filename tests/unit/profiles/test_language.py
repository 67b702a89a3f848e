"""Each thing that a profile can say about devices which do not speak JSON with an id of ours in it."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import replace
from inspect import GEN_SUSPENDED, getgeneratorstate
from typing import Any

import pytest

from app.core.commands.callback import Answer, Expectation
from app.core.commands.command import CommandState
from app.core.errors import ConfigurationError, InvalidInputError, UndecodableMessageError
from app.core.messages import ReceivedMessage
from app.core.payload import JsonValue
from app.core.profiles.correlation import Correlation
from app.core.profiles.profile import DeviceProfile
from app.core.profiles.response_reader import ResponseReader
from app.core.profiles.templates import CommandFacts
from app.profiles.loader import parse_profile

ID = "042-01JCZX0000000000000000000A"
CREATED = 1_732_000_000_500_000


def profile(request: str, response: str, head: str = "") -> DeviceProfile:
    if "rules" not in response:
        response += '\nrules = [{ state = "succeeded" }]'
    if "[[request]]" not in request:
        request = f"[request]\n{request}"
    if "[[response]]" not in response:
        response = f"[[response]]\n{response}"
    if "name =" not in response:
        response = response.replace("[[response]]", '[[response]]\nname = "r"')
    return parse_profile(f'name = "p"\ndescription = ""\n{head}\n{request}\n{response}', "p.toml")


def facts(params: JsonValue = None, method: str = "m", device: str = "d") -> CommandFacts:
    return CommandFacts(ID, device, method, params, CREATED, CREATED + 9_400_000)


def read(one: DeviceProfile, topic: str, payload: object, **extra: Any) -> Answer:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return ResponseReader([one]).read(ReceivedMessage(topic, data, **extra))


def names_it(one: DeviceProfile, answer: Answer, command: CommandFacts) -> bool:
    """True if the store would find the command: by topic, correlation, value and device."""
    value = "" if answer.correlation is Correlation.ID else answer.value
    by_id = answer.correlation is not Correlation.ID or answer.value == command.command_id
    expected = Expectation(answer.topic, answer.correlation, value)
    return by_id and answer.device_id == command.device_id and expected in one.expectations(command)


BY_ID = 'topic = "r/{device_id}"\ncorrelation = "id"\nsources = [{ path = "id" }]\n'
WITH_ID = 'topic = "c/{device_id}"\npayload = { id = "{id}" }\n'


def test_the_whole_payload_is_a_result() -> None:
    one = profile(WITH_ID, BY_ID + 'result = "$"')
    assert read(one, "r/d", {"id": ID, "a": 1}).result == b'{"id":"%b","a":1}' % ID.encode()


@pytest.mark.parametrize(
    ("payload", "state"),
    [
        ({"id": ID, "data": {"a": {"result": 0}, "b": {"result": 0}}}, CommandState.SUCCEEDED),
        ({"id": ID, "data": {"a": {"result": 0}, "b": {"result": 2}}}, CommandState.FAILED),
        ({"id": ID, "data": {}}, CommandState.SUCCEEDED),
        ({"id": ID}, CommandState.SUCCEEDED),
    ],
)
def test_a_condition_reaches_every_member(payload: object, state: CommandState) -> None:
    rules = 'rules = [{ state = "failed", when = [{ path = "data.*.result", is_not = [0] }] }, { state = "succeeded" }]'
    answer = read(profile(WITH_ID, BY_ID + 'error_code = "data.*.result"\n' + rules), "r/d", payload)
    assert answer.state is state


def test_that_no_member_has_it_can_be_asked_as_well() -> None:
    rules = 'rules = [{ state = "succeeded", when = [{ path = "l.*.e", present = false }] }, { state = "failed" }]'
    one = profile(WITH_ID, BY_ID + rules)
    assert read(one, "r/d", {"id": ID, "l": [{"a": 1}]}).state is CommandState.SUCCEEDED
    assert read(one, "r/d", {"id": ID, "l": [{"a": 1}, {"e": 1}]}).state is CommandState.FAILED


def test_lists_are_messages_too() -> None:
    frames = """
topic = "r/{device_id}"
correlation = "id"
sources = [{ path = "[1]" }]
result = "[2]"
error_code = "[2]"
error_message = "[3]"
rules = [
    { state = "succeeded", when = [{ path = "[0]", is_in = [3] }] },
    { state = "failed", when = [{ path = "[0]", is_in = [4] }] },
]
"""
    one = profile('topic = "c/{device_id}"\npayload = [2, "{id}", "{method}", "{params}"]', frames)
    assert json.loads(one.compose(facts({"a": 1})).payload) == [2, ID, "m", {"a": 1}]
    assert read(one, "r/d", [3, ID, {"status": "Accepted"}]).result == b'{"status":"Accepted"}'
    assert read(one, "r/d", [4, ID, "NotSupported", "no"]).error == b'{"code":"NotSupported","message":"no"}'
    others: list[JsonValue] = [[3], [], {}, 3, [2, ID], [3, [ID]]]
    for payload in others:
        with pytest.raises(UndecodableMessageError):
            read(one, "r/d", payload)


def test_keys_with_dots_are_quoted() -> None:
    one = profile(WITH_ID, BY_ID + "result = '\"a.b\".c'")
    assert read(one, "r/d", {"id": ID, "a.b": {"c": 7}}).result == b"7"


def test_placeholders_of_a_topic_are_parts_of_levels_and_rules_can_use_them() -> None:
    one = profile(
        'topic = "{device_id}/$iothub/methods/POST/{method}/?$rid={id}"\npayload = "{params}"',
        """
topic = "{device_id}/$iothub/methods/res/{status}/?$rid={id}"
correlation = "id"
sources = [{ topic_level = "id" }]
result = "$"
error_code = "{status}"
rules = [{ state = "succeeded", when = [{ path = "{status}", is_in = ["200"] }] }, { state = "failed" }]
""",
    )
    assert one.compose(facts({}, "reboot")).topic == f"d/$iothub/methods/POST/reboot/?$rid={ID}"
    done = read(one, f"d/$iothub/methods/res/200/?$rid={ID}", {"ok": 1})
    assert (done.state, done.result, names_it(one, done, facts())) == (CommandState.SUCCEEDED, b'{"ok":1}', True)
    failed = read(one, f"d/$iothub/methods/res/501/?$rid={ID}", None)
    assert (failed.error, names_it(one, failed, facts())) == (b'{"code":"501","message":"the device refused"}', True)


def test_levels_may_be_empty_and_an_id_may_carry_its_device() -> None:
    one = profile(
        'topic = "command/t/{device_id}/req/{device_id_and}.{id}/{method}"\npayload = "{params}"'.replace(
            "{device_id_and}", "{params.of}"
        ),
        'topic = "command///res/{device_id}.{id}/{_status}"\ncorrelation = "id"\nsources = [{ topic_level = "id" }]',
    )
    answer = read(one, f"command///res/a.d.{ID}/200", {})
    assert (answer.device_id, answer.value, answer.topic) == ("a.d", ID, f"command///res/a.d.{ID}/{{_status}}")
    assert (
        read(one, f"command///res/$.{ID}/200", {}).device_id == "%24"
    )  # what devices write is not ours to refuse here


def test_a_device_id_of_parts() -> None:
    one = profile(
        'topic = "/{product}/{serial}/read"\npayload = { id = "{id}", of = "{product}" }',
        'topic = "/{product}/{serial}/read/reply"\ncorrelation = "id"\nsources = [{ path = "id" }]',
        'device_id = "{product}:{serial}"',
    )
    command = facts(device="pump:7")
    published = one.compose(command)
    assert (published.topic, json.loads(published.payload)["of"]) == ("/pump/7/read", "pump")
    assert names_it(one, read(one, "/pump/7/read/reply", {"id": ID}), command)
    with pytest.raises(InvalidInputError, match=r"ids of the form \{product\}:\{serial\}"):
        one.expectations(facts(device="pump"))
    with pytest.raises(UndecodableMessageError):
        read(one, "/pump//read/reply", {"id": ID})


def test_a_device_id_in_the_payload() -> None:
    one = profile(
        'topic = "gateway"\npayload = { device = "{device_id}", data = { id = "{id_number}" } }',
        """
topic = "gateway"
device = { path = "device" }
match = [{ path = "id", present = true }]
correlation = "value"
value = "{id_number}"
sources = [{ path = "id" }]
""",
    )
    command = facts()
    number = json.loads(one.compose(command).payload)["data"]["id"]
    assert 0 <= number < 2**31
    assert names_it(one, read(one, "gateway", {"device": "d", "id": number}), command)
    assert not names_it(one, read(one, "gateway", {"device": "e", "id": number}), command)
    for payload in (json.loads(one.compose(command).payload), {"device": 7, "id": number}, {"id": number}):
        with pytest.raises(UndecodableMessageError):
            read(one, "gateway", payload)


def test_a_profile_of_one_device() -> None:
    one = profile(WITH_ID, BY_ID.replace("r/{device_id}", "r").replace("corr", 'device = { fixed = "bridge" }\ncorr'))
    assert read(one, "r", {"id": ID}).device_id == "bridge"
    with pytest.raises(InvalidInputError, match="speaks to bridge alone"):
        one.expectations(facts(device="other"))


def test_short_ids_are_the_same_on_every_node() -> None:
    one = profile('topic = "c/{device_id}"\npayload = ["{id}", "{id_number}", "{id_short}"]', BY_ID)
    assert json.loads(one.compose(facts()).payload) == [ID, 1741131260, "ff104f059c8d"]


def test_text_and_nothing() -> None:
    one = profile(
        """
[[request]]
methods = ["ask"]
topic = "c/{device_id}"
codec = "empty"
[[request]]
topic = "c/{device_id}"
codec = "text"
payload = "{params.to}"
""",
        """
topic = "r/{device_id}"
codec = "text"
correlation = "value"
value = "{params.to}"
sources = [{ path = "$" }]
result = "$"
""",
    )
    sent = [one.compose(facts({"to": to})).payload for to in ("ON", 21.5, True, 7, None)]
    assert sent == [b"ON", b"21.5", b"true", b"7", b""]
    assert one.compose(facts(method="ask")).payload == b""
    for to, said in (("ON", b"ON"), (21.5, b"21.5"), (True, b"true")):
        answer = read(one, "r/d", said)
        assert names_it(one, answer, facts({"to": to}))
        assert answer.result == b'"%b"' % said
    assert not names_it(one, read(one, "r/d", b"OFF"), facts({"to": "ON"}))


@pytest.mark.parametrize("value", [True, False, 21.5, 21.0, 0, "ON"])
def test_echoes_are_of_any_type(value: JsonValue) -> None:
    one = profile(
        'topic = "c/{device_id}"\npayload = "{params}"',
        'topic = "r/{device_id}"\ncorrelation = "value"\nvalue = "{params.v}"\nsources = [{ path = "v" }]',
    )
    assert names_it(one, read(one, "r/d", {"v": value}), facts({"v": value}))
    assert not names_it(one, read(one, "r/d", {"v": "other"}), facts({"v": value}))


def test_a_correlation_of_several_values() -> None:
    one = profile(
        'topic = "c/{device_id}"\npayload = "{params}"',
        """
topic = "r/{device_id}"
correlation = "value"
value = ["{method}", "{params.seq}"]
sources = [{ all = [{ path = "method" }, { path = "data.seq" }] }]
""",
    )
    command = facts({"seq": 3})
    assert names_it(one, read(one, "r/d", {"method": "m", "data": {"seq": 3}}), command)
    assert not names_it(one, read(one, "r/d", {"method": "m", "data": {"seq": 4}}), command)
    assert one.expectations(facts({})) == ()
    with pytest.raises(UndecodableMessageError, match="no_correlation"):
        read(one, "r/d", {"method": "m"})


def test_a_key_of_the_answer_is_the_correlation() -> None:
    one = profile(
        'topic = "cmnd/{device_id}/{method}"\ncodec = "text"\npayload = "{params.value}"',
        'topic = "stat/{device_id}/RESULT"\ncorrelation = "value"\nvalue = "{method}"\nsources = [{ keys = "$" }]',
    )
    answer = read(one, "stat/d/RESULT", {"POWER": "ON", "Dimmer": 50})
    assert [one.value for one in (answer, *answer.others)] == ["POWER", "Dimmer"]
    assert names_it(one, answer.others[0], facts(method="Dimmer"))
    many = read(one, "stat/d/RESULT", dict.fromkeys("abcdefghijkl", 1))
    assert len(many.others) == 7
    nothing: list[JsonValue] = [{}, [], "POWER"]
    for payload in nothing:
        with pytest.raises(UndecodableMessageError, match="no_correlation"):
            read(one, "stat/d/RESULT", payload)


PER_METHOD = """
[[response]]
name = "plain"
topic = "r/{device_id}"
correlation = "id"
sources = [{ path = "id" }]
rules = [{ state = "succeeded" }]
[[response]]
name = "flight"
methods = ["fly"]
topic = "r/{device_id}"
correlation = "id"
sources = [{ path = "id" }]
rules = [{ state = "running", when = [{ path = "id", present = true }] }, { state = "failed" }]
"""


def test_rules_of_a_method_are_for_its_commands_only() -> None:
    one = profile(WITH_ID, PER_METHOD)
    answer = read(one, "r/d", {"id": ID})
    assert isinstance(answer.further, Generator)
    assert getgeneratorstate(answer.further) == GEN_SUSPENDED  # nobody has asked for it yet
    plain, flying = answer, answer.others[0]
    assert answer.others == (flying,)
    assert (plain.state, flying.state) == (CommandState.SUCCEEDED, CommandState.RUNNING)
    assert [names_it(one, each, facts()) for each in (plain, flying)] == [True, False]
    assert [names_it(one, each, facts(method="fly")) for each in (plain, flying)] == [False, True]


def test_the_first_kind_that_fits_decides_alone() -> None:
    kind = f"[[response]]\n{BY_ID}"
    ends = (
        'match = [{ path = "e", present = true }]\nrules = [{ state = "failed" }]',
        'rules = [{ state = "succeeded" }]',
    )
    one = profile(WITH_ID, "\n".join(kind + end for end in ends))
    refused = read(one, "r/d", {"id": ID, "e": 1})
    assert (refused.state, refused.others) == (CommandState.FAILED, ())
    assert read(one, "r/d", {"id": ID}).state is CommandState.SUCCEEDED


def test_kinds_of_methods_have_names_of_their_own() -> None:
    with pytest.raises(
        ConfigurationError, match=r"response\.2\.name: 'flight' is the name of another kind; allowed: one each"
    ):
        profile(WITH_ID, PER_METHOD + PER_METHOD[PER_METHOD.rindex("[[response]]") :].replace("fly", "go"))


def test_params_in_topics_are_needed_before_anything_is_sent() -> None:
    one = profile(
        'topic = "{device_id}/switch/{params.id}/command"\ncodec = "text"\npayload = "{params.state}"',
        """
topic = "{device_id}/switch/{params.id}/state"
codec = "text"
correlation = "value"
value = "{params.state}"
sources = [{ path = "$" }]
""",
    )
    command = facts({"id": "pump", "state": "ON"})
    assert one.compose(command).topic == "d/switch/pump/command"
    assert names_it(one, read(one, "d/switch/pump/state", b"ON"), command)
    assert not names_it(one, read(one, "d/switch/other/state", b"ON"), command)
    with pytest.raises(InvalidInputError, match="params: lack id, which topic"):
        one.expectations(facts({"state": "ON"}))


def test_profiles_of_one_topic_with_other_codecs_do_not_disturb_each_other() -> None:
    text = profile(WITH_ID, BY_ID.replace('"id" }', '"$" }') + 'codec = "text"')
    cbor = replace(profile(WITH_ID, BY_ID + 'codec = "cbor"'), name="c")
    reader = ResponseReader([text, cbor, replace(profile(WITH_ID, BY_ID), name="j")])
    assert reader.filters() == ("r/+",)
    answer = reader.read(ReceivedMessage("r/d", b'{"id":"x"}'))
    assert [(one.profile, one.value) for one in (answer, *answer.others)] == [("p", '{"id":"x"}'), ("j", "x")]
    only = reader.read(ReceivedMessage("r/d", b"\xa1bidax"))
    assert (only.profile, only.value, only.others) == ("c", "x", ())
