"""Publishing over one connection with channels, over real sockets: in order, confirmed, refused, and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from app.api.v1.connect import MOST_CALLS
from app.core.access.changes import Put, Revoke
from app.core.access.model import Role
from tests.api.rig import Rig, running, until
from tests.api.serving import Served, serving
from tests.api.sockets import Socket, TextMessage, socket
from tests.api.test_access import OTHER, guarded
from tests.api.test_exchanges import bind, declare, taken
from tests.services import RedisProcess
from tests.waiting import eventually, turns


@pytest.fixture(params=["memory", "redis"])
async def served(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    url = "memory://"
    if request.param == "redis":
        server: RedisProcess = request.getfixturevalue("redis_server")
        async with Redis.from_url(server.url) as client:
            await client.flushall()
        url = server.node_url
    async with running(events={"url": url}) as rig:
        await eventually(lambda: is_declared(rig))
        async with serving(rig) as one:
            yield one
            await until(lambda: one.count() == 0)


async def is_declared(rig: Rig) -> bool:
    """True once there are the exchange `ops` and the queue `all`, which hears everything that is said in it."""
    return (await declare(rig)).is_success and (await bind(rig, "all", ("ops", "#"))).is_success


@asynccontextmanager
async def opened(served: Served) -> AsyncIterator[Socket]:
    """A connection with channel 1 for publishing."""
    async with socket(served.port) as one:
        one.say(id=1, open={"channel": 1, "publish": True})
        assert await one.heard() == {"id": 1, "ok": True}
        yield one


def say(one: Socket, number: int, data: object, **more: Any) -> None:
    one.say(id=number, channel=1, publish={"exchange": "ops", "key": "low.battery", "data": data, **more})


async def answers(one: Socket, count: int) -> dict[int, dict[str, Any]]:
    """The next answers, by their ids."""
    told = [await one.heard() for _ in range(count)]
    return {frame["id"]: frame for frame in told}


async def test_messages_are_confirmed_one_by_one_and_keep_their_order(served: Served) -> None:
    async with opened(served) as one:
        for number in range(2, 32):  # none waits for the answer of another one
            named = {"idempotency_key": f"k{number}"} if number % 3 == 0 else {}
            say(one, number, number, **named)
        told = await answers(one, 30)
        assert all(frame["ok"] and frame["routed"] == ["all"] for frame in told.values())
        positions = [told[number]["position"] for number in range(2, 32)]
        assert positions == sorted(set(positions))
    events = sorted(await taken(served.rig, "all", 30), key=lambda event: event["position"])
    assert [(event["position"], event["data"]) for event in events] == list(zip(positions, range(2, 32), strict=True))
    assert events[0]["topic"] == "$exchange/-/ops/low/battery"


async def test_a_message_that_is_repeated_elsewhere_is_there_once(served: Served) -> None:
    async with opened(served) as one:
        say(one, 2, 1, idempotency_key="k", id="m-1")
        first = await one.heard()
        say(one, 3, 2, idempotency_key="k", id="m-1")
        assert (await one.heard())["problem"]["type"] == "urn:homing:problem:idempotency-key-reused"
    async with opened(served) as one:
        say(one, 2, 1, idempotency_key="k", id="m-1")
        assert await one.heard() == first
    said = {"key": "low.battery", "data": 1, "id": "m-1"}
    by_call = await served.rig.http.post("/v1/exchanges/ops/messages", json=said, headers={"idempotency-key": "k"})
    assert by_call.json()["position"] == first["position"]
    assert len(await taken(served.rig, "all", 2, "100ms")) == 1


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "a key with wildcards": ({"key": "a.*"}, "invalid-input", "key"),
    "no data": ({"data": ...}, "invalid-input", "publish.data"),
    "data twice": ({"data_base64": "YQ=="}, "invalid-input", "publish.data_base64"),
    "no key": ({"key": ...}, "invalid-input", "publish.key"),
    "an unknown member": ({"topic": "a/b"}, "invalid-input", "publish.topic"),
    "an exchange by no name": ({"exchange": "Ops"}, "invalid-input", "publish.exchange"),
    "no such exchange": ({"exchange": "none"}, "exchange-not-found", ""),
    "a device by no name": ({"device_id": "a/.."}, "invalid-input", "device_id"),
    "an id that is too long": ({"id": "x" * 256}, "invalid-input", "publish.id"),
    "a key that is none": ({"idempotency_key": ""}, "invalid-input", ""),
    "too much": ({"data": "x" * 140_000}, "body-too-large", ""),
    "nobody who gets it": ({"exchange": "deaf"}, "unrouted", ""),
}


async def test_a_message_that_is_wrong_is_answered_and_its_neighbours_are_published(served: Served) -> None:
    await declare(served.rig, "deaf")
    async with opened(served) as one:
        for number, (members, _, _) in enumerate(WRONG.values(), start=100):
            message = {"exchange": "ops", "key": "a", "data": 1} | members
            one.say(id=number, channel=1, publish={name: said for name, said in message.items() if said is not ...})
            say(one, number + 100, number)
        told = await answers(one, 2 * len(WRONG))
        for number, (what, (_, slug, field)) in enumerate(WRONG.items(), start=100):
            problem = told[number]["problem"]
            assert problem["type"] == f"urn:homing:problem:{slug}", (what, problem)
            assert not field or problem["errors"][0]["field"] == field, (what, problem)
            assert told[number + 100]["ok"], what
        say(one, 2, 1, exchange="deaf", mandatory=False)
        assert (await one.heard())["routed"] == []


NO_MESSAGES: dict[str, str] = {
    "no number of JSON": '{"id":5,"channel":1,"publish":{"exchange":"ops","key":"a","data":NaN}}',
    "a number that is too large": '{"id":5,"channel":1,"publish":{"exchange":"ops","key":"a","data":1%s}}' % ("0" * 30),
    "half a character": '{"id":5,"channel":1,"publish":{"exchange":"ops","key":"a","data":"\\ud800"}}',
    "too deep": '{"id":5,"channel":1,"publish":{"exchange":"ops","key":"a","data":' + "[" * 33 + "]" * 33 + "}}",
    "a channel that takes": '{"id":5,"channel":2,"publish":{"exchange":"ops","key":"a","data":1}}',
    "a channel that is not open": '{"id":5,"channel":9,"publish":{"exchange":"ops","key":"a","data":1}}',
    "no message": '{"id":5,"channel":1,"publish":[]}',
    "a call of a consumer": '{"id":5,"channel":1,"done":[]}',
    "a pause of what publishes": '{"id":5,"channel":1,"prefetch":0}',
    "a channel that is open": '{"id":5,"open":{"channel":1,"publish":true}}',
    "a channel that takes and is open": '{"id":5,"open":{"channel":2,"publish":true}}',
    "a channel that does not": '{"id":5,"open":{"channel":3,"publish":false}}',
    "a channel for both": '{"id":5,"open":{"channel":3,"publish":true,"queue":"all"}}',
}


async def test_what_is_no_message_has_an_answer_and_the_connection_goes_on(served: Served) -> None:
    async with opened(served) as one:
        one.say(id=2, open={"channel": 2, "queue": "all", "prefetch": 0})
        assert (await one.heard())["ok"]
        for what, text in NO_MESSAGES.items():
            one.send(TextMessage(text))
            told = await one.heard()
            assert (told["id"], told["problem"]["type"]) == (5, "urn:homing:problem:invalid-input"), (what, told)
        say(one, 6, [[[1]]])
        assert (await one.heard())["ok"]


@pytest.mark.parametrize(
    "text",
    [
        '{"id":5,"id":6,"channel":1,"publish":{"exchange":"ops","key":"a","data":1}}',
        '{"channel":1,"publish":{"exchange":"ops","key":"a","data":NaN}}',
        '{"id":5,"channel":1,"publish":{"exchange":"ops","key":"a","data":1}',
        '[{"publish":NaN}]',
        '{"id":true,"channel":1,"publish":{"exchange":"ops","key":"a","data":NaN}}',
        '{"id":1%s,"channel":1,"publish":{"exchange":"ops","key":"a","data":NaN}}' % ("0" * 30),
    ],
)
async def test_a_frame_to_which_no_answer_can_be_told_ends_the_connection(served: Served, text: str) -> None:
    async with opened(served) as one:
        one.send(TextMessage(text))
        assert (await one.heard())["problem"]["type"] == "urn:homing:problem:invalid-input"
        assert (await one.closed())[0] == 1003


async def test_closing_waits_until_all_is_confirmed(served: Served) -> None:
    async with opened(served) as one:
        for number in range(2, 12):
            say(one, number, number)
        one.say(id=12, close={"channel": 1})
        told = [(await one.heard())["id"] for _ in range(11)]
        assert told == [*range(2, 13)]
        say(one, 13, 1)
        assert (await one.heard())["problem"]["errors"][0]["field"] == "channel"


def held_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let the log be slow for once: nothing is appended before this is set."""
    plane = rig.application.ports.queues
    assert plane is not None
    held, append = asyncio.Event(), plane.publisher._publisher.publish

    async def slowly(*arguments: Any) -> Any:  # noqa: ANN401 - as it is
        await held.wait()
        return await append(*arguments)

    monkeypatch.setattr(plane.publisher._publisher, "publish", slowly)
    return held


