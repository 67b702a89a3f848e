"""The replies of Homing to devices that ask, as profiles declare them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.commands.command import Command, CommandState
from app.core.errors import ConfigurationError, InvalidInputError
from app.core.messages import Publication, ReceivedMessage
from app.core.profiles.event_reader import ReplyReader
from app.profiles.loader import load_profiles, parse_profile

NOW = 1_732_000_000_000
IDS = {"tid": "t1", "bid": "b1"}
APP = '[dji]\napp_id = 7\napp_key = "k"\napp_license = "l"\n'
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


def asked(reader: ReplyReader, topic: str, payload: object, *commands: Command) -> Publication | None:
    """The reply to a message of a device that was sent these commands, the latest first."""
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    for one in reader.read(ReceivedMessage(topic, data), NOW):
        last = one.spec.last
        command = None if last is None else last.among(commands, one.profile, one.document["message"])
        if (reply := one.reply(command)) is not None:
            return reply
    return None


def dji(topic: str, payload: object, *commands: Command, values: Path | None = None) -> tuple[str, Any] | None:
    reply = asked(ReplyReader(load_profiles(values=values).values()), topic, payload, *commands)
    return None if reply is None else (reply.topic, json.loads(reply.payload))


def own(reply: str, head: str = "") -> ReplyReader:
    return ReplyReader([parse_profile(PLAIN + head + f'[[reply]]\nname = "a"\n{reply}', "p.toml")])


def command(method: str, params: object, state: CommandState = CommandState.SUCCEEDED, profile: str = "dji") -> Command:
    data = json.dumps(params).encode()
    return Command("042-x", "D1", method, data, profile, state, "node-a", NOW * 1000, NOW * 1000)


def requests(method: str, data: object = None) -> tuple[str, dict[str, Any]]:
    return "thing/product/D1/requests", IDS | {"timestamp": 1, "method": method, "data": data}


def data_of(reply: tuple[str, Any] | None) -> Any:  # noqa: ANN401 - any JSON
    assert reply is not None
    topic, body = reply
    assert topic == "thing/product/D1/requests_reply"
    assert {key: body[key] for key in ("tid", "bid", "timestamp", "gateway")} == IDS | {
        "timestamp": NOW,
        "gateway": "D1",
    }
    return body["data"]


def test_an_event_that_wants_a_reply_gets_one_and_others_none() -> None:
    topic, event = "thing/product/D1/events", IDS | {"method": "hms", "need_reply": 1, "data": {}}
    reply = IDS | {"timestamp": NOW, "gateway": "D1", "method": "hms", "data": {"result": 0}}
    assert dji(topic, event) == ("thing/product/D1/events_reply", reply)
    assert dji(topic, event | {"need_reply": 0}) is None
    del event["method"]  # as in the documents' own examples
    assert dji(topic, event) == ("thing/product/D1/events_reply", {k: v for k, v in reply.items() if k != "method"})


def test_the_topology_of_a_dock_is_taken_note_of() -> None:
    update = IDS | {"method": "update_topo", "timestamp": 1, "data": {"sub_devices": []}}
    reply = IDS | {"timestamp": NOW, "method": "update_topo", "data": {"result": 0}}
    assert dji("sys/product/D1/status", update) == ("sys/product/D1/status_reply", reply)


def test_a_dock_gets_its_configuration_from_the_values_of_the_deployment(tmp_path: Path) -> None:
    values = tmp_path / "values.toml"
    values.write_text(APP)
    body = {"app_id": 7, "app_key": "k", "app_license": "l"}
    assert data_of(dji(*requests("config", {}), values=values)) == body
    values.write_text(APP + 'ntp_server_host = "ntp.example"')
    assert data_of(dji(*requests("config", {}), values=values)) == body | {"ntp_server_host": "ntp.example"}
    assert data_of(dji(*requests("config", {}))) == {"result": 1}  # none is given


def test_a_dock_is_told_that_its_devices_are_bound() -> None:
    data = data_of(dji(*requests("airport_bind_status", {"devices": [{"sn": "D1"}, {"sn": "A1"}]})))
    bound = {"is_device_bind_organization": True, "organization_id": "homing", "organization_name": "Homing"}
    assert data["output"]["bind_status"] == [{"sn": one, "device_callsign": one} | bound for one in ("D1", "A1")]
    assert data_of(dji(*requests("airport_bind_status"))) == {"result": 0, "output": {"bind_status": []}}
    bind = {"bind_devices": [{"sn": "D1", "device_binding_code": "c"}]}
    errors = {"err_infos": [{"sn": "D1", "err_code": 0}]}
    assert data_of(dji(*requests("airport_organization_bind", bind))) == {"result": 0, "output": errors}
    name = {"organization_name": "Homing"}
    assert data_of(dji(*requests("airport_organization_get", {}))) == {"result": 0, "output": name}


def test_the_file_of_a_mission_comes_from_the_command_that_issued_it() -> None:
    asks = requests("flighttask_resource_get", {"flight_id": "F1"})
    file = {"url": "https://files/1.kmz", "fingerprint": "md5"}
    issued = command("flighttask_prepare", {"flight_id": "F1", "file": file})
    of_another = command("flighttask_prepare", {"flight_id": "F2", "file": {}})
    assert data_of(dji(*asks, of_another, issued)) == {"result": 0, "output": {"file": file}}
    for none in (of_another, command("flighttask_execute", {"flight_id": "F1", "file": file})):
        assert data_of(dji(*asks, none)) == {"result": 1}
    foreign = command("flighttask_prepare", {"flight_id": "F1", "file": file}, profile="homing")
    assert data_of(dji(*asks, foreign)) == {"result": 1}


def test_media_go_to_the_storage_of_the_deployment(tmp_path: Path) -> None:
    values = tmp_path / "values.toml"
    values.write_text('[dji.storage]\nbucket = "b"\nprovider = "minio"\n')
    stored = {"result": 0, "output": {"bucket": "b", "provider": "minio"}}
    assert data_of(dji(*requests("storage_config_get", {"module": 0}), values=values)) == stored
    assert data_of(dji(*requests("storage_config_get", {"module": 0}))) == {"result": 1}


def test_what_nobody_knows_is_refused_so_that_no_dock_waits() -> None:
    assert data_of(dji(*requests("flight_areas_get"))) == {"result": 0, "output": {"files": []}}
    assert data_of(dji(*requests("of_the_next_release", {}))) == {"result": 1}


@pytest.mark.parametrize("payload", [b"", b"\xff", b"[]", b"{}", b'{"method": {}}', b'{"need_reply": "1"}', b"null"])
def test_what_asks_nothing_gets_no_reply(payload: bytes) -> None:
    for topic in ("events", "services_reply", "osd"):
        assert dji(f"thing/product/D1/{topic}", payload) is None
    assert dji("sys/product/D1/status", payload) is None


def test_a_reply_speaks_of_the_message_its_topic_and_the_hour_and_leaves_out_what_is_absent() -> None:
    reader = own(
        """
