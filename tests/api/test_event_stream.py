"""Events as they come, over real sockets: resumed by id, with gaps that are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.api.rig import Rig, running
from tests.api.serving import Served, serving
from tests.api.streaming import Reading, stream
from tests.api.test_events import TOPIC, appended, is_ready, read, say
from tests.waiting import eventually


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with running(events={"url": "memory://"}) as rig:
        await eventually(lambda: is_ready(rig))
        async with serving(rig) as one:
            yield one


def url(served: Served, query: str = "") -> str:
    return f"http://127.0.0.1:{served.port}/v1/events/stream{query}"


async def numbers(reading: Reading, count: int) -> tuple[list[int], str | None]:
    """Return what so many events say, and the id of the last one."""
    found, last = [], None
    for _ in range(count):
        event = await reading.next()
        assert event is not None
        assert event.name == "event", event
        found.append(event.data["data"]["n"])
        last = event.id
    return found, last


async def follows(rig: Rig) -> None:
    """Somebody stands behind the tail, so what is said now is live."""
    plane = rig.application.ports.events
    assert plane is not None
    await eventually(lambda: [one for one in plane.tails._tails.values() if one._followers])


async def test_a_stream_begins_now_and_goes_on(served: Served) -> None:
    rig = served.rig
    say(rig, TOPIC, {"n": 0})
    await appended(rig, 1)
    async with stream(url(served, "?topic=homing/%2B/event")) as reading:
        await follows(rig)
        first = await reading.next()
        for number in (1, 2, 3):
            say(rig, TOPIC, {"n": number})
        say(rig, "thing/product/SN1/events", {"n": 9, "method": "x"})
        assert (await numbers(reading, 3))[0] == [1, 2, 3]
        say(rig, TOPIC, {"n": 4})
        assert (await numbers(reading, 1))[0] == [4]
    assert first is not None
    assert (first.name, first.data) == ("bookmark", {"cursor": first.id})
    async with stream(
        url(served, "?topic=homing/%2B/event"), headers={"Last-Event-ID": str(first.id)}
    ) as reading:  # nothing is lost before one came
        assert (await numbers(reading, 4))[0] == [1, 2, 3, 4]
    await eventually(lambda: not rig.application.streams.fill().size)


async def test_without_a_database_a_stream_is_of_all_of_them(served: Served) -> None:
    rig = served.rig
    osd, event = "thing/product/SN1/osd", "thing/product/SN1/events"
    say(rig, osd, {"n": 0})
    say(rig, event, {"n": 1})
    await eventually(lambda: rig.counters["events.appended"] >= 3)
    async with stream(url(served, "?topic=thing/%23&from=-1h")) as reading:
        found, last = await numbers(reading, 2)
        assert sorted(found) == [0, 1]
        await follows(rig)
        for number in (2, 4):
            say(rig, osd, {"n": number})
            say(rig, event, {"n": number + 1})
        found, behind = await numbers(reading, 4)
        assert sorted(found) == [2, 3, 4, 5]
    async with stream(url(served, "?topic=thing/%23"), headers={"Last-Event-ID": str(last)}) as reading:
        assert sorted((await numbers(reading, 4))[0]) == [2, 3, 4, 5]
    say(rig, osd, {"n": 6})
    async with stream(url(served, "?topic=thing/%23"), headers={"Last-Event-ID": str(behind)}) as reading:
        assert (await numbers(reading, 1))[0] == [6]


async def test_a_stream_begins_in_the_past_and_is_resumed_by_the_id_of_any_event(served: Served) -> None:
    rig = served.rig
    for number in range(40):
        say(rig, f"homing/lamp-{number % 5}/event", {"n": number})
    await appended(rig, 40)
    expected = [event["data"]["n"] for event in await read(rig)]
    async with stream(url(served, "?from=-1h")) as reading:
        before, last = await numbers(reading, 17)
    assert last is not None
    async with stream(url(served), headers={"Last-Event-ID": last}) as reading:
        after, last = await numbers(reading, 23)
        assert before + after == expected
        await follows(rig)
        say(rig, TOPIC, {"n": 40})
        assert (await numbers(reading, 1))[0] == [40]
    say(rig, TOPIC, {"n": 41})
    async with stream(url(served, f"?cursor={last}&from=-1h")) as reading:
        found, seen = await numbers(reading, 1)
        assert found == [40]
    async with stream(url(served, f"?cursor={last}"), headers={"Last-Event-ID": str(seen)}) as reading:
        assert (await numbers(reading, 1))[0] == [41]  # a browser came back to the address that it was given


async def test_what_was_dropped_before_it_was_read_is_a_gap(served: Served) -> None:
    rig = served.rig
    plane = rig.application.ports.events
    assert plane is not None
    say(rig, TOPIC, {"n": 1})
    say(rig, TOPIC, {"n": 2})
    await appended(rig, 2)
    async with stream(url(served, "?from=-1h")) as reading:
        _, last = await numbers(reading, 1)
    assert last is not None
    await plane.store.rotate("events", 1)
    say(rig, TOPIC, {"n": 3})
    await appended(rig, 3)
    await plane.store.drop("events", 1)
    async with stream(url(served), headers={"Last-Event-ID": last}) as reading:
        gap = await reading.next()
        assert gap is not None
        assert (gap.name, list(gap.data)) == ("gap", ["until"])
        assert (await numbers(reading, 1))[0] == [3]


async def test_a_quiet_stream_is_given_newer_cursors(served: Served) -> None:
    rig = served.rig
    rig.application.streams.keep_alive = 0.01
    async with stream(url(served, "?topic=nobody/speaks/here")) as reading:
        await follows(rig)
        say(rig, TOPIC, {"n": 1})
        await appended(rig, 1)
        seen: set[str | None] = set()
        while len(seen) < 2:
            event = await reading.next()
            assert event is not None
            assert (event.name, event.data) == ("bookmark", {"cursor": event.id})
            seen.add(event.id)


async def test_what_others_say_keeps_no_bookmark_back(served: Served) -> None:
    served.rig.application.streams.keep_alive = 0.2
    ended = asyncio.Event()

    async def chatter() -> None:
        while not ended.is_set():
            say(served.rig, TOPIC, {"n": 1})
            await asyncio.sleep(0.005)  # often enough that the stream is never without something new

    async with stream(url(served, "?topic=nobody/speaks/here")) as reading:
        assert await reading.next() is not None
        await follows(served.rig)
        talking = asyncio.create_task(chatter())
        try:
            event = await reading.next()
        finally:
            ended.set()
            await talking
    assert event is not None
    assert event.name == "bookmark"


@pytest.mark.parametrize(
    ("query", "status", "sentence"),
    [
        ("?topic=a/b%2B", 422, "must be a whole level"),
        ("?cursor=x", 422, "cursor: 'x' is none"),
        ("?from=soon", 422, "from: 'soon' is no instant"),
        ("?since=soon", 422, "since: 'soon' is no instant"),
        ("?database=nowhere", 404, "there is no database 'nowhere'"),
        ("?limit=1", 422, "limit: is unknown; allowed: topic, database, since, from, cursor"),
    ],
)
async def test_what_is_wrong_is_said_before_the_stream_begins(
    served: Served, query: str, status: int, sentence: str
) -> None:
    answer = await served.rig.http.get(f"/v1/events/stream{query}")
    assert (answer.status_code, sentence in answer.json()["detail"]) == (status, True), answer.text
