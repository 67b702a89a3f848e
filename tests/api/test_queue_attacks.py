"""Queues under attack, over HTTP: deleted while they are used, routed in circles, and given the worst of topics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import QueueNotFoundError
from app.runtime.system import SystemClock
from homing_rig.receivers import Receiver, receiving
from tests.api.rig import Rig, running
from tests.api.serving import serving
from tests.api.sockets import socket
from tests.api.test_push import done, push, values
from tests.api.test_queues import QUEUE, call, counts, declare, is_open, publish, settle, site, take, take_all
from tests.api.test_webhooks import SERVED
from tests.waiting import eventually

__all__ = ["site"]
LEVELS = "/".join(["level"] * 64)
HOSTILE = ["/", "//", "site//alarm", "site/a/alarm/", "/site/a/alarm", "site/é😀/alarm", LEVELS, " ", "a" * 1024]
REFUSED = ["", "site/+/alarm", "site/a/alarm#", "#", "site/\0/alarm", "$homing/dead/-/alarms", "$exchange/-/ops/a"]


async def ready(rig: Rig, count: int) -> None:
    async def so() -> bool:
        return bool((await counts(rig))["ready"] == count)

    await eventually(so)


async def test_a_loan_that_is_named_twice_in_a_call_is_settled_once(site: Rig) -> None:
    await declare(site)
    await publish(site, 1)
    (lent,) = await take(site)
    for said in ({"done": [lent["loan"]] * 2}, {"done": [lent["loan"]], "release": [lent["loan"]]}):
        refused = await site.http.post(f"{QUEUE}/settle", json=said)
        assert refused.status_code == 422
    assert await settle(site, done=[lent["loan"]]) == {"settled": 1, "over": []}
    assert await settle(site, done=[lent["loan"]]) == {"settled": 0, "over": [lent["loan"]]}


async def test_a_consumer_is_sent_away_and_whoever_waits_gets_what_it_had(site: Rig) -> None:
    await declare(site)
    await publish(site, 1, 2, 3)
    had = await take_all(site, 3, consumer="w 1/é")
    waiting = asyncio.create_task(take_all(site, 3, consumer="w2"))
    found = await site.http.delete(f"{QUEUE}/consumers/w%201%2F%C3%A9")
    assert (found.status_code, found.json()) == (200, {"released": 3})
    again = await waiting
    assert {one["event"]["data"] for one in again} == {1, 2, 3}
    assert {one["delivery"] for one in again} == {1}
    assert (await settle(site, done=[one["loan"] for one in had]))["settled"] == 0
    assert (await site.http.delete(f"{QUEUE}/consumers/nobody")).json() == {"released": 0}
    assert (await site.http.delete("/v1/queues/nothing/consumers/w1")).status_code == 404
    assert (await site.http.delete(f"{QUEUE}/consumers/{'w' * 65}")).status_code == 422


async def test_a_dated_message_is_not_lent_before_its_instant(site: Rig) -> None:
    await site.http.put("/v1/exchanges/ops", json={"kind": "topic"})
    await declare(site, routes=[{"exchange": "ops", "key": "#"}])
    messages = "/v1/exchanges/ops/messages"
    for data, more in (("tomorrow", {"not_before": "24h"}), ("soon", {"not_before": "700ms"}), ("now", {})):
        said = await site.http.post(messages, json={"key": "a", "data": data, "device_id": "dock-1", **more})
        assert said.is_success, said.text
    first, second = await take_all(site, 2)
    assert (first["event"]["data"], second["event"]["data"]) == ("now", "soon")
    assert "not_before" not in first["event"]
    assert second["event"]["kind"] is None
    assert datetime.fromisoformat(second["event"]["not_before"]) <= datetime.fromtimestamp(SystemClock().wall(), UTC)
    assert (await counts(site))["later"] == 1
    for wrong in ("25h", "2100-01-01T00:00:00Z", "-10s", "soon", "", "2026-11-21T10:00:00"):
        refused = await site.http.post(messages, json={"key": "a", "data": 1, "not_before": wrong})
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "not_before"), wrong
    past = await site.http.post(messages, json={"key": "a", "data": "past", "not_before": "2020-01-01T00:00:00Z"})
    assert past.is_success
    (late,) = await take_all(site, 1)
    assert late["event"]["data"] == "past"


async def test_a_dated_message_that_is_repeated_is_there_once(site: Rig) -> None:
    await site.http.put("/v1/exchanges/ops", json={"kind": "topic"})
    await declare(site, routes=[{"exchange": "ops", "key": "#"}])
    said = {"key": "a", "data": 1, "not_before": "10ms"}
    headers = {"Idempotency-Key": "fire-7"}
    first, second = [await site.http.post("/v1/exchanges/ops/messages", json=said, headers=headers) for _ in range(2)]
    assert first.json() == second.json()
    other = {**said, "not_before": "20ms"}
    differs = await site.http.post("/v1/exchanges/ops/messages", json=other, headers=headers)
    assert differs.status_code == 422
    assert len(await take_all(site, 1)) == 1
    assert (await counts(site))["ready"] == 0


async def test_what_waits_when_routes_change_is_delivered_and_what_comes_later_is_by_the_new_ones(site: Rig) -> None:
    await declare(site)
    await publish(site, 1, 2, 3)
    await ready(site, 3)
    await call(site, "bind", {"routes": [{"database": "events", "topic": "site/+/other"}]})
    await call(site, "unbind", {"routes": [{"database": "events", "topic": "site/+/alarm"}]})
    await site.http.post("/v1/events", json=[{"topic": "site/a/other", "data": 4}])
    assert {one["event"]["data"] for one in await take_all(site, 4)} == {1, 2, 3, 4}
    await publish(site, "by the old one")
    await site.http.post("/v1/events", json=[{"topic": "site/a/other", "data": 5}])
    assert [one["event"]["data"] for one in await take_all(site, 1)] == [5]
    assert (await counts(site))["ready"] == 0


async def test_hostile_topics_are_refused_or_delivered_byte_for_byte(site: Rig) -> None:
    await declare(site, routes=[{"database": "events", "topic": "#"}])
    for topic in REFUSED:
        refused = await site.http.post("/v1/events", json=[{"topic": topic, "data": 1}])
        assert refused.status_code == 422, topic
    said = await site.http.post("/v1/events", json=[{"topic": one, "data": 1} for one in HOSTILE])
    assert said.is_success, said.text
    taken = await take_all(site, len(HOSTILE))
    assert sorted(one["event"]["topic"] for one in taken) == sorted(HOSTILE)


async def test_of_topics_with_empty_levels_a_queue_gets_those_that_its_filter_means(site: Rig) -> None:
    await declare(site, routes=[{"database": "events", "topic": "site/+/alarm"}])
    await site.http.post("/v1/events", json=[{"topic": one, "data": one} for one in HOSTILE])
    await publish(site, "the last one", site="z")
    taken = await take_all(site, 3)
    assert {one["event"]["topic"] for one in taken} == {"site//alarm", "site/é😀/alarm", "site/z/alarm"}


CIRCLES = ["$homing/dead/-/alarms", "$homing/dead/#", "$homing/#", "$homing/+/+/alarms", "$homing/dead/+/+"]


async def test_a_queue_cannot_be_given_its_own_dead_letters(site: Rig) -> None:
    for topic in CIRCLES:
        refused = await declare(site, routes=[{"database": "events", "topic": topic}])
        assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "routes.0.topic"), topic
    await declare(site)
    for topic in CIRCLES:
        body = {"routes": [{"database": "events", "topic": topic}]}
        assert (await site.http.post(f"{QUEUE}/bind", json=body)).status_code == 422


async def test_a_letter_that_two_queues_hand_to_each_other_stays_one_and_does_not_grow(site: Rig) -> None:
    other = "/v1/queues/other"
    await declare(site, "other", routes=[{"database": "events", "topic": "$homing/dead/-/alarms"}])
    both = [{"database": "events", "topic": one} for one in ("site/+/alarm", "$homing/dead/-/other")]
    await declare(site, routes=both)
    await publish(site, "poison")
    sizes = []
    for turn in range(4):
        queue = (QUEUE, other)[turn % 2]
        found = await site.http.post(f"{queue}/take", json={"max": 10, "wait": "30s"})
        (lent,) = found.json()["events"]
        sizes.append(len(str(lent["event"])))
        dead = [{"loan": lent["loan"], "reason": "no"}]
        assert (await site.http.post(f"{queue}/settle", json={"dead": dead})).json()["settled"] == 1
    assert abs(sizes[3] - sizes[1]) < 8, "an envelope within an envelope"
    (letter, again) = await eventually_letters(site, other, 2)
    assert letter["event"] == again["event"]
    assert letter["event"]["data"] == "poison"


async def eventually_letters(rig: Rig, queue: str, count: int) -> list[Any]:
    found: list[Any] = []

    async def so() -> bool:
        found[:] = (await rig.http.get(f"{queue}/dead")).json()["letters"]
        return len(found) == count

    await eventually(so)
    return found


@pytest.fixture
async def pushed() -> AsyncIterator[Rig]:
    async with running(webhooks=SERVED, events={"url": "memory://"}) as rig:
        await eventually(lambda: is_open(rig))
        yield rig


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


async def test_a_queue_that_is_deleted_under_a_channel_and_a_webhook_leaves_nothing_of_itself(
    pushed: Rig, receiver: Receiver
) -> None:
    """One of the same name begins empty: the channel is told and stays closed, the webhook gets what is new."""
    await declare(pushed)
    async with serving(pushed) as served, socket(served.port) as one:
        one.say(id=1, open={"channel": 1, "queue": "alarms", "prefetch": 2})
        assert await one.heard() == {"id": 1, "ok": True}
        await publish(pushed, 1, 2, 3)
        held = (await one.heard())["events"]
        await push(pushed, receiver)
        assert (await pushed.http.delete(QUEUE)).status_code == 204
        frame = await one.heard()
        while "closed" not in frame:
            frame = await one.heard()
        assert frame["closed"]["type"] == "urn:homing:problem:queue-not-found"
        await declare(pushed)
        one.say(id=2, channel=1, done=[held[0]["loan"]])
        assert "problem" in await one.heard()
        assert (await settle(pushed, done=[each["loan"] for each in held]))["settled"] == 0
        before = len(values(receiver))
        await publish(pushed, 4)
        await eventually(lambda: done(pushed, 1))
        assert values(receiver)[before:] == [4]
        found = await counts(pushed)
        assert (found["ready"], found["lent"]) == (0, 0)


@pytest.mark.parametrize("what", ["rewind", "redrive", "purge"])
async def test_a_queue_that_is_deleted_while_it_is_moved_leaves_no_window(site: Rig, what: str) -> None:
    """The caller who moves it knew it a moment ago, and begins its windows anew."""
    await declare(site)
    await publish(site, 1)
    await take(site)
    plane = site.application.ports.queues
    assert plane is not None
    queue = await plane.find("", "alarms")
    assert (await site.http.delete(QUEUE)).status_code == 204
    with pytest.raises(QueueNotFoundError):
        await (
            plane.moves.redrive(queue, None)
            if what == "redrive"
            else plane.moves.rewind(queue, 1 if what == "rewind" else None)
        )
    found = await plane._store.states(plane._sources.of(queue))
    assert set(found) == {None}


async def test_a_queue_in_a_folder_keeps_what_is_dated(tmp_path: Path) -> None:
    url = {"url": f"rocks://{tmp_path}/events"}
    async with running(events=url) as rig:
        await eventually(lambda: is_open(rig))
        await rig.http.put("/v1/exchanges/ops", json={"kind": "topic"})
        await declare(rig, routes=[{"exchange": "ops", "key": "#"}])
        await rig.http.post("/v1/exchanges/ops/messages", json={"key": "a", "data": 1, "not_before": "23h"})

        async def waits() -> bool:
            return bool((await counts(rig))["later"] == 1)

        await eventually(waits)
    async with running(events=url) as rig:
        await eventually(lambda: is_open(rig))
        assert (await counts(rig))["later"] == 1
        assert await take(rig, wait="0s") == []


async def test_a_queue_that_loses_a_database_delivers_what_it_looked_at_there_and_leaves_no_window() -> None:
    """Its last route of a database is taken away: what waits can be taken and settled, and goes with the queue."""
    async with running(events={"url": "memory://", "databases": "events=24h,telemetry=1h"}) as rig:
        await eventually(lambda: is_open(rig))
        other = {"database": "telemetry", "topic": "site/+/osd"}
        await declare(rig, routes=[{"database": "events", "topic": "site/+/alarm"}, other])
        body = [{"topic": "site/a/osd", "data": one} for one in (1, 2)]
        assert (await rig.http.post("/v1/events", params={"database": "telemetry"}, json=body)).is_success
        (first,) = await take(rig, most=1)
        await ready(rig, 1)
        await call(rig, "unbind", {"routes": [other]})
        assert (await settle(rig, done=[first["loan"]]))["settled"] == 1
        (second,) = await take_all(rig, 1)
        assert {first["event"]["data"], second["event"]["data"]} == {1, 2}
        plane = rig.application.ports.queues
        assert plane is not None
        sources = plane._sources.of(await plane.find("", "alarms"))
        assert {one.shard.database for one in sources} == {"events", "telemetry"}
        assert (await rig.http.delete(QUEUE)).status_code == 204

        async def is_gone() -> bool:
            return set(await plane._store.states(sources)) == {None}

        await eventually(is_gone)


async def test_what_is_settled_when_it_is_lent_is_not_handed_on_where_others_have_it_by_then(
    site: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer is sent away between the two: whoever is lent it then is the only one who has it."""
    await declare(site)
    await publish(site, 1)
    plane = site.application.ports.queues
    assert plane is not None
    take_from, others = plane._taker.take, list[dict[str, Any]]()

    async def sent_away(queue: Any, most: int, consumer: str, *more: Any) -> Any:  # noqa: ANN401 - as it is
        messages = await take_from(queue, most, consumer, *more)
        if consumer == "w1":
            assert await plane.send_away(queue, "w1") == 1
            others.extend(await take(site, consumer="w2"))
        return messages

    monkeypatch.setattr(plane._taker, "take", sent_away)
    mine = await take(site, consumer="w1", auto=True)
    assert len(others) == 1
    assert mine == []


