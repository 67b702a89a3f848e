"""Webhooks over HTTP, with real receivers: made, told, changed, tried; nobody hears of what is not theirs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from standardwebhooks import Webhook

from app.core.access.changes import Put
from app.core.access.model import Role
from homing_rig.receivers import Receiver, fine, receiving
from tests.api.rig import Rig, running
from tests.api.test_access import OTHER, OWN, Site, guarded
from tests.api.test_send import problem
from tests.waiting import eventually

SERVED = {"secret_key": "0123456789abcdef" * 4, "networks": "127.0.0.0/8", "plain_http": True}
ALL = [
    "command.succeeded",
    "command.failed",
    "command.timed_out",
    "command.cancelled",
    "command.unsent",
    "command.late",
]


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with running(webhooks=SERVED) as rig:
        yield rig


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


async def ask(rig: Rig, method: str, path: str = "", **more: Any) -> httpx.Response:
    return await rig.http.request(method, f"/v1/webhooks{path}", **more)


async def create(rig: Rig, receiver: Receiver, **members: Any) -> dict[str, Any]:
    response = await ask(rig, "POST", json={"url": receiver.url, "events": ALL, **members})
    assert response.status_code == 201, response.text
    made: dict[str, Any] = response.json()
    return made


async def listed_until(rig: Rig, hook: dict[str, Any], condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Its deliveries, once they are as they should be."""
    while True:
        await asyncio.sleep(0)  # a call within the process gives nobody else a turn
        listed: dict[str, Any] = (await ask(rig, "GET", f"/{hook['id']}/deliveries")).json()
        if condition(listed):
            return listed


