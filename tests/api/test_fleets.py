"""Fleet runs over HTTP: frozen targets, waves, stop rules, people who stop and go on, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from app.api.dependencies import Asker
from app.core.messages import ReceivedMessage
from app.fleets.administration import RunOwner
from app.runtime.system import SystemClock
from app.store.fleets import KEPT
from app.store.rules import micros
from tests.api.rig import Rig, until
from tests.waiting import eventually

RUNS = "/v1/fleet-runs"
Json = dict[str, Any]


async def tell(rig: Rig, devices: list[str], *, online: bool = True) -> None:
    for one in devices:
        said = b'{"online": %b}' % (b"true" if online else b"false")
        rig.broker.publish(ReceivedMessage(f"homing/{one}/presence", said, qos=1))

    async def is_known() -> bool:
        state = (await rig.http.get(f"/v1/devices/{devices[-1]}/state")).json()
        presence = state["presence"]
        return presence is not None and presence["online"] is online

    await eventually(is_known)


async def begin(rig: Rig, devices: list[str], method: str = "ok", /, **members: Any) -> Json:
    headers = members.pop("headers", {})
    command = {"method": method, "timeout": "5s", "hold": members.pop("hold", "1h")}
    body = {"targets": {"devices": devices}, "command": command, "order": "as_listed", **members}
    answer = await rig.http.post(RUNS, json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    run: Json = answer.json()
    assert answer.headers["location"] == f"{RUNS}/{run['id']}"
    return run


async def becomes(rig: Rig, run: Json, *states: str) -> Json:
    found: Json = {}

    async def is_so() -> bool:
        found.update((await rig.http.get(f"{RUNS}/{run['id']}")).json())
        return found["state"] in states

    await eventually(is_so)
    return found


async def post(rig: Rig, run: Json, verb: str, body: Json | None = None) -> httpx.Response:
    return await rig.http.post(f"{RUNS}/{run['id']}/{verb}", json=body)


async def counted(rig: Rig, run: Json, **counts: int) -> None:
    async def is_so() -> bool:
        return bool((await rig.http.get(f"{RUNS}/{run['id']}")).json()["counts"] == counts)

    await eventually(is_so)


def docks(count: int) -> list[str]:
    return [f"dock-{number}" for number in range(count)]


async def test_each_target_gets_its_command_once_wave_by_wave(keeping: Rig) -> None:
    await tell(keeping, docks(12))
    run = await begin(keeping, docks(12), waves=[2, "25%", "rest"], in_flight=4)
    assert [one["size"] for one in run["waves"]] == [2, 3, 7]
    assert (run["total"], run["counts"]) == (12, {"waiting": 12})
    done = await becomes(keeping, run, "succeeded")
    assert done["counts"] == {"succeeded": 12}
    assert [one["state"] for one in done["steps"]] == ["running", "finishing", "succeeded"]
    got = [one["device"] for one in keeping.device.received]
    assert sorted(got) == sorted(docks(12)), "once each"
    assert set(got[:2]) == {"dock-0", "dock-1"}
    assert set(got[2:5]) == {"dock-2", "dock-3", "dock-4"}
    page = (await keeping.http.get(f"{RUNS}/{run['id']}/targets", params={"limit": 5})).json()
    assert [(one["device_id"], one["wave"], one["state"]) for one in page["targets"]] == [
        ("dock-0", 1, "succeeded"),
        ("dock-1", 1, "succeeded"),
        ("dock-2", 2, "succeeded"),
        ("dock-3", 2, "succeeded"),
        ("dock-4", 2, "succeeded"),
    ]
    asked = {"limit": 200, "cursor": page["cursor"]}
    rest = (await keeping.http.get(f"{RUNS}/{run['id']}/targets", params=asked)).json()
    assert [one["device_id"] for one in rest["targets"]] == docks(12)[5:]
    assert rest["cursor"] is None
    command = (await keeping.http.get(f"/v1/commands/{page['targets'][0]['command_id']}")).json()
    assert (command["device_id"], command["state"]) == ("dock-0", "succeeded")
    listed = (await keeping.http.get(RUNS)).json()["runs"]
    assert [(one["id"], one["state"]) for one in listed] == [(run["id"], "succeeded")]


async def test_a_rule_pauses_it_and_a_person_forgives(keeping: Rig) -> None:
    await tell(keeping, docks(10))
    run = await begin(keeping, docks(10), "refuse", in_flight=1, stop=[{"count": 3}])
    paused = await becomes(keeping, run, "paused")
    assert paused["counts"] == {"failed": 3, "waiting": 7}
    assert len(keeping.device.received) == 3
    explained = (await keeping.http.get(f"{RUNS}/{run['id']}/explain")).json()
    assert explained["said"] == "it is paused by a stop rule: 3 targets are failed or timed_out; the rule stops at 3"
    assert explained["rules"] == [{"of": ["failed", "timed_out"], "count": 3, "then": "pause", "counted": 3}]
    assert explained["failures"] == [
        {
            "state": "failed",
            "code": "42",
            "message": "no GPS",
            "count": 3,
            "devices": ["dock-0", "dock-1", "dock-2"],
        }
    ]
    refused = await post(keeping, run, "resume")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:homing:problem:run-state")
    assert "a stop rule still holds" in refused.json()["detail"]
    assert (await post(keeping, run, "resume", {"forgive": True})).json()["state"] == "running"
    await counted(keeping, run, failed=6, waiting=4)
    assert (await post(keeping, run, "abort")).json()["counts"] == {"failed": 6, "skipped": 4}
    assert (await becomes(keeping, run, "aborted"))["counts"] == {"failed": 6, "skipped": 4}
    assert (await post(keeping, run, "pause")).status_code == 409
    assert len(keeping.device.received) == 6


async def test_who_is_away_waits_for_its_turn_and_keeps_nobody_from_theirs(keeping: Rig) -> None:
    await tell(keeping, docks(4))
    await tell(keeping, docks(2), online=False)
    run = await begin(keeping, docks(4), in_flight=1)
    await counted(keeping, run, waiting=2, succeeded=2)
    explained = (await keeping.http.get(f"{RUNS}/{run['id']}/explain")).json()
    assert "2 targets of wave 1 have their turn: they are away" in explained["said"]
    await tell(keeping, docks(2))
    await becomes(keeping, run, "succeeded")
    assert [one["device"] for one in keeping.device.received][:2] == ["dock-2", "dock-3"]


async def test_who_stays_away_is_unreachable(keeping: Rig) -> None:
    """Nobody else is in the run: the hold of a device that is there could be over before its command was sent."""
    await tell(keeping, docks(1), online=False)
    run = await begin(keeping, docks(1), hold="1s")
    done = await becomes(keeping, run, "failed")
    assert done["counts"] == {"unreachable": 1}
    (row,) = (await keeping.http.get(f"{RUNS}/{run['id']}/targets", params={"state": "unreachable"})).json()["targets"]
    assert (row["device_id"], row["command_id"], row["code"]) == ("dock-0", None, "device_offline")


async def test_a_wave_may_wait_for_a_person(keeping: Rig) -> None:
    await tell(keeping, docks(3))
    run = await begin(keeping, docks(3), waves=[{"size": 1, "then": "wait"}])
    paused = await becomes(keeping, run, "paused")
    assert paused["counts"] == {"succeeded": 1, "waiting": 2}
    assert paused["steps"][-1]["said"] == "wave 1 of 2 has ended"
    await post(keeping, run, "resume")
    await becomes(keeping, run, "succeeded")


async def test_a_run_is_on_record_for_longer_than_its_commands_may_wait(keeping: Rig) -> None:
    """A person who aborts it must find it as long as a command of it may still be sent."""
    wanted = {"targets": {"devices": ["dock-1"]}, "command": {"method": "ok", "hold": "720h", "timeout": "1m"}}
    answer = await keeping.http.post(RUNS, json={**wanted, "until": "1h"})
    assert answer.status_code == 202, answer.text
    run = answer.json()
    kept = keeping.store.fleets.kept(run["id"])
    assert kept is not None
    assert kept.expires_at - kept.record.created_at >= micros(timedelta(days=30, hours=1, minutes=1) + KEPT) - 1_000_000


async def test_c121_an_abort_cancels_what_is_open_where_it_is_asked_to(keeping: Rig) -> None:
    await tell(keeping, docks(3))
    run = await begin(keeping, docks(3), "silent", in_flight=2)
    await counted(keeping, run, handed=2, waiting=1)
    await post(keeping, run, "abort", {"open": "cancel"})
    assert (await becomes(keeping, run, "aborted"))["counts"] == {"cancelled": 2, "skipped": 1}


async def test_c121_a_pause_counts_at_once_and_until_it_is_over_nothing_begins(keeping: Rig) -> None:
    await tell(keeping, docks(6))
    run = await begin(keeping, docks(6), "silent", in_flight=2)
    await counted(keeping, run, handed=2, waiting=4)
    assert (await post(keeping, run, "pause")).json()["state"] == "paused"
    await until(lambda: len(keeping.device.received) == 2)  # handed is counted before the message has arrived
    for command in list(keeping.device.received):
        keeping.device.answer(command, '"status":"ok"')
    await counted(keeping, run, succeeded=2, waiting=4)
    assert len(keeping.device.received) == 2
    await post(keeping, run, "resume")
    await counted(keeping, run, succeeded=2, handed=2, waiting=2)


async def test_it_waits_for_its_window_and_says_until_when(keeping: Rig) -> None:
    await tell(keeping, docks(2))
    now = datetime.fromtimestamp(SystemClock().wall(), UTC)
    later, end = (f"{now + timedelta(hours=hours):%H:%M}" for hours in (3, 5))
    run = await begin(keeping, docks(2), windows=[{"from": later, "to": end}])
    assert run["windows"] == [{"days": "mon-sun", "from": later, "to": end, "zone": "UTC"}]
    assert (run["state"], run["spread"], run["per"], run["done"], run["rate"]) == ("waiting", None, [], None, None)
    explained = (await keeping.http.get(f"{RUNS}/{run['id']}/explain")).json()
    assert explained["said"] == f"it waits for its window until {now + timedelta(hours=3):%Y-%m-%dT%H:%M}:00Z"
    short = await begin(keeping, docks(2), windows=[{"from": later, "to": end}], until="1h")
    explained = (await keeping.http.get(f"{RUNS}/{short['id']}/explain")).json()
    assert explained["said"] == "it waits for its window, and none opens before its time is over"
    assert keeping.device.received == []
    opened = f"{now - timedelta(hours=1):%H:%M}"
    open_now = await begin(keeping, docks(2), windows=[{"from": opened, "to": end}], done={"succeeded": 1})
    done = await becomes(keeping, open_now, "succeeded")
    assert done["done"] == {"succeeded": 1, "then": "finish"}
    assert done["steps"][0]["why"] == "window"


async def test_the_same_key_is_the_same_run_and_a_dry_run_is_none(keeping: Rig) -> None:
    await tell(keeping, docks(2))
    key = {"Idempotency-Key": "rollout-7"}
    run = await begin(keeping, docks(2), headers=key)
    assert (await begin(keeping, docks(2), headers=key))["id"] == run["id"]
    other = {"targets": {"devices": ["dock-7"]}, "command": {"method": "ok"}}
    refused = await keeping.http.post(RUNS, json=other, headers=key)
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:homing:problem:idempotency-key-reused")
    dry = await keeping.http.post(RUNS, json={**other, "waves": ["50%"]}, params={"dry_run": "true"})
    assert (dry.status_code, dry.json()) == (200, {"total": 1, "devices": ["dock-7"], "waves": [1]})
    assert len((await keeping.http.get(RUNS)).json()["runs"]) == 1


async def test_a_retry_is_a_new_run_of_exactly_those_targets(keeping: Rig) -> None:
    await tell(keeping, docks(6))
    await tell(keeping, docks(6)[4:], online=False)
    first = await begin(keeping, docks(6), "refuse", waves=[1], stop=[{"count": 9}], in_flight=3)
    await counted(keeping, first, failed=4, waiting=2)
    await post(keeping, first, "abort")
    before = await becomes(keeping, first, "aborted")
    key = {"Idempotency-Key": "again-7"}

    async def retried(of: list[str] | None, headers: Json) -> httpx.Response:
        body = None if of is None else {"of": of}
        return await keeping.http.post(f"{RUNS}/{first['id']}/retry", json=body, headers=headers)

    answer = await retried(["skipped"], key)
    second = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (202, f"{RUNS}/{second['id']}")
    assert second["targets"] == {"run": {"id": first["id"], "of": ["skipped"]}}
    assert (second["total"], second["in_flight"], second["stop"]) == (2, 3, first["stop"])
    assert (second["command"], [one["size"] for one in second["waves"]]) == (first["command"], [1, 1])
    again = await retried(["skipped"], key)
    assert (again.json()["id"], again.headers["idempotent-replayed"]) == (second["id"], "true")
    other = await retried(["failed"], key)
    assert (other.status_code, other.json()["type"]) == (422, "urn:homing:problem:idempotency-key-reused")
    await tell(keeping, docks(6)[4:])
    assert (await becomes(keeping, second, "failed"))["counts"] == {"failed": 2}
    usual = (await retried(None, {})).json()
    assert (usual["targets"]["run"]["of"], usual["total"]) == (["failed", "timed_out"], 4)
    done = await becomes(keeping, usual, "failed")
    got = [one["device"] for one in keeping.device.received]
    assert sorted(got) == sorted([*docks(6), *docks(4)])
    page = (await keeping.http.get(f"{RUNS}/{done['id']}/targets")).json()["targets"]
    assert [one["device_id"] for one in page] == docks(4), "in the order of before"
    assert (await keeping.http.get(f"{RUNS}/{first['id']}")).json() == before


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"of": ["skipped"]}, "is skipped; nothing was begun"),
        ({"of": ["succeeded"]}, "'failed', 'timed_out'"),
        ({"of": []}, "at least 1"),
        ({"states": ["failed"]}, "states"),
    ],
)
async def test_a_retry_of_nothing_begins_nothing(rig: Rig, body: Json, says: str) -> None:
    run = await begin(rig, docks(1), "silent")
    refused = await post(rig, run, "retry", body)
    assert refused.status_code == 422
    assert says in refused.text
    assert len((await rig.http.get(RUNS)).json()["runs"]) == 1


GOOD: Json = {"targets": {"devices": ["dock-1"]}, "command": {"method": "ok"}}
DEEP: Json = {"not": {"not": {"not": {"not": {"devices": ["dock-1"]}}}}}


@pytest.mark.parametrize(
    ("members", "field", "says"),
    [
        ({"target": {}}, "target", "is unknown; allowed: targets, command, waves"),
        ({"targets": None}, "targets", "is null; an object is needed"),
        ({"targets": {}}, "targets", "has 0 members"),
        (
            {"targets": {"tenant": "a"}},
            "targets.tenant",
            "is unknown; allowed: devices, labels, profile, online, state, all",
        ),
        ({"targets": {"all": [{"devices": ["dock-1"]}, {"online": 1}]}}, "targets.all.1.online", "true or false"),
        ({"targets": {"all": [{"devices": ["dock-1"]}, {"online": True}]}}, "targets", "set HOMING_EVENTS_URL"),
        ({"targets": {"devices": ["dock-*"]}}, "targets", "this node has none; allowed: ids of devices"),
        ({"targets": {"online": True}}, "targets", "names no ids of devices, so it takes the records of devices"),
        ({"targets": {"not": {"devices": ["dock-9"]}}}, "targets", "this node has none; allowed: ids of devices"),
        ({"targets": {"labels": {"a": "x" * 257}}}, "targets.labels.a", "has 257 characters; allowed are 256"),
        ({"targets": {"labels": {"x" * 257: "a"}}}, f"targets.labels.{'x' * 64}", "has 257 characters"),
        ({"targets": {"labels": dict.fromkeys(map(str, range(33)), "a")}}, "targets.labels", "has 33 labels; allowed"),
        ({"spread": "x" * 257}, "spread", "has 257 characters; allowed are 256"),
        ({"targets": {"all": [{"devices": [1]}]}}, "targets.all.0.devices", "has a number in it"),
        ({"targets": DEEP}, "targets.not.not.not.not", "is nested too deep"),
        ({"targets": {"any": [{"devices": ["dock-1"]}] * 33}}, "targets", "has too many conditions; allowed are 32"),
        ({"targets": {"devices": ["dock-*"] * 33}}, "targets.devices", "has 33 patterns; allowed are 32"),
        ({"command": {"method": "ok", "notify": []}}, "command.notify", "is unknown; allowed: method"),
        ({"command": {"method": "ok", "hold": "0s"}}, "command.hold", "out of range"),
        (
            {"command": {"method": "ok", "params": "x" * 131_071}},
            "command.params",
            "have 131073 bytes; allowed are 131072",
        ),
        ({"command": {}}, "command.method", "is missing"),
        ({"command": {"method": "ok", "profile": "nobody"}}, "profile", "is unknown"),
        ({"waves": [0]}, "waves.0", "0 is none; allowed: a number of devices"),
        ({"waves": ["rest", 5]}, "waves.0", '"rest" is the last wave; 1 follow it'),
        ({"waves": ["101%"]}, "waves.0", "allowed: a number of devices"),
        ({"waves": [1] * 21}, "waves", "has 21 entries; allowed are 20"),
        ({"waves": [{"size": 1, "then": "ask"}]}, "waves.0.then", "until a person resumes the run"),
        ({"waves": [{"size": 1, "then": ""}]}, "waves.0.then", "'' is none; allowed: \"wait\""),
        ({"stop": [{}]}, "stop.0", 'needs either "share"'),
        ({"stop": [{"share": "5%", "of": ["sad"]}]}, "stop.0.of", "'sad' is none; allowed: failed"),
        ({"stop": [{"share": "0%"}]}, "stop.0.share", "above 0% and up to 100%"),
        ({"stop": [{"count": 1}] * 9}, "stop", "has 9 entries; allowed are 8"),
        ({"in_flight": True}, "in_flight", "a whole number is needed"),
        ({"in_flight": 5001}, "in_flight", "allowed: 1 to 5000"),
        ({"until": "721h"}, "until", "allowed: 1s to 720h"),
        ({"start_at": "soon"}, "start_at", "is no instant"),
        ({"start_at": "-10m"}, "start_at", "is no instant"),
        ({"start_at": "2099-01-01T00:00:00Z"}, "start_at", "more than 30 days ahead"),
        ({"order": "random"}, "order", "allowed: shuffled, as_listed"),
        ({"windows": [{"from": "02:00", "to": "26:00"}]}, "windows.0.to", "allowed: 00:00 to 24:00"),
        (
            {"windows": [{"from": "02:00", "to": "02:01"}], "command": {"method": "ok", "timeout": "2m"}},
            "windows.0",
            "it must be open for as long",
        ),
        ({"spread": 7}, "spread", "the name of a label is needed"),
        ({"spread": "site"}, "spread", "this node has none; set HOMING_ACCESS_URL"),
        ({"per": [{"label": "site", "most": 1}] * 5}, "per", "has 5 entries; allowed are 4"),
        ({"per": [{"label": "site"}]}, "per.0.most", "is missing"),
        ({"per": [{"label": "site", "most": 0}]}, "per.0.most", "allowed: 1 to 5000"),
        ({"per": [{"label": "site", "most": 2}]}, "per", "this node has none; set HOMING_ACCESS_URL"),
        ({"done": {"then": "finish"}}, "done.succeeded", 'a share such as "80%"'),
        ({"done": {"succeeded": 0}}, "done.succeeded", "allowed: 1 to"),
        ({"done": {"succeeded": "80%", "then": "stop"}}, "done.then", "allowed: finish, go_on"),
    ],
)
async def test_what_cannot_be_meant_is_refused(rig: Rig, members: Json, field: str, says: str) -> None:
    answer = await rig.http.post(RUNS, json={**GOOD, **members})
    assert answer.status_code == 422, answer.text
    (fault,) = answer.json()["errors"]
    assert fault["field"] == field
    assert says in fault["reason"]
    assert (await rig.http.get(RUNS)).json()["runs"] == []


async def test_where_nobody_is_asked_for_a_key_there_is_no_second_person(rig: Rig) -> None:
    refused = await rig.http.post(RUNS, json={**GOOD, "waves": [{"size": 1, "then": "approve"}]})
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:homing:problem:needs-second-person")
    assert (await rig.http.get(RUNS)).json()["runs"] == []


async def test_what_is_not_there_is_said_so(rig: Rig) -> None:
    nobody = f"{RUNS}/run-01JC8ZQ5M7W3T9K2V4X6Y8B0D1"
    for answer in (
        await rig.http.get(nobody),
        await rig.http.get(f"{nobody}/targets"),
        await rig.http.get(f"{nobody}/explain"),
        await rig.http.post(f"{nobody}/pause"),
    ):
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:homing:problem:run-not-found")
    assert (await rig.http.get(f"{RUNS}/run-1")).status_code == 422
    assert (await rig.http.get(f"{nobody}/targets", params={"cursor": "k"})).status_code == 422


async def test_a_node_that_asks_nobody_for_a_key_shows_runs_of_before_and_they_can_be_aborted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It drove those that were begun while nodes asked for keys, and said that there were none."""
    asked = RunOwner(tenant=None, principal="admin", caller=None)
    monkeypatch.setattr(Asker, "run_owner", lambda _: asked)
    run = await begin(rig, ["dock-1"])
    monkeypatch.undo()
    assert [one["id"] for one in (await rig.http.get(RUNS)).json()["runs"]] == [run["id"]]
    answer = await post(rig, run, "abort")
    assert answer.status_code == 200, answer.text
