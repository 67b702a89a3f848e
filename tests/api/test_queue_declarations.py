"""Declarations of queues over HTTP, on all engines: made, changed, bound to routes, and deleted."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from tests.api.rig import Rig
from tests.api.test_queues import QUEUE, ROUTES, declare, publish, settle, site, take

__all__ = ["site"]


async def test_a_queue_is_declared_once_and_changed_with_its_tag(site: Rig) -> None:
    first = await declare(site, labels={"team": "ops"})
    same = await declare(site, labels={"team": "ops"}, start="-10m")
    assert (first.status_code, same.status_code, same.json()) == (201, 200, first.json())
    differs = await declare(site, loan="1m")
    assert differs.status_code == 409
    assert differs.json()["type"].endswith("queue-differs")
    assert "loan, labels" in differs.json()["detail"]
    stale = await declare(site, loan="1m", headers={"If-Match": '"other"'})
    assert stale.status_code == 412
    tag = (await site.http.get(QUEUE)).headers["etag"]
    changed = await declare(site, loan="1m", headers={"If-Match": tag})
    assert (changed.status_code, changed.json()["loan"]) == (200, "1m")
    order = await declare(site, loan="1m", order="device", headers={"If-Match": changed.headers["etag"]})
    assert (order.status_code, order.json()["errors"][0]["field"]) == (422, "order")
    assert [one["name"] for one in (await site.http.get("/v1/queues")).json()["queues"]] == ["alarms", "probe"]


async def test_a_queue_is_deleted_with_what_waits_in_it(site: Rig) -> None:
    await declare(site)
    assert (await site.http.head(QUEUE)).status_code == 200
    await publish(site, 1)
    (one,) = await take(site)
    assert (await site.http.delete(QUEUE, params={"if": "empty"})).status_code == 409
    assert (await site.http.delete(QUEUE)).status_code == 204
    assert (await site.http.head(QUEUE)).status_code == 404
    assert (await site.http.post(f"{QUEUE}/take", json={})).json()["type"].endswith("queue-not-found")
    await declare(site, start="-10m")
    assert (await settle(site, done=[one["loan"]]))["over"] == [one["loan"]]
    assert [again["event"]["data"] for again in await take(site)] == [1]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"routes": []}, "routes"),
    ({"routes": ROUTES * 2}, "routes"),
    ({"routes": [{"database": "nowhere", "topic": "a"}]}, "routes.0.database"),
    ({"routes": [{"database": "events", "topic": "a/#/b"}]}, "routes.0.topic"),
    ({"routes": [{"database": "events", "topic": "$share/g/a"}]}, "routes.0.topic"),
    ({"routes": [{"database": "events", "topic": "$homing/dead/#"}]}, "routes.0.topic"),
    ({"routes": [{"database": "events", "topic": f"a/{number}"} for number in range(65)]}, "routes"),
    ({"loan": "soon"}, "loan"),
    ({"loan": "999ms"}, "loan"),
    ({"loan": "13h"}, "loan"),
    ({"retry": []}, "retry"),
    ({"retry": ["1s"] * 17}, "retry"),
    ({"retry": ["1s", "13h"]}, "retry.1"),
    ({"max_deliveries": 101}, "max_deliveries"),
    ({"max_deliveries": -1}, "max_deliveries"),
    ({"ttl": "1ms"}, "ttl"),
    ({"ttl": "87601h"}, "ttl"),
    ({"delay": "25h"}, "delay"),
    ({"ends_after": "59s"}, "ends_after"),
    ({"ends_after": "87601h"}, "ends_after"),
    ({"start": "yesterday"}, "start"),
    ({"labels": {"a": "b" * 200}}, "labels"),
    ({"labels": {f"a{number}": "b" for number in range(17)}}, "labels"),
]


async def test_a_wrong_declaration_names_the_field(site: Rig) -> None:
    for body, field in WRONG:
        found = await declare(site, **body)
        assert found.status_code == 422, body
        assert found.json()["errors"][0]["field"] == field, found.text
    assert (await declare(site, name="Alarms")).json()["errors"][0]["field"] == "name"


OTHER = {"database": "events", "topic": "site/+/fire"}


async def reroute(site: Rig, what: str, *routes: dict[str, str], tag: str | None = None) -> httpx.Response:
    headers = {} if tag is None else {"If-Match": tag}
    return await site.http.post(f"{QUEUE}/{what}", json={"routes": routes}, headers=headers)


async def test_routes_are_added_and_removed_one_by_one(site: Rig) -> None:
    before = (await declare(site)).headers["ETag"]
    added = await reroute(site, "bind", OTHER)
    assert added.json()["routes"] == [*ROUTES, OTHER]
    assert added.headers["ETag"] != before
    assert (await reroute(site, "bind", OTHER, *ROUTES)).headers["ETag"] == added.headers["ETag"]
    await site.http.post("/v1/events", json=[{"topic": "site/a/fire", "data": "hot"}])
    (one,) = await take(site)
    assert one["event"]["data"] == "hot"
    removed = await reroute(site, "unbind", OTHER, {"database": "events", "topic": "never/bound"})
    assert (removed.json()["routes"], removed.headers["ETag"]) == (ROUTES, before)
    assert (await declare(site)).status_code == 200


async def test_routes_are_changed_on_the_condition_that_nobody_else_did(site: Rig) -> None:
    before = (await declare(site)).headers["ETag"]
    assert (await reroute(site, "bind", OTHER, tag=before)).is_success
    for what in ("bind", "unbind"):
        assert (await reroute(site, what, OTHER, tag=before)).status_code == 412, what
    together = await asyncio.gather(
        *(reroute(site, "bind", {"database": "events", "topic": f"site/+/{number}"}) for number in range(4))
    )
    assert all(one.is_success for one in together)
    assert len((await site.http.get(QUEUE)).json()["routes"]) == 6


async def test_wrong_routes_are_not_added_or_removed(site: Rig) -> None:
    tag = (await declare(site)).headers["ETag"]
    many = [{"database": "events", "topic": f"a/{number}"} for number in range(64)]
    wrong: list[tuple[str, list[dict[str, str]], str]] = [
        ("bind", [], "routes"),
        ("unbind", [], "routes"),
        ("unbind", ROUTES, "routes"),
        ("bind", many, "routes"),
        ("bind", [{"database": "nowhere", "topic": "a"}], "routes.0.database"),
        ("bind", [{"database": "events", "topic": "a/#/b"}], "routes.0.topic"),
        ("bind", [{"database": "events", "topic": "$homing/dead/-/alarms"}], "routes.0.topic"),
        ("bind", [{"exchange": "nowhere", "key": "a"}], "routes.0.exchange"),
        ("unbind", [{"exchange": "nowhere", "key": "a"}], "routes.0.exchange"),
    ]
    for what, routes, field in wrong:
        found = await reroute(site, what, *routes)
        assert (found.status_code, found.json()["errors"][0]["field"]) == (422, field), (what, routes, found.text)
    missing = await site.http.post("/v1/queues/nobody/bind", json={"routes": ROUTES})
    assert (missing.status_code, missing.json()["type"].rpartition(":")[2]) == (404, "queue-not-found")
    assert (await site.http.get(QUEUE)).headers["ETag"] == tag


async def test_a_queue_whose_events_wait_out_a_delay_is_not_empty(site: Rig) -> None:
    await declare(site, delay="1h")
    await publish(site, 1)
    refused = await site.http.delete(QUEUE, params={"if": "empty"})
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:homing:problem:queue-not-empty")
    assert (await site.http.delete(QUEUE)).status_code == 204
