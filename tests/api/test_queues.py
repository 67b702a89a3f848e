"""Queues over HTTP, on all engines: declared, taken from, settled; what is wrong gets a sentence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from tests.api.rig import Rig, running
from tests.services import NODE_USER, RedisProcess
from tests.waiting import eventually

ROUTES = [{"database": "events", "topic": "site/+/alarm"}]
QUEUE = "/v1/queues/alarms"


@pytest.fixture(params=["memory", "redis", "rocks"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    url = "memory://" if request.param == "memory" else f"rocks://{tmp_path}/events"
    if request.param == "redis":
        server: RedisProcess = request.getfixturevalue("redis_server")
        async with Redis.from_url(server.url) as client:
            await client.flushall()
        url = server.node_url
    async with running(events={"url": url}) as rig:
        await eventually(lambda: is_open(rig))
        yield rig


async def is_open(rig: Rig) -> bool:
    found = await rig.http.get("/v1/events")
    return found.status_code == 200 and (await declare(rig, name="probe")).is_success


async def declare(rig: Rig, name: str = "alarms", headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
    return await rig.http.put(f"/v1/queues/{name}", json={"routes": ROUTES, **body}, headers=headers)


async def publish(rig: Rig, *values: object, site: str = "a") -> None:
    events = [{"topic": f"site/{site}/alarm", "data": one} for one in values]
    found = await rig.http.post("/v1/events", json=events)
    assert found.is_success, found.text


async def call(rig: Rig, what: str, body: dict[str, Any] | None, status: int = 200) -> Any:  # noqa: ANN401 - any JSON
    found = await rig.http.post(f"{QUEUE}/{what}", json=body)
    assert found.status_code == status, found.text
    return found.json() if found.content else None


async def take(rig: Rig, most: int = 10, wait: str = "30s", **more: Any) -> list[dict[str, Any]]:
    taken: list[dict[str, Any]] = (await call(rig, "take", {"max": most, "wait": wait, **more}))["events"]
    return taken


async def take_all(rig: Rig, count: int, **more: Any) -> list[dict[str, Any]]:
    """Take so many events, in as many calls as it needs."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await take(rig, **more)
    return found


async def settle(rig: Rig, **said: Any) -> dict[str, Any]:
    settled: dict[str, Any] = await call(rig, "settle", said)
    return settled


async def counts(rig: Rig) -> dict[str, Any]:
    told: dict[str, Any] = (await rig.http.get(QUEUE)).json()["counts"]
    return told


async def test_events_are_lent_and_settled(site: Rig) -> None:
    assert (await declare(site)).status_code == 201
    await publish(site, 1, 2, 3)
    taken = await take_all(site, 3, consumer="w1")
    assert sorted(one["event"]["data"] for one in taken) == [1, 2, 3]
    assert {one["delivery"] for one in taken} == {1}
    assert {one["event"]["topic"] for one in taken} == {"site/a/alarm"}
    loans = [one["loan"] for one in taken]
    assert await settle(site, done=loans) == {"settled": 3, "over": []}
    assert await settle(site, done=loans[:1]) == {"settled": 0, "over": loans[:1]}
    told = await counts(site)
    assert (told["ready"], told["lent"], told["done"]) == (0, 0, 3)


async def test_metrics_show_how_a_queue_stands(site: Rig) -> None:
    await declare(site)
    await publish(site, 1, 2, 3)
    await take_all(site, 3)
    wanted = 'homing_log_queue_events{name="alarms",state="lent",tenant=""} 3.0'

    async def shown() -> bool:
        return wanted in (await site.http.get("/metrics")).text

    await eventually(shown)


async def test_consumers_are_known_by_name(site: Rig) -> None:
    await declare(site)

    async def known() -> bool:
        await publish(site, 1)
        await take(site, consumer="w1", auto=True)
        found = (await site.http.get(f"{QUEUE}/consumers")).json()["consumers"]
        return [one["consumer"] for one in found] == ["w1"]

    await eventually(known)
    assert (await counts(site))["consumers"] == 1


