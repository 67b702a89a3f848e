from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.core.commands.command import CommandState
from app.core.messages import ReceivedMessage
from app.core.payload import JsonValue
from app.core.profiles.conditions import PathCondition
from app.core.profiles.profile import DeviceProfile
from app.core.profiles.response_reader import ResponseReader
from app.core.profiles.templates import CommandFacts
from app.core.topics import TopicTemplate
from app.profiles.loader import load_profiles, parse_profile

DOCS = re.findall(
    "```toml\n(.*?)```", (Path(__file__).parents[4] / "docs" / "profiles.md").read_text("utf-8"), re.DOTALL
)[0]


@pytest.mark.parametrize(
    ("payload", "holds"), [({}, False), ({"code": None}, True), ({"code": 1}, True), ({"code": 0}, False), ([], False)]
)
def test_an_absent_path_is_not_anything(payload: JsonValue, *, holds: bool) -> None:
    assert PathCondition(("code",), is_not=(0,)).holds(payload) is holds


@pytest.mark.parametrize(
    ("payload", "state"),
    [
        ({"percent": 40}, CommandState.RUNNING),
        ({"code": 0, "percent": 40}, CommandState.RUNNING),
        ({"code": 7}, CommandState.FAILED),
        ({"code": 0}, CommandState.SUCCEEDED),
        ({}, CommandState.SUCCEEDED),
    ],
)
def test_the_example_of_the_docs_reads_its_lamps(payload: dict[str, Any], state: CommandState) -> None:
    reader = ResponseReader([parse_profile(DOCS, "lamp.toml")])
    message = ReceivedMessage("lamps/l1/done", json.dumps({"ref": "042-A"} | payload).encode())
    assert reader.read(message).state is state


def test_a_dji_reply_without_a_result_is_still_no_success() -> None:
    reader = ResponseReader(load_profiles().values())
    message = ReceivedMessage("thing/product/D/services_reply", b'{"tid":"042-A","bid":"042-A","data":{}}')
    assert reader.read(message).state is CommandState.FAILED


def test_a_profile_that_cannot_read_a_message_does_not_hide_one_that_can() -> None:
    other = DOCS.replace('"lamp"', '"a-lamp"').replace('path = "ref"', 'path = "id"')
    reader = ResponseReader([parse_profile(other, "a.toml"), parse_profile(DOCS, "b.toml")])
    answer = reader.read(ReceivedMessage("lamps/l1/done", b'{"ref":"042-A"}'))
    assert (answer.profile, answer.value, answer.others) == ("lamp", "042-A", ())


def test_nobody_is_not_spoken_to_on_a_topic_that_names_no_device() -> None:
    lamp = parse_profile(DOCS, "lamp.toml")
    assert [topic for topic, _ in lamp.topics_of_nobody("nobody")] == ["lamps/nobody/set"]
    fixed = replace(lamp, requests=tuple(replace(one, topic=TopicTemplate("lamps/all/do")) for one in lamp.requests))
    assert fixed.topics_of_nobody("nobody") == []


@pytest.mark.parametrize("profile", load_profiles(shipped=["all"]).values(), ids=lambda one: one.name)
def test_each_kind_of_response_that_answers_a_method_is_found(profile: DeviceProfile) -> None:
    named = {method for spec in profile.responses for method in spec.but_not.union(spec.methods or ())}
    for method in (*named, "a_method_that_no_kind_names"):
        assert profile.answering(method) == tuple(spec for spec in profile.responses if spec.answers(method))


def test_a_topic_that_names_the_command_is_another_one_for_each() -> None:
    profile = load_profiles(shipped=["all"])["azure-direct-methods"]
    first, second = (
        profile.compose(CommandFacts(f"042-{one}", "thermostat", "reboot", {}, 0, 1_000_000)) for one in "AB"
    )
    assert first.topic != second.topic
    assert "042-A" in first.topic


def test_params_are_sent_and_stay_as_the_caller_gave_them() -> None:
    profile = parse_profile(MERGED, "lamp.toml")
    params: dict[str, JsonValue] = {"head": {"a": 1}, "n": 1e16, "text": "ä"}
    sent = profile.compose(CommandFacts("042-A", "l1", "set", params, 0, 1_000_000), "00-aa-bb-01")
    assert json.loads(sent.payload) == params | {"id": "042-A", "trace": "00-aa-bb-01"}
    assert params == {"head": {"a": 1}, "n": 1e16, "text": "ä"}


MERGED = """
name = "lamp"
description = "a lamp that takes the members of the params"
[request]
topic = "lamps/{device_id}/do"
payload = { id = "{id}" }
merge_params = true
traceparent = "trace"
[[response]]
name = "done"
topic = "lamps/{device_id}/done"
correlation = "id"
sources = [{ path = "id" }]
rules = [{ state = "succeeded" }]
"""
