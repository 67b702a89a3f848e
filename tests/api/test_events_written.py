"""Events that backends write over HTTP: what is kept of them, what is refused, and how long bodies may be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.core.events.generation import ColdFile
from tests.api.rig import Rig
from tests.api.test_events import JSON, TOPIC, keeping, read

__all__ = ["keeping"]  # fixtures


async def test_a_call_with_an_idempotency_key_is_in_the_log_once(keeping: Rig) -> None:
    said = [{"topic": f"fleet/{number}", "data": number} for number in range(6)]  # of several shards
    key = {"idempotency-key": "order-17"}
    first, again = [await keeping.http.post("/v1/events", json=said, headers=key) for _ in range(2)]
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json()
    for body in ([said[0] | {"data": 7}], said[:5], [*said, {"topic": "else/1", "data": 1}], list(reversed(said))):
        other = await keeping.http.post("/v1/events", json=body, headers=key)
        assert (other.status_code, other.json()["type"]) == (422, "urn:homing:problem:idempotency-key-reused")
    assert (await keeping.http.post("/v1/events?database=telemetry", json=said[:1], headers=key)).status_code == 200
    assert sorted(one["data"] for one in await read(keeping, topic="#", database="events")) == [*range(6)]
    wrong = await keeping.http.post("/v1/events", json=said, headers={"idempotency-key": "a b"})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "idempotency_key")


async def test_backends_publish_their_own(keeping: Rig) -> None:
    said: list[dict[str, Any]] = [{"topic": "fleet/note", "data": {"a": 1}}, {"topic": TOPIC, "data_base64": "/w=="}]
    answer = await keeping.http.post("/v1/events", json=said)
    assert answer.status_code == 200, answer.text
    positions = answer.json()["positions"]
    found = {one["topic"]: one for one in await read(keeping)}
    assert [found[one["topic"]]["position"] for one in said] == positions
    assert found["fleet/note"]["data"] == {"a": 1}
    assert found["fleet/note"]["device_id"] is None
    assert (found[TOPIC]["data_base64"], found[TOPIC]["device_id"]) == ("/w==", "lamp-1")


async def test_a_value_is_changed_only_by_who_knows_it(keeping: Rig) -> None:
    path = "/v1/state/fleet/config"
    assert (await keeping.http.get(path)).status_code == 404
    first = await keeping.http.put(path, json={"speed": 1}, headers={"If-None-Match": "*"})
    assert first.status_code == 200
    again = await keeping.http.put(path, json={"speed": 2}, headers={"If-None-Match": "*"})
    assert (again.status_code, again.json()["type"]) == (412, "urn:homing:problem:value-changed")
    read_back = await keeping.http.get(path)
    assert (read_back.json()["data"], read_back.headers["etag"]) == ({"speed": 1}, first.headers["etag"])
    changed = await keeping.http.put(path, json={"speed": 3}, headers={"If-Match": first.headers["etag"]})
    assert changed.status_code == 200
    stale = await keeping.http.put(path, json={"speed": 4}, headers={"If-Match": first.headers["etag"]})
    assert stale.status_code == 412
    assert (await keeping.http.get(path)).json()["data"] == {"speed": 3}
    assert [one["data"]["speed"] for one in await read(keeping, topic="fleet/config")] == [1, 3]


async def test_a_transaction_is_all_or_nothing(keeping: Rig) -> None:
    def on(name: str) -> str:
        return f"homing/lamp-9/{name}"

    body: dict[str, Any] = {
        "if": [{"topic": on("event"), "absent": True}],
        "write": [{"topic": on("event"), "data": 1}],
    }
    done = await keeping.http.post("/v1/transactions", json=body)
    assert done.status_code == 200, done.text
    refused = await keeping.http.post("/v1/transactions", json=body)
    assert (refused.status_code, refused.json()["topic"]) == (409, on("event"))
    gone = {"if": [{"topic": on("event"), "position": done.json()["position"]}], "delete": [on("event")]}
    assert (await keeping.http.post("/v1/transactions", json=gone)).status_code == 200
    assert (await keeping.http.get(f"/v1/state/{on('event')}")).status_code == 404


MANY: str = ",".join(["1E9"] * 25_000)
"""Numbers that take 100 kB as they are sent and 325 kB as they are kept."""


def written(data: str) -> str:
    return f'{{"topic": "fleet/note", "data": {data}}}'


@pytest.mark.parametrize(
    ("data", "status", "sentence"),
    [
        (f"[{MANY}]", 413, "data: has 325001 bytes; allowed are 131072"),
        ('"\\ud800"', 422, "data: a string has half of a surrogate pair"),
        ('{"\\ud800": 1}', 422, "data: a string has half of a surrogate pair"),
        ("NaN", 422, "data: NaN and Infinity are not JSON"),
        ("[1e400]", 422, "data: NaN and Infinity are not JSON"),
        ("1" * 30, 422, "data: a number is out of range; allowed: integers from -2^63 to 2^64-1"),
        ("[" * 40 + "]" * 40, 422, "data: arrays and objects are nested too deep; allowed: 32 levels"),
    ],
)
async def test_data_that_cannot_be_kept_is_named_and_nothing_of_the_call_is_written(
    keeping: Rig, data: str, status: int, sentence: str
) -> None:
    parts = f"{written('1')}, {written(data)}"
    for path, body, place in (
        ("/v1/events", f"[{parts}]", "body.1."),
        ("/v1/transactions", f'{{"write": [{parts}]}}', "write.1."),
    ):
        answer = await keeping.http.post(path, content=body, headers=JSON)
        assert (answer.status_code, place + sentence in answer.json()["detail"]) == (status, True), answer.text
        assert len(answer.json()["detail"]) < 200
    assert await read(keeping, topic="#") == []
    assert (await keeping.http.get("/v1/state/fleet/note")).status_code == 404


async def test_a_value_over_the_limit_is_refused_and_the_one_before_stays(keeping: Rig) -> None:
    path, most = "/v1/state/fleet/note", 131_072
    whole = b'"%b"' % (b"x" * (most - 2))
    assert (await keeping.http.put(path, content=whole, headers=JSON)).status_code == 200
    for body in (whole + b" ", b"[%b]" % MANY.encode() + b" " * most):
        answer = await keeping.http.put(path, content=body, headers=JSON)
        assert (answer.status_code, answer.json()["detail"]) == (
            413,
            f"body: is too large; allowed: at most {most} bytes",
        )
    assert (await keeping.http.get(path)).json()["data"] == "x" * (most - 2)
    assert len(await read(keeping, topic="#")) == 1


@pytest.mark.parametrize(("path", "form"), [("/v1/events", "[%s]"), ("/v1/transactions", '{"write": [%s]}')])
async def test_bodies_with_events_are_bounded_and_read_as_strictly_as_what_devices_say(
    keeping: Rig, path: str, form: str
) -> None:
    async def post(data: str, room: int = 0) -> tuple[int, str]:
        answer = await keeping.http.post(path, content=form % written(data) + " " * room, headers=JSON)
        return answer.status_code, answer.json().get("detail", "")

    assert await post("[" * 32 + "]" * 32) == (200, "")
    status, detail = await post("[" * 33 + "]" * 33)
    assert (status, "nested too deep; allowed: 32 levels" in detail) == (422, True)
    assert await post('{"a": 1, "a": 2}') == (422, "body: an object has the same key twice")
    assert (await post("1", 1_000_000))[0] == 200
    assert await post("1", 1_100_000) == (413, "body: is too large; allowed: at most 1048576 bytes")
    assert len(await read(keeping, topic="#")) == 2


async def test_a_body_with_events_has_to_come_in_time(keeping: Rig) -> None:
    keeping.application.body_seconds = 0.05
    stuck = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"["
        await stuck.wait()

    for path in ("/v1/events", "/v1/transactions"):
        answer = await keeping.http.post(path, content=body(), headers=JSON)
        assert (answer.status_code, answer.json()["type"]) == (408, "urn:homing:problem:slow-body")


async def test_topics_of_two_shards_are_no_transaction(keeping: Rig) -> None:
    body = {"write": [{"topic": f"lone/{number}", "data": 1} for number in range(20)]}
    answer = await keeping.http.post("/v1/transactions", json=body)
    assert (answer.status_code, "are of two shards" in answer.json()["detail"]) == (422, True)


async def test_an_event_in_a_cold_tier_that_the_node_does_not_know_is_not_found(keeping: Rig) -> None:
    """Without HOMING_EVENTS_COLD, its place was an unexpected failure."""
    plane = keeping.application.ports.events
    assert plane is not None
    written = await keeping.http.post("/v1/events?database=events", json=[{"topic": "fleet/note", "data": 1}])
    position = written.json()["positions"][0]
    shards = plane.reader.shards("events")
    before = [await keeping.http.get(f"/v1/events/events/{one.number}/{position}") for one in shards]
    (number,) = [shard.number for shard, one in zip(shards, before, strict=True) if one.status_code == 200]
    await plane.store.rotate("events", 1)
    await plane.store.cool("events", 1, [ColdFile(number, position, position, 1, 100, "sum")])
    answer = await keeping.http.get(f"/v1/events/events/{number}/{position}")
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:homing:problem:event-not-found")
    assert "HOMING_EVENTS_COLD" in answer.json()["detail"]