async def test_a_consumer_that_waits_for_the_first_event_is_known(site: Rig) -> None:
    await declare(site)
    waiting = asyncio.create_task(take(site, consumer="w1", wait="60s"))

    async def known() -> bool:
        found = (await site.http.get(f"{QUEUE}/consumers")).json()["consumers"]
        return [one["consumer"] for one in found] == ["w1"]

    await eventually(known)
    await publish(site, "first")
    (one,) = await waiting
    assert one["event"]["data"] == "first"


async def test_who_waits_is_told_when_something_comes(site: Rig) -> None:
    await declare(site)
    waiting = asyncio.create_task(take(site, wait="60s"))
    await eventually(lambda: site.application.ports.node.fills()["queue_consumers"].size == 1)
    await publish(site, "late")
    (one,) = await waiting
    assert one["event"]["data"] == "late"


async def test_a_take_that_finds_nothing_is_empty(site: Rig) -> None:
    await declare(site)
    assert await call(site, "take", {"max": 1}) == {"events": [], "full": False}


async def test_two_consumers_share_and_nobody_gets_what_another_has(site: Rig) -> None:
    await declare(site)
    await publish(site, *range(60))
    found: list[dict[str, Any]] = []

    async def work(name: str) -> None:
        while len(found) < 60:
            taken = await take(site, 5, wait="100ms", consumer=name)
            found.extend(taken)
            await settle(site, done=[one["loan"] for one in taken])

    async with asyncio.timeout(60):
        await asyncio.gather(*(work(f"w{number}") for number in range(4)))
    assert sorted(one["event"]["data"] for one in found) == list(range(60))


async def test_what_is_given_back_comes_again_at_once_and_is_not_counted(site: Rig) -> None:
    await declare(site)
    await publish(site, 1)
    (one,) = await take(site)
    await settle(site, release=[one["loan"]])
    (again,) = await take(site)
    assert (again["delivery"], again["event"]) == (1, one["event"])
    assert again["loan"] != one["loan"]


async def test_a_delay_that_is_declared_later_holds_from_then_on(site: Rig) -> None:
    await declare(site)
    await publish(site, 1)
    assert await take(site, auto=True)
    tag = (await site.http.get(QUEUE)).headers["etag"]
    assert (await declare(site, delay="1h", headers={"If-Match": tag})).is_success

    async def is_held() -> bool:
        await publish(site, 2)
        return await take(site, wait="1s", auto=True) == []

    await eventually(is_held)


async def test_a_rewind_delivers_what_was_settled_and_ends_what_is_lent(site: Rig) -> None:
    await declare(site)
    await publish(site, 1, 2)
    taken = await take_all(site, 2)
    await settle(site, done=[taken[0]["loan"]])
    await call(site, "rewind", {"to": "-10m"}, 204)
    again = await take_all(site, 2)
    assert sorted(one["event"]["data"] for one in again) == [1, 2]
    assert (await settle(site, done=[taken[1]["loan"]]))["over"] == [taken[1]["loan"]]
    await call(site, "purge", {}, 204)
    assert (await settle(site, done=[again[0]["loan"]]))["settled"] == 0
    assert await take(site, wait="0ms") == []


async def test_a_device_has_one_event_out_at_a_time(site: Rig) -> None:
    await declare(site, order="device")
    await publish(site, 1, 2, site="a")
    await publish(site, 3, site="b")
    first = await take_all(site, 2)
    assert sorted(one["event"]["data"] for one in first) == [1, 3]
    assert await take(site, wait="0ms") == []
    await settle(site, done=[one["loan"] for one in first if one["event"]["data"] == 1])
    (second,) = await take(site)
    assert second["event"]["data"] == 2


async def test_one_consumer_at_a_time(site: Rig) -> None:
    await declare(site, single=True)
    await publish(site, *range(20), site="a")
    await publish(site, *range(20), site="b")
    assert await take(site, 1, consumer="w1")
    assert await take(site, 40, wait="0ms", consumer="w2") == []
    assert await take(site, 1, consumer="w1")


