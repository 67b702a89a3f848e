"""Held commands over HTTP: they wait for their device, are sent once, and not when cancelled or when it is too late."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import ForbiddenError
from app.core.messages import ReceivedMessage
from app.runtime.system import SystemClock
from tests.api.rig import COMMANDS, DEVICE, Rig, homing_with, is_ready, running
from tests.waiting import eventually

PRESENCE = f"homing/{DEVICE}/presence"
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
"""


async def tell(rig: Rig, *, online: bool) -> None:
    rig.broker.publish(ReceivedMessage(PRESENCE, b'{"online": %b}' % (b"true" if online else b"false"), qos=1))

    async def is_known() -> bool:
        state = (await rig.http.get(f"/v1/devices/{DEVICE}/state")).json()
        return state["presence"]["online"] is online

    await eventually(is_known)


async def away(rig: Rig) -> None:
    await tell(rig, online=True)
    await tell(rig, online=False)


async def becomes(rig: Rig, command: dict[str, Any], state: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def is_so() -> bool:
        found.update((await rig.http.get(f"/v1/commands/{command['id']}")).json())
        return bool(found["state"] == state)

    await eventually(is_so)
    return found


async def test_it_waits_until_the_device_is_there_and_is_sent_once(keeping: Rig) -> None:
    await away(keeping)
    answer = await keeping.send("ok", hold="8h", timeout="10s")
    command = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/v1/commands/{command['id']}"
    assert (command["state"], command["if_offline"]) == ("held", "hold")
    assert command["hold"]["waits_for"] == ["device"]
    assert command["hold"]["claims"] == 0
    listed = (await keeping.http.get("/v1/commands", params={"state": "held"})).json()["commands"]
    assert [one["id"] for one in listed] == [command["id"]]
    explained = (await keeping.http.get(f"/v1/commands/{command['id']}/explain")).json()["verdict"]
    assert explained["code"] == "held"
    assert f"{DEVICE} has said that it is offline" in explained["evidence"][0]
    assert keeping.device.received == []

    await tell(keeping, online=True)
    done = await becomes(keeping, command, "succeeded")
    assert [one["id"] for one in keeping.device.received] == [command["id"]]
    assert done["hold"] == {"waits_for": [], "until": command["hold"]["until"], "claims": 1}
    assert done["deadline"] < command["hold"]["until"]


async def test_a_device_that_is_back_is_sent_to_when_it_listens(tmp_path: Path) -> None:
    late = '[[presence]]\ntopic = "homing/{device_id}/beat"\noffline_after = "5m"\nready_after = "1s"\n'
    async with running(events={"url": "memory://"}, profiles={"dir": homing_with(tmp_path, late)}) as rig:
        await eventually(lambda: is_ready(rig))
        await away(rig)
        command = (await rig.send("ok", hold="8h", timeout="10s")).json()
        await tell(rig, online=True)
        dry = (await rig.http.post(f"{COMMANDS}?dry_run=true", json={"method": "ok", "hold": "8h"})).json()
        assert dry["waits_for"] == ["device"]
        explained = (await rig.http.get(f"/v1/commands/{command['id']}/explain")).json()["verdict"]
        assert f"{DEVICE} is back, and listens in" in explained["evidence"][0]
        done = await becomes(rig, command, "succeeded")
        since = (await rig.http.get(f"/v1/devices/{DEVICE}/state")).json()["presence"]["since"]
        left_at = instant_of(done["deadline"]) - timedelta(seconds=10)
        assert left_at - instant_of(since) >= timedelta(seconds=1)


async def test_who_waits_is_told_the_outcome(keeping: Rig) -> None:
    await tell(keeping, online=True)
    answer = await keeping.send("ok", hold="1h", headers={"Prefer": "wait=30"})
    assert answer.status_code == 200
    assert answer.json()["state"] == "succeeded"
    assert len(keeping.device.received) == 1


async def test_what_was_cancelled_meanwhile_is_not_sent(keeping: Rig) -> None:
    await away(keeping)
    command = (await keeping.send("ok", hold="1h")).json()
    kept = (await keeping.send("ok", hold="1h")).json()
    assert (await keeping.http.delete(f"/v1/commands/{command['id']}")).json()["state"] == "cancelled"
    await tell(keeping, online=True)
    await becomes(keeping, kept, "succeeded")
    assert [one["id"] for one in keeping.device.received] == [kept["id"]]


async def test_after_its_hold_it_is_unsent(keeping: Rig) -> None:
    await away(keeping)
    command = (await keeping.send("ok", hold="1s")).json()
    ended = await becomes(keeping, command, "unsent")
    assert ended["error"]["code"] == "hold_expired"
    await tell(keeping, online=True)
    assert keeping.device.received == []


async def test_they_leave_in_the_order_in_which_they_came(keeping: Rig) -> None:
    await away(keeping)
    ids = [(await keeping.send("ok", hold="1h")).json()["id"] for _ in range(5)]
    await tell(keeping, online=True)
    await becomes(keeping, {"id": ids[-1]}, "succeeded")
    assert [one["id"] for one in keeping.device.received] == ids


async def test_a_device_that_nobody_knows_of_is_asked_and_not_taken_for_silent(keeping: Rig) -> None:
    """The broker says that nobody is subscribed, so the claim is undone; a word of the device brings the next."""
    await keeping.device.client.stop()
    assert (await keeping.send("ok", if_offline="fail")).status_code == 409, "from then on the broker is known to tell"
    command = (await keeping.send("ok", hold="1h")).json()

    async def was_tried() -> bool:
        found = (await keeping.http.get(f"/v1/commands/{command['id']}")).json()
        return bool(found["state"] == "held" and found["hold"]["claims"] == 1)

    await eventually(was_tried)
    assert keeping.counters["held.given_back.no_subscriber"] == 1
    explained = (await keeping.http.get(f"/v1/commands/{command['id']}/explain")).json()["verdict"]
    assert "nobody was subscribed to its topic" in explained["evidence"][0]
    assert len(keeping.open_commands) == 0

    await keeping.device.start()
    await tell(keeping, online=True)
    await becomes(keeping, command, "succeeded")
    assert [one["id"] for one in keeping.device.received] == [command["id"]]


async def test_without_a_connection_to_the_broker_it_waits(keeping: Rig) -> None:
    await keeping.mqtt.stop(keep_session=True)
    command = (await keeping.send("ok", hold="1h")).json()
    assert command["state"] == "held"
    assert keeping.device.received == []


async def test_its_key_stands_for_it(keeping: Rig) -> None:
    await away(keeping)
    first = await keeping.send("ok", hold="1h", headers={"Idempotency-Key": "k"})
    again = await keeping.send("ok", hold="1h", headers={"Idempotency-Key": "k"})
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["idempotent-replayed"] == "true"
    other = await keeping.send("ok", hold="2h", headers={"Idempotency-Key": "k"})
    assert other.json()["type"] == "urn:homing:problem:idempotency-key-reused"


async def test_an_interlock_is_judged_when_the_device_is_back(tmp_path: Path) -> None:
    async with running(events={"url": "memory://"}, profiles={"dir": homing_with(tmp_path, RULES)}) as rig:
        await eventually(lambda: is_ready(rig))
        command = (await rig.send("ok", hold="1h")).json()
        assert command["state"] == "held"
        await tell(rig, online=True)
        explained = (await rig.http.get(f"/v1/commands/{command['id']}/explain")).json()["verdict"]
        assert "interlock on_the_ground refuses" in " ".join(explained["evidence"])
        assert rig.device.received == []
        rig.broker.publish(ReceivedMessage(f"homing/{DEVICE}/osd", b'{"mode": 0}', qos=1))
        await becomes(rig, command, "succeeded")


async def test_who_has_lost_the_right_has_it_cancelled(keeping: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await away(keeping)
    command = (await keeping.send("ok", hold="1h")).json()

    def refuse(*_: object) -> None:
        raise ForbiddenError("no rule allows it")

    monkeypatch.setattr(keeping.application.ports.access, "check", refuse, raising=True)
    await tell_unseen(keeping)

    async def is_cancelled() -> bool:
        (found,) = await keeping.store.get([command["id"]])
        return found is not None and found.state == "cancelled" and b"not_allowed_any_more" in (found.error or b"")

    await eventually(is_cancelled)
    assert keeping.device.received == []


async def tell_unseen(rig: Rig) -> None:
    rig.broker.publish(ReceivedMessage(PRESENCE, b'{"online": true}', qos=1))


@pytest.mark.parametrize(
    ("members", "field", "says"),
    [
        ({"hold": "0.5s"}, "hold", "0.5s is out of range; allowed: 1s to 720h"),
        ({"hold": "721h"}, "hold", "allowed: 1s to 720h"),
        ({"hold": 8}, "hold", "a bare number has no unit"),
        ({"hold": "soon"}, "hold", "is not a duration"),
        ({"if_offline": "hold"}, "hold", "is missing"),
        ({"hold": "1h", "if_offline": "fail"}, "if_offline", "leave one of them out"),
        ({"hold": "1h", "if_offline": "send"}, "if_offline", "leave one of them out"),
        ({"not_before": "2026-01-01T00:00:00Z"}, "hold", "is missing; not_before needs it"),
        ({"hold": "1h", "not_before": "9999-01-01T00:00:00Z"}, "not_before", "more than 30 days ahead"),
        ({"hold": "1h", "not_before": "tomorrow"}, "not_before", "is no instant; allowed: RFC 3339 with a zone"),
        ({"hold": "1h", "not_before": "-10m"}, "not_before", "is no instant"),
        ({"hold": "1h", "not_before": "2026-01-01T00:00:00"}, "not_before", "is no instant"),
        ({"hold": "1h", "not_before": 1}, "not_before", "an instant in RFC 3339 is needed"),
        ({"replaces": "cover"}, "hold", "is missing; replaces needs it"),
        ({"hold": "1h", "replaces": None}, "replaces", "a string is needed"),
        ({"hold": "1h", "replaces": ""}, "replaces", "is empty"),
        ({"hold": "1h", "replaces": "a b"}, "replaces", "U+0020 at index 1 is not allowed"),
        ({"hold": "1h", "replaces": "x" * 65}, "replaces", "has 65 characters; allowed: 1 to 64 of"),
        ({"hold": "1h", "order": "fifo"}, "order", "is unknown"),
        ({"hold": "1h", "lane": "flight"}, "lane", "is unknown"),
    ],
)
async def test_what_cannot_be_meant_is_refused(keeping: Rig, members: dict[str, Any], field: str, says: str) -> None:
    answer = await keeping.send("ok", **members)
    assert answer.status_code == 422
    assert [one["field"] for one in answer.json()["errors"]] == [field]
    assert says in answer.json()["errors"][0]["reason"]
    assert "ago" not in answer.json()["errors"][0]["reason"]


async def test_a_newer_one_takes_the_place_of_what_waits_with_its_key(keeping: Rig) -> None:
    await away(keeping)
    first = (await keeping.send("ok", hold="8h", replaces="cover", headers={"Idempotency-Key": "k"})).json()
    second = (await keeping.send("ok", hold="8h", replaces="cover")).json()
    assert second["hold"]["replaces"] == "cover"
    gone = (await keeping.http.get(f"/v1/commands/{first['id']}")).json()
    assert (gone["state"], gone["error"]["code"]) == ("cancelled", "superseded")
    explained = (await keeping.http.get(f"/v1/commands/{first['id']}/explain")).json()["verdict"]
    assert explained["code"] == "superseded"
    assert second["id"] in explained["evidence"][0]
    other = await keeping.send("ok", hold="8h", headers={"Idempotency-Key": "k"})
    assert other.status_code == 422, "the key is part of what an idempotency key stands for"
    await tell(keeping, online=True)
    await becomes(keeping, second, "succeeded")
    assert [one["id"] for one in keeping.device.received] == [second["id"]]


async def test_who_waits_for_a_replaced_one_is_told(keeping: Rig) -> None:
    await away(keeping)
    waits = asyncio.create_task(keeping.send("ok", hold="1h", replaces="cover", headers={"Prefer": "wait=30"}))

    async def is_held() -> bool:
        return bool((await keeping.http.get("/v1/commands?state=held")).json()["commands"])

    await eventually(is_held)
    await keeping.send("ok", hold="1h", replaces="cover")
    answer = await waits
    assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")


async def test_the_timeline_has_the_last_claim(keeping: Rig) -> None:
    await away(keeping)
    command = (await keeping.send("ok", hold="1h")).json()
    await tell(keeping, online=True)
    await becomes(keeping, command, "succeeded")
    steps = (await keeping.http.get(f"/v1/commands/{command['id']}/explain")).json()["timeline"]
    assert [one["reason"] for one in steps if one["what"] == "claimed"] == ["claim 1"]
    whats = [one["what"] for one in steps]
    assert whats.index("registered") < whats.index("claimed") < whats.index("succeeded")


async def test_a_hold_lasts_beyond_its_instant(keeping: Rig) -> None:
    answer = await keeping.send("ok", hold="1h", not_before=in_seconds(3601))
    assert answer.status_code == 422
    assert answer.json()["errors"] == [
        {"field": "hold", "reason": "of 1h ends before not_before; it has to last beyond it"}
    ]


async def test_it_is_not_sent_before_its_instant(keeping: Rig) -> None:
    """The instant is a second ahead: nobody says anything then, and it is sent all the same."""
    await tell(keeping, online=True)
    opens = in_seconds(1)
    command = (await keeping.send("ok", hold="1h", not_before=opens)).json()
    later = (await keeping.send("ok", hold="1h", not_before=in_seconds(1800))).json()
    assert (command["state"], command["hold"]["waits_for"]) == ("held", ["time", "device"])
    explained = (await keeping.http.get(f"/v1/commands/{later['id']}/explain")).json()["verdict"]
    assert re.match("its not_before comes in 1[78][0-9]{2} s", explained["evidence"][0])
    done = await becomes(keeping, command, "succeeded")
    assert instant_of(done["finished_at"]) >= instant_of(opens)
    assert instant_of(done["hold"]["not_before"]) == instant_of(opens)
    assert [one["id"] for one in keeping.device.received] == [command["id"]]


async def test_an_instant_that_is_past_keeps_nothing(keeping: Rig) -> None:
    await tell(keeping, online=True)
    command = (await keeping.send("ok", hold="1h", not_before=in_seconds(-60))).json()
    await becomes(keeping, command, "succeeded")


def in_seconds(seconds: float) -> str:
    return datetime.fromtimestamp(SystemClock().wall() + seconds, UTC).isoformat(timespec="milliseconds")


def instant_of(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def test_a_device_has_a_hundred_held_commands_at_most(keeping: Rig) -> None:
    await away(keeping)
    for _ in range(100):
        assert (await keeping.send("ok", hold="1h")).status_code == 202
    refused = await keeping.http.post(COMMANDS, json={"method": "ok", "hold": "1h"})
    assert (refused.status_code, refused.json()["type"]) == (429, "urn:homing:problem:too-many-held")


async def test_metrics_show_how_many_are_held_and_for_what(keeping: Rig) -> None:
    await away(keeping)
    first = (await keeping.send("ok", hold="8h")).json()

    async def is_shown() -> bool:
        return 'homing_held{waits_for="device"} 1.0' in (await keeping.http.get("/metrics")).text

    await eventually(is_shown)
    await keeping.http.post(f"/v1/commands/{first['id']}/cancel")

    async def is_gone() -> bool:
        return 'homing_held{waits_for="device"} 0.0' in (await keeping.http.get("/metrics")).text

    await eventually(is_gone)


MIXED = """
name = "mixed"
description = "Some commands are confirmed by the broker, and others are not"

[[request]]
methods = ["confirmed"]
topic = "mixed/{device_id}/do"
payload = { id = "{id}", do = "{method}" }

[[request]]
topic = "mixed/{device_id}/live"
qos = 0
payload = { id = "{id}", do = "{method}" }

[[response]]
name = "done"
topic = "mixed/{device_id}/done"
correlation = "id"
sources = [{ path = "id" }]
rules = [{ state = "succeeded" }]
"""


async def test_what_nothing_can_be_proved_of_is_not_held(tmp_path: Path) -> None:
    (tmp_path / "mixed.toml").write_text(MIXED, encoding="utf-8")
    async with running(profiles={"dir": tmp_path}) as rig:
        for method, one_way in (("confirmed", True), ("stick", False)):
            answer = await rig.send(method, profile="mixed", hold="1h", one_way=one_way)
            assert answer.status_code == 202, (method, one_way)
        refused = await rig.send("stick", profile="mixed", hold="1h", one_way=True)
        (fault,) = refused.json()["errors"]
        assert fault["field"] == "hold"
        said = "stick of profile 'mixed' has neither as a one-way command: it is published with QoS 0"
        assert said in fault["reason"]
