"""DJI's documented states, one by one: replies and job events are read as they are meant, and who asks is told."""

from __future__ import annotations

import json

import pytest

from app.core.commands.command import CommandState
from app.core.messages import ReceivedMessage
from app.core.payload import JsonValue
from app.core.profiles.event_reader import ReplyReader
from app.core.profiles.response_reader import ResponseReader, names
from app.core.profiles.templates import CommandFacts
from tests.unit.profiles.corpora import CREATED, ID, PROFILES

DJI = PROFILES["dji"]
READER = ResponseReader([DJI])
RUNNING, SUCCEEDED, FAILED = CommandState.RUNNING, CommandState.SUCCEEDED, CommandState.FAILED
OTHER = "042-01JC8ZQ5M7W3T9K2V4X6Y8B0D9"
JOBS = {"flighttask_execute", "takeoff_to_point", "fly_to_point"}
JOBS |= {"fileupload_start", "speaker_audio_play_start", "speaker_tts_play_start"}
"""Their reply says only that they were accepted."""
METHODS = sorted(set(DJI.catalogue.methods) - {"property_set"})
OF_JOBS = {
    **dict.fromkeys(("sent", "in_progress", "paused"), RUNNING),
    **dict.fromkeys(("ok", "success", "partially_done"), SUCCEEDED),
    **dict.fromkeys(("failed", "fail", "rejected", "canceled", "timeout"), FAILED),
}
OF_SPEAKERS = {"in_progress": RUNNING, "ok": SUCCEEDED, "success": SUCCEEDED, "failed": FAILED}
OF_TAKEOFF = {
    **dict.fromkeys(("task_ready", "wayline_progress", "wayline_ok"), RUNNING),
    "task_finish": SUCCEEDED,
    **dict.fromkeys(("wayline_failed", "wayline_cancel"), FAILED),
}
OF_FLY_TO = {
    "wayline_progress": RUNNING,
    "wayline_ok": SUCCEEDED,
    **dict.fromkeys(("wayline_failed", "wayline_cancel"), FAILED),
}


def states(method: str, where: str, body: dict[str, JsonValue], params: JsonValue = None) -> list[CommandState]:
    """Return what a message means for a command of the method."""
    facts = CommandFacts(ID, "D1", method, params, CREATED, CREATED + 10_000_000)
    answer = READER.read(ReceivedMessage(f"thing/product/D1/{where}", json.dumps(body).encode()))
    return [one.state for one in (answer, *answer.others) if names(DJI, facts, one)]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("named", [True, False])  # 111 of 160 documented replies do not repeat the method
def test_the_reply_to_each_service_is_its_end_or_the_acceptance_of_a_job(method: str, *, named: bool) -> None:
    said: dict[str, JsonValue] = {"tid": ID, "bid": ID, "timestamp": 1, **({"method": method} if named else {})}
    accepted = states(method, "services_reply", {**said, "data": {"result": 0}})
    assert accepted == [RUNNING if method in JOBS else SUCCEEDED]
    assert states(method, "services_reply", {**said, "data": {"result": 314000}}) == [FAILED]


@pytest.mark.parametrize("method", sorted(JOBS))
def test_the_first_report_of_a_job_says_that_it_was_accepted(method: str) -> None:
    for data in ({"result": 0}, {"result": 0, "output": {}}):
        body = json.dumps({"tid": ID, "bid": ID, "data": data}).encode()
        answer = READER.read(ReceivedMessage("thing/product/D1/services_reply", body))
        (own,) = (
            one
            for one in (answer, *answer.others)
            if names(DJI, CommandFacts(ID, "D1", method, None, CREATED, CREATED + 10_000_000), one)
        )
        assert json.loads(own.result or b"null") == {"status": "accepted"}


@pytest.mark.parametrize(
    ("output", "state"), [(None, SUCCEEDED), ({"status": "in_progress"}, RUNNING)], ids=["a photo", "a panorama"]
)
def test_a_photo_is_taken_with_its_reply_but_where_more_is_to_come(output: JsonValue, state: CommandState) -> None:
    data: dict[str, JsonValue] = {"result": 0} if output is None else {"result": 0, "output": output}
    assert states("camera_photo_take", "services_reply", {"tid": ID, "bid": ID, "data": data}) == [state]


@pytest.mark.parametrize("method", ["drc_mode_enter", "poi_mode_enter", "return_home", "flight_areas_update"])
def test_what_has_no_end_that_names_it_ends_with_its_reply(method: str) -> None:
    assert states(method, "services_reply", {"tid": ID, "bid": ID, "data": {"result": 0}}) == [SUCCEEDED]


@pytest.mark.parametrize(("status", "state"), OF_SPEAKERS.items())
@pytest.mark.parametrize(
    ("method", "params"),
    [("speaker_tts_play_start", {"tts": {"md5": "M1"}}), ("speaker_audio_play_start", {"file": {"md5": "M1"}})],
)
@pytest.mark.parametrize("known_by", ["bid", "md5"])
def test_what_a_speaker_plays_is_known_by_its_bid_or_its_md5(
    method: str, params: JsonValue, status: str, state: CommandState, known_by: str
) -> None:
    by_bid = known_by == "bid"
    output: dict[str, JsonValue] = {"psdk_index": 2, "status": status, "progress": {"percent": 100}}
    output |= {} if by_bid else {"md5": "M1"}
    body: dict[str, JsonValue] = {"tid": "t", "bid": ID if by_bid else "b", "data": {"result": 0, "output": output}}
    assert states(method, "events", body, params) == [state]
    other: JsonValue = {"tts": {"md5": "M2"}, "file": {"md5": "M2"}}
    assert states(method, "events", {**body, "bid": "b"}, other) == []