async def test_a_queue_begins_where_it_is_told(site: Rig) -> None:
    await publish(site, "before")
    await declare(site)
    await declare(site, name="all", start="-10m")
    await publish(site, "after")
    assert [one["event"]["data"] for one in await take(site)] == ["after"]
    found: list[Any] = []
    while len(found) < 2:
        answer = await site.http.post("/v1/queues/all/take", json={"max": 9, "wait": "30s", "auto": True})
        found += [one["event"]["data"] for one in answer.json()["events"]]
    assert found == ["before", "after"]
    told = (await site.http.get("/v1/queues/all")).json()["counts"]
    assert (told["lent"], told["done"]) == (0, 2)


async def test_events_that_are_too_old_or_too_young_are_not_lent(site: Rig) -> None:
    await declare(site, delay="1h")
    await publish(site, 1)
    assert await take(site, wait="700ms") == []


async def test_wrong_calls_name_the_field_and_settle_nothing(site: Rig) -> None:
    await declare(site)
    await publish(site, 1)
    (one,) = await take(site)
    loan = one["loan"]
    for what, body, field in (
        ("take", {"max": 0}, "max"),
        ("take", {"max": 1001}, "max"),
        ("take", {"wait": "61s"}, "wait"),
        ("take", {"consumer": "w" * 65}, "consumer"),
        ("take", {"max_bytes": 0}, "max_bytes"),
        ("take", {"max_bytes": 4 * 1024 * 1024 + 1}, "max_bytes"),
        ("settle", {"done": [loan], "retry": [{"loan": loan}]}, "retry.0"),
        ("settle", {"done": [f"x{number}" for number in range(1025)]}, "body"),
        ("settle", {"done": [loan], "extend": [{"loan": "x", "by": "13h"}]}, "extend.0.by"),
        ("settle", {"done": [loan], "retry": [{"loan": "x", "after": "13h"}]}, "retry.0.after"),
        ("settle", {"done": [loan], "dead": [{"loan": "x", "reason": "r" * 513}]}, "body.dead.0.reason"),
        ("rewind", {"to": "then"}, "to"),
        ("redrive", {"until": "then"}, "until"),
    ):
        assert (await call(site, what, body, 422))["errors"][0]["field"] == field, body
    assert (await settle(site, done=[loan]))["settled"] == 1


async def test_loans_that_were_made_up_are_over(site: Rig) -> None:
    await declare(site)
    await publish(site, 1)
    (one,) = await take(site)
    life, database, shard, number, index = one["loan"].split(".")
    made_up = [
        "",
        "nonsense",
        f"00000000.{database}.{shard}.{number}.{index}",
        f"{life}.nowhere.0.{number}.{index}",
        f"{life}.{database}.99.{number}.{index}",
        f"{life}.{database}.{shard}.1.{index}",
        f"{life}.{database}.{shard}.{number}.127",
        f"{life}.{database}.{shard}.{number}.999",
        f"{life}.{database}.{shard}.{number}.0{index}",
        f"{life}.{database}.0{shard}.0{number}.{index}",
    ]
    found = await settle(site, done=made_up)
    assert (found["settled"], sorted(found["over"])) == (0, sorted(made_up))
    await declare(site, name="other", start="-10m")
    foreign = (await site.http.post("/v1/queues/other/settle", json={"done": [one["loan"]]})).json()
    assert foreign == {"settled": 0, "over": [one["loan"]]}
    assert (await settle(site, done=[one["loan"]]))["settled"] == 1


async def test_more_time_is_given_to_whoever_asks(site: Rig) -> None:
    await declare(site, loan="1s")
    await publish(site, 1)
    (one,) = await take(site)
    assert (await settle(site, extend=[{"loan": one["loan"], "by": "1h"}]))["settled"] == 1
    assert await take(site, wait="2s") == []
    assert (await settle(site, done=[one["loan"]]))["settled"] == 1