topic = "ask/{device_id}/{what}"
to = "told/{device_id}/{what}"
payload.say = "{topic.what} of {device_id} at {now_s}"
payload.a = "{message.a}"
payload.l = ["{message.a}", 1]
payload.n = "{message.n}"
"""
    )
    reply = asked(reader, "ask/d1/time", {"n": None})
    assert reply == Publication("told/d1/time", b'{"say":"time of d1 at 1732000000","l":[1],"n":null}', qos=1)


def test_jmespath_says_what_paths_cannot_and_what_it_cannot_find_is_no_reply() -> None:
    find = '{ jmespath = "sum(message.l[?@ > `1`])" }'
    reader = own(f'topic = "ask/{{device_id}}"\nto = "told/{{device_id}}"\npayload = {{ sum = {find} }}\n')
    reply = asked(reader, "ask/d1", {"l": [1, 2, 3]})
    assert reply is not None
    assert reply.payload == b'{"sum":5}'
    with pytest.raises(InvalidInputError, match="fails"):
        asked(reader, "ask/d1", {"l": [2, "x", 3]})


def test_a_reply_to_the_open_job_is_none_when_it_is_over() -> None:
    reader = own(
        """
topic = "next/{device_id}"
to = "job/{device_id}"
payload = { id = "{command.id}", job = "{command.params}", since = "{command.created_s}" }
last = { methods = ["job"], open = true }
"""
    )
    job = command("job", {"n": 1}, CommandState.RUNNING, "p")
    reply = asked(reader, "next/D1", {}, command("job", {"n": 2}, CommandState.TIMED_OUT, "p"), job)
    assert reply is not None
    assert json.loads(reply.payload) == {"id": "042-x", "job": {"n": 1}, "since": NOW // 1000}
    assert asked(reader, "next/D1", {}, command("job", {}, CommandState.FAILED, "p")) is None


def test_topics_of_no_reply_are_told_at_once() -> None:
    reader = ReplyReader(load_profiles().values())
    assert [reader.may_concern(f"thing/product/D1/{one}") for one in ("events", "requests", "services_reply")] == [
        True,
        True,
        False,
    ]
    assert not ReplyReader([]).may_concern("a/b")
    assert own('topic = "a/{device_id}"\nto = "b/{device_id}"\n').may_concern("a/x")


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ('topic = "a/{device_id}"\nto = "a/{device_id}"', "p.toml:16: reply.0.to: is a topic that this reply is to"),
        ('topic = "a/{device_id}"\nto = "r/{device_id}"', "reply.0.to: is read by Homing itself, as r/{device_id}"),
        ('topic = "a/{device_id}"\nto = "b/{x}"', "p.toml:16: reply.0.to: {x} is unknown; allowed: {device_id}"),
        ('topic = "a/{device_id}"\nto = "b"\npayload = "{mesage.x}"', "reply.0.payload: {mesage.x} is unknown"),
        ('topic = "a/{device_id}"\nto = "b"\npayload = "{values.x}"', "reply.0: {values.x} is unknown; allowed: none"),
        ('topic = "a/{device_id}"\nto = "b"\npayload = "{command.id}"', "goes with last = { methods = […] }"),
        ('topic = "a/{device_id}"\nto = "b"\npayload = { jmespath = "a[" }', "reply.0.payload: 'a[' is no JMESPath"),
        ('topic = "a/{device_id}"\nto = "b"\nneeds = ["mesage.x"]', "reply.0.needs.0: 'mesage.x' is unknown"),
        ('topic = "a"\nto = "b"', "reply.0.topic: needs a level {device_id}"),
    ],
)
def test_a_wrong_reply_is_refused_with_its_line(reply: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        own(reply)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[dji]\nap_id = 1", "values of profile dji: ap_id is unknown; is app_id meant?"),
        ("[lamp]\nx = 1", "lamp: no such profile is spoken; allowed: dji, homing"),
        ("dji = 1", "dji: is no table; allowed: [dji] with values below"),
        ("[dji", "not TOML"),
    ],
)
def test_a_wrong_file_of_values_is_refused(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "values.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        load_profiles(values=file)
    assert said in str(refused.value)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_profiles(values=tmp_path / "none.toml")


@given(st.binary(max_size=60), st.sampled_from(["events", "requests", "status"]))
def test_whatever_comes_nothing_is_raised(payload: bytes, end: str) -> None:
    for topic in (f"thing/product/x/{end}", f"sys/product/x/{end}"):
        asked(ALL, topic, payload)


ALL = ReplyReader(load_profiles().values())
