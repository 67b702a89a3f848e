"""The answers of a simulated device to a command, checked with the profiles that nodes read its answers with."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from app.core.commands.callback import Answer
from app.core.commands.command import CommandState
from app.core.errors import UndecodableMessageError
from app.core.messages import Publication, ReceivedMessage
from app.core.profiles.correlation import Correlation
from app.core.profiles.response_reader import ResponseReader
from app.core.profiles.templates import CommandFacts
from app.profiles.loader import load_profiles
from homing_simulator.behaviour import GARBAGE, Behaviour, Kind, Reaction
from homing_simulator.options import FLEET_PROFILES, FleetOptions, Range

NOW = 1_700_000_000.0
TIMEOUT = 10.0
PROFILES = load_profiles()
READER = ResponseReader(PROFILES.values())


def command(profile: str, method: str = "photo", params: dict[str, Any] | None = None, number: int = 0) -> Publication:
    micros = int(NOW * 1_000_000)
    identity = f"042-{number:026d}"
    deadline = micros + int(TIMEOUT * 1_000_000)
    return PROFILES[profile].compose(CommandFacts(identity, "SN0001", method, params or {}, micros, deadline))


def received(publication: Publication) -> ReceivedMessage:
    return ReceivedMessage(
        publication.topic,
        publication.payload,
        response_topic=publication.response_topic,
        correlation_data=publication.correlation_data,
    )


def react(publication: Publication, seed: int = 1, **options: Any) -> Reaction:
    profile = "dji" if publication.topic.startswith("thing/") else "homing"
    behaviour = Behaviour(FleetOptions(profile=profile, **options), random.Random(seed))
    return behaviour.react(received(publication), NOW)


def answers(reaction: Reaction) -> list[Answer]:
    return [READER.read(received(publication)) for _, publication in reaction.planned]


def test_every_family_that_can_be_simulated_is_a_profile() -> None:
    assert set(FLEET_PROFILES) <= set(PROFILES)


@pytest.mark.parametrize("profile", FLEET_PROFILES)
def test_a_device_listens_where_its_profile_sends(profile: str) -> None:
    behaviour = Behaviour(FleetOptions(profile=profile), random.Random(1))
    assert behaviour.command_topics("SN0001") == (command(profile).topic,)


@pytest.mark.parametrize("profile", FLEET_PROFILES)
def test_an_answer_is_understood_as_success_of_this_command(profile: str) -> None:
    reaction = react(command(profile, params={"echo": [1, "two"]}))
    (answer,) = answers(reaction)
    assert reaction.kind is Kind.ANSWERED
    assert answer.state is CommandState.SUCCEEDED
    assert (answer.device_id, answer.value) == ("SN0001", reaction.command_id)
    assert json.loads(answer.result or b"")["echo"] == [1, "two"]


@pytest.mark.parametrize("profile", FLEET_PROFILES)
def test_a_refusal_is_understood_as_failure(profile: str) -> None:
    reaction = react(command(profile), refuse=1.0)
    (answer,) = answers(reaction)
    assert reaction.kind is Kind.REFUSED
    assert answer.state is CommandState.FAILED
    assert json.loads(answer.error or b"")["code"] not in (0, None)


def test_a_homing_device_answers_where_the_command_says_with_its_correlation_data() -> None:
    asked = received(command("homing"))
    asked.response_topic, asked.correlation_data = "elsewhere/SN0001", b"\x00\x01"
    behaviour = Behaviour(FleetOptions(profile="homing"), random.Random(1))
    ((_, answer),) = behaviour.react(asked, NOW).planned
    assert (answer.topic, answer.correlation_data) == ("elsewhere/SN0001", b"\x00\x01")


def test_a_homing_device_on_3_1_1_answers_on_its_own_topic() -> None:
    asked = received(command("homing"))
    asked.response_topic = asked.correlation_data = None
    ((_, answer),) = Behaviour(FleetOptions(profile="homing"), random.Random(1)).react(asked, NOW).planned
    assert (answer.topic, answer.correlation_data) == ("homing/SN0001/response", None)


def test_a_homing_device_reports_as_many_steps_as_asked() -> None:
    states = [answer.state for answer in answers(react(command("homing", params={"steps": 2})))]
    assert states == [CommandState.RUNNING, CommandState.RUNNING, CommandState.SUCCEEDED]
    assert len(react(command("homing", params={"steps": 10**9})).planned) == 1


def test_a_dji_reply_repeats_the_envelope_of_the_service() -> None:
    ((_, reply),) = react(command("dji", "camera_photo_take")).planned
    body = json.loads(reply.payload)
    assert body["tid"] == body["bid"] == "042-00000000000000000000000000"
    assert (body["gateway"], body["method"]) == ("SN0001", "camera_photo_take")
    assert body["timestamp"] == NOW * 1000
    assert body["data"]["result"] == 0


@pytest.mark.parametrize(
    ("method", "key", "last"),
    [("takeoff_to_point", "flight_id", "task_finish"), ("fly_to_point", "fly_to_id", "wayline_ok")],
)
def test_a_dji_flight_is_accepted_then_reports_until_its_end(method: str, key: str, last: str) -> None:
    reply, *events = answers(react(command("dji", method, {key: "flight-7"})))
    assert reply.state is CommandState.RUNNING
    assert {(event.correlation, event.value) for event in events} == {(Correlation.VALUE, "flight-7")}
    assert [event.state for event in events[:-1]] == [CommandState.RUNNING] * (len(events) - 1)
    assert events[-1].state is CommandState.SUCCEEDED
    assert json.loads(events[-1].result or b"")["status"] == last


def test_a_dji_flight_without_its_id_is_refused_at_once() -> None:
    (answer,) = answers(react(command("dji", "takeoff_to_point", {})))
    assert answer.state is CommandState.FAILED


def test_a_dji_mission_reports_rising_percentages_under_the_bid_of_the_service() -> None:
    reaction = react(command("dji", "flighttask_execute", {"flight_id": "mission"}))
    _, *events = answers(reaction)
    named = {one.value for event in events for one in (event, *event.others)}
    assert named == {"mission", reaction.command_id}
    percents = [json.loads(event.result or b"")["progress"]["percent"] for event in events]
    assert percents == sorted(percents)
    assert percents[-1] == 100
    assert [event.state for event in events] == [CommandState.RUNNING] * (len(events) - 1) + [CommandState.SUCCEEDED]


def test_each_step_comes_a_delay_after_the_one_before() -> None:
    delay = Range(timedelta(seconds=1), timedelta(seconds=2))
    reaction = react(command("dji", "takeoff_to_point", {"flight_id": "f"}), delay=delay)
    times = [at for at, _ in reaction.planned]
    gaps = [later - earlier for earlier, later in zip([0.0, *times], times, strict=False)]
    assert len(gaps) == 5
    assert all(1.0 <= gap <= 2.0 for gap in gaps)
    assert len(set(gaps)) > 1


def test_without_a_delay_answers_come_at_once() -> None:
    assert [at for at, _ in react(command("homing")).planned] == [0.0]


def test_a_dropped_command_has_no_answer() -> None:
    reaction = react(command("dji"), drop=1.0)
    assert (reaction.kind, reaction.planned) == (Kind.DROPPED, [])
    assert reaction.command_id is not None


def test_F25_a_duplicated_answer_comes_twice_the_same() -> None:
    first, second = react(command("dji"), duplicate=1.0).planned
    assert first == second


def test_F26_a_late_homing_answer_comes_after_the_deadline_that_the_command_has() -> None:
    by = Range(timedelta(seconds=1), timedelta(seconds=1))
    ((at, _),) = react(command("homing"), late=1.0, late_by=by).planned
    assert at == pytest.approx(TIMEOUT + 1.0)


def test_F26_a_late_dji_answer_comes_as_late_as_was_said() -> None:
    by = Range(timedelta(seconds=20), timedelta(seconds=20))
    ((at, _),) = react(command("dji"), late=1.0, late_by=by).planned
    assert at == pytest.approx(20.0)


@pytest.mark.parametrize("profile", FLEET_PROFILES)
def test_garbage_is_nothing_that_a_node_understands(profile: str) -> None:
    for payload in GARBAGE:
        topic = answers(react(command(profile)))[0].topic
        with pytest.raises(UndecodableMessageError):
            READER.read(ReceivedMessage(topic, payload))


def test_garbage_comes_on_the_response_topic_in_place_of_the_answer() -> None:
    ((_, publication),) = react(command("dji"), garbage=1.0).planned
    assert publication.topic == "thing/product/SN0001/services_reply"
    assert publication.payload in GARBAGE


def test_silent_methods_are_read_and_never_answered() -> None:
    reaction = react(command("dji", "quiet"), silent_methods=frozenset({"quiet"}))
    assert (reaction.kind, reaction.planned) == (Kind.SILENT, [])


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b'"x"', b"{}", b'{"id":1}', b"\xff", b'{"id":"a","method":[]}'])
@pytest.mark.parametrize("profile", FLEET_PROFILES)
def test_what_is_no_command_is_no_accident(profile: str, payload: bytes) -> None:
    behaviour = Behaviour(FleetOptions(profile=profile), random.Random(1))
    reaction = behaviour.react(ReceivedMessage(behaviour.command_topics("SN0001")[0], payload), NOW)
    assert (reaction.kind, reaction.command_id, reaction.planned) == (Kind.NOT_A_COMMAND, None, [])


def histories(seed: int) -> list[Kind]:
    options = FleetOptions(profile="dji", drop=0.1, duplicate=0.1, late=0.1, garbage=0.1, refuse=0.1)
    behaviour = Behaviour(options, random.Random(seed))
    return [behaviour.react(received(command("dji", number=number)), NOW).kind for number in range(2000)]


def test_shares_are_kept_and_one_seed_gives_one_history() -> None:
    kinds = histories(seed=7)
    assert kinds == histories(seed=7)
    assert kinds != histories(seed=8)
    counts = Counter(kinds)
    for kind in (Kind.DROPPED, Kind.DUPLICATED, Kind.LATE, Kind.GARBAGE, Kind.REFUSED):
        assert counts[kind] == pytest.approx(200, abs=60)
    assert counts[Kind.ANSWERED] == pytest.approx(1000, abs=120)


def test_a_device_refuses_what_its_catalogue_does_not_have() -> None:
    fleet = Behaviour(FleetOptions(profile="dji"), random.Random(1), PROFILES["dji"].catalogue)
    for method, params in (("cover_opne", {}), ("takeoff_to_point", {"flight_id": "F1", "target_height": -5000})):
        reaction = fleet.react(received(command("dji", method, params)), NOW)
        assert reaction.kind is Kind.REFUSED
        (answer,) = answers(reaction)
        assert (answer.state, json.loads(answer.error or b"")["code"]) == (CommandState.FAILED, 514171)
    assert fleet.react(received(command("dji", "cover_open")), NOW).kind is Kind.ANSWERED