async def test_what_nobody_settles_is_lent_again(site: Rig) -> None:
    await declare(site, loan="1s")
    await publish(site, 1)
    (one,) = await take(site)
    (again,) = await take(site, wait="30s")
    assert (again["delivery"], again["event"]) == (2, one["event"])
    assert (await settle(site, done=[one["loan"]]))["over"] == [one["loan"]]
    assert (await settle(site, done=[again["loan"]]))["settled"] == 1


async def test_events_older_than_their_time_are_not_lent(site: Rig) -> None:
    await declare(site, ttl="1s", delay="2s")
    await publish(site, 1)

    async def expired() -> bool:
        assert await take(site, wait="1s") == []
        return bool((await counts(site))["expired"] == 1)

    await eventually(expired)


async def test_a_flood_of_takes_without_settling_is_lent_a_window_and_told_so(site: Rig) -> None:
    await declare(site)
    for _ in range(8):
        await publish(site, *range(130))
    loans: set[str] = set()
    told: dict[str, Any] = {"full": False}
    async with asyncio.timeout(60):
        while not told["full"]:
            told = await call(site, "take", {"max": 1000, "wait": "100ms"})
            loans.update(one["loan"] for one in told["events"])
    assert (len(loans), told["events"]) == (1024, []), "one topic is in one shard"
    assert (await settle(site, release=[next(iter(loans))]))["settled"] == 1
    assert len(await take(site)) == 1


async def test_values_that_are_no_json_are_lent_as_events_show_them(site: Rig) -> None:
    await declare(site)
    values = ["/wA=", "eyJh", "7aCA"]  # bytes, half of an object, half of a surrogate pair
    said = [{"topic": "site/a/alarm", "data_base64": one} for one in values]
    assert (await site.http.post("/v1/events", json=said)).is_success
    assert [one["event"]["data_base64"] for one in await take_all(site, 3)] == values


async def test_a_user_of_redis_without_the_rights_has_everything_but_queues() -> None:
    """As after an update that left the file of users as it was."""
    with RedisProcess() as server:
        async with Redis.from_url(server.url) as client:
            (words,) = [one.split() for one in await client.acl_list() if one.split()[1] == NODE_USER]
            rights = [one for one in words[2:] if "queue" not in one and "dying" not in one]
            await client.execute_command("ACL", "SETUSER", NODE_USER, "reset", *rights)  # type: ignore[no-untyped-call]
        async with running(events={"url": server.node_url}) as rig:
            told: list[str] = []

            async def is_refused() -> bool:
                found = await declare(rig)
                assert found.status_code == 503
                told.append(found.json()["detail"])
                return "no permissions" in told[-1]

            async def is_said() -> bool:
                said = await rig.http.post("/v1/events", json=[{"topic": "site/a/alarm", "data": 1}])
                return said.is_success

            await eventually(is_refused)
            await eventually(is_said)
            assert told[-1].startswith("queues cannot be used now: ")


async def test_a_queue_in_a_folder_outlives_its_process(tmp_path: Path) -> None:
    url = f"rocks://{tmp_path}/events"
    async with running(events={"url": url}) as rig:
        await eventually(lambda: is_open(rig))
        await declare(rig, loan="1h")
        await publish(rig, 1, 2, 3)
        taken = await take_all(rig, 3)
        loans = {one["event"]["data"]: one["loan"] for one in taken}
        await settle(rig, done=[loans[1]], release=[loans[2]])
        before = await counts(rig)
    async with running(events={"url": url}) as rig:
        await eventually(lambda: is_open(rig))
        assert await counts(rig) == before
        assert [one["event"]["data"] for one in await take_all(rig, 1)] == [2]
        assert await settle(rig, done=[loans[1], loans[3]]) == {"settled": 1, "over": [loans[1]]}
        assert (await counts(rig))["done"] == 2


async def test_a_node_without_events_has_no_queues() -> None:
    async with running() as rig:
        found = await declare(rig)
    assert (found.status_code, found.json()["type"].rpartition(":")[2]) == (404, "no-queues")