@pytest.mark.parametrize(
    ("status", "files", "state"),
    [
        ("ok", ["ok"], SUCCEEDED),
        ("partially_done", ["ok", "failed"], SUCCEEDED),
        ("in_progress", ["ok", "ok"], RUNNING),
        ("canceled", ["ok"], FAILED),
        (None, ["ok", "ok"], SUCCEEDED),
        (None, ["ok", "file_uploading"], RUNNING),
        (None, ["failed", "in_progress"], RUNNING),
        (None, ["ok", "failed"], FAILED),
    ],
)
def test_logs_are_uploaded_when_all_of_them_are(status: str | None, files: list[str], state: CommandState) -> None:
    ext: JsonValue = {"files": [{"key": "k", "progress": {"status": one}} for one in files]}
    output: dict[str, JsonValue] = {"ext": ext} if status is None else {"ext": ext, "status": status}
    body: dict[str, JsonValue] = {"tid": "t", "bid": ID, "data": {"output": output}}
    assert states("fileupload_start", "events", body) == [state]
    assert states("fileupload_start", "events", {**body, "bid": "b"}) == []


def test_what_is_documented_is_not_taken_for_misspelt() -> None:
    DJI.check("drc_camera_mode_switch", {"payload_index": "81-0-0", "camera_mode": 2})


@pytest.mark.parametrize(("status", "state"), OF_JOBS.items())
@pytest.mark.parametrize("method", ["flighttask_execute", "cover_open", "device_reboot", "ota_create"])
def test_progress_of_a_job_is_read_by_its_status(method: str, status: str, state: CommandState) -> None:
    output = {"status": status, "progress": {"percent": 40, "current_step": 5}, "ext": {"flight_id": "F1"}}
    body: dict[str, JsonValue] = {"tid": "t", "bid": ID, "data": {"result": 0, "output": output}}  # type: ignore[dict-item]  # it is JSON
    assert states(method, "events", body) == [state]


@pytest.mark.parametrize(
    ("method", "key", "status", "state"),
    [
        *(("takeoff_to_point", "flight_id", *one) for one in OF_TAKEOFF.items()),
        *(("fly_to_point", "fly_to_id", *one) for one in OF_FLY_TO.items()),
    ],
)
def test_flights_are_known_by_what_the_call_named_them(method: str, key: str, status: str, state: CommandState) -> None:
    body: dict[str, JsonValue] = {"tid": "t", "bid": "b", "data": {"result": 0, key: "F1", "status": status}}
    assert states(method, "events", body, {key: "F1"}) == [state]
    assert states(method, "events", body, {key: "F2"}) == []


@pytest.mark.parametrize(("status", "state"), OF_JOBS.items())
@pytest.mark.parametrize("bid", ["b", OTHER, ID])
def test_progress_of_a_flight_is_known_by_its_id_whatever_the_bid_is(
    status: str, state: CommandState, bid: str
) -> None:
    output: JsonValue = {"status": status, "ext": {"flight_id": "F1"}}
    body: dict[str, JsonValue] = {"tid": "t", "bid": bid, "data": {"result": 0, "output": output}}
    assert set(states("flighttask_execute", "events", body, {"flight_id": "F1"})) == {state}
    assert states("flighttask_execute", "events", {**body, "bid": "b"}, {"flight_id": "F2"}) == []


def test_an_event_of_a_flight_is_looked_for_by_its_id_first() -> None:
    """Its bid may be that of the command that prepared it, which has its outcome."""
    output = {"status": "ok", "ext": {"flight_id": "F1"}}
    body = json.dumps({"tid": "t", "bid": ID, "data": {"result": 0, "output": output}})
    answer = READER.read(ReceivedMessage("thing/product/D1/events", body.encode()))
    assert [one.value for one in (answer, *answer.others)] == ["F1", ID]


ASKED = [
    *(("requests", method) for method in ("config", "airport_bind_status", "airport_organization_get")),
    *(
        ("requests", method)
        for method in ("airport_organization_bind", "flighttask_resource_get", "storage_config_get")
    ),
    *(("requests", method) for method in ("flight_areas_get", "something_of_a_later_release")),
    ("sys", "update_topo"),
    *(
        ("events", method)
        for method in ("flighttask_progress", "hms", "takeoff_to_point_progress", "file_upload_callback")
    ),
]


@pytest.mark.parametrize(("where", "method"), ASKED)
def test_a_dock_that_asks_is_told_under_its_ids_and_method(where: str, method: str) -> None:
    topic = "sys/product/D1/status" if where == "sys" else f"thing/product/D1/{where}"
    body = {"tid": "t1", "bid": "b1", "method": method, "need_reply": 1, "data": {"devices": [], "flight_id": "F1"}}
    candidates = ReplyReader([DJI]).read(ReceivedMessage(topic, json.dumps(body).encode()), 7)
    told = next(reply for one in candidates if (reply := one.reply(None)) is not None)
    said = json.loads(told.payload)
    assert told.topic == f"{topic}_reply"
    assert (said["tid"], said["bid"], said["method"]) == ("t1", "b1", method)
    assert said["data"]["result"] in (0, 1)


def test_an_event_that_wants_no_reply_gets_none() -> None:
    body = json.dumps({"tid": "t", "bid": "b", "method": "hms", "need_reply": 0, "data": {}}).encode()
    assert ReplyReader([DJI]).read(ReceivedMessage("thing/product/D1/events", body), 7) == []
