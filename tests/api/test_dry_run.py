"""Dry runs: what a command would meet is told, and nothing is sent, registered or counted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.core.messages import ReceivedMessage
from tests.api.rig import COMMANDS, DEVICE, Rig, homing_with, is_ready, running
from tests.waiting import eventually

NO_WAIT = {"Prefer": "respond-async"}
RULES = """
[[event]]
name = "state"
topic = "homing/{device_id}/osd"

[[interlock]]
name = "on_the_ground"
methods = ["ok"]
inputs.mode = { topic = "homing/{device_id}/osd", path = "mode", max_age = "1h" }
when = [{ path = "inputs.mode", is_in = [0] }]
say = "the cover closes only over a drone that stands in its dock"

[[lane]]
name = "flight"
methods = ["silent", "land"]
order = "fifo"
hold = "1m"

[[lane]]
name = "camera"
methods = ["silent_look"]
order = "latest"
hold = "0s"
"""


@pytest.fixture
async def keeping(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running(events={"url": "memory://"}, profiles={"dir": homing_with(tmp_path, RULES)}) as rig:
        await eventually(lambda: is_ready(rig))
        yield rig


async def told(rig: Rig, topic: str, payload: bytes) -> None:
    """Let the device say this, and return when it is the last value of its topic."""
    before = (await rig.http.get(f"/v1/state/{topic}")).headers.get("etag")
    rig.broker.publish(ReceivedMessage(topic, payload, qos=1))

    async def is_kept() -> bool:
        return bool((await rig.http.get(f"/v1/state/{topic}")).headers.get("etag") != before)

    await eventually(is_kept)


async def presence(rig: Rig, *, online: bool) -> None:
    payload = b'{"online": %b}' % (b"true" if online else b"false")
    rig.broker.publish(ReceivedMessage(f"homing/{DEVICE}/presence", payload, qos=1))

    async def is_known() -> bool:
        found = (await rig.http.get(f"/v1/devices/{DEVICE}/state")).json()["presence"]
        return bool(found["online"] is online)

    await eventually(is_known)


async def dry(rig: Rig, method: str, *, key: str | None = None, **more: Any) -> dict[str, Any]:
    """Return what would become of a command; nothing may have happened by that."""
    before = (len(rig.store.registrations), len(rig.device.received), dict(rig.counters))
    body = {"method": method, "dry_run": True, **more}
    headers = {} if key is None else {"Idempotency-Key": key}
    answer = await rig.http.post(f"{COMMANDS}?dry_run=true", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    after = dict(rig.counters)
    interlocks = {name: count for name, count in after.items() if name.startswith("interlock.")}
    assert interlocks == {name: count for name, count in before[2].items() if name.startswith("interlock.")}
    assert (len(rig.store.registrations), len(rig.device.received)) == before[:2]
    found: dict[str, Any] = answer.json()
    return found


async def test_what_has_nothing_against_it_would_be_sent(keeping: Rig) -> None:
    found = await dry(keeping, "refuse", timeout="3s")
    assert (found["would"], found["refusals"], found["waits_for"]) == ("send", [], [])
    assert (found["timeout"], found["profile"], found["lane"], found["interlocks"]) == ("3s", "homing", None, [])
    assert found["broker_connected"] is True


async def test_interlocks_are_told_with_value_age_and_need_as_the_real_call_would_tell_them(keeping: Rig) -> None:
    topic = f"homing/{DEVICE}/osd"
    await told(keeping, topic, b'{"mode": 4}')
    found = await dry(keeping, "ok")
    real = (await keeping.send("ok")).json()
    (judged,) = found["interlocks"]
    (row,) = judged["conditions"]
    assert (found["would"], judged["result"], row["value"], row["wanted"]) == ("refuse", "violated", 4, {"is_in": [0]})
    assert row["age"].endswith("s")
    (refusal,) = found["refusals"]
    assert {name: refusal[name] for name in ("type", "status")} == {name: real[name] for name in ("type", "status")}
    assert "the cover closes only over a drone that stands in its dock: inputs.mode is 4" in refusal["detail"]
    held = await dry(keeping, "ok", hold="1h")
    assert (held["would"], "interlock" in held["waits_for"]) == ("wait", True), "a held one waits for its interlock"
    await told(keeping, topic, b'{"mode": 0}')
    found = await dry(keeping, "ok")
    assert (found["would"], found["interlocks"][0]["result"]) == ("send", "holds")
    assert (await keeping.send("ok")).status_code == 200


async def test_a_lane_is_told_and_the_place_in_it(keeping: Rig) -> None:
    assert (await dry(keeping, "silent"))["lane"] == {
        "name": "flight",
        "order": "fifo",
        "width": 1,
        "in_flight": 0,
        "waiting": 0,
        "position": None,
        "stopped": False,
    }
    for _ in range(2):
        await keeping.send("silent", timeout="1m", headers=NO_WAIT)
    await keeping.heard()
    found = await dry(keeping, "land")
    assert (found["would"], found["waits_for"]) == ("wait", ["lane"])
    assert {name: found["lane"][name] for name in ("in_flight", "waiting", "position")} == {
        "in_flight": 1,
        "waiting": 1,
        "position": 2,
    }
    assert (await keeping.send("silent_look", timeout="1m", headers=NO_WAIT)).status_code == 202
    await keeping.heard()
    found = await dry(keeping, "silent_look")
    assert (found["would"], found["refusals"][0]["type"]) == ("refuse", "urn:homing:problem:device-busy")
    assert (await keeping.send("silent_look")).status_code == found["refusals"][0]["status"]


async def test_a_device_that_is_away_refuses_or_is_waited_for(keeping: Rig) -> None:
    await presence(keeping, online=True)
    assert (await dry(keeping, "refuse", hold="1h"))["would"] == "send"
    await presence(keeping, online=False)
    found = await dry(keeping, "refuse", if_offline="fail")
    assert (found["would"], found["refusals"][0]["type"]) == ("refuse", "urn:homing:problem:device-offline")
    assert (await keeping.send("refuse", if_offline="fail")).status_code == found["refusals"][0]["status"]
    assert found["presence"]["offline_since"] is not None
    assert (await dry(keeping, "refuse", if_offline="send"))["would"] == "send"
    found = await dry(keeping, "refuse", hold="1h")
    assert (found["would"], found["waits_for"], found["presence"]["online"]) == ("wait", ["device"], False)


async def test_a_key_that_stands_for_a_command_joins_it(keeping: Rig) -> None:
    sent = (await keeping.send("refuse", headers={"Idempotency-Key": "k"})).json()
    found = await dry(keeping, "refuse", key="k")
    assert (found["would"], found["joins"]) == ("join", sent["id"])


@pytest.mark.parametrize(
    ("query", "body", "field", "reason"),
    [
        ("dry_run=true", '{"method":"ok","timeout":"1"}', "timeout", "is not a duration"),
        ("dry_run=true", '{"method":"ok","profile":"none"}', "profile", "is unknown"),
        ("dry_run=true", '{"method":"ok","dry_run":false}', "dry_run", "is not true"),
        ("dry_run=maybe", '{"method":"ok"}', "dry_run", "allowed: true, false"),
        ("dryrun=true", '{"method":"ok"}', "dryrun", "is unknown; allowed: dry_run"),
        ("dry_run=true&dry_run=true", '{"method":"ok"}', "dry_run", "is given twice"),
        ("", '{"method":"ok","dry_run":true}', "dry_run", "is unknown; allowed: method"),
    ],
)
async def test_what_is_wrong_is_refused_and_never_sent(
    keeping: Rig, query: str, body: str, field: str, reason: str
) -> None:
    headers = {"Content-Type": "application/json"}
    answer = await keeping.http.post(f"{COMMANDS}?{query}", content=body, headers=headers)
    assert answer.status_code == 422, answer.text
    assert (answer.json()["errors"][0]["field"], reason in answer.text) == (field, True), answer.text
    assert keeping.store.registrations == []
    assert keeping.device.received == []


async def test_a_query_that_says_no_sends(keeping: Rig) -> None:
    answer = await keeping.http.post(f"{COMMANDS}?dry_run=false", json={"method": "refuse"})
    assert (answer.status_code, len(keeping.device.received)) == (200, 1)


async def test_interlocks_are_listed_and_checked_without_a_command(keeping: Rig) -> None:
    (listed,) = (await keeping.http.get("/v1/interlocks")).json()["interlocks"]
    assert (listed["profile"], listed["interlock"], listed["methods"]) == ("homing", "on_the_ground", ["ok"])
    assert listed["inputs"] == [{"name": "mode", "topic": "homing/{device_id}/osd", "path": "mode", "max_age": "1h"}]
    assert listed["when"] == [{"path": "inputs.mode", "wanted": {"is_in": [0]}}]
    place = f"/v1/devices/{DEVICE}/interlocks"
    found = (await keeping.http.get(place, params={"method": "ok"})).json()
    assert (found["result"], found["interlocks"][0]["conditions"][0]["because"]) == (
        "unknown",
        "nothing was ever said on its topic",
    )
    await told(keeping, f"homing/{DEVICE}/osd", b'{"mode": 0}')
    found = (await keeping.http.get(place, params={"method": "ok"})).json()
    assert (found["result"], found["interlocks"][0]["conditions"][0]["value"]) == ("holds", 0)
    found = (await keeping.http.get(place, params={"method": "land"})).json()
    assert (found["result"], found["interlocks"]) == ("holds", [])
    assert not any(name.startswith("interlock.") for name in keeping.counters), "nothing is counted"
    for wrong, field in (({}, "method"), ({"method": "ok", "profile": "none"}, "profile"), ({"m": "ok"}, "m")):
        answer = await keeping.http.get(place, params=wrong)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)
