"""`GET /v1/overview`: what fails and what is open, as far as the caller may know of it."""

from __future__ import annotations

from typing import Any

from tests.api.rig import Rig, running
from tests.api.test_access import OTHER, OWN, Site, an_open_command, site  # noqa: F401 - a fixture
from tests.waiting import eventually


async def overview(rig: Rig, headers: dict[str, str] | None = None, kept_seconds: float = 0.0) -> dict[str, Any]:
    rig.application.ports.overviews.kept_seconds = kept_seconds  # one that is kept would say what was before
    answer = await rig.http.get("/v1/overview", headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_it_shows_what_fails_and_what_is_open() -> None:
    async with running() as rig:
        quiet = await overview(rig)
        assert (quiet["trouble"], quiet["open_commands"], quiet["missing"]) == ([], [], [])
        await rig.send("refuse")
        await rig.send("silent", timeout="50ms")
        await rig.send("silent", timeout="5m", headers={"Prefer": "respond-async"})
        found = await overview(rig)
        assert {(one["party"], one["code"], one["count"]) for one in found["trouble"]} == {
            ("device", "device_refused", 1),
            ("device", "silent", 1),
        }
        assert found["verdict"]["party"] == "device"
        assert [one["method"] for one in found["open_commands"]] == ["silent"]
        (node,) = found["nodes"]
        assert (node["node_id"], node["answered"], node["open"]) == ("node-a", True, 1)
        assert node["checks"].keys() >= {"store", "mqtt", "cluster", "canary"}


async def test_while_the_store_is_away_it_says_so() -> None:
    async with running() as rig:
        await rig.send("refuse")
        rig.store.away = True
        found = await overview(rig)
        assert (found["complete"], found["verdict"]["party"], found["trouble"]) == (False, "homing", [])
        assert "store" in found["verdict"]["text"]
        assert found["nodes"][0]["ready"] is False
        rig.store.away = False
        assert (await overview(rig))["complete"] is True


async def test_it_is_made_once_for_all_who_ask_at_a_time() -> None:
    async with running() as rig:
        first = await overview(rig, kept_seconds=3600.0)
        await rig.send("refuse")
        assert await overview(rig, kept_seconds=3600.0) == first


async def test_a_broker_that_is_away_is_named() -> None:
    async with running() as rig:
        rig.mqtt.connection_lost()
        assert (await overview(rig))["verdict"]["party"] == "broker"


async def test_each_caller_finds_what_they_may_read(site: Site) -> None:  # noqa: F811 - the fixture
    own, other = await an_open_command(site, OWN), await an_open_command(site, OTHER)
    expected = {"viewer": {own}, "neighbour": {other}, "nobody": set[str](), "boss": {own, other}}
    for who, ids in expected.items():
        found = await overview(site.rig, site.headers(who))
        assert {one["id"] for one in found["open_commands"]} == ids, who
        assert (found["nodes"] is None, found["missing"] is None) == ((who != "boss"),) * 2
        assert ("node-a" in found["verdict"]["text"]) is False


async def test_failures_of_others_are_not_counted(site: Site) -> None:  # noqa: F811 - the fixture
    cancelled = await an_open_command(site, OWN)
    await site.rig.http.post(f"/v1/commands/{cancelled}/cancel", headers=site.headers("operator"))
    body = {"method": "refuse", "timeout": "50ms"}
    await site.rig.http.post(f"/v1/devices/{OWN}/commands", json=body, headers=site.headers("operator"))

    async def known() -> bool:
        return bool((await overview(site.rig, site.headers("viewer")))["trouble"])

    await eventually(known)
    foreign = await overview(site.rig, site.headers("neighbour"))
    assert (foreign["trouble"], foreign["verdict"]["party"]) == ([], None)


async def test_the_last_hour_is_told_in_numbers() -> None:
    async with running() as rig:
        quiet = (await overview(rig))["last_hour"]
        assert (quiet["total"]["begun"], quiet["minutes"], quiet["methods"]) == (0, [], [])
        await rig.send("ok")
        await rig.send("refuse")
        await rig.send("silent", timeout="5m", headers={"Prefer": "respond-async"})
        found = (await overview(rig))["last_hour"]
        assert sum(one["begun"] for one in found["minutes"]) == found["total"]["begun"] == 3
        assert found["total"]["ended"] == {"succeeded": 1, "failed": 1}
        by_method = {one["method"]: one for one in found["methods"]}
        assert by_method.keys() == {"ok", "refuse"}
        assert (by_method["ok"]["ended"], by_method["refuse"]["ended"]) == ({"succeeded": 1}, {"failed": 1})
        assert by_method["ok"]["p99_ms"] >= by_method["ok"]["p50_ms"] > 0


async def test_numbers_of_all_callers_need_the_right_to_metrics(site: Site) -> None:  # noqa: F811 - the fixture
    await an_open_command(site, OWN)
    assert (await overview(site.rig, site.headers("viewer")))["last_hour"] is None
    assert (await overview(site.rig, site.headers("boss")))["last_hour"]["minutes"]