async def test_a_node_that_stops_confirms_what_it_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(events={"url": "memory://"}) as rig, serving(rig) as served:
        await eventually(lambda: is_declared(rig))
        held = held_up(rig, monkeypatch)
        async with opened(served) as one:
            for number in range(2, 2 + 2 * MOST_CALLS):
                say(one, number, number)
            places = next(iter(rig.application.connections._open))._places
            await until(places.locked)
            await turns()
            rig.application.dismiss()
            held.set()
            told = await answers(one, MOST_CALLS)
            assert list(told) == [*range(2, 2 + MOST_CALLS)], "what comes beyond the bound is not read"
            assert all(frame["ok"] for frame in told.values())
            assert (await one.closed())[0] == 1001
        assert len(await taken(rig, "all", MOST_CALLS + 1, "100ms")) == MOST_CALLS


async def test_a_node_that_stops_confirms_a_channel_that_is_being_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(events={"url": "memory://"}) as rig, serving(rig) as served:
        await eventually(lambda: is_declared(rig))
        held = held_up(rig, monkeypatch)
        async with opened(served) as one:
            for number in range(2, 12):
                say(one, number, number)
            one.say(id=12, close={"channel": 1})
            channel = next(iter(next(iter(rig.application.connections._open))._publishing.values()))
            await until(lambda: channel._ending)
            rig.application.dismiss()
            await turns()
            held.set()
            told = await answers(one, 10)
            assert all(told[number]["ok"] for number in range(2, 12))
            assert (await one.closed())[0] == 1001
        assert len(await taken(rig, "all", 11, "100ms")) == 10


