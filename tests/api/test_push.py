"""Queues that are pushed to webhooks, with real receivers: a 2xx settles, everything else is tried again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from standardwebhooks import Webhook

from app.core.access.changes import Put
from app.core.access.model import Role
from homing_rig.receivers import Receiver, receiving
from tests.api.rig import Rig, running
from tests.api.test_access import guarded
from tests.api.test_queues import counts, declare, is_open, publish
from tests.api.test_webhooks import SERVED
from tests.waiting import eventually


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with running(webhooks=SERVED, events={"url": "memory://"}) as rig:
        await eventually(lambda: is_open(rig))
        yield rig


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


async def push(rig: Rig, receiver: Receiver, queue: str = "alarms", **members: Any) -> dict[str, Any]:
    made = await rig.http.post("/v1/webhooks", json={"url": receiver.url, "queue": queue, **members})
    assert made.status_code == 201, made.text
    hook: dict[str, Any] = made.json()
    return hook


def values(receiver: Receiver) -> list[Any]:
    return [one["data"]["data"] for _, body in receiver.got for one in json.loads(body)]


async def done(rig: Rig, count: int) -> bool:
    return bool((await counts(rig))["done"] == count)


async def test_events_are_pushed_signed_as_cloud_events_and_settled(rig: Rig, receiver: Receiver) -> None:
    await declare(rig)
    hook = await push(rig, receiver)
    assert (hook["queue"], hook["batch"], hook["events"], hook["devices"]) == ("alarms", 32, [], "queue/alarms")
    await publish(rig, 1)
    await eventually(lambda: done(rig, 1))
    ((headers, body),) = receiver.got
    (event,) = Webhook(hook["secret"]).verify(body, headers)
    assert headers["content-type"] == "application/cloudevents-batch+json"
    shown = (await rig.http.get("/v1/events")).json()["events"][0]
    assert event.pop("data") == shown
    database, shard, position = event.pop("id").split(".")
    assert (database, int(position)) == ("events", shown["position"])
    assert (await rig.http.get(f"/v1/events/events/{shard}/{position}")).is_success
    assert event == {
        "specversion": "1.0",
        "source": "/v1/queues/alarms",
        "type": "homing.queue.event",
        "subject": "site/a/alarm",
        "time": shown["at"],
        "datacontenttype": "application/json",
        "delivery": 1,
    }


async def test_a_batch_has_so_many_events_at_most(rig: Rig, receiver: Receiver) -> None:
    await declare(rig)
    await publish(rig, *range(10))
    hook = await push(rig, receiver, batch=4)
    await eventually(lambda: done(rig, 10))
    assert max(len(json.loads(body)) for _, body in receiver.got) <= 4
    assert sorted(values(receiver)) == list(range(10))
    assert len({headers["webhook-id"] for headers, _ in receiver.got}) == len(receiver.got)
    changed = await rig.http.patch(f"/v1/webhooks/{hook['id']}", json={"batch": 64})
    assert changed.json()["batch"] == 64


async def test_large_and_binary_values_are_pushed(rig: Rig, receiver: Receiver) -> None:
    await declare(rig)
    await push(rig, receiver, batch=64)
    large = "x" * 130_000
    await publish(rig, large, large, large)
    raw = [{"topic": "site/b/alarm", "data_base64": "/wA="}]
    assert (await rig.http.post("/v1/events", json=raw)).is_success
    await eventually(lambda: done(rig, 4))
    assert max(len(body) for _, body in receiver.got) <= 256 * 1024
    assert sorted(one["data"].get("data_base64", "") for _, body in receiver.got for one in json.loads(body)) == [
        *("", "", "", "/wA=")
    ]


async def test_what_a_receiver_refuses_is_tried_as_the_queue_says_and_put_aside(rig: Rig, receiver: Receiver) -> None:
    async def refuse(_request: web.Request) -> web.Response:
        return web.Response(status=500)

    receiver.answer = refuse
    await declare(rig, retry=["0s"], max_deliveries=2)
    await push(rig, receiver)
    await publish(rig, "poison")

    async def is_dead() -> bool:
        return bool((await counts(rig))["dead"] == 1)

    await eventually(is_dead)
    assert [one["delivery"] for _, body in receiver.got for one in json.loads(body)] == [1, 2]


async def test_a_receiver_that_is_gone_is_disabled_and_loses_nothing(rig: Rig, receiver: Receiver) -> None:
    async def gone(_request: web.Request) -> web.Response:
        return web.Response(status=410)

    receiver.answer = gone
    await declare(rig)
    hook = await push(rig, receiver)
    await publish(rig, 1)

    async def is_disabled() -> bool:
        return not (await rig.http.get(f"/v1/webhooks/{hook['id']}")).json()["enabled"]

    await eventually(is_disabled)
    async with receiving() as other:
        await push(rig, other)
        await other.wait(1)
        ((event,),) = [json.loads(body) for _, body in other.got]
        assert event["delivery"] == 1


async def test_one_that_hangs_holds_up_no_other(rig: Rig, receiver: Receiver) -> None:
    never = asyncio.Event()

    async def hang(_request: web.Request) -> web.Response:
        await never.wait()
        return web.Response()

    await declare(rig)
    await declare(rig, name="archive")
    async with receiving(hang) as stuck:
        await push(rig, stuck, queue="archive", batch=1)
        await push(rig, receiver)
        await publish(rig, *range(20))
        await eventually(lambda: done(rig, 20))
        never.set()
    assert sorted(values(receiver)) == list(range(20))
    assert len(stuck.got) <= 8


async def test_a_queue_that_is_deleted_is_pushed_again_when_it_is_declared_again(rig: Rig, receiver: Receiver) -> None:
    await declare(rig)
    await push(rig, receiver)
    assert (await rig.http.delete("/v1/queues/alarms")).is_success
    await declare(rig)
    await publish(rig, 1)
    await eventually(lambda: done(rig, 1))


WRONG: list[tuple[dict[str, Any], int, str]] = [
    ({"queue": "Alarms"}, 422, "queue"),
    ({"queue": "alarms", "batch": 0}, 422, "batch"),
    ({"queue": "alarms", "batch": 65}, 422, "batch"),
    ({"queue": "alarms", "batch": "8"}, 422, "batch"),
    ({"queue": "alarms", "events": ["command.failed"]}, 422, "events"),
    ({"queue": "alarms", "devices": "dock-*"}, 422, "devices"),
    ({"queue": "alarms", "methods": "dji:*"}, 422, "methods"),
    ({"queue": "alarms", "url": "http://10.0.0.1/"}, 422, "url"),
    ({"events": ["command.failed"], "batch": 8}, 422, "batch"),
    ({}, 422, "events"),
    ({"queue": "nobody"}, 404, ""),
]


async def test_what_is_wrong_is_named(rig: Rig, receiver: Receiver) -> None:
    await declare(rig)
    for body, status, field in WRONG:
        found = await rig.http.post("/v1/webhooks", json={"url": receiver.url, **body})
        assert found.status_code == status, (body, found.text)
        assert not field or found.json()["errors"][0]["field"].endswith(field), found.text
    hook = await push(rig, receiver)
    changes: list[dict[str, Any]] = [{"events": ["command.failed"]}, {"devices": "*"}, {"methods": "*"}, {"batch": 65}]
    for change in changes:
        found = await rig.http.patch(f"/v1/webhooks/{hook['id']}", json=change)
        assert (found.status_code, found.json()["errors"][0]["field"]) == (422, next(iter(change))), found.text
    assert len((await rig.http.get("/v1/webhooks")).json()["webhooks"]) == 1


async def test_without_events_there_is_no_queue_to_push(receiver: Receiver) -> None:
    async with running(webhooks=SERVED) as rig:
        found = await rig.http.post("/v1/webhooks", json={"url": receiver.url, "queue": "alarms"})
    assert (found.status_code, found.json()["type"]) == (404, "urn:homing:problem:no-queues")


async def test_it_takes_the_right_to_consume_and_a_queue_of_the_own_tenant(tmp_path: Path, receiver: Receiver) -> None:
    async with guarded(tmp_path, webhooks=SERVED, events={"url": "memory://"}) as site:
        http = site.rig.http
        body = {"routes": [{"database": "events", "topic": "homing/+/event"}]}

        async def is_declared() -> bool:
            return (await http.put("/v1/queues/alarms", json=body, headers=site.headers("admin"))).is_success

        await eventually(is_declared)
        await site.change(Put(Role(name="hooker", tenant_id="air", rules=("allow webhooks *:* on *",))))
        await site.add("hooker", "hooker")

        made: list[str] = []

        async def ask(who: str) -> int:
            wanted = {"url": receiver.url, "queue": "alarms"}
            answer = await http.post("/v1/webhooks", json=wanted, headers=site.headers(who))
            made.extend([answer.json()["id"]] if answer.is_success else [])
            return answer.status_code

        assert [await ask(one) for one in ("admin", "hooker", "neighbour")] == [201, 403, 404]
        for who, status in (("hooker", 403), ("neighbour", 404), ("admin", 200)):
            elsewhere = {"url": f"{receiver.url}/{who}"}
            changed = await http.patch(f"/v1/webhooks/{made[0]}", json=elsewhere, headers=site.headers(who))
            assert changed.status_code == status, who
        told = {"url": receiver.url, "events": ["command.failed"]}
        own = (await http.post("/v1/webhooks", json=told, headers=site.headers("hooker"))).json()
        changed = await http.patch(f"/v1/webhooks/{own['id']}", json=told, headers=site.headers("hooker"))
        assert changed.status_code == 200, "one of commands needs no more than before"