async def test_a_pause_loses_nothing_that_is_settled_when_it_is_lent(
    site: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await declare(site)
    plane = site.application.ports.queues
    assert plane is not None
    settled, asked, go_on = plane._settler.settle_tokens, asyncio.Event(), asyncio.Event()

    async def slowly(*arguments: Any) -> Any:  # noqa: ANN401 - as it is
        found = await settled(*arguments)
        asked.set()
        await go_on.wait()
        return found

    monkeypatch.setattr(plane._settler, "settle_tokens", slowly)
    async with serving(site) as served, socket(served.port) as one:
        one.say(id=1, open={"channel": 1, "queue": "alarms", "auto": True})
        assert await one.heard() == {"id": 1, "ok": True}
        await publish(site, 1)
        await asked.wait()
        one.say(id=2, channel=1, prefetch=0)
        assert await one.heard() == {"id": 2, "ok": True}
        go_on.set()
        assert [each["event"]["data"] for each in (await one.heard())["events"]] == [1]
        assert (await counts(site))["done"] == 1


async def test_an_instant_ahead_makes_no_queue_deaf(site: Rig) -> None:
    """Somebody mistakes a zone."""
    ahead = "2099-01-01T00:00:00+02:00"
    await declare(site, start=ahead)
    await publish(site, 1)
    (one,) = await take(site)
    assert await settle(site, done=[one["loan"]]) == {"settled": 1, "over": []}
    await call(site, "rewind", {"to": ahead}, status=204)
    await publish(site, 2)
    assert [again["event"]["data"] for again in await take(site)] == [2]


async def test_how_long_ago_is_by_the_clock_of_the_store(site: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the node is five minutes ahead."""
    await publish(site, 1)
    node = site.application.ports.node
    ahead, right = 300_000_000, node.now_us
    monkeypatch.setattr(type(node), "now_us", lambda _: right() + ahead, raising=False)
    await declare(site, start="-1m")
    (one,) = await take(site)
    await settle(site, done=[one["loan"]])
    await call(site, "rewind", {"to": "-1m"}, status=204)
    assert [again["event"]["data"] for again in await take(site)] == [1]
