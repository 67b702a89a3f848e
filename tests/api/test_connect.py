"""One connection with channels, over real sockets: lent, settled, paused, kept, and given back when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.core.access.changes import Put, Remove, Revoke
from app.core.access.model import Binding, Kind, Principal, Role
from tests.api.rig import Rig, running, until
from tests.api.serving import Served, all_of, connection, serving
from tests.api.sockets import BytesMessage, CloseConnection, Socket, TextMessage, opening, socket
from tests.api.test_access import guarded
from tests.api.test_queues import QUEUE, call, declare, is_open, publish
from tests.waiting import eventually, turns


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with running(events={"url": "memory://"}) as rig:
        await eventually(lambda: is_open(rig))
        await declare(rig)
        await declare(rig, "other", routes=[{"database": "events", "topic": "site/+/other"}])
        async with serving(rig) as one:
            yield one
            await until(lambda: one.count() == 0)
        assert len(rig.application.streams) == 0


async def counts(rig: Rig) -> dict[str, int]:
    told: dict[str, int] = (await rig.http.get(QUEUE)).json()["counts"]
    return told


async def stand(rig: Rig, **wanted: int) -> None:
    """Return when the queue stands so."""

    async def so() -> bool:
        there = await counts(rig)
        return all(there[name] == count for name, count in wanted.items())

    await eventually(so)


@asynccontextmanager
async def opened(served: Served, **channel: Any) -> AsyncIterator[Socket]:
    """A connection with channel 1 on the queue `alarms`."""
    async with socket(served.port) as one:
        one.say(id=1, open={"channel": 1, "queue": "alarms", **channel})
        assert await one.heard() == {"id": 1, "ok": True}
        yield one


async def test_connections_without_a_name_are_told_apart_by_a_queue_for_one_consumer(served: Served) -> None:
    await declare(served.rig, "one", single=True)
    got: list[str] = []

    async def consume(name: str, wire: Socket) -> None:
        while True:
            frame = await wire.heard()
            for event in frame.get("events", ()):
                got.append(name)
                wire.say(id=2, channel=1, done=[event["loan"]])

    async with opened(served, queue="one", prefetch=1) as first, opened(served, queue="one", prefetch=1) as second:
        workers = [asyncio.create_task(consume(*each)) for each in (("first", first), ("second", second))]
        await publish(served.rig, *range(6))
        await eventually(lambda: len(got) == 6)
        assert len(set(got)) == 1, "one of them takes, and the other waits"
        for one in workers:
            one.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


async def lent(one: Socket, most: int) -> list[dict[str, Any]]:
    """Return so many events, of as many frames as they come in."""
    found: list[dict[str, Any]] = []
    while len(found) < most:
        frame = await one.heard()
        assert frame.keys() == {"channel", "events"}, frame
        found += frame["events"]
    return found


async def test_a_channel_is_lent_as_far_as_its_credit_goes_and_settling_gives_more(served: Served) -> None:
    await publish(served.rig, *range(5))
    async with opened(served, prefetch=2, consumer="w1") as one:
        first = await lent(one, 2)
        assert {one["event"]["data"] for one in first} <= set(range(5))
        await stand(served.rig, lent=2)
        one.say(id=2, channel=1, done=[first[0]["loan"]], retry=[{"loan": first[1]["loan"], "after": "1h"}])
        told = [await one.heard(), await one.heard()]
        answer = next(one for one in told if "id" in one)
        assert answer == {"id": 2, "ok": True, "settled": 2, "over": []}
        more = [one for frame in told for one in frame.get("events", [])]
        more += await lent(one, 2 - len(more))
        one.say(id=3, channel=1, done=[more[0]["loan"]], dead=[{"loan": more[1]["loan"], "reason": "broken"}])
        (last,) = [one for one in [await one.heard(), await one.heard()] if "events" in one]
        one.say(id=4, channel=1, done=[last["events"][0]["loan"], "nonsense"])
        assert await one.heard() == {"id": 4, "ok": True, "settled": 1, "over": ["nonsense"]}
    await stand(served.rig, done=3, dead=1, later=1, lent=0)
    (consumer,) = (await served.rig.http.get(f"{QUEUE}/consumers")).json()["consumers"]
    assert consumer["consumer"] == "w1"


async def test_channels_of_one_connection_are_of_several_queues(served: Served) -> None:
    async with opened(served) as one:
        one.say(id=2, open={"channel": 2, "queue": "other"})
        assert await one.heard() == {"id": 2, "ok": True}
        await publish(served.rig, "alarm")
        (frame,) = [await one.heard()]
        assert (frame["channel"], frame["events"][0]["event"]["data"]) == (1, "alarm")
        alarm = frame["events"][0]["loan"]
        await served.rig.http.post("/v1/events", json=[{"topic": "site/a/other", "data": "other"}])
        assert (await one.heard())["channel"] == 2
        one.say(id=3, channel=2, done=[alarm])  # it is of another queue
        assert await one.heard() == {"id": 3, "ok": True, "settled": 0, "over": [alarm]}
        one.say(id=4, channel=1, done=[alarm])
        assert (await one.heard())["settled"] == 1


async def test_another_client_may_settle_over_http_what_a_channel_was_lent(served: Served) -> None:
    await publish(served.rig, 1)
    async with opened(served) as one:
        (event,) = await lent(one, 1)
        assert await call(served.rig, "settle", {"done": [event["loan"]]}) == {"settled": 1, "over": []}
        one.say(id=2, channel=1, done=[event["loan"]])
        assert (await one.heard())["over"] == [event["loan"]]


async def test_what_is_settled_when_it_is_lent_takes_no_credit(served: Served) -> None:
    await publish(served.rig, *range(6))
    async with opened(served, prefetch=2, auto=True) as one:
        assert len(await lent(one, 6)) == 6
    await stand(served.rig, done=6)


async def test_a_pause_lends_nothing_until_it_is_over(served: Served) -> None:
    async with opened(served) as one:
        one.say(id=2, channel=1, prefetch=0)
        assert await one.heard() == {"id": 2, "ok": True}
        await publish(served.rig, 1)
        await stand(served.rig, ready=1, lent=0)
        one.say(id=3, channel=1, prefetch=1)
        told = [await one.heard(), await one.heard()]
        assert {"id": 3, "ok": True} in told
        assert any("events" in frame for frame in told)


async def test_a_channel_that_is_closed_gives_back_what_it_had(served: Served) -> None:
    await publish(served.rig, 1)
    async with opened(served) as one:
        await lent(one, 1)
        one.say(id=2, close={"channel": 1})
        assert await one.heard() == {"id": 2, "ok": True}
        await stand(served.rig, ready=1, lent=0, retried=0)
        one.say(id=3, open={"channel": 1, "queue": "alarms"})
        assert await one.heard() == {"id": 3, "ok": True}
        (event,) = await lent(one, 1)
        assert event["delivery"] == 1  # what is given back counts as no delivery


ENDS: dict[str, Callable[[Socket], object]] = {
    "it closes": lambda one: one.send(CloseConnection(1000)),
    "it is lost": lambda one: one.writer.transport.abort(),
    "it sends garbage": lambda one: one.writer.write(b"\xff" * 64),
}


@pytest.mark.parametrize("how", ENDS)
async def test_a_connection_that_ends_gives_back_what_it_had(served: Served, how: str) -> None:
    await publish(served.rig, 1, 2)
    async with opened(served, prefetch=1) as one:
        await lent(one, 1)
        ENDS[how](one)
        await stand(served.rig, ready=2, lent=0)


async def test_a_peer_that_is_not_there_any_more_gives_back_what_it_had(served: Served) -> None:
    await publish(served.rig, 1)
    async with opened(served) as one:
        await lent(one, 1)
        served.after(20)
        served.after(20)
        await stand(served.rig, ready=1, lent=0)
    assert served.closed("no_pong") == 1


async def test_a_living_channel_keeps_its_loans_and_one_that_is_over_is_named(served: Served) -> None:
    await lend_for_a_second(served)
    await publish(served.rig, 1)
    async with opened(served) as one:
        await keep_one(served, one)


async def test_a_channel_keeps_its_loans_though_they_are_made_shorter_while_it_waits(served: Served) -> None:
    async with opened(served) as one:
        await lend_for_a_second(served)
        await publish(served.rig, 1)
        await keep_one(served, one)


async def lend_for_a_second(served: Served) -> None:
    tag = (await served.rig.http.get(QUEUE)).headers["etag"]
    await declare(served.rig, headers={"If-Match": tag}, loan="1s")


async def keep_one(served: Served, one: Socket) -> None:
    """Settle an event for which the handler takes longer than the queue lends."""
    (event,) = await lent(one, 1)
    loop = asyncio.get_running_loop()
    until_over = loop.time() + 1.5

    async def is_over() -> bool:
        return loop.time() > until_over

    await eventually(is_over)
    await stand(served.rig, lent=1, ready=0, delivered=1)
    one.say(id=2, channel=1, done=[event["loan"]])
    assert (await one.heard())["settled"] == 1


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no such queue": ({"open": {"channel": 2, "queue": "nobody"}}, "queue-not-found"),
    "a channel that is open": ({"open": {"channel": 1, "queue": "alarms"}}, "invalid-input"),
    "a prefetch that is too large": ({"open": {"channel": 2, "queue": "alarms", "prefetch": 1001}}, "invalid-input"),
    "a consumer that is too long": ({"open": {"channel": 2, "queue": "alarms", "consumer": "x" * 65}}, "invalid-input"),
    "an unknown member": ({"open": {"channel": 2, "queue": "alarms", "ack": True}}, "invalid-input"),
    "channel 0": ({"open": {"channel": 0, "queue": "alarms"}}, "invalid-input"),
    "a channel that is not open": ({"channel": 9, "done": []}, "invalid-input"),
    "closing what is not open": ({"close": {"channel": 9}}, "invalid-input"),
    "a pause of nothing": ({"channel": 9, "prefetch": 0}, "invalid-input"),
    "one loan twice": ({"channel": 1, "done": ["a", "a"]}, "invalid-input"),
    "too many loans": ({"channel": 1, "done": [str(one) for one in range(1025)]}, "invalid-input"),
    "a wrong duration": ({"channel": 1, "retry": [{"loan": "a", "after": "soon"}]}, "invalid-input"),
    "nothing": ({}, "invalid-input"),
}


async def test_a_call_that_is_wrong_is_answered_and_the_connection_goes_on(served: Served) -> None:
    async with opened(served) as one:
        for number, (what, (members, slug)) in enumerate(WRONG.items(), start=2):
            one.say(id=number, **members)
            told = await one.heard()
            assert told["id"] == number, what
            assert told["problem"]["type"] == f"urn:homing:problem:{slug}", (what, told)
            assert told["problem"]["detail"], what
        one.say(channel=1, done=[])
        assert (await one.heard())["problem"]["errors"][0]["field"] == "id"
        for number in range(2, 65):
            one.say(id=number, open={"channel": number, "queue": "alarms", "prefetch": 0})
            assert (await one.heard())["ok"]
        one.say(id=65, open={"channel": 65, "queue": "alarms"})
        assert (await one.heard())["problem"]["type"] == "urn:homing:problem:limit-reached"


NO_FRAMES: dict[str, TextMessage | BytesMessage] = {
    "binary": BytesMessage(b"{}"),
    "no JSON": TextMessage("hello"),
    "no object": TextMessage("[1]"),
    "a member twice": TextMessage('{"id":1,"id":2}'),
    "too deep": TextMessage("[" * 40 + "]" * 40),
    "nothing": TextMessage(""),
}


@pytest.mark.parametrize("what", NO_FRAMES)
async def test_what_is_no_frame_ends_the_connection_with_a_word(served: Served, what: str) -> None:
    async with opened(served) as one:
        one.send(NO_FRAMES[what])
        told = await one.heard()
        assert told["problem"]["type"] == "urn:homing:problem:invalid-input"
        assert (await one.closed())[0] == 1003


async def test_a_queue_that_is_deleted_closes_its_channels(served: Served) -> None:
    async with opened(served) as one:
        assert (await served.rig.http.delete(QUEUE)).status_code == 204
        told = await one.heard()
        assert (told["channel"], told["closed"]["type"]) == (1, "urn:homing:problem:queue-not-found")
        one.say(id=2, channel=1, done=[])
        assert "problem" in await one.heard()


async def test_a_consumer_that_never_reads_slows_itself_and_holds_up_no_other(served: Served) -> None:
    await publish(served.rig, *["x" * 100_000] * 8)
    async with opened(served, prefetch=1000) as one:
        one.writer.transport.pause_reading()  # type: ignore[attr-defined]  # of asyncio
        await publish(served.rig, *range(20))
        async with opened(served, auto=True) as other:
            assert await lent(other, 1)


async def test_a_node_that_stops_gives_back_and_sends_away(served: Served) -> None:
    await publish(served.rig, 1)
    async with opened(served) as one:
        await lent(one, 1)
        served.rig.application.dismiss()
        assert (await one.closed())[0] == 1001
        await stand(served.rig, ready=1, lent=0)


async def test_connections_count_as_streams() -> None:
    async with running(events={"url": "memory://"}, api={"max_streams": 1}) as rig, serving(rig) as served:
        await eventually(lambda: is_open(rig))
        async with socket(served.port):
            assert len(rig.application.streams) == 1
            async with connection(served.port) as (reader, writer):
                writer.write(opening())
                answer = await all_of(reader)
            assert answer.startswith(b"HTTP/1.1 429 ")
            assert b"HOMING_API_MAX_STREAMS" in answer


async def test_a_node_without_queues_says_so(rig: Rig) -> None:
    async with serving(rig) as served, connection(served.port) as (reader, writer):
        writer.write(opening())
        answer = await all_of(reader)
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"urn:homing:problem:no-queues" in answer


async def test_who_asks_is_asked_before_the_upgrade_and_loses_what_the_rules_take(tmp_path: Path) -> None:
    async with guarded(tmp_path, events={"url": "memory://"}) as site, serving(site.rig) as served:

        async def is_declared() -> bool:
            body = {"routes": [{"database": "events", "topic": "homing/+/event"}]}
            names = [f"/v1/queues/{name}" for name in ("alarms", "other")]
            done = [await site.rig.http.put(one, json=body, headers=site.headers("admin")) for one in names]
            return all(one.is_success for one in done)

        await eventually(is_declared)
        for headers in (
            {},
            {"Authorization": "Bearer nonsense"},
            {"Cookie": "homing-1=x", "Homing-Request": "console"},
        ):
            async with connection(served.port) as (reader, writer):
                writer.write(opening(headers))
                answer = await all_of(reader)
            assert answer.startswith(b"HTTP/1.1 401 "), headers
            assert b"urn:homing:problem:unauthenticated" in answer
        await site.change(Put(Role(name="worker", tenant_id="air", rules=("allow consume *:* on queue/*",))))
        await site.add("worker", "worker")
        async with (
            socket(served.port, site.headers("worker")) as one,
            socket(served.port, site.headers("watcher")) as two,
        ):
            two.say(id=1, open={"channel": 1, "queue": "alarms"})
            assert (await two.heard())["problem"]["type"] == "urn:homing:problem:forbidden"
            for number, name in enumerate(("alarms", "other"), start=1):
                one.say(id=number, open={"channel": number, "queue": name})
                assert await one.heard() == {"id": number, "ok": True}
            await site.change(Put(Role(name="worker", tenant_id="air", rules=("allow consume *:* on queue/other",))))
            told = await one.heard()
            assert (told["channel"], told["closed"]["type"]) == (1, "urn:homing:problem:forbidden")
            await site.change(Revoke(credential_id=site.keys["worker"].id, at_us=1))
            assert (await one.closed())[0] == 1008
        await turns()


async def test_who_moves_to_another_tenant_takes_and_publishes_nothing_of_the_one_before(tmp_path: Path) -> None:
    """Both tenants have a queue and an exchange of these names, and the caller may use them in either."""
    async with guarded(tmp_path, events={"url": "memory://"}) as site, serving(site.rig) as served:

        async def is_declared() -> bool:
            body = {"routes": [{"database": "events", "topic": "homing/+/event"}]}
            headers = [site.headers(one) for one in ("admin", "neighbour")]
            done = [await site.rig.http.put("/v1/queues/alarms", json=body, headers=one) for one in headers]
            return all(one.is_success for one in done)

        await eventually(is_declared)
        await site.add("mover", "admin")
        async with socket(served.port, site.headers("mover")) as one:
            one.say(id=1, open={"channel": 1, "queue": "alarms"})
            assert await one.heard() == {"id": 1, "ok": True}
            binding = Binding(id="mover-ground", subject="mover", role="admin", tenant_id="ground")
            moved = Principal(id="mover", tenant_id="ground", kind=Kind.SERVICE, name="mover")
            await site.change(Remove(kind=Binding, id="mover-admin"), Put(moved), Put(binding))
            code, reason = await one.closed()
            assert (code, "another tenant" in reason) == (1008, True)
        async with socket(served.port, site.headers("mover")) as one:
            one.say(id=1, open={"channel": 1, "queue": "alarms"})
            assert await one.heard() == {"id": 1, "ok": True}
        await turns()