class TestBounds:
    async def test_what_is_too_much_for_a_tenant_is_dropped_and_counted(
        self, rig: Rig, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        never = asyncio.Event()

        async def hang(_request: web.Request) -> web.Response:
            await never.wait()
            return web.Response()

        receiver.answer = hang
        monkeypatch.setattr("app.webhooks.backlog.MOST_OF_TENANT", 3)
        hooks = [await create(rig, receiver) for _ in range(2)]
        for _ in range(2):
            await rig.send("ok")
        await eventually(lambda: rig.counters["webhooks.dropped_tenant_full"])
        waiting = [(await ask(rig, "GET", f"/{one['id']}/deliveries")).json()["waiting"] for one in hooks]
        assert (sum(waiting), rig.counters["webhooks.dropped_tenant_full"]) == (3, 1)
        await eventually(lambda: rig.application.ports.node.fills()["webhooks_waiting"].size == 3)
        never.set()

    async def test_a_tenant_cannot_have_all_of_them(self, tmp_path: Path) -> None:
        async with guarded(tmp_path, webhooks=SERVED) as site:
            webhooks = site.rig.application.ports.webhooks
            assert webhooks is not None
            webhooks.most_of_tenant = 1
            body = {"url": "https://a.example/hook", "events": ["command.failed"]}
            answers = [
                await site.rig.http.post("/v1/webhooks", json=body, headers=site.headers(who))
                for who in ("admin", "admin", "neighbour")
            ]
        assert [one.status_code for one in answers] == [201, 429, 201]
        assert "tenant 'air' has 1 webhooks" in answers[1].json()["detail"]


class TestTold:
    async def test_the_outcome_is_told_signed_and_whole(self, rig: Rig, receiver: Receiver) -> None:
        hook = await create(rig, receiver)
        sent = (await rig.send("ok")).json()
        await receiver.wait(1)
        ((headers, body),) = receiver.got
        event = Webhook(hook["secret"]).verify(body, headers)
        assert headers["webhook-id"] == f"evt_{sent['id']}_1"
        assert event["type"] == "command.succeeded"
        assert event["timestamp"] == sent["finished_at"]
        assert event["data"] == {"sequence": 1, "command": (await rig.http.get(rig.location)).json()}

    async def test_every_outcome_and_the_late_answer_has_its_event(self, rig: Rig, receiver: Receiver) -> None:
        await create(rig, receiver)
        await rig.send("refuse")
        await rig.send("silence", timeout="1ms")
        command = await rig.heard()
        while command["method"] != "silence":
            command = await rig.heard()
        await receiver.wait(2)
        rig.device.answer(command, '"status":"ok"')
        await receiver.wait(3)
        assert [json.loads(body)["type"] for _, body in receiver.got] == [
            "command.failed",
            "command.timed_out",
            "command.late",
        ]
        assert json.loads(receiver.got[2][1])["data"]["sequence"] == 2
        assert json.loads(receiver.got[2][1])["data"]["command"]["late"]["state"] == "succeeded"

    async def test_only_what_fits_its_filter(self, rig: Rig, receiver: Receiver) -> None:
        await create(rig, receiver, devices="dock-*")
        await create(rig, receiver, methods="dji:*")
        await create(rig, receiver, events=["command.failed"])
        last = await create(rig, receiver, methods="homing:ok")
        await rig.send("ok")
        await receiver.wait(1)
        listed = (await ask(rig, "GET", f"/{last['id']}/deliveries")).json()
        assert [one["progress"] for one in listed["deliveries"]] in (["delivered"], ["waiting"])
        assert len(receiver.got) == 1

    async def test_a_caller_may_name_one(self, rig: Rig, receiver: Receiver) -> None:
        hook = await create(rig, receiver, devices="nothing-*")
        assert (await rig.send("ok", notify=[hook["id"]])).status_code == 200
        await receiver.wait(1)

    @pytest.mark.parametrize(
        ("notify", "reason"),
        [
            (
                ["https://evil.example"],
                "'https://evil.example' is no webhook; allowed: ids that GET /v1/webhooks lists",
            ),
            (["wh_01J00000000000000000000001"], "is no webhook"),
            ("wh_01J00000000000000000000001", "is a string; a list of webhook ids is needed"),
            ([7], "has a number in it"),
            (["x"] * 17, "has 17 entries; allowed are 16"),
        ],
    )
    async def test_but_no_url_and_none_that_there_is_not(self, rig: Rig, notify: object, reason: str) -> None:
        refused = await rig.send("ok", notify=notify)
        assert refused.status_code == 422
        assert reason in refused.json()["detail"]
        assert rig.store.registrations == []

    async def test_a_receiver_that_fails_is_tried_again_and_seen(self, rig: Rig, receiver: Receiver) -> None:
        async def busy(_request: web.Request) -> web.Response:
            return web.Response(status=503)

        receiver.answer = busy
        hook = await create(rig, receiver)
        await rig.send("ok")
        listed = await listed_until(rig, hook, lambda found: any(one["attempts"] for one in found["deliveries"]))
        (one,) = listed["deliveries"]
        assert (listed["waiting"], one["progress"], one["status"], one["attempts"]) == (1, "waiting", 503, 1)
        assert one["reason"] == "the receiver answered 503"
        assert one["next_at"] > one["attempted_at"]
        assert one["body"]["type"] == "command.succeeded"

    async def test_410_disables_it_and_others_are_told(self, rig: Rig, receiver: Receiver) -> None:
        async def gone(_request: web.Request) -> web.Response:
            return web.Response(status=410)

        async with receiving() as watcher:
            await create(rig, watcher, events=["webhook.disabled"])
            receiver.answer = gone
            hook = await create(rig, receiver)
            await rig.send("ok")
            await watcher.wait(1)
            event = json.loads(watcher.got[0][1])
            assert (event["type"], event["data"]["webhook_id"]) == ("webhook.disabled", hook["id"])
        read = (await ask(rig, "GET", f"/{hook['id']}")).json()
        assert (read["enabled"], read["disabled_reason"]) == (
            False,
            "the receiver answered 410: it wants nothing any more",
        )
        assert (await ask(rig, "PATCH", f"/{hook['id']}", json={"enabled": True})).json()["enabled"] is True


class TestManaged:
    async def test_made_read_changed_and_removed(self, rig: Rig, receiver: Receiver) -> None:
        hook = await create(rig, receiver)
        secret = hook.pop("secret")
        assert secret.startswith("whsec_")
        assert (await ask(rig, "GET", f"/{hook['id']}")).json() == hook
        assert (await ask(rig, "GET")).json() == {"webhooks": [hook], "cursor": None}
        changed = (await ask(rig, "PATCH", f"/{hook['id']}", json={"devices": "dock-*", "enabled": False})).json()
        assert changed == {
            **hook,
            "devices": "dock-*",
            "enabled": False,
            "disabled_at": changed["disabled_at"],
            "disabled_reason": "somebody has disabled it",
        }
        rotated = (await ask(rig, "POST", f"/{hook['id']}/rotate")).json()
        assert rotated["secret"] != secret
        assert (await ask(rig, "DELETE", f"/{hook['id']}")).status_code == 204
        for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/deliveries"), ("POST", "/test")):
            assert (await ask(rig, method, f"/{hook['id']}{path}")).status_code == 404

    async def test_a_change_may_ask_for_the_state_that_was_read(self, rig: Rig, receiver: Receiver) -> None:
        path = f"/{(await create(rig, receiver))['id']}"
        read = (await ask(rig, "GET", path)).headers["etag"]
        first = await ask(rig, "PATCH", path, json={"devices": "dock-*"}, headers={"If-Match": read})
        assert (first.status_code, first.headers["etag"] != read) == (200, True)
        problem(
            await ask(rig, "PATCH", path, json={"devices": "*"}, headers={"If-Match": read}), 412, "precondition-failed"
        )
        assert (await ask(rig, "GET", path)).headers["etag"] == first.headers["etag"]
        changed = await ask(rig, "PATCH", path, json={"devices": "*"}, headers={"If-Match": first.headers["etag"]})
        assert changed.json()["devices"] == "*"
        problem(await ask(rig, "PATCH", path, json={}, headers={"If-Match": ""}), 422, "invalid-input")

    async def test_a_test_is_sent_once_and_answered_at_once(self, rig: Rig, receiver: Receiver) -> None:
        hook = await create(rig, receiver, events=["command.failed"])
        assert (await ask(rig, "POST", f"/{hook['id']}/test")).json() == {
            "delivered": True,
            "status": 204,
            "reason": None,
        }
        ((headers, body),) = receiver.got
        assert Webhook(hook["secret"]).verify(body, headers)["type"] == "webhook.test"
        assert (await ask(rig, "GET", f"/{hook['id']}/deliveries")).json() == {
            "waiting": 0,
            "deliveries": [],
            "cursor": None,
        }

    async def test_a_node_tests_a_webhook_once_at_a_time(self, rig: Rig, receiver: Receiver) -> None:
        answers = asyncio.Event()

        async def slow(request: web.Request) -> web.Response:
            await answers.wait()
            return await fine(request)

        receiver.answer = slow
        hook = await create(rig, receiver, events=["command.failed"])
        first = asyncio.create_task(ask(rig, "POST", f"/{hook['id']}/test"))
        await receiver.wait(1)
        problem(await ask(rig, "POST", f"/{hook['id']}/test"), 429, "limit-reached")
        answers.set()
        assert (await first).json()["delivered"] is True
        assert (await ask(rig, "POST", f"/{hook['id']}/test")).json()["delivered"] is True

    async def test_an_ended_delivery_is_sent_again_under_its_id(self, rig: Rig, receiver: Receiver) -> None:
        hook = await create(rig, receiver)
        await rig.send("ok")
        await receiver.wait(1)
        event_id = receiver.got[0][0]["webhook-id"]
        await listed_until(rig, hook, lambda listed: not listed["waiting"])
        assert (await ask(rig, "POST", f"/{hook['id']}/deliveries/{event_id}/retry")).status_code == 204
        await receiver.wait(2)
        assert receiver.got[1][0]["webhook-id"] == event_id
        assert receiver.got[1][1] == receiver.got[0][1]
        assert (await ask(rig, "POST", f"/{hook['id']}/deliveries/evt_x/retry")).status_code == 404

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            ({"events": ALL}, "url"),
            ({"url": "https://a.example"}, "events"),
            ({"url": "https://a.example", "events": []}, "events: is empty; allowed: command.succeeded"),
            ({"url": "https://a.example", "events": ["x"]}, "events: 'x' is none"),
            ({"url": "ftp://a.example", "events": ALL}, "url: begins with 'ftp'"),
            ({"url": "https://a.example", "events": ALL, "devices": "do?k"}, "devices: '?' at index 2"),
            ({"url": "https://a.example", "events": ALL, "colour": "red"}, "colour"),
        ],
    )
    async def test_what_is_wrong_is_said(self, rig: Rig, body: object, reason: str) -> None:
        refused = await ask(rig, "POST", json=body)
        assert refused.status_code == 422
        assert reason in refused.json()["detail"]
        assert (await ask(rig, "GET")).json() == {"webhooks": [], "cursor": None}

    async def test_a_node_without_the_secret_says_so(self) -> None:
        async with running() as rig:
            refused = await ask(rig, "GET")
            assert (refused.status_code, refused.json()["type"]) == (404, "urn:homing:problem:webhooks-off")
            assert "HOMING_WEBHOOKS_SECRET_KEY" in refused.json()["detail"]
            assert (await rig.send("ok", notify=["wh_01J00000000000000000000001"])).status_code == 422


