"""The events of all commands, as one stream: filtered, resumed by id, with gaps that are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.commands.follow.stream import CommandStream, StreamFollower
from tests.api.rig import Rig, running, until
from tests.api.serving import Served, serving
from tests.api.streaming import Event, Reading, stream
from tests.api.test_command_events import answer, begun, progress


@pytest.fixture
async def served(rig: Rig) -> AsyncIterator[Served]:
    async with serving(rig) as one:
        yield one


def url(served: Served, query: str = "") -> str:
    return f"http://127.0.0.1:{served.port}/v1/commands/events{query}"


def stream_of(rig: Rig) -> CommandStream:
    """Return the node's stream of all commands, whose waits and bounds a test may set."""
    stream = rig.application.ports.commands.stream
    assert isinstance(stream, CommandStream)
    return stream


async def follows(rig: Rig, count: int = 1) -> None:
    """Return when so many callers follow the stream."""
    await until(lambda: len(rig.application.ports.commands.stream) == count)


async def next_of(reading: Reading) -> Event:
    """The next one that is no bookmark."""
    while True:
        event = await reading.next()
        assert event is not None
        if event.name != "bookmark":
            return event


async def bookmark_of(reading: Reading) -> str:
    """The id of the next one, a bookmark."""
    event = await reading.next()
    assert event is not None
    assert (event.name, list(event.data)) == ("bookmark", ["at"])
    return event.id or ""


async def test_progress_outcome_and_late_response_are_told_of_any_command(rig: Rig, served: Served) -> None:
    async with stream(url(served)) as reading:
        assert reading.status == 200
        await follows(rig)
        identity = await begun(rig)
        progress(rig, 40)
        first = await next_of(reading)
        assert first.name == "progress"
        assert first.data == {
            "seq": 1,
            "at": first.data["at"],
            "command_id": identity,
            "device_id": "drone-1",
            "profile": "homing",
            "method": "quiet",
            "state": "running",
            "progress": {"percent": 40},
        }
        await rig.http.delete(f"/v1/commands/{identity}")
        second = await next_of(reading)
        assert (second.name, second.data["seq"], second.data["state"]) == ("outcome", 2, "cancelled")
        assert second.data["at"] == (await rig.http.get(f"/v1/commands/{identity}")).json()["finished_at"]
        answer(rig)
        third = await next_of(reading)
        assert (third.name, third.data["seq"]) == ("late", 3)
        assert third.data["late"] == {"state": "succeeded", "error": None}
        refused = (await rig.send("refuse")).json()
        last = await next_of(reading)
        assert (last.data["command_id"], last.data["error"]) == (refused["id"], refused["error"])
    await until(lambda: not len(rig.application.ports.commands.stream))


@pytest.mark.parametrize(
    ("query", "methods"),
    [
        ("", ["ok", "refuse"]),
        ("?method=ref*&device=drone-*", ["refuse"]),
        ("?state=succeeded,cancelled", ["ok"]),
        ("?device=drone-2", []),
        ("?profile=dji", []),
        ("?kind=progress,late", []),
    ],
)
async def test_only_what_was_asked_for_is_told(rig: Rig, served: Served, query: str, methods: list[str]) -> None:
    async with stream(url(served, query)) as reading, stream(url(served)) as other:
        await follows(rig, 2)
        for method in ("ok", "refuse"):
            await rig.send(method)
        found = [(await next_of(reading)).data["method"] for _ in methods]
        assert found == methods
        assert [(await next_of(other)).data["method"] for _ in range(2)] == ["ok", "refuse"]
        rig.application.dismiss()
        assert [one for one in await reading.all() if one.name != "bookmark"] == []


@pytest.mark.parametrize("as_header", [True, False])
async def test_a_stream_goes_on_after_the_event_that_was_seen_last(
    rig: Rig, served: Served, *, as_header: bool
) -> None:
    async with stream(url(served)) as reading:
        await follows(rig)
        identity = await begun(rig)
        for percent in (10, 20):
            progress(rig, percent)
        first = await next_of(reading)
    await until(lambda: not len(rig.application.ports.commands.stream))
    progress(rig, 30)
    answer(rig)
    await rig.read_until(lambda command: command["state"] == "succeeded")
    resumed = (
        stream(url(served), {"Last-Event-ID": first.id or ""})
        if as_header
        else stream(url(served, f"?after={first.id}"))
    )
    async with resumed as reading:
        found = [await next_of(reading) for _ in range(3)]
        assert [(one.name, one.data["seq"]) for one in found] == [("progress", 2), ("progress", 3), ("outcome", 4)]
        assert {one.data["command_id"] for one in found} == {identity}
        await rig.send("ok")
        assert (await next_of(reading)).data["method"] == "ok"


