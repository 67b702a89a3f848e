"""Devices that are played from a profile alone: what they say is read as they mean it, for every shipped family."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from app.core.commands.command import CommandState
from app.core.errors import ConfigurationError, UndecodableMessageError
from app.core.messages import Publication, ReceivedMessage
from app.core.profiles.profile import DeviceProfile
from app.core.profiles.response_reader import ResponseReader, names
from app.core.profiles.templates import CommandFacts
from app.profiles.loader import parse_profile
from homing_simulator.behaviour import Behaviour, Kind, Reaction
from homing_simulator.options import FleetOptions
from homing_simulator.played import played
from tests.unit.profiles.corpora import CORPORA, CREATED, ID, Command, Corpus

NOW = CREATED / 1_000_000
EACH = [
    pytest.param(one, each, id=f"{one.name}-{each.method}-{i}")
    for one in CORPORA
    for i, each in enumerate(one.commands)
]
LAMP = """
name = "lamp"
description = "a lamp of ours"
methods = "closed"
[request]
topic = "lamps/{device_id}/set"
payload = { ref = "{id}", do = "{method}", with = "{params}", until = "{deadline_ms}" }
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
[[method]]
name = "on"
title = "On"
params = { type = "object" }
"""


def heard(sent: Publication) -> ReceivedMessage:
    return ReceivedMessage(
        sent.topic,
        sent.payload,
        response_topic=sent.response_topic,
        correlation_data=sent.correlation_data,
        user_properties=sent.user_properties,
    )


def states(corpus: Corpus, command: Command, said: list[Publication]) -> list[CommandState]:
    """The states of the command after each of these messages."""
    reader, facts, found = ResponseReader([corpus.profile]), command.facts(corpus.device), []
    for one in said:
        try:
            answer = reader.read(heard(one))
        except UndecodableMessageError:
            continue
        found += [reading.state for reading in (answer, *answer.others) if names(corpus.profile, facts, reading)]
    return found


def can(profile: DeviceProfile, method: str, state: CommandState) -> bool:
    return any(spec.answers(method) and any(r.state is state for r in spec.rules) for spec in profile.responses)


@pytest.mark.parametrize(("corpus", "command"), EACH)
def test_a_device_of_each_family_reads_its_command_and_is_read(corpus: Corpus, command: Command) -> None:
    family = played(corpus.profile)
    request = family.read(heard(corpus.profile.compose(command.facts(corpus.device))))
    assert request.device_id == corpus.device
    assert request.method in (command.method, "")
    assert request.method or not any(one.methods for one in corpus.profile.requests)
    found = states(corpus, command, family.answers(request, NOW))
    assert found[-1:] == [CommandState.SUCCEEDED]
    running = can(corpus.profile, command.method, CommandState.RUNNING)
    assert (CommandState.RUNNING in found) == running
    refusal = family.refusal(request, NOW)
    assert (refusal is not None) == can(corpus.profile, command.method, CommandState.FAILED)
    assert refusal is None or states(corpus, command, [refusal]) == [CommandState.FAILED]


@pytest.mark.parametrize("corpus", CORPORA, ids=[one.name for one in CORPORA])
def test_what_devices_of_a_family_say_is_no_command_to_them(corpus: Corpus) -> None:
    """A gateway of ThingsBoard hears its own answers, and goes on for ever if it takes them for commands."""
    family = played(corpus.profile)
    for frame in corpus.frames:
        with pytest.raises(ValueError, match="is no command of this profile"):
            family.read(frame.message())


def react(text: str, params: dict[str, Any] | None, method: str = "on", **options: Any) -> Reaction:
    profile = parse_profile(text, "lamp.toml")
    facts = CommandFacts(ID, "SN0001", method, params, CREATED, CREATED + 10_000_000)
    behaviour = Behaviour(
        FleetOptions(profile=profile.name, speaks=profile, **options), random.Random(1), profile.catalogue
    )
    return behaviour.react(heard(profile.compose(facts)), NOW)


def payloads(reaction: Reaction) -> list[dict[str, Any]]:
    return [json.loads(one.payload) for _, one in reaction.planned]


def test_a_lamp_of_ours_is_played_as_its_file_says() -> None:
    reaction = react(LAMP, {"echo": 7})
    assert (reaction.kind, reaction.command_id) == (Kind.ANSWERED, ID)
    assert payloads(reaction) == [
        {"ref": ID, "percent": 1},
        {"ref": ID, "state": {"method": "on", "echo": 7}},
    ]
    assert {one.topic for _, one in reaction.planned} == {"lamps/SN0001/done"}


def test_it_refuses_what_its_catalogue_lacks_and_params_that_do_not_fit() -> None:
    for reaction in (
        react(LAMP, {}, "explode"),
        react(LAMP.replace('"object"', '"array"'), {}),
        react(LAMP, {}, refuse=1.0),
    ):
        assert reaction.kind is Kind.REFUSED
        assert payloads(reaction) == [{"ref": ID, "code": 1}]


def test_faults_are_those_of_every_fleet() -> None:
    late, garbage = react(LAMP, {}, late=1.0), react(LAMP, {}, garbage=1.0)
    assert late.kind is Kind.LATE
    assert late.planned[0][0] > 10  # seconds: the deadline stands in the request
    assert [one.topic for _, one in garbage.planned] == ["lamps/SN0001/done"]
    assert [len(react(LAMP, {}, duplicate=1.0).planned), len(react(LAMP, {}, drop=1.0).planned)] == [4, 0]


def test_a_family_without_words_for_a_refusal_is_silent_and_counted() -> None:
    mute = LAMP.replace('    { state = "failed", when = [{ path = "code", is_not = [0] }] },\n', "")
    assert react(mute, {}, refuse=1.0).kind is Kind.SILENT


def test_a_device_that_would_take_its_answer_for_a_command_says_nothing() -> None:
    """A file that says so is refused; a device does not rely on it."""
    begin, _, _ = LAMP.partition("result =")
    text = (
        begin.replace(', until = "{deadline_ms}"', "")
        + """\
