"""POST /v1/devices/{device_id}/commands: what every outcome looks like to the caller who sent it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send

from app.core.durations import format_duration
from tests.api.rig import DEVICE, Rig, until

MEMBERS = [
    "id",
    "device_id",
    "method",
    "params",
    "state",
    "result",
    "error",
    "deadline",
    "created_at",
    "finished_at",
    "home_node",
    "received_by",
    "matched_by",
    "forwarded",
    "late",
]
ASYNC = {"Prefer": "respond-async"}


def problem(response: httpx.Response, status: int, slug: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert body["type"] == f"urn:homing:problem:{slug}"
    assert body["status"] == status
    assert body["title"]
    assert body["detail"]
    return body


async def carries_its_command(rig: Rig, response: httpx.Response, state: str) -> None:
    """A problem with a command has it as reading it does, and says where that is."""
    body = response.json()
    read = await rig.http.get(response.headers["location"])
    assert body["command"] == read.json()
    assert (body["command"]["id"], body["command"]["state"]) == (body["command_id"], state)


async def test_a_command_waits_for_its_outcome(rig: Rig) -> None:
    response = await rig.send("ok", params={"height": 20.5, "é": ["🚁", None]}, timeout="5s")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    command = response.json()
    assert list(command)[: len(MEMBERS)] == MEMBERS
    assert command["device_id"] == DEVICE
    assert command["method"] == "ok"
    assert command["params"] == {"height": 20.5, "é": ["🚁", None]}
    assert command["state"] == "succeeded"
    assert command["result"]["serial"] == 18446744073709551615
    assert command["error"] is None
    assert command["home_node"] == command["received_by"] == "node-a"
    assert command["forwarded"] is False
    assert command["late"] is None
    instants = [datetime.fromisoformat(command[name]) for name in ("created_at", "finished_at", "deadline")]
    assert instants == sorted(instants)
    assert instants[2] - instants[0] == timedelta(seconds=5)
    assert all(command[name].endswith("Z") for name in ("created_at", "finished_at", "deadline"))
    assert instants[0].tzinfo == UTC
    assert len(rig.open_commands) == len(rig.waiters) == 0


async def test_params_default_to_an_empty_object_and_timeout_to_the_setting(rig: Rig) -> None:
    command = (await rig.send("ok")).json()
    assert command["params"] == {}
    assert rig.store.registrations[-1].timeout == timedelta(seconds=10)
    assert (await rig.send("ok", params=None)).json()["params"] is None


async def test_a_refusal_of_the_device_is_data(rig: Rig) -> None:
    response = await rig.send("refuse")
    assert response.status_code == 200
    command = response.json()
    assert (command["state"], command["result"]) == ("failed", None)
    assert command["error"] == {"code": 42, "message": "no GPS", "code_text": "42"}


async def test_F8_a_device_that_is_silent_until_the_deadline_gives_504_with_the_id(rig: Rig) -> None:
    response = await rig.send("silent", timeout="20ms")
    body = problem(response, 504, "timed-out")
    await carries_its_command(rig, response, "timed_out")
    assert (body["known"]["published"], body["known"]["acknowledged"]) == (True, True)
    assert body["known"] == body["command"]["error"]["known"]
    assert "acknowledged it, and no answer came in time" in body["detail"]
    assert body["command_id"] == rig.store.registrations[-1].command_id
    assert (await rig.http.get(f"/v1/commands/{body['command_id']}")).json()["state"] == "timed_out"


async def test_respond_async_gives_202_at_once(rig: Rig) -> None:
    response = await rig.send("silent", headers=ASYNC)
    assert response.status_code == 202
    assert response.headers["location"] == rig.location
    assert response.headers["preference-applied"] == "respond-async"
    assert (response.json()["state"], response.json()["finished_at"]) == ("pending", None)
    assert len(rig.waiters) == 0
    assert len(rig.open_commands) == 1


async def test_location_leads_to_the_outcome(rig: Rig) -> None:
    assert (await rig.send("silent", headers=ASYNC)).headers["location"] == rig.location
    rig.device.answer(await rig.heard(), '"status":"ok","result":1')
    command = await rig.read_until(lambda command: command["state"] != "pending")
    assert (command["state"], command["result"]) == ("succeeded", 1)


@pytest.mark.parametrize(
    "prefer", ["wait=30", "WAIT = 30", 'wait="30"', "handling=lenient, wait=30", "wait=30, wait=0"]
)
async def test_an_outcome_within_the_preferred_wait_gives_200(rig: Rig, prefer: str) -> None:
    response = await rig.send("ok", headers={"Prefer": prefer})
    assert response.status_code == 200
    assert response.headers["preference-applied"] == "wait=30"


@pytest.mark.parametrize(
    ("prefer", "applied"), [("wait=0", "wait=0"), ("respond-async, wait=0", "respond-async, wait=0")]
)
async def test_no_outcome_within_the_preferred_wait_gives_202(rig: Rig, prefer: str, applied: str) -> None:
    response = await rig.send("silent", headers={"Prefer": prefer})
    assert response.status_code == 202
    assert response.headers["location"] == rig.location
    assert response.headers["preference-applied"] == applied


async def test_a_wait_of_one_second_ends_after_one_second(rig: Rig) -> None:
    began = asyncio.get_running_loop().time()
    response = await rig.send("silent", headers={"Prefer": "wait=1"})
    assert response.status_code == 202
    assert response.headers["preference-applied"] == "wait=1"
    assert asyncio.get_running_loop().time() - began > 0.9
    assert len(rig.waiters) == 0


async def test_respond_async_with_a_wait_waits(rig: Rig) -> None:
    response = await rig.send("ok", headers={"Prefer": "respond-async, wait=30"})
    assert response.status_code == 200
    assert response.headers["preference-applied"] == "wait=30"


@pytest.mark.parametrize("prefer", ["wait=soon", "wait", "wait=-1", "return=minimal", "", ",,;=", 'wait="'])
async def test_a_preference_that_cannot_be_read_is_ignored(rig: Rig, prefer: str) -> None:
    response = await rig.send("ok", headers={"Prefer": prefer})
    assert response.status_code == 200
    assert "preference-applied" not in response.headers


async def test_a_one_way_command_succeeds_when_the_broker_has_it(rig: Rig) -> None:
    response = await rig.send("silent", one_way=True)
    assert response.status_code == 200
    assert (response.json()["state"], response.json()["received_by"]) == ("succeeded", None)


async def test_a_command_to_nobody_is_409_and_safe_to_send_again(rig: Rig) -> None:
    for members in ({"if_offline": "fail"}, {"one_way": True}, {"one_way": True, "if_offline": "send"}):
        response = await rig.send("cover_open", profile="dji", **members)  # the device of this rig speaks `homing`
        body = problem(response, 409, "device-not-listening")
        assert body["error"]["code"] == "no_subscriber"
        assert "thing/product/drone-1/services" in body["detail"]
        assert "safe to send it again" in body["detail"]
        await carries_its_command(rig, response, "unsent")
        assert body["command"]["if_offline"] == members.get("if_offline", body["command"]["if_offline"])
    assert rig.device.received == []


async def test_a_node_finds_out_what_its_broker_tells(rig: Rig) -> None:
    # The device of this rig listens to the commands of all devices of its profile, and nobody to those of the other.
    defaults: dict[str, str] = {}
    while defaults.get("dji") != "fail":
        defaults = (await rig.http.get("/v1/nodes")).json()["self"]["if_offline"]
    assert defaults == {"dji": "fail", "homing": "send"}
    problem(await rig.send("cover_open", profile="dji"), 409, "device-not-listening")


async def test_a_key_is_joined_whatever_the_node_would_do_for_an_absent_device(rig: Rig) -> None:
    first = await rig.send("ok", headers={"Idempotency-Key": "k"})
    again = await rig.send("ok", headers={"Idempotency-Key": "k"})
    assert first.json() == again.json()
    other = await rig.send("ok", if_offline="fail", headers={"Idempotency-Key": "k"})
    problem(other, 422, "idempotency-key-reused")


async def test_a_one_way_command_that_nobody_acknowledged_is_no_success(rig: Rig) -> None:
    rig.mqtt.hold_puback = True
    response = await rig.send("silent", one_way=True, headers=ASYNC)
    assert response.status_code == 202
    problem(await rig.send("silent", one_way=True, timeout="20ms"), 504, "timed-out")


async def test_a_command_that_is_cancelled_meanwhile_is_data_too(rig: Rig) -> None:
    parked = asyncio.create_task(rig.send("silent"))
    await rig.heard()
    await rig.http.delete(rig.location)
    response = await parked
    assert response.status_code == 200
    assert response.json()["state"] == "cancelled"
    assert response.json()["error"]["code"] == "cancelled"


async def test_F14_a_repeated_call_joins_the_running_command(rig: Rig) -> None:
    key = {"Idempotency-Key": "8e03978e-40d5-43dd-bc93-6894a57f9324"}
    first = asyncio.create_task(rig.send("silent", headers=key))
    command = await rig.heard()
    others = [asyncio.create_task(rig.send("silent", headers=key)) for _ in range(4)]
    await until(lambda: len(rig.waiters) == 5)
    rig.device.answer(command, '"status":"ok","result":"once"')
    responses = await asyncio.gather(first, *others)
    assert [response.status_code for response in responses] == [200] * 5
    assert len({response.text for response in responses}) == 1
    assert ["idempotent-replayed" in response.headers for response in responses] == [False, *[True] * 4]
    assert {response.headers.get("idempotent-replayed", "true") for response in responses} == {"true"}
    assert len(rig.device.received) == 1


@pytest.mark.parametrize(("method", "status"), [("ok", 200), ("refuse", 200), ("silent", 504)])
async def test_F14_a_repeated_call_gets_the_finished_command_again(rig: Rig, method: str, status: int) -> None:
    key = {"Idempotency-Key": "again"}
    first = await rig.send(method, timeout="20ms", headers=key)
    second = await rig.send(method, timeout="20ms", headers=key)
    assert first.status_code == second.status_code == status
    assert first.text == second.text
    assert second.headers["idempotent-replayed"] == "true"
    assert len(rig.device.received) == 1


async def test_F14_a_repeated_async_call_joins_too(rig: Rig) -> None:
    headers = {"Idempotency-Key": "again", **ASYNC}
    first, second = [await rig.send("silent", headers=headers) for _ in range(2)]
    assert first.status_code == second.status_code == 202
    assert first.headers["location"] == second.headers["location"]
    assert second.headers["idempotent-replayed"] == "true"


async def test_F14_a_key_with_another_body_is_refused(rig: Rig) -> None:
    key = {"Idempotency-Key": "again"}
    await rig.send("ok", headers=key)
    body = problem(await rig.send("refuse", headers=key), 422, "idempotency-key-reused")
    assert body["command_id"] == rig.store.registrations[0].command_id


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"method": "refuse"}, "method"),
        ({"method": "refuse", "params": {"a": 1}}, "method and params"),
        ({"method": "ok", "params": [1]}, "params"),
        ({"method": "ok", "profile": "dji"}, "profile"),
        ({"method": "ok", "timeout": "7s"}, "timeout, one_way, if_offline or notify"),
    ],
)
async def test_a_key_with_another_body_says_what_differs(rig: Rig, body: dict[str, Any], named: str) -> None:
    key = {"Idempotency-Key": "again"}
    await rig.send("ok", headers=key)
    refused = problem(await rig.send(**body, headers=key), 422, "idempotency-key-reused")
    assert refused["detail"].endswith(f"which is a different command: another {named}")
    rig.store.away = True
    assert (await rig.send(**body, headers=key)).status_code == 503


async def test_the_longest_timeout_is_the_one_of_the_settings(rig: Rig) -> None:
    assert (await rig.send("ok", timeout="1h")).status_code == 200
    assert format_duration(rig.store.registrations[-1].timeout) == "1h"
    problem(await rig.send("ok", timeout="3601s"), 422, "invalid-input")


async def behind_the_framework(rig: Rig, path: str, body: object, headers: dict[str, str]) -> httpx.Response:
    """The answer of the ordinary route, as if nothing stood in front of it."""

    async def ordinary(scope: Scope, receive: Receive, send: Send) -> None:
        await FastAPI.__call__(rig.application, scope, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(ordinary), base_url="http://node-a") as http:
        return await http.post(path, json=body, headers=headers)


@pytest.mark.parametrize(
    ("device", "body", "headers"),
    [
        (DEVICE, {"method": "ok"}, {}),
        (DEVICE, {"method": "refuse"}, {"Prefer": "wait=5"}),
        (DEVICE, {"method": "silent"}, ASYNC),
        (DEVICE, {"method": "silent", "timeout": "1ms"}, {}),
        (DEVICE, {"method": 7}, {}),
        (DEVICE, {"method": "ok"}, {"Content-Type": "text/plain"}),
        ("a b", {"method": "ok"}, {}),
        (DEVICE, [], {}),
    ],
)
async def test_the_route_in_front_answers_as_the_documented_one_behind_it(
    rig: Rig, device: str, body: object, headers: dict[str, str]
) -> None:
    path = f"/v1/devices/{device}/commands"
    in_front = await rig.http.post(path, json=body, headers=headers)
    behind = await behind_the_framework(rig, path, body, headers)
    assert in_front.status_code == behind.status_code
    assert in_front.headers.keys() == behind.headers.keys()
    own = ("id", "deadline", "created_at", "finished_at", "command_id", "detail", "command", "known")
    assert {k: v for k, v in in_front.json().items() if k not in own} == {
        k: v for k, v in behind.json().items() if k not in own
    }