class TestTenants:
    @pytest.fixture
    async def site(self, tmp_path: Path) -> AsyncIterator[Site]:
        async with guarded(tmp_path, webhooks=SERVED) as site:
            for tenant in ("air", "ground"):
                await site.change(Put(Role(name="hooks", tenant_id=tenant, rules=("allow webhooks *:* on *",))))
                await site.add(f"{tenant}-hooks", "hooks", tenant=tenant)
            yield site

    async def test_one_tenant_neither_sees_nor_hears_of_another(self, site: Site, receiver: Receiver) -> None:
        mine, theirs = site.headers("air-hooks"), site.headers("ground-hooks")
        body = {"url": receiver.url, "events": ALL}
        made = await ask(site.rig, "POST", json=body, headers=mine)
        assert made.status_code == 201, made.text
        assert made.json()["tenant"] == "air"
        identity = made.json()["id"]
        assert (await ask(site.rig, "GET", headers=theirs)).json() == {"webhooks": [], "cursor": None}
        for method, path in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/rotate"), ("POST", "/test")):
            found = await ask(site.rig, method, f"/{identity}{path}", headers=theirs, json={})
            assert found.status_code == 404, (method, path)
        assert (await ask(site.rig, "POST", json={**body, "tenant": "air"}, headers=theirs)).status_code == 422
        await site.send("neighbour", OTHER, method="x", timeout="1ms")
        await site.send("operator", OWN)
        await receiver.wait(1)
        assert [json.loads(one)["data"]["command"]["device_id"] for _, one in receiver.got] == [OWN]
        foreign = await site.send("neighbour", OTHER, notify=[identity])
        assert foreign.status_code == 422

    async def test_a_tenant_that_is_not_there_gets_none(self, site: Site, receiver: Receiver) -> None:
        """It would be told of nothing, and nobody would know why."""
        boss, body = site.headers("boss"), {"url": receiver.url, "events": ALL}
        refused = await ask(site.rig, "POST", json={**body, "tenant": "norht"}, headers=boss)
        assert (refused.status_code, "there is no tenant 'norht'" in refused.json()["detail"]) == (422, True)
        made = await ask(site.rig, "POST", json={**body, "tenant": "air"}, headers=boss)
        assert (made.status_code, made.json()["tenant"]) == (201, "air")

    async def test_without_the_right_it_is_forbidden(self, site: Site) -> None:
        assert (await ask(site.rig, "GET", headers=site.headers("viewer"))).status_code == 403
        assert (await ask(site.rig, "GET")).status_code == 401


async def test_a_node_that_asks_nobody_for_a_key_shows_webhooks_of_tenants_and_removes_them(
    rig: Rig, receiver: Receiver
) -> None:
    """They were there, counted towards the most that there can be, and nobody could remove them."""
    hook = await create(rig, receiver)
    (made,) = await rig.store.webhooks.endpoints()
    assert await rig.store.webhooks.put_endpoint(replace(made, tenant="north"), made)
    assert [one["tenant"] for one in (await ask(rig, "GET")).json()["webhooks"]] == ["north"]
    assert (await ask(rig, "DELETE", f"/{hook['id']}")).status_code == 204
    assert (await ask(rig, "GET")).json()["webhooks"] == []
