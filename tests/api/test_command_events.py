"""The events of one command, as a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from app.core.errors import AccessError, ForbiddenError
from tests.api.rig import COMMANDS, Rig, running, until
from tests.api.serving import Served, serving
from tests.api.streaming import stream


@pytest.fixture
async def served(rig: Rig) -> AsyncIterator[Served]:
    async with serving(rig) as one:
        yield one


async def begun(rig: Rig, method: str = "quiet") -> str:
    """A command that its device has, and has not answered."""
    sent = await rig.send(method, headers={"Prefer": "respond-async"})
    await rig.heard()
    identity: str = sent.json()["id"]
    return identity


def progress(rig: Rig, percent: int) -> None:
    rig.device.answer(rig.device.received[-1], f'"status":"running","progress":{{"percent":{percent}}}')


def answer(rig: Rig) -> None:
    rig.device.answer(rig.device.received[-1], '"status":"ok","result":1')


async def test_a_stream_tells_the_command_its_progress_and_its_outcome(rig: Rig, served: Served) -> None:
    identity = await begun(rig)
    async with stream(f"http://127.0.0.1:{served.port}/v1/commands/{identity}/events") as reading:
        assert reading.status == 200
        assert reading.headers["content-type"].startswith("text/event-stream")
        assert reading.headers["cache-control"] == "no-store"
        first = await reading.next()
        assert first is not None
        assert (first.name, first.id, first.data["id"]) == ("command", f"{identity}/0", identity)
        progress(rig, 40)
        second = await reading.next()
        assert second is not None
        assert (second.name, second.id, second.data["progress"]) == ("progress", f"{identity}/1", {"percent": 40})
        assert second.data["seq"] == 1
        answer(rig)
        [last] = await reading.all()
        assert (last.name, last.id, last.data["state"]) == ("outcome", f"{identity}/2", "succeeded")
        assert reading.retries == [1000]
    assert (await rig.http.get("/v1/nodes")).json()["self"]["queues"]["streams"]["size"] == 0


@pytest.mark.parametrize("as_header", [True, False])
async def test_a_stream_goes_on_after_the_event_that_was_seen_last(
    rig: Rig, served: Served, *, as_header: bool
) -> None:
    identity = await begun(rig)
    for percent in (10, 20, 30):
        progress(rig, percent)
    await rig.read_until(lambda command: command["progress"] == {"percent": 30})
    answer(rig)
    await rig.read_until(lambda command: command["state"] == "succeeded")
    base = f"http://127.0.0.1:{served.port}/v1/commands/{identity}/events"

    async def after(number: int) -> tuple[int, list[str | None]]:
        last = f"{identity}/{number}"
        url, headers = (base, {"Last-Event-ID": last}) if as_header else (f"{base}?after={last}", {})
        async with stream(url, headers) as reading:
            return reading.status, [one.id for one in await reading.all()]

    assert await after(1) == (200, [f"{identity}/{number}" for number in (2, 3, 4)])
    assert await after(3) == (200, [f"{identity}/4"])
    assert await after(4) == (204, [])
    async with stream(base) as reading:
        assert [one.name for one in await reading.all()] == ["command", "progress", "progress", "progress", "outcome"]


async def test_a_browser_that_comes_back_goes_on_after_what_it_saw_and_not_after_its_address(
    rig: Rig, served: Served
) -> None:
    identity = await begun(rig)
    for percent in (10, 20):
        progress(rig, percent)
    await rig.read_until(lambda command: command["progress"] == {"percent": 20})
    answer(rig)
    await rig.read_until(lambda command: command["state"] == "succeeded")
    url = f"http://127.0.0.1:{served.port}/v1/commands/{identity}/events?after={identity}/1"
    async with stream(url, {"Last-Event-ID": f"{identity}/2"}) as reading:
        assert [one.id for one in await reading.all()] == [f"{identity}/3"]
    async with stream(url, {"Last-Event-ID": f"{identity}/3"}) as reading:
        assert reading.status == 204


async def test_until_retention_a_late_response_is_told(rig: Rig, served: Served) -> None:
    identity = await begun(rig)
    await rig.http.delete(f"/v1/commands/{identity}")
    base = f"http://127.0.0.1:{served.port}/v1/commands/{identity}/events"
    async with stream(f"{base}?until=retention&after={identity}/0") as reading:
        ended = await reading.next()
        assert ended is not None
        assert (ended.name, ended.data["state"]) == ("outcome", "cancelled")
        answer(rig)
        [late] = await reading.all()
        assert (late.name, late.id, late.data["late"]["result"]) == ("late", f"{identity}/2", 1)
    async with stream(f"{base}?until=retention&after={identity}/2") as reading:
        assert reading.status == 204


async def test_a_command_is_sent_and_streamed_in_one_request(rig: Rig, served: Served) -> None:
    url = f"http://127.0.0.1:{served.port}{COMMANDS}"
    async with stream(url, method="POST", json={"method": "ok"}) as reading:
        first = await reading.next()
        assert first is not None
        assert first.name == "command"
        assert reading.headers["location"] == f"/v1/commands/{first.data['id']}"
        assert [(one.name, one.data["state"]) for one in await reading.all()] == [("outcome", "succeeded")]


async def test_a_command_for_which_there_is_no_place_to_stream_is_not_sent() -> None:
    async with running(api={"max_streams": 1}) as rig, serving(rig) as served:
        identity = await begun(rig)
        base = f"http://127.0.0.1:{served.port}"
        async with stream(f"{base}/v1/commands/{identity}/events") as first:
            await first.next()
            async with stream(base + COMMANDS, method="POST", json={"method": "ok"}) as refused:
                assert refused.status == 429
            async with stream(f"{base}/v1/commands/{identity}/events") as second:
                assert second.status == 429
        assert [one["method"] for one in rig.device.received] == ["quiet"]
        assert rig.counters["stream.refused"] == 2
        await until(lambda: rig.counters["stream.hung_up"] == 1)
        async with stream(base + COMMANDS, method="POST", json={"method": "ok"}) as reading:
            assert reading.status == 200


async def test_a_node_that_stops_sends_its_streams_away_at_different_times(rig: Rig, served: Served) -> None:
    identity = await begun(rig)
    async with stream(f"http://127.0.0.1:{served.port}/v1/commands/{identity}/events") as reading:
        await reading.next()
        rig.application.dismiss()
        assert await reading.all() == []
        assert 500 <= reading.retries[-1] <= 3500


async def test_a_stream_ends_when_its_caller_may_not_have_it_any_more(
    rig: Rig, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = await begun(rig)
    async with stream(f"http://127.0.0.1:{served.port}/v1/commands/{identity}/events") as reading:
        await reading.next()
        rig.application.recheck()
        progress(rig, 5)
        still = await reading.next()
        assert still is not None
        (place,) = rig.application.streams._places

        def forbidden() -> None:
            raise ForbiddenError("no more")

        monkeypatch.setattr(place, "may", forbidden)
        rig.application.recheck()
        [last] = await reading.all()
        assert (last.name, last.data["status"]) == ("problem", 403)
    assert issubclass(ForbiddenError, AccessError)


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("after=nonsense", "after"),
        ("after=239-01M7ZDXXCVXXXXXXXXXXXXXXXX/1", "after"),
        ("until=doomsday", "until"),
        ("afterwards=1", "afterwards"),
    ],
)
async def test_what_cannot_be_meant_is_refused(rig: Rig, query: str, field: str) -> None:
    identity = await begun(rig)
    refused = await rig.http.get(f"/v1/commands/{identity}/events?{query}")
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == field


async def test_a_command_that_is_not_there_has_no_events(rig: Rig) -> None:
    missing = await rig.http.get("/v1/commands/239-01JC8ZQ5M7W3T9K2V4X6Y8B0D1/events")
    assert missing.status_code == 404
    assert isinstance(missing, httpx.Response)
