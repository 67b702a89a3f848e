"""Exchanges over HTTP, on both engines: declared, routed by key, said once; who may do what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from app.core.access.changes import Put
from app.core.access.model import Role
from app.core.queues.exchanges import KeyRoute
from app.core.queues.model import QueueOptions
from app.queues.book import QueueBook
from app.queues.declarations import KnownDeclarations
from tests.api.documents import document_of
from tests.api.rig import Rig, running
from tests.api.test_access import OF_EXCHANGES, OTHER, OWN, ROLES, actions, guarded
from tests.services import RedisProcess
from tests.waiting import eventually

MESSAGES = "/v1/exchanges/ops/messages"


@pytest.fixture(params=["memory", "redis"])
async def site(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    url = "memory://"
    if request.param == "redis":
        server: RedisProcess = request.getfixturevalue("redis_server")
        async with Redis.from_url(server.url) as client:
            await client.flushall()
        url = server.node_url
    async with running(events={"url": url}) as rig:

        async def is_declared() -> bool:
            return (await declare(rig)).is_success

        await eventually(is_declared)
        yield rig


async def declare(rig: Rig, name: str = "ops", kind: str = "topic") -> httpx.Response:
    answer: httpx.Response = await rig.http.put(f"/v1/exchanges/{name}", json={"kind": kind})
    return answer


async def bind(rig: Rig, queue: str, *routes: tuple[str, str], **more: Any) -> httpx.Response:
    told = [{"exchange": exchange, "key": key} for exchange, key in routes]
    answer: httpx.Response = await rig.http.put(f"/v1/queues/{queue}", json={"routes": told, **more})
    return answer


async def publish(rig: Rig, key: str, exchange: str = "ops", **more: Any) -> httpx.Response:
    said = {"key": key, "data": key, **more}
    answer: httpx.Response = await rig.http.post(f"/v1/exchanges/{exchange}/messages", json=said)
    return answer


async def taken(rig: Rig, queue: str, most: int, wait: str = "30s") -> list[Any]:
    found: list[Any] = []
    while len(found) < most:
        body = {"max": most, "wait": wait, "auto": True}
        page = (await rig.http.post(f"/v1/queues/{queue}/take", json=body)).json()["events"]
        if not page:
            break
        found += [one["event"] for one in page]
    return found


def problem(response: httpx.Response) -> str:
    return f"{response.status_code} {response.json()['type'].removeprefix('urn:homing:problem:')}"


def fault(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["errors"][0]["field"]


async def test_an_exchange_is_declared_once(site: Rig) -> None:
    again = await declare(site)
    assert (again.status_code, again.json()["kind"], again.json()["database"]) == (200, "topic", "events")
    assert problem(await declare(site, kind="fanout")) == "409 exchange-differs"
    assert (await declare(site, "all", "fanout")).status_code == 201
    assert [one["name"] for one in (await site.http.get("/v1/exchanges")).json()["exchanges"]] == ["all", "ops"]
    assert fault(await declare(site, "Ops")) == (422, "name")
    assert fault(await declare(site, "other", "headers")) == (422, "body.kind")
    assert problem(await site.http.get("/v1/exchanges/none")) == "404 exchange-not-found"
    assert (await site.http.delete("/v1/exchanges/all")).status_code == 204
    assert problem(await site.http.delete("/v1/exchanges/all")) == "404 exchange-not-found"


async def test_low_battery_goes_to_ops_and_everything_to_the_archive(site: Rig) -> None:
    assert (await bind(site, "ops", ("ops", "low.*"), ("ops", "#.fire"))).status_code == 201
    assert (await bind(site, "archive", ("ops", "#"))).status_code == 201
    routed = {}
    for key in ("low.battery", "low", "a.b.fire", "low.fire", "fire"):
        answer = await publish(site, key)
        assert answer.status_code == 200, answer.text
        routed[key] = answer.json()["routed"]
    both, one = ["archive", "ops"], ["archive"]
    assert routed == {"low.battery": both, "low": one, "a.b.fire": both, "low.fire": both, "fire": both}
    assert sorted(event["data"] for event in await taken(site, "ops", 4)) == [
        "a.b.fire",
        "fire",
        "low.battery",
        "low.fire",
    ]
    assert sorted(event["data"] for event in await taken(site, "archive", 5)) == sorted(routed)
    assert await taken(site, "ops", 1, "100ms") == [], "each once, though two routes fit low.fire"
    shown = (await site.http.get("/v1/exchanges/ops")).json()["routes"]
    assert {(each["queue"], each["key"]) for each in shown} == {("archive", "#"), ("ops", "low.*"), ("ops", "#.fire")}


async def test_direct_compares_and_fanout_takes_all(site: Rig) -> None:
    await declare(site, "one", "direct")
    await declare(site, "all", "fanout")
    assert (await bind(site, "a", ("one", "low.battery"), ("all", ""))).status_code == 201
    assert (await bind(site, "a", ("one", "low.battery"), ("all", "#"))).status_code == 200, "the same"
    assert (await publish(site, "low.battery", "one")).json()["routed"] == ["a"]
    assert problem(await publish(site, "low.battery.now", "one")) == "422 unrouted"
    assert (await publish(site, "any.thing", "all")).json()["routed"] == ["a"]
    assert sorted(event["data"] for event in await taken(site, "a", 2)) == ["any.thing", "low.battery"]
    assert fault(await bind(site, "b", ("one", "low.*"))) == (422, "routes.0.key")
    assert fault(await bind(site, "b", ("all", "low"))) == (422, "routes.0.key")


async def test_what_nobody_gets_is_refused_or_waits_for_who_comes(site: Rig) -> None:
    assert problem(await publish(site, "low.battery")) == "422 unrouted"
    kept = await publish(site, "low.battery", mandatory=False)
    assert kept.json()["routed"] == []
    assert (await bind(site, "late", ("ops", "#"), start="-10m")).status_code == 201
    assert [event["position"] for event in await taken(site, "late", 1)] == [kept.json()["position"]]


async def test_an_exchange_in_use_stays(site: Rig) -> None:
    await bind(site, "ops", ("ops", "#"))
    used = await site.http.delete("/v1/exchanges/ops")
    assert (problem(used), "to ops" in used.json()["detail"]) == ("409 exchange-in-use", True)
    assert (await site.http.delete("/v1/queues/ops")).status_code == 204
    assert (await site.http.delete("/v1/exchanges/ops")).status_code == 204
    assert fault(await bind(site, "ops", ("ops", "#"))) == (422, "routes.0.exchange")
    assert problem(await publish(site, "a")) == "404 exchange-not-found"


async def test_a_message_that_is_repeated_is_there_once(site: Rig) -> None:
    await bind(site, "ops", ("ops", "#"))
    said, key = {"key": "a", "data": 1, "id": "m-1"}, {"idempotency-key": "k"}
    first, again = [await site.http.post(MESSAGES, json=said, headers=key) for _ in range(2)]
    assert (first.status_code, first.json()) == (200, again.json())
    for other in ({"data": 2}, {"key": "b"}, {"id": "m-2"}, {"device_id": "dock-1"}):
        answer = await site.http.post(MESSAGES, json=said | other, headers=key)
        assert problem(answer) == "422 idempotency-key-reused"
    (event,) = await taken(site, "ops", 1)
    assert (event["data"], event["id"], event["topic"]) == (1, "m-1", "$exchange/-/ops/a")
    assert await taken(site, "ops", 1, "100ms") == []


async def test_messages_about_a_device_are_one_order_whatever_their_keys(site: Rig) -> None:
    await bind(site, "ops", ("ops", "#"), order="device")
    for number in range(12):
        assert (await publish(site, f"k{number}", device_id="dock-1", data=number)).status_code == 200
    assert [event["data"] for event in await taken(site, "ops", 12)] == [*range(12)]


async def test_what_is_wrong_is_named(site: Rig) -> None:
    await bind(site, "ops", ("ops", "#"))
    for said, field in (
        ({"key": "", "data": 1}, "key"),
        ({"key": "a..b", "data": 1}, "key"),
        ({"key": "a.*", "data": 1}, "key"),
        ({"key": "a/b", "data": 1}, "key"),
        ({"key": "$a", "data": 1}, "key"),
        ({"key": "a" * 256, "data": 1}, "key"),
        ({"key": "a"}, "body.data"),
        ({"key": "a", "data": 1, "data_base64": "YQ=="}, "body.data_base64"),
        ({"key": "a", "data": 1, "id": "x" * 256}, "body.id"),
        ({"key": "a", "data": 1, "device_id": "a/.."}, "device_id"),
        ({"data": 1}, "body.key"),
    ):
        assert fault(await site.http.post(MESSAGES, json=said)) == (422, field), said
    large = await site.http.post(MESSAGES, json={"key": "a", "data": "x" * 140_000})
    assert problem(large) == "413 body-too-large"
    by_hand = await site.http.post("/v1/events", json=[{"topic": "$exchange/-/ops/a", "data": 1}])
    assert fault(by_hand) == (422, "body.0.topic")
    for route in ({"exchange": "ops", "key": "a.b*"}, {"exchange": "ops", "key": ""}, {"exchange": "ops", "key": "#a"}):
        answer = await site.http.put("/v1/queues/more", json={"routes": [route]})
        assert fault(answer) == (422, "routes.0.key"), route
    assert await taken(site, "ops", 1, "100ms") == []


async def test_a_route_from_nowhere_is_refused(site: Rig) -> None:
    answer = await site.http.put("/v1/queues/more", json={"routes": [{"exchange": "nobody", "key": "a"}]})
    assert fault(answer) == (422, "routes.0.exchange")


async def test_routes_may_be_of_topics_and_of_keys(site: Rig) -> None:
    routes = [{"exchange": "ops", "key": "low.*"}, {"database": "events", "topic": "site/+/alarm"}]
    answer = await site.http.put("/v1/queues/both", json={"routes": routes})
    assert (answer.status_code, answer.json()["routes"]) == (201, [routes[1], routes[0]])
    again = {"routes": answer.json()["routes"]}
    assert (await site.http.put("/v1/queues/both", json=again)).status_code == 200
    await publish(site, "low.battery")
    await site.http.post("/v1/events", json=[{"topic": "site/a/alarm", "data": "alarm"}])
    assert sorted(event["data"] for event in await taken(site, "both", 2)) == ["alarm", "low.battery"]


async def test_everybody_may_what_their_role_says(tmp_path: Path) -> None:
    async with guarded(tmp_path, events={"url": "memory://"}) as site:

        async def ask(who: str | None, method: str, path: str, body: object = None) -> httpx.Response:
            return await site.rig.http.request(method, f"/v1{path}", headers=site.headers(who), json=body)

        async def is_declared() -> bool:
            return (await ask("admin", "PUT", "/exchanges/ops", {"kind": "topic"})).is_success

        await eventually(is_declared)
        named = actions(await document_of(site.rig))
        assert {name for name in named if "/v1/exchanges" in name} == OF_EXCHANGES
        assert (await ask("admin", "PUT", "/queues/all", {"routes": [{"exchange": "ops"}]})).is_success
        calls: dict[str, tuple[str, str, object]] = {
            "GET /v1/exchanges": ("GET", "", None),
            "PUT /v1/exchanges/{name}": ("PUT", "/ops", {"kind": "topic"}),
            "GET /v1/exchanges/{name}": ("GET", "/ops", None),
            "POST /v1/exchanges/{name}/messages": ("POST", "/ops/messages", {"key": "a", "data": 1}),
        }
        assert calls.keys() | {"DELETE /v1/exchanges/{name}"} == OF_EXCHANGES
        for who in (None, *ROLES):
            may = {"admin": {"queues", "publish"}, "operator": {"publish"}}.get(who or "", set())
            for operation, (method, path, body) in calls.items():
                found = await ask(who, method, f"/exchanges{path}", body)
                expected = 401 if who is None else 200 if named[operation] in may else 403
                assert found.status_code == expected, (who, operation, found.text)
        assert (await ask("operator", "DELETE", "/exchanges/ops")).status_code == 403
        await site.change(Put(Role(name="teller", tenant_id="air", rules=("allow publish *:* on exchange/o*",))))
        await site.add("teller", "teller")
        assert (await ask("teller", "POST", "/exchanges/ops/messages", {"key": "a", "data": 1})).status_code == 200
        about = {"key": "a", "data": 1, "device_id": OWN}
        assert (await ask("teller", "POST", "/exchanges/ops/messages", about)).status_code in (403, 404)
        assert (await ask("admin", "POST", "/exchanges/ops/messages", about)).status_code == 200
        about["device_id"] = OTHER
        assert (await ask("admin", "POST", "/exchanges/ops/messages", about)).status_code == 404
        assert (await ask("neighbour", "POST", "/exchanges/ops/messages", about)).status_code == 404, "not theirs"
        assert (await ask("neighbour", "GET", "/exchanges")).json() == {"exchanges": []}
        got = (await ask("admin", "POST", "/queues/all/take", {"max": 9, "wait": "30s"})).json()["events"]
        assert got, "messages without a device are the tenant's"
        assert {one["event"]["topic"] for one in got} == {"$exchange/air/ops/a"}


async def elsewhere(site: Rig) -> QueueBook:
    """The declarations, as another node has them of which this one has not heard."""
    plane = site.application.ports.queues
    assert plane is not None
    return QueueBook(plane.book._declared, ["events"], lambda: "01ELSEWHERE")


async def test_what_was_declared_at_another_node_this_moment_is_there(site: Rig) -> None:
    """A balancer sends whoever declares an exchange elsewhere for the first message."""
    book = await elsewhere(site)
    await book.declare_exchange("", "new", "topic", 1)
    said = await site.http.post("/v1/exchanges/new/messages", json={"key": "a", "data": 1, "mandatory": False})
    assert said.status_code == 200, said.text
    await book.declare_exchange("", "newer", "topic", 1)
    assert "newer" in {one["name"] for one in (await site.http.get("/v1/exchanges")).json()["exchanges"]}
    options = QueueOptions(routes=(KeyRoute("events", "newer", "#"),))
    await book.declare("", "all", options, 0, 1, lambda _: False)
    assert "all" in {one["name"] for one in (await site.http.get("/v1/queues")).json()["queues"]}
    await book.declare("", "more", options, 0, 1, lambda _: False)
    routes = (await site.http.get("/v1/exchanges/newer")).json()["routes"]
    assert [one["queue"] for one in routes] == ["all", "more"]


async def test_a_node_whose_store_is_not_open_yet_does_not_say_that_nothing_is_declared(
    site: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`export` would write down nothing, and a publisher would take what is there for what is not."""
    plane = site.application.ports.queues
    assert plane is not None
    monkeypatch.setattr(plane, "_open", False)
    monkeypatch.setattr(plane.book, "_known", KnownDeclarations())
    asked = [await site.http.get(path) for path in ("/v1/queues", "/v1/exchanges", "/v1/exchanges/ops")]
    asked.append(await site.http.post(MESSAGES, json={"key": "a", "data": 1}))
    assert [one.status_code for one in asked] == [503] * len(asked)
