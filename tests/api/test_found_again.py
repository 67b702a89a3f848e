"""A caller who lost an answer, or got none, finds out what became of the command."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.api.rig import DEVICE, Rig, running
from tests.api.test_events import is_ready, say
from tests.waiting import eventually


async def test_who_lost_the_answer_finds_the_command_by_its_key(rig: Rig) -> None:
    sent = (await rig.send("ok", headers={"Idempotency-Key": "order-1"})).json()
    await rig.send("ok", headers={"Idempotency-Key": "order-2"})
    for path in (
        f"/v1/commands?device={DEVICE}&idempotency_key=order-1",
        f"/v1/devices/{DEVICE}/commands?idempotency_key=order-1&state=succeeded",
    ):
        page = (await rig.http.get(path)).json()
        assert page == {"commands": [sent], "cursor": None}
    missing = await rig.http.get(f"/v1/commands?device={DEVICE}&idempotency_key=order-3")
    assert missing.json() == {"commands": [], "cursor": None}


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("idempotency_key=order-1", "device: is missing; an idempotency key is one of a device"),
        (f"device={DEVICE}&idempotency_key=a%20b", "idempotency_key: "),
    ],
)
async def test_a_key_is_one_of_a_device(rig: Rig, query: str, sentence: str) -> None:
    refused = await rig.http.get(f"/v1/commands?{query}")
    assert (refused.status_code, sentence in refused.json()["detail"]) == (422, True), refused.text


async def test_a_timeout_says_when_the_device_was_heard_last(rig: Rig) -> None:
    silent = (await rig.send("quiet", timeout="10ms")).json()
    assert "last_heard" not in silent
    assert "heard the device" not in silent["detail"]
    await rig.send("ok")
    later = (await rig.send("quiet", timeout="10ms")).json()
    heard = later["last_heard"]
    assert (heard["node"], heard["profile"], heard["topic"]) == ("node-a", "homing", f"homing/{DEVICE}/response")
    assert later["detail"].endswith(f"this node heard the device last at {heard['at']} on {heard['topic']}")


async def test_an_explanation_has_no_presence_without_an_event_log(rig: Rig) -> None:
    sent = (await rig.send("ok")).json()
    explained = (await rig.http.get(f"/v1/commands/{sent['id']}/explain")).json()
    assert explained["presence"] is None
    assert rig.counters["explained.answered"] == 1


async def test_an_explanation_says_whether_the_device_is_there() -> None:
    async with running(events={"url": "memory://"}) as rig:
        await eventually(lambda: is_ready(rig))
        say(rig, f"homing/{DEVICE}/presence", {"online": True})
        sent = (await rig.send("ok")).json()

        async def presence() -> dict[str, Any] | None:
            explained = (await rig.http.get(f"/v1/commands/{sent['id']}/explain")).json()
            known: dict[str, Any] | None = explained["presence"]
            return known

        await eventually(presence)
        state = (await rig.http.get(f"/v1/devices/{DEVICE}/state")).json()["presence"]
        assert await presence() == {"online": True, "since": state["since"], "last_seen": state["since"]}
        say(rig, f"homing/{DEVICE}/event", {"type": "overheated"})
        await eventually(lambda: _has_changed(presence, state["last_seen"]))
        (event,) = (await rig.http.get("/v1/events", params={"topic": f"homing/{DEVICE}/event"})).json()["events"]
        assert await presence() == {"online": True, "since": state["since"], "last_seen": event["at"]}


async def _has_changed(presence: Callable[[], Awaitable[dict[str, Any] | None]], last_seen: str) -> bool:
    known = await presence()
    return known is not None and known["last_seen"] != last_seen