match = [{ path = "do", present = true }, { path = "with", is_in = [7] }]
rules = [{ state = "succeeded" }]
[[method]]
name = "on"
title = "On"
"""
    )
    apart = parse_profile(text, "lamp.toml")
    heard_by_itself = replace(apart.responses[0], topic=apart.requests[0].topic)
    for responses, kind in ((apart.responses, Kind.ANSWERED), ((heard_by_itself,), Kind.SILENT)):
        profile = replace(apart, responses=responses)
        message = heard(profile.compose(CommandFacts(ID, "SN0001", "on", {}, CREATED, CREATED)))
        behaviour = Behaviour(FleetOptions(profile="lamp", speaks=profile), random.Random(1))
        assert behaviour.react(message, NOW).kind is kind


def test_commands_to_devices_of_another_session_are_not_for_it() -> None:
    """Gateways share one topic: each would answer for all."""
    profile = parse_profile(LAMP, "lamp.toml")
    message = heard(profile.compose(CommandFacts(ID, "SN0001", "on", {}, CREATED, CREATED)))
    behaviour = Behaviour(FleetOptions(profile="lamp", speaks=profile), random.Random(1))
    assert behaviour.react(message, NOW, {"SN0002"}).kind is Kind.NOT_A_COMMAND
    assert behaviour.react(message, NOW, {"SN0001"}).kind is Kind.ANSWERED


def test_ids_of_another_form_are_refused_with_the_form() -> None:
    hono = next(one for one in CORPORA if one.name == "hono").profile
    with pytest.raises(ConfigurationError, match=r"first_device: profile 'hono' has ids of the form \{tenant\}"):
        played(hono).command_topics("SN0001")
    assert played(hono).command_topics("acme:SN1") == ("command/acme/SN1/req/+/+",)
