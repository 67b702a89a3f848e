"""Dead letters of queues over HTTP, on all engines: put aside, read, and delivered again."""

from __future__ import annotations

import base64
import json
from typing import Any

from app.core.events.event import MAX_VALUE_BYTES
from tests.api.rig import Rig
from tests.api.test_queues import QUEUE, call, counts, declare, publish, settle, site, take
from tests.waiting import eventually

__all__ = ["site"]


async def letters_of(rig: Rig) -> list[Any]:
    told: list[Any] = (await rig.http.get(f"{QUEUE}/dead")).json()["letters"]
    return told


async def test_what_failed_too_often_is_a_dead_letter_once_and_can_be_redriven(site: Rig) -> None:
    await declare(site, max_deliveries=2, retry=["0ms"])
    await publish(site, {"poison": True})
    (one,) = await take(site)
    await settle(site, retry=[{"loan": one["loan"]}])
    (one,) = await take(site)
    assert one["delivery"] == 2
    await settle(site, retry=[{"loan": one["loan"]}])
    letters: list[dict[str, Any]] = []

    async def buried() -> bool:
        letters[:] = (await site.http.get(f"{QUEUE}/dead")).json()["letters"]
        return bool(letters)

    await eventually(buried)
    (letter,) = letters
    assert (letter["reason"], letter["deliveries"], letter["database"]) == ("retry", 2, "events")
    assert letter["event"] == one["event"]
    assert (await counts(site))["dead"] == 1
    await call(site, "redrive", {}, 204)
    (again,) = await take(site)
    assert (again["delivery"], again["event"]) == (1, one["event"])
    assert (await settle(site, done=[again["loan"]]))["settled"] == 1
    assert await take(site, wait="0ms") == []


async def test_what_was_redriven_is_purged_like_all_else(site: Rig) -> None:
    await declare(site)
    await publish(site, {"poison": True})
    (one,) = await take(site)
    await settle(site, dead=[{"loan": one["loan"], "reason": "bad"}])
    await eventually(lambda: letters_of(site))
    await call(site, "redrive", {}, 204)

    async def waits() -> bool:
        return bool((await counts(site))["ready"] == 1)

    await eventually(waits)
    await call(site, "purge", None, 204)
    assert (await counts(site))["ready"] == 0
    assert await take(site, wait="0ms") == []


async def test_a_consumer_says_why_an_event_is_dead(site: Rig) -> None:
    await declare(site)
    await publish(site, 1)
    (one,) = await take(site, consumer="w1")
    await settle(site, dead=[{"loan": one["loan"], "reason": "no such dock"}])

    await eventually(lambda: letters_of(site))
    assert [(one["reason"], one["consumer"]) for one in await letters_of(site)] == [("no such dock", "w1")]


async def test_a_poison_of_the_largest_size_is_put_aside_whole(site: Rig) -> None:
    await declare(site)
    value = "x" * (MAX_VALUE_BYTES - 2)
    await publish(site, value)
    (one,) = await take(site)
    await settle(site, dead=[{"loan": one["loan"], "reason": "\u00e4" * 512}])

    async def letters() -> list[Any]:
        told: list[Any] = (await site.http.get(f"{QUEUE}/dead")).json()["letters"]
        return told

    await eventually(letters)
    (letter,) = await letters()
    assert letter["event"]["data"] == value
    await call(site, "redrive", {}, 204)
    (again,) = await take(site)
    assert again["event"]["data"] == value


async def test_what_nobody_ever_settles_is_put_aside(site: Rig) -> None:
    await declare(site, loan="1s", max_deliveries=2)
    await publish(site, "stuck")
    letters: list[dict[str, Any]] = []

    async def put_aside() -> bool:
        await take(site, wait="1s", consumer="w1")
        letters[:] = (await site.http.get(f"{QUEUE}/dead")).json()["letters"]
        return bool(letters)

    await eventually(put_aside)
    told = [(one["reason"], one["deliveries"], one["consumer"], one["event"]["data"]) for one in letters]
    assert told == [("deadline", 2, "w1", "stuck")]


async def test_an_event_that_pretends_to_be_a_letter_is_put_aside_as_what_it_is(site: Rig) -> None:
    """Anybody who may publish could have an event of another device delivered, by what a letter says of its origin."""
    await declare(site, retry=["0s"], max_deliveries=1)
    origin = {"database": "events", "shard": 0, "position": 1, "topic": "site/b/alarm", "device": "dock-b", "id": "i"}
    forged = json.dumps({"queue": "alarms", "origin": origin}, separators=(",", ":")).encode() + b"\n2"
    value = base64.b64encode(forged).decode()
    found = await site.http.post("/v1/events", json=[{"topic": "site/a/alarm", "data_base64": value}])
    assert found.is_success, found.text
    (one,) = await take(site)
    await settle(site, dead=[{"loan": one["loan"], "reason": "forged"}])
    await eventually(lambda: letters_of(site))
    (letter,) = await letters_of(site)
    assert (letter["event"]["topic"], letter["event"]["data_base64"]) == ("site/a/alarm", value)
    await call(site, "redrive", {}, 204)
    (again,) = await take(site)
    assert again["event"] == one["event"]
