"""Messages of the broker over HTTP: what profiles make of one, and a look at those that come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from app import traffic
from app.core.messages import ReceivedMessage
from tests.api.rig import Rig, running
from tests.api.serving import Served, serving
from tests.api.streaming import stream

ANSWER = '{"id": "239-01JC8ZQ5M7W3T9K2V4X6Y8B0D1", "status": "ok"}'
TRIAL = "/v1/profiles/trial"


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with running() as one:
        yield one


@pytest.fixture
async def served(rig: Rig) -> AsyncIterator[Served]:
    async with serving(rig) as one:
        yield one


def listen(served: Served, query: str = "") -> Any:  # noqa: ANN401 - a context
    return stream(f"http://127.0.0.1:{served.port}/v1/traffic{query}")


async def test_a_message_is_read_as_if_it_had_come(rig: Rig) -> None:
    said = {"topic": "homing/drone-1/response", "payload": ANSWER}
    found = (await rig.http.post(TRIAL, json=said)).json()
    (reading,) = found["readings"]
    assert (found["bytes"], reading["profile"], reading["outcome"]) == (len(ANSWER), "homing", "succeeded")
    assert "at drone-1" in reading["sentence"]
    (reading,) = (await rig.http.post(TRIAL, json={**said, "retain": True})).json()["readings"]
    assert reading["outcome"] == "ignored: retained"
    (reading,) = (await rig.http.post(TRIAL, json={"topic": said["topic"], "payload_base64": "/w=="})).json()[
        "readings"
    ]
    assert reading["outcome"].startswith("ignored: ")
    unknown = await rig.http.post(TRIAL, json={"topic": "lamps/1", "payload": ""})
    assert unknown.json() == {"topic": "lamps/1", "bytes": 0, "readings": []}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"topic": "a"}, "exactly one of them"),
        ({"topic": "a", "payload": "", "payload_base64": ""}, "exactly one of them"),
        ({"topic": "a/#", "payload": ""}, "is a wildcard"),
        ({"topic": "", "payload": ""}, "topic"),
        ({"topic": "a", "payload_base64": "?"}, "is no base64"),
        ({"topic": "a", "payload_base64": "é"}, "is no base64"),
        ({"topic": "a", "payload": "é" * 40_000}, "80000 bytes; allowed: at most 65536"),
        ({"topic": "a", "payload": "x" * 70_000}, "65536"),
        ({"topic": "a", "payload": "", "more": 1}, "more"),
    ],
)
async def test_what_is_no_message_is_422(rig: Rig, body: dict[str, Any], said: str) -> None:
    response = await rig.http.post(TRIAL, json=body)
    assert response.status_code == 422
    assert said in response.text


async def test_half_of_a_character_is_no_500(rig: Rig) -> None:
    for body in ('{"topic": "a", "payload": "\\ud800"}', '{"topic": "\\ud800", "payload": "x"}'):
        headers = {"Content-Type": "application/json"}
        assert (await rig.http.post(TRIAL, content=body, headers=headers)).status_code in {400, 422}


async def test_messages_are_told_with_what_profiles_make_of_them(rig: Rig, served: Served) -> None:
    async with listen(served, "?topic=homing/drone-1/%23&limit=4&for=5m") as reading:
        begun = await reading.next()
        assert (begun.name, begun.data) == ("listening", {"topics": ["homing/drone-1/#"], "for": "5m", "limit": 4})
        rig.broker.publish(ReceivedMessage("homing/drone-1/response", ANSWER.encode()))
        rig.broker.publish(ReceivedMessage("homing/drone-1/lamp", b"\xff\x00", qos=0))
        rig.broker.publish(ReceivedMessage("homing/drone-1/light", "é".encode() * 3000))
        rig.broker.publish(ReceivedMessage("homing/drone-1/response", b"no JSON"))
        answer, binary, long, broken, end = await reading.all()
    assert (answer.data["payload"], answer.data["readings"][0]["outcome"]) == (ANSWER, "succeeded")
    assert (binary.data["payload_hex"], binary.data["bytes"], binary.data["readings"]) == ("ff00", 2, [])
    assert (long.data["bytes"], long.data["cut"], long.data["payload"]) == (6000, True, "é" * 1024)
    outcome = broken.data["readings"][0]["outcome"]
    counted = [("homing", outcome, 1), ("homing", "succeeded", 1)]
    assert [(one["profile"], one["outcome"], one["count"]) for one in end.data.pop("outcomes")] == sorted(counted)
    assert end.data == {"why": "limit", "heard": 4, "dropped": 0, "strangers": 2}


async def test_it_ends_with_its_time_and_leaves_nothing_at_the_broker(rig: Rig, served: Served) -> None:
    async with listen(served, "?for=1ms") as reading:
        begun, *_, end = await reading.all()  # the canary may come in between
    assert "homing/+/response" in begun.data["topics"]
    assert (end.name, end.data["why"]) == ("end", "time")
    assert not rig.broker.publish(ReceivedMessage("lamps/1", b""))  # nobody is subscribed


async def test_what_nobody_reads_in_time_is_dropped_and_counted(
    rig: Rig, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traffic, "MOST_WAITING", 2)
    async with listen(served, "?topic=lamps/%23&limit=5") as reading:
        await reading.next()
        for _ in range(5):  # before the stream has its turn
            rig.broker.publish(ReceivedMessage("lamps/1", b"", qos=0))
        *told, end = await reading.all()
    assert (len(told), end.data["heard"], end.data["dropped"]) == (2, 5, 3)


async def test_two_may_listen_at_once_and_no_more(rig: Rig, served: Served) -> None:
    async with listen(served) as first, listen(served) as second:
        await first.next()
        await second.next()
        refused = await rig.http.get("/v1/traffic")
        assert (refused.status_code, "2 callers listen" in refused.json()["detail"]) == (429, True)


@pytest.mark.parametrize(
    "query",
    ["for=6m", "for=0s", "for=soon", "topic=a/%23/b", "topic=$share/x/a", "limit=1001", "limit=0", "more=1", "topic="],
)
async def test_what_cannot_be_listened_to_is_422(rig: Rig, query: str) -> None:
    assert (await rig.http.get(f"/v1/traffic?{query}")).status_code == 422
