"""The shipped profiles against messages as their devices write them (DJI Cloud API documentation; our own protocol)."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from app.core.commands.callback import Expectation
from app.core.commands.command import CommandState
from app.core.errors import UndecodableMessageError
from app.core.messages import ReceivedMessage
from app.core.profiles.correlation import Correlation
from app.core.profiles.response_reader import ResponseReader
from app.core.profiles.templates import CommandFacts
from app.profiles.loader import load_profiles

PROFILES = load_profiles()
READER = ResponseReader(PROFILES.values())
ID = "042-01JCZX0000000000000000000A"
CREATED = 1_732_000_000_000_000
DOCK = "4TADKAQ000002J"


def facts(method: str = "cover_open", **params: Any) -> CommandFacts:
    return CommandFacts(ID, DOCK, method, params, CREATED, CREATED + 10_000_000)


def message(topic: str, payload: object, **extra: Any) -> ReceivedMessage:
    return ReceivedMessage(topic, json.dumps(payload).encode(), **extra)


def reply(result: int = 0, **extra: Any) -> dict[str, Any]:
    return {
        "tid": ID,
        "bid": ID,
        "timestamp": 1654070968655,
        "method": "cover_open",
        "data": {"result": result, **extra},
    }


def test_a_dji_command_is_published_as_a_service() -> None:
    publication = PROFILES["dji"].compose(facts(action=1))
    assert publication.topic == f"thing/product/{DOCK}/services"
    assert json.loads(publication.payload) == {
        "tid": ID,
        "bid": ID,
        "timestamp": 1_732_000_000_000,
        "gateway": DOCK,
        "method": "cover_open",
        "data": {"action": 1},
    }
    assert (publication.qos, publication.response_topic, publication.correlation_data) == (1, None, None)
    assert publication.message_expiry == timedelta(seconds=10)


def test_a_homing_command_says_where_to_answer_and_until_when() -> None:
    publication = PROFILES["homing"].compose(facts("blink", n=3))
    assert publication.topic == f"homing/{DOCK}/command"
    assert json.loads(publication.payload) == {
        "id": ID,
        "method": "blink",
        "params": {"n": 3},
        "deadline": "2024-11-19T07:06:50.000Z",
    }
    assert publication.response_topic == f"homing/{DOCK}/response"
    assert publication.correlation_data == ID.encode()


def test_dji_expects_a_reply_events_of_its_job_and_of_its_flight() -> None:
    events = f"thing/product/{DOCK}/events"
    expected = {
        Expectation(f"thing/product/{DOCK}/services_reply", Correlation.ID),
        Expectation(events, Correlation.ID),
    }
    assert set(PROFILES["dji"].expectations(facts())) == expected
    flight = {
        Expectation(f"thing/product/{DOCK}/services_reply#job_accepted", Correlation.ID),
        Expectation(events, Correlation.ID),
        Expectation(events, Correlation.VALUE, "F1"),
    }
    assert set(PROFILES["dji"].expectations(facts("takeoff_to_point", flight_id="F1"))) == flight


@pytest.mark.parametrize(
    ("payload", "state"),
    [
        (reply(0), CommandState.SUCCEEDED),
        (reply(0, output={"status": "ok"}), CommandState.SUCCEEDED),
        (reply(0, output={"status": "in_progress"}), CommandState.RUNNING),
        (reply(0, output={"status": "sent"}), CommandState.RUNNING),
        (reply(0) | {"method": "takeoff_to_point"}, CommandState.RUNNING),
        (reply(314000), CommandState.FAILED),
        (reply(314000) | {"method": "takeoff_to_point"}, CommandState.FAILED),
    ],
)
def test_dji_accepted_is_not_done(payload: dict[str, Any], state: CommandState) -> None:
    answer = READER.read(message(f"thing/product/{DOCK}/services_reply", payload))
    assert (answer.device_id, answer.correlation, answer.value) == (DOCK, Correlation.ID, ID)
    assert answer.state is state


def test_a_dji_refusal_carries_its_code() -> None:
    answer = READER.read(message(f"thing/product/{DOCK}/services_reply", reply(314000)))
    assert answer.error == b'{"code":314000,"message":"the device refused"}'


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("in_progress", CommandState.RUNNING),
        ("paused", CommandState.RUNNING),
        ("ok", CommandState.SUCCEEDED),
        ("partially_done", CommandState.SUCCEEDED),
        ("canceled", CommandState.FAILED),
        ("timeout", CommandState.FAILED),
    ],
)
def test_dji_job_events_name_the_command_by_bid(status: str, state: CommandState) -> None:
    event = {
        "tid": "another",
        "bid": ID,
        "method": "flighttask_progress",
        "data": {"result": 0, "output": {"status": status, "progress": {"percent": 40}}},
    }
    answer = READER.read(message(f"thing/product/{DOCK}/events", event))
    assert (answer.value, answer.state) == (ID, state)


def test_dji_flight_events_name_the_command_by_flight_id() -> None:
    event = {"tid": "x", "bid": "y", "method": "takeoff_to_point_progress"}
    running = event | {"data": {"flight_id": "F1", "status": "wayline_ok", "result": 0}}
    done = event | {"data": {"flight_id": "F1", "status": "task_finish", "result": 0}}
    answers = [READER.read(message(f"thing/product/{DOCK}/events", one)) for one in (running, done)]
    assert [answer.state for answer in answers] == [CommandState.RUNNING, CommandState.SUCCEEDED]
    assert {(answer.correlation, answer.value) for answer in answers} == {(Correlation.VALUE, "F1")}


@pytest.mark.parametrize(
    ("topic", "payload", "reason"),
    [
        ("thing/product/X/services_reply", {"data": {"result": 0}}, "no_correlation"),
        ("thing/product/X/services_reply", {"tid": 1.5, "data": {"result": 0}}, "no_correlation"),
        (
            "thing/product/X/services_reply",
            {"tid": ID, "bid": "other", "data": {"result": 0}},
            "correlation_contradicts",
        ),
        ("thing/product/X/services_reply", ["tid"], "no_correlation"),
        ("thing/product/X/events", {"method": "hms", "data": {"list": []}}, "not_a_response"),
        ("thing/product/X/osd", {"tid": ID}, "unexpected_topic"),
        ("homing/X/response", {"id": ID, "status": "maybe"}, "no_rule_holds"),
    ],
)
def test_other_messages_are_refused_with_a_reason(topic: str, payload: object, reason: str) -> None:
    with pytest.raises(UndecodableMessageError) as caught:
        READER.read(message(topic, payload))
    assert caught.value.reason == reason


def test_a_homing_response_may_name_its_command_in_either_place() -> None:
    topic = f"homing/{DOCK}/response"
    by_payload = READER.read(message(topic, {"id": ID, "status": "ok", "result": [1]}))
    by_property = READER.read(message(topic, {"status": "ok", "result": [1]}, correlation_data=ID.encode()))
    assert by_payload.value == by_property.value == ID
    assert by_payload.result == by_property.result == b"[1]"
    with pytest.raises(UndecodableMessageError, match="correlation_contradicts"):
        READER.read(message(topic, {"id": "043-X", "status": "ok"}, correlation_data=ID.encode()))


def test_a_homing_failure_is_told_as_the_device_told_it() -> None:
    failure = {"id": ID, "status": "error", "error": {"code": "low_battery", "message": "12 % left"}}
    answer = READER.read(message(f"homing/{DOCK}/response", failure))
    assert answer.state is CommandState.FAILED
    assert answer.error == b'{"code":"low_battery","message":"12 % left"}'


def test_the_filters_cover_all_profiles_once() -> None:
    dji = ("thing/product/+/services_reply", "thing/product/+/events", "thing/product/+/property/set_reply")
    assert READER.filters() == (*dji, "homing/+/response")


def test_zero_is_not_false() -> None:
    with_false = reply() | {"data": {"result": False}}
    assert READER.read(message(f"thing/product/{DOCK}/services_reply", with_false)).state is CommandState.FAILED
