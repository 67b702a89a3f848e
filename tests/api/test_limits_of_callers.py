"""Limits on the commands that a caller may have open, and what a caller is told of limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.core.access.changes import Put
from app.core.access.model import Role
from app.core.errors import PublishRefusedError
from app.core.messages import Publication
from app.mqtt.base import Puback
from tests.api.rig import until
from tests.api.test_access import OWN, Site, guarded

SILENT = "silent"
TWO = "limit send *:* on * concurrent 2"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path) as site:
        yield site


async def limited(site: Site, *rules: str, name: str = "limited") -> None:
    """Somebody who may send, with these limits."""
    await site.change(Put(Role(name=f"{name}-limits", tenant_id="air", rules=rules)))
    await site.add(name, "operator", f"{name}-limits")


async def begin(site: Site, who: str = "limited", device: str = OWN, **headers: str) -> httpx.Response:
    """A command whose device says nothing, and that nobody waits for."""
    return await site.rig.http.post(
        f"/v1/devices/{device}/commands",
        json={"method": SILENT, "timeout": "20s"},
        headers={**site.headers(who), "Prefer": "respond-async", **headers},
    )


async def cancel(site: Site, begun: httpx.Response, who: str = "limited") -> None:
    ended = await site.rig.http.delete(f"/v1/commands/{begun.json()['id']}", headers=site.headers(who))
    assert ended.status_code == 200, ended.text


async def me(site: Site, who: str = "limited") -> dict[str, Any]:
    found: dict[str, Any] = (await site.rig.http.get("/v1/me", headers=site.headers(who))).json()
    return found


async def open_here(site: Site, who: str = "limited") -> int:
    return int((await me(site, who))["limits"][0]["open"])


async def test_who_has_as_much_open_as_allowed_is_refused_until_something_ends(site: Site) -> None:
    await limited(site, TWO)
    begun = [await begin(site) for _ in range(2)]
    assert [one.status_code for one in begun] == [202, 202]
    refused = await begin(site)
    assert (refused.status_code, refused.json()["type"]) == (429, "urn:homing:problem:too-many-open")
    assert refused.headers["retry-after"] == "1"
    told = "limited by limit send *:* on * concurrent 2: 2 open commands are counted on this node, 0 on others"
    assert refused.json()["detail"] == told
    assert (await begin(site, "operator")).status_code == 202
    await cancel(site, begun[0])
    assert (await begin(site)).status_code == 202
    assert (await begin(site)).status_code == 429


async def test_an_answer_and_a_deadline_give_the_place_back(site: Site) -> None:
    await limited(site, "limit send *:* on * concurrent 1")
    assert (await site.send("limited")).status_code == 200
    assert await open_here(site) == 0
    assert (await site.send("limited", method=SILENT, timeout="50ms")).status_code == 504
    assert await open_here(site) == 0


async def test_a_caller_that_hangs_up_keeps_the_place_as_the_command_goes_on(site: Site) -> None:
    await limited(site, "limit send *:* on * concurrent 1")
    waiting = asyncio.ensure_future(site.send("limited", method=SILENT, timeout="20s"))
    await until(lambda: len(site.rig.device.received) > 0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert await open_here(site) == 1
    assert (await begin(site)).status_code == 429


async def test_what_was_not_sent_takes_no_place(site: Site) -> None:
    await limited(site, "limit send *:* on * concurrent 1")
    site.rig.store.away = True
    assert (await begin(site)).status_code == 503
    site.rig.store.away = False
    assert await open_here(site) == 0
    unknown = await site.send("limited", profile="nobody-knows-it")
    assert unknown.status_code == 422
    assert await open_here(site) == 0


async def test_who_joins_a_command_takes_no_place_of_their_own(site: Site) -> None:
    await limited(site, TWO)
    first = await begin(site, **{"Idempotency-Key": "k"})
    again = await begin(site, **{"Idempotency-Key": "k"})
    assert again.json()["id"] == first.json()["id"]
    assert await open_here(site) == 1


async def test_a_joined_command_that_was_not_sent_takes_a_place_when_it_is_sent_after_all(site: Site) -> None:
    await limited(site, TWO)
    mqtt: Any = site.rig.mqtt
    held: list[Puback] = []
    publish: Callable[[Publication], Puback] = mqtt.publish

    def hold(publication: Publication) -> Puback:
        if OWN not in publication.topic:  # the node's own
            return publish(publication)
        held.append(Puback(left=True))
        return held[-1]

    async def call() -> httpx.Response:
        body, headers = {"method": SILENT, "timeout": "20s"}, {**site.headers("limited"), "Idempotency-Key": "k"}
        return await site.rig.http.post(f"/v1/devices/{OWN}/commands", json=body, headers=headers)

    mqtt.publish = hold
    first = asyncio.ensure_future(call())
    await until(lambda: len(held) == 1)
    second = asyncio.ensure_future(call())
    await until(lambda: len(site.rig.waiters) == 2)
    mqtt.publish = publish
    held[0].set_exception(PublishRefusedError("not authorized"))
    assert (await first).status_code == 503
    await until(lambda: len(site.rig.device.received) == 1)
    assert await open_here(site) == 1
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)


@pytest.mark.parametrize(
    ("per", "expected"),
    [("principal", [202, 429, 202, 429]), ("tenant", [202, 429, 429, 429]), ("device", [202, 202, 429, 429])],
)
async def test_places_are_shared_by_those_whom_the_rule_names(site: Site, per: str, expected: list[int]) -> None:
    rule = f"limit send *:* on * concurrent 1 per {per}"
    await site.change(Put(Role(name="shared", tenant_id="air", rules=(rule,))))
    for name in ("one", "two"):
        await site.add(name, "operator", "shared")
    asked = [("one", "drone-1"), ("one", "drone-2"), ("two", "drone-1"), ("two", "drone-2")]
    assert [(await begin(site, who, device)).status_code for who, device in asked] == expected


async def test_who_is_refused_a_place_spends_nothing_of_a_rate(site: Site) -> None:
    await limited(site, "limit send *:* on * concurrent 1", "limit send *:* on * 2/h burst 2")
    begun = await begin(site)
    assert (await begin(site)).status_code == 429
    await cancel(site, begun)
    assert (await begin(site)).status_code == 202


async def test_everybody_may_know_their_limits_and_what_is_left(site: Site) -> None:
    await limited(site, "limit send *:* on * 5/h burst 3", TWO, "limit send *:* on * concurrent 1 per device")
    begun = await begin(site)
    assert begun.status_code == 202
    assert (await me(site))["limits"] == [
        {
            "rule": "limit send *:* on * 5/h burst 3",
            "name": "limited-limits.1",
            "per": "principal",
            "share": 1.0,
            "left": 2,
            "count": 5,
            "seconds": 3600,
            "burst": 3,
        },
        {
            "rule": TWO,
            "name": "limited-limits.2",
            "per": "principal",
            "share": 1.0,
            "left": 1,
            "concurrent": 2,
            "open": 1,
        },
        {
            "rule": "limit send *:* on * concurrent 1 per device",
            "name": "limited-limits.3",
            "per": "device",
            "share": 1.0,
            "left": None,
            "concurrent": 1,
            "open": None,
        },
    ]


async def test_what_narrows_a_key_limits_it_and_is_told(site: Site) -> None:
    await site.add("narrow", "operator", narrow=["allow * *:* on *", "limit send *:* on * concurrent 1"])
    assert (await begin(site, "narrow")).status_code == 202
    assert (await begin(site, "narrow")).status_code == 429
    assert [one["rule"] for one in (await me(site, "narrow"))["limits"]] == ["limit send *:* on * concurrent 1"]
