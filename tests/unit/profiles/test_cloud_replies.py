"""Homing says what the clouds would that it stands in for: frames of the makers' documents, asked and replied."""

from __future__ import annotations

import json

import pytest

from app.core.commands.command import CommandState
from app.core.profiles.event_reader import ReplyReader
from app.profiles.loader import load_profiles
from tests.unit.profiles.test_replies import NOW, asked, command

ALL = ReplyReader(load_profiles(shipped=["all"]).values())
JOB = command("job", {"operation": "reboot"}, CommandState.SENT, "aws-jobs")
DONE = command("job", {"operation": "reboot"}, CommandState.SUCCEEDED, "aws-jobs")
SHADOW = command("set", {"on": True}, CommandState.TIMED_OUT, "aws-shadow")
SECONDS = NOW // 1000


@pytest.mark.parametrize(
    ("topic", "said", "commands", "reply", "told"),
    [
        (
            "$aws/things/D1/shadow/update",
            {"state": {"reported": {"on": True}}, "clientToken": "c"},
            [],
            "$aws/things/D1/shadow/update/accepted",
            {"state": {"reported": {"on": True}}, "version": NOW, "timestamp": SECONDS, "clientToken": "c"},
        ),
        (
            "$aws/things/D1/shadow/update",
            {"reported": 1},
            [],
            "$aws/things/D1/shadow/update/rejected",
            {"code": 400, "message": "Missing required node: state.reported", "timestamp": SECONDS},
        ),
        (
            "$aws/things/D1/shadow/get",
            {},
            [SHADOW],
            "$aws/things/D1/shadow/get/accepted",
            {"state": {"desired": {"on": True}, "delta": {"on": True}}, "version": NOW, "timestamp": SECONDS},
        ),
        (
            "$aws/things/D1/shadow/get",
            {"clientToken": "c"},
            [],
            "$aws/things/D1/shadow/get/rejected",
            {"code": 404, "message": "No shadow exists with name: 'D1'", "timestamp": SECONDS, "clientToken": "c"},
        ),
        (
            "$aws/things/D1/jobs/042-x/update",
            {"status": "SUCCEEDED", "clientToken": "c"},
            [],
            "$aws/things/D1/jobs/042-x/update/accepted",
            {
                "clientToken": "c",
                "timestamp": SECONDS,
                "executionState": {"status": "SUCCEEDED", "versionNumber": SECONDS},
            },
        ),
        (
            "$aws/things/D1/jobs/042-x/update",
            {"status": "DONE"},
            [],
            "$aws/things/D1/jobs/042-x/update/rejected",
            {"timestamp": SECONDS, "code": "InvalidRequest", "message": "status is none of those that a job has"},
        ),
        (
            "$aws/things/D1/jobs/start-next",
            {},
            [DONE],
            "$aws/things/D1/jobs/start-next/accepted",
            {"timestamp": SECONDS, "execution": {}},
        ),
        (
            "$aws/things/D1/jobs/$next/get",
            {"clientToken": "c"},
            [],
            "$aws/things/D1/jobs/$next/get/accepted",
            {"clientToken": "c", "timestamp": SECONDS, "execution": {}},
        ),
        (
            "ocpp/D1/from",
            [2, "m1", "BootNotification", {"chargePointVendor": "V", "chargePointModel": "M"}],
            [],
            "ocpp/D1/to",
            [3, "m1", {"status": "Accepted", "currentTime": "2024-11-19T07:06:40.000Z", "interval": 300}],
        ),
        (
            "ocpp/D1/from",
            [2, "m1", "Heartbeat", {}],
            [],
            "ocpp/D1/to",
            [3, "m1", {"currentTime": "2024-11-19T07:06:40.000Z"}],
        ),
        ("ocpp/D1/from", [2, "m1", "MeterValues", {"connectorId": 1}], [], "ocpp/D1/to", [3, "m1", {}]),
        (
            "ocpp/D1/from",
            [2, "m1", "Authorize", {"idTag": "x"}],
            [],
            "ocpp/D1/to",
            [4, "m1", "NotImplemented", "the central system does not answer this", {}],
        ),
    ],
)
def test_a_device_is_told_what_its_cloud_would_say(
    topic: str, said: object, commands: list[object], reply: str, told: object
) -> None:
    found = asked(ALL, topic, said, *commands)  # type: ignore[arg-type]  # commands, in a table of objects
    assert found is not None
    assert (found.topic, json.loads(found.payload)) == (reply, told)


@pytest.mark.parametrize("question", ["start-next", "$next/get"])
def test_a_thing_that_asks_for_work_gets_its_open_job(question: str) -> None:
    found = asked(ALL, f"$aws/things/D1/jobs/{question}", {"clientToken": "c"}, JOB)
    assert found is not None
    assert found.topic == f"$aws/things/D1/jobs/{question}/accepted"
    execution = json.loads(found.payload)["execution"]
    assert (execution["jobId"], execution["jobDocument"]) == (JOB.id, {"operation": "reboot"})
    assert execution["status"] == ("IN_PROGRESS" if question == "start-next" else "QUEUED")


def test_results_of_calls_are_not_replied_to() -> None:
    assert asked(ALL, "ocpp/D1/from", [3, "m1", {}]) is None