async def test_each_message_is_asked_for_as_one_over_http(tmp_path: Path) -> None:
    async with guarded(tmp_path, events={"url": "memory://"}) as site, serving(site.rig) as served:
        admin = site.headers("admin")

        async def are_declared() -> bool:
            body, names = {"kind": "topic"}, ("ops", "other")
            told = [await site.rig.http.put(f"/v1/exchanges/{one}", json=body, headers=admin) for one in names]
            return all(one.is_success for one in told)

        await eventually(are_declared)
        routes = [{"exchange": "ops", "key": "#"}, {"exchange": "other", "key": "#"}]
        assert (await site.rig.http.put("/v1/queues/all", json={"routes": routes}, headers=admin)).is_success
        await site.change(Put(Role(name="teller", tenant_id="air", rules=("allow publish *:* on exchange/*",))))
        await site.add("teller", "teller")
        async with socket(served.port, site.headers("teller")) as one, socket(served.port, admin) as two:
            for each in (one, two):
                each.say(id=1, open={"channel": 1, "publish": True})
                assert (await each.heard())["ok"]
            say(one, 2, 1)
            assert (await one.heard())["routed"] == ["all"]
            say(two, 2, 1, device_id=OTHER)
            assert (await two.heard())["problem"]["type"] == "urn:homing:problem:device-not-found"
            await site.change(Put(Role(name="teller", tenant_id="air", rules=("allow publish *:* on exchange/other",))))
            say(one, 3, 1)
            assert (await one.heard())["problem"]["type"] == "urn:homing:problem:forbidden"
            say(one, 4, 1, exchange="other")
            assert (await one.heard())["ok"]
            await site.change(Revoke(credential_id=site.keys["teller"].id, at_us=1))
            assert (await one.closed())[0] == 1008
        await turns()
