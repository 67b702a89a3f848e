"""Events that devices say unasked, by both twins of the client on a real node."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from app.core.events.event import shard_number
from homing_client import (
    AsyncHoming,
    AsyncReader,
    ConflictError,
    Event,
    InvalidInputError,
    LogEvent,
    NotFoundError,
    Reader,
)
from tests.api.rig import running
from tests.api.serving import Served, serving
from tests.api.test_event_stream import follows
from tests.api.test_events import TOPIC, appended, is_ready, say
from tests.client.conftest import Open
from tests.client.twins import all_of, done
from tests.waiting import eventually


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with running(events={"url": "memory://"}) as rig:
        await eventually(lambda: is_ready(rig))
        async with serving(rig) as one:
            yield one


def url(served: Served) -> str:
    return f"http://127.0.0.1:{served.port}"


def said(events: list[LogEvent]) -> list[int]:
    return [one.data["data"]["n"] for one in events]


async def test_events_are_followed_from_the_past_and_behind_a_cursor(served: Served, open_homing: Open) -> None:
    for number in range(5):
        say(served.rig, TOPIC, {"n": number})
    await appended(served.rig, 5)
    homing = open_homing(url(served))
    told = await all_of(homing.events.follow, TOPIC, since="-1h", most=3)
    assert ([one.kind for one in told], said(told)) == (["event"] * 3, [0, 1, 2])
    rest = await all_of(homing.events.follow, TOPIC, after=told[1].cursor, most=3)
    assert said(rest) == [2, 3, 4]
    with pytest.raises(NotFoundError):
        await all_of(homing.events.follow, database="nowhere")
    with pytest.raises(InvalidInputError):
        await all_of(homing.events.follow, "a/b+")
    with pytest.raises(InvalidInputError, match="is of another topic filter"):
        await all_of(homing.events.follow, "#", after=told[1].cursor)


async def test_what_the_broker_delivers_again_can_be_left_out(served: Served, open_homing: Open) -> None:
    for number, identity in enumerate(["a", "b", "a", "a", "c", None, None, "b"]):
        say(
            served.rig, "thing/product/SN1/events", {"method": "x", "n": number, "bid": identity or "", "tid": identity}
        )
    await appended(served.rig, 8)
    homing = open_homing(url(served))
    topic = "thing/product/+/events"
    every = await all_of(homing.events.read, topic)
    assert len(every) == 8
    ids = [one["id"] for one in every]
    wanted = [n for n, one in enumerate(ids) if one is None or one not in ids[:n]]
    assert 0 < len(wanted) < 8
    distinct = await all_of(homing.events.read, topic, distinct=True)
    assert [one["data"]["n"] for one in distinct] == wanted
    told = await all_of(homing.events.follow, topic, since="-1h", distinct=True, most=len(wanted))
    assert said(told) == wanted


async def test_events_are_told_as_they_come(served: Served) -> None:
    async with AsyncHoming(url(served)) as homing:
        told = homing.events.follow(TOPIC)
        first = await anext(told)
        assert first.kind == "bookmark"
        await follows(served.rig)
        say(served.rig, TOPIC, {"n": 1})
        assert said([await anext(told)]) == [1]


async def test_what_is_said_with_an_idempotency_key_is_said_once(served: Served, open_homing: Open) -> None:
    homing = open_homing(url(served))
    said = [{"topic": "fleet/note", "data": 1}]
    calls = [await done(homing.events.publish, said, idempotency_key="k") for _ in range(2)]
    assert calls[0] == calls[1]
    assert len(await all_of(homing.events.read, "fleet/#")) == 1


async def test_what_a_backend_says_is_read_again(served: Served, open_homing: Open) -> None:
    homing = open_homing(url(served))
    positions = await done(homing.events.publish, [{"topic": "fleet/note", "data": n} for n in range(3)])
    read = await all_of(homing.events.read, "fleet/#")
    assert [(str(one["position"]), one["data"]) for one in read] == list(zip(positions, range(3), strict=True))
    assert all(isinstance(one, Event) for one in read)
    assert [(str(one.position), one.topic, one.data, one.kind) for one in read] == [
        (position, "fleet/note", n, None) for n, position in enumerate(positions)
    ]
    assert json.loads(json.dumps(read[0])) == read[0]
    (told,) = await all_of(homing.events.follow, "fleet/#", since="-1h", most=1)
    assert told.event == read[0]
    assert [one["topic"] for one in await all_of(homing.events.topics)] == ["fleet/note"]
    shard = shard_number("fleet/note", 4)
    assert await done(homing.events.get, f"events.{shard}.{positions[1]}") == read[1]
    with pytest.raises(NotFoundError, match="has no event at position"):
        await done(homing.events.get, f"events.{shard}.{int(positions[0]) - 1}")
    with pytest.raises(ValueError, match=r"'events\.1' is none of an event"):
        await done(homing.events.get, "events.1")
    assert {one["name"] for one in await done(homing.events.databases)} == {"events", "telemetry"}
    entry = await done(homing.events.last, "fleet/note")
    assert (entry.value["data"], entry.tag) == (2, f'"{positions[-1]}"')


def begun(reader: AsyncReader | Reader) -> Callable[[], Any]:
    """A call for `all_of`, which gives the events of a reader."""
    return lambda: aiter(reader) if isinstance(reader, AsyncReader) else iter(reader)


async def test_a_reader_goes_on_where_it_had_come_to(served: Served, open_homing: Open) -> None:
    homing = open_homing(url(served))
    await done(homing.events.publish, [{"topic": "fleet/note", "data": {"n": n}} for n in range(5)])

    def read(most: int, every: int = 1) -> Any:  # noqa: ANN401 - of both twins
        return all_of(begun(homing.events.reader("archive", "fleet/#", since="-1h", every=every)), most=most)

    assert said(await read(3)) == [0, 1, 2], "the third one is handled when the next one is asked for"
    assert said(await read(2)) == [2, 3]
    assert said(await read(2, every=100)) == [3, 4], "not committed: it comes again"
    assert said(await read(2)) == [3, 4]
    (kept,) = await done(homing.events.cursors)
    assert kept == await done(homing.events.cursor, "archive")
    await done(homing.events.forget, "archive")
    with pytest.raises(NotFoundError):
        await done(homing.events.cursor, "archive")


async def test_a_second_reader_of_a_name_takes_over(served: Served, open_homing: Open) -> None:
    homing = open_homing(url(served))
    await done(homing.events.publish, [{"topic": "fleet/note", "data": {"n": n}} for n in range(5)])
    await all_of(begun(homing.events.reader("archive", "fleet/#", since="-1h", every=1)), most=2)
    tag = (await done(homing.events.cursor, "archive")).tag
    await all_of(begun(homing.events.reader("archive", "fleet/#", every=1)), most=2)
    cursor = (await all_of(homing.events.follow, "fleet/#", since="-1h", most=5))[-1].cursor
    with pytest.raises(ConflictError):
        await done(homing.events.commit, "archive", cursor, topic="fleet/#", if_match=tag)
