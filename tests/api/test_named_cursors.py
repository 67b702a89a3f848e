"""Cursors under a name over HTTP: committed, taken over, of another filter, older than the log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.core.events.named_cursors import MOST_OF_OWNER, decode_cursor
from tests.api.rig import Rig, running
from tests.api.test_events import is_ready
from tests.waiting import eventually


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with running(events={"url": "memory://"}) as rig:
        await eventually(lambda: is_ready(rig))
        yield rig


async def publish(rig: Rig, *numbers: int) -> None:
    said = [{"topic": "fleet/note", "data": number} for number in numbers]
    assert (await rig.http.post("/v1/events", json=said)).status_code == 200


async def page(rig: Rig, **asked: str) -> dict[str, Any]:
    answer: dict[str, Any] = (await rig.http.get("/v1/events", params={"topic": "fleet/#"} | asked)).json()
    return answer


async def commit(
    rig: Rig, cursor: str, name: str = "archive", topic: str = "fleet/#", **headers: str
) -> httpx.Response:
    said = {"cursor": cursor, "topic": topic}
    answer: httpx.Response = await rig.http.put(f"/v1/cursors/{name}", json=said, headers=headers)
    return answer


async def test_a_reader_goes_on_where_it_was(rig: Rig) -> None:
    await publish(rig, 1, 2)
    first = await page(rig)
    assert (await rig.http.get("/v1/cursors/archive")).json()["type"] == "urn:homing:problem:cursor-not-found"
    committed = await commit(rig, first["cursor"])
    assert committed.status_code == 200
    await publish(rig, 3)
    kept = (await rig.http.get("/v1/cursors/archive")).json()
    assert kept == committed.json()
    assert [one["data"] for one in (await page(rig, cursor=kept["cursor"]))["events"]] == [3]
    assert (await rig.http.get("/v1/cursors")).json() == {"cursors": [kept]}
    assert (await rig.http.delete("/v1/cursors/archive")).status_code == 204
    assert (await rig.http.delete("/v1/cursors/archive")).status_code == 204
    assert (await rig.http.get("/v1/cursors")).json() == {"cursors": []}
    assert rig.counters["events.cursor_commits"] == 1


async def test_of_two_readers_of_one_name_the_second_one_finds_out(rig: Rig) -> None:
    await publish(rig, 1)
    one = await page(rig)
    tag = (await commit(rig, one["cursor"])).headers["etag"]
    await publish(rig, 2)
    two = await page(rig)
    by_first = await commit(rig, two["cursor"], **{"if-match": tag})
    assert by_first.status_code == 200
    repeated = await commit(rig, two["cursor"], **{"if-match": tag})
    assert (repeated.status_code, repeated.headers["etag"]) == (200, by_first.headers["etag"]), "its answer was lost"
    await publish(rig, 3)
    three = await page(rig)
    by_second = await commit(rig, three["cursor"], **{"if-match": tag})
    assert (by_second.status_code, by_second.json()["type"]) == (412, "urn:homing:problem:precondition-failed")
    assert (await commit(rig, three["cursor"], **{"if-none-match": "*"})).status_code == 412
    assert (await rig.http.delete("/v1/cursors/archive", headers={"if-match": tag})).status_code == 412
    assert (await rig.http.get("/v1/cursors/archive")).json() == by_first.json()
    assert rig.counters["events.cursor_conflicts"] == 2
    assert (await commit(rig, one["cursor"])).status_code == 200, "without a condition it may go back"


async def test_what_is_no_cursor_of_this_filter_is_refused(rig: Rig) -> None:
    cursor = (await page(rig))["cursor"]
    for said, field in (
        ({"cursor": cursor, "topic": "#"}, "cursor"),
        ({"cursor": cursor}, "cursor"),
        ({"cursor": "2.x"}, "cursor"),
        ({"cursor": ""}, "body.cursor"),
        ({"cursor": "x" * 8193}, "body.cursor"),
        ({"topic": "fleet/#"}, "body.cursor"),
        ({"cursor": cursor, "topic": "a/#/b"}, "topic"),
        ({"cursor": cursor, "topic": "fleet/#", "more": 1}, "body.more"),
    ):
        answer = await rig.http.put("/v1/cursors/archive", json=said)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field), said
    for name in ("A", "a b", ".a", "a" * 65):
        answer = await commit(rig, cursor, name=name)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "name")
    assert (await rig.http.get("/v1/cursors")).json() == {"cursors": []}


async def test_there_are_so_many(rig: Rig) -> None:
    cursor = (await page(rig))["cursor"]
    for number in range(MOST_OF_OWNER):
        assert (await commit(rig, cursor, name=f"r{number}")).status_code == 200
    assert (await commit(rig, cursor, name="more")).json()["type"] == "urn:homing:problem:limit-reached"


async def test_a_cursor_that_is_older_than_the_log_says_until_when_events_are_gone(rig: Rig) -> None:
    plane = rig.application.ports.events
    assert plane is not None
    await publish(rig, 1)
    kept = (await commit(rig, (await page(rig))["cursor"])).json()
    await publish(rig, 2)
    await plane.store.rotate("events", 1)
    await plane.store.drop("events", 1)
    await publish(rig, 3)
    assert (await rig.http.get("/v1/cursors/archive")).json() == kept, "retention leaves it"
    behind = await page(rig, cursor=kept["cursor"])
    assert [one["data"] for one in behind["events"]] == [3]


async def test_what_a_later_version_has_written_is_left_alone(rig: Rig) -> None:
    plane = rig.application.ports.events
    assert plane is not None
    assert decode_cursor("a", b"{") is None
    await plane.store.cursors.swap("", "later", None, b'{"v":2}')
    assert (await rig.http.get("/v1/cursors/later")).status_code == 404
    assert (await rig.http.get("/v1/cursors")).json() == {"cursors": []}