async def test_a_browser_that_comes_back_goes_on_after_what_it_saw_and_not_after_its_address(
    rig: Rig, served: Served
) -> None:
    async with stream(url(served)) as reading:
        began = await bookmark_of(reading)
        for method in ("ok", "refuse"):
            await rig.send(method)
        seen = await next_of(reading)
    async with stream(url(served, f"?after={began}"), {"Last-Event-ID": seen.id or ""}) as reading:
        assert (await next_of(reading)).data["method"] == "refuse"


async def test_who_is_cut_off_before_the_first_event_comes_back_with_the_id_of_the_beginning(
    rig: Rig, served: Served
) -> None:
    async with stream(url(served)) as reading:
        began = await bookmark_of(reading)
    await rig.send("ok")
    async with stream(url(served, f"?after={began}")) as reading:
        assert (await next_of(reading)).data["method"] == "ok"
    async with stream(url(served, f"?after={began}")) as reading:
        first = await reading.next()  # who has an id needs no other one
        assert first is not None
        assert first.name == "outcome"


async def test_who_comes_back_too_late_is_told_of_the_gap(rig: Rig, served: Served) -> None:
    async with stream(url(served, "?after=1000-0.000")) as reading:
        gap = await next_of(reading)
        assert (gap.name, list(gap.data)) == ("gap", ["since"])
        await follows(rig)
        await rig.send("ok")
        assert (await next_of(reading)).name == "outcome"
    async with stream(url(served, f"?after={gap.id}")) as reading:
        assert (await next_of(reading)).name == "outcome"


async def test_who_knows_of_what_has_not_happened_is_told_of_a_gap(rig: Rig, served: Served) -> None:
    """The store's clock was set back: what happened meanwhile may stand before what they know."""
    async with stream(url(served, "?after=999999999999999-0.000")) as reading:
        assert (await next_of(reading)).name == "gap"
        await follows(rig)
        await rig.send("ok")
        assert (await next_of(reading)).name == "outcome"


async def test_what_the_store_lost_is_told_as_a_gap(rig: Rig, served: Served) -> None:
    stream_of(rig).known_seconds = 0.0
    async with stream(url(served)) as reading:
        await follows(rig)
        await rig.send("ok")
        await next_of(reading)
        await asyncio.sleep(0.01)  # the store's clock counts in milliseconds
        rig.store.changes._until = 0  # nothing is kept any more, as after a restart of Redis
        assert (await next_of(reading)).name == "gap"
        await rig.send("ok")
        assert (await next_of(reading)).name == "outcome"


async def test_a_quiet_stream_is_given_newer_ids(rig: Rig, served: Served) -> None:
    rig.application.streams.keep_alive = 0.01
    async with stream(url(served, "?method=never")) as reading:
        await follows(rig)
        await rig.send("ok")
        ids = [await bookmark_of(reading) for _ in range(20)]
        assert len(set(ids)) > 1
        assert ids == sorted(ids, key=lambda one: int(one.partition("-")[0]))


async def test_who_does_not_read_is_cut_off(rig: Rig, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    stream_of(rig).most_waiting_bytes = 1000
    monkeypatch.setattr(StreamFollower, "take", lambda _: b"")  # it stands in a write that does not return
    async with stream(url(served)) as reading:
        await follows(rig)
        await begun(rig)
        for percent in range(20):
            progress(rig, percent)
        await until(lambda: rig.counters["stream.too_slow"] == 1)
        await until(lambda: not rig.application.streams.fill().size)
        assert not len(rig.application.ports.commands.stream)
        assert reading.status == 200


async def test_always_means_that_what_was_before_can_be_asked_for() -> None:
    async with running(command={"events": "always"}) as rig, serving(rig) as served:
        await until(lambda: rig.store.changes._since > 0)
        since = rig.store.changes._since
        await rig.send("ok")
        async with stream(url(served, f"?after={since}-0.000")) as reading:
            assert (await next_of(reading)).data["method"] == "ok"


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("after=nonsense", "after: 'nonsense' is no event of this stream"),
        ("after=1-1.256", "is no event of this stream"),
        ("state=pending", "state: 'pending' is none; allowed: running, succeeded"),
        ("kind=outcome,", "kind: '' is none; allowed: progress, outcome, late"),
        ("device=a%2Bb", "device: '+' at index 1 is not allowed"),
        ("devices=a", "devices: is unknown; allowed: device, profile, method, state, kind, after"),
    ],
)
async def test_what_cannot_be_meant_is_refused(rig: Rig, query: str, sentence: str) -> None:
    refused = await rig.http.get(f"/v1/commands/events?{query}")
    assert (refused.status_code, sentence in refused.json()["detail"]) == (422, True), refused.text
