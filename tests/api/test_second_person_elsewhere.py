"""A second person is asked for in fleets, lists, lanes and profiles, too; and somewhere nobody can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.store.holds import HeldEntries
from tests.api.rig import homing_with, running
from tests.api.test_access import OWN, Site, guarded
from tests.api.test_two_persons import PROFILE, becomes, decide, listed, person, proposal, site, tag

__all__ = ["site"]  # fixtures


async def test_a_fleet_run_is_no_way_round(site: Site) -> None:
    refused = await site.rig.http.post(
        "/v1/fleet-runs",
        json={"targets": {"devices": [OWN]}, "command": {"method": "ok"}},
        headers={**site.headers("anna"), "Idempotency-Key": "r"},
    )
    assert refused.status_code == 403, refused.text


async def test_a_list_says_that_a_part_of_the_store_could_not_be_asked(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one primary of a Redis Cluster is away: what is at the others is listed."""
    command = await proposal(site)
    known = await site.rig.store.held()

    async def held() -> HeldEntries:
        return HeldEntries(known.entries, frozenset({0}))

    monkeypatch.setattr(site.rig.store, "held", held)
    answer = (await site.rig.http.get("/v1/approvals", headers=site.headers("ben"))).json()
    assert ([one["command"]["id"] for one in answer["approvals"]], answer["more"]) == ([command["id"]], True)


async def test_a_list_has_as_many_as_were_asked_for(site: Site) -> None:
    commands = [await proposal(site) for _ in range(3)]
    answer = (await site.rig.http.get("/v1/approvals?limit=2", headers=site.headers("ben"))).json()
    assert [one["command"]["id"] for one in answer["approvals"]] == [one["id"] for one in commands[:2]]
    assert answer["more"] is True
    assert await listed(site, "neighbour") == []
    assert (await site.rig.http.get("/v1/approvals?state=x", headers=site.headers("ben"))).status_code == 422


async def test_a_node_of_a_version_that_does_not_know_it_keeps_it_from_being_asked(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = site.rig.application.ports.commands.holder
    asked = []

    async def all_know(feature: str) -> bool:
        asked.append(feature)
        return feature != "approvals"

    monkeypatch.setattr(holder, "_all_know", all_know)
    refused = await site.send("anna")
    assert (refused.status_code, refused.json()["type"]) == (503, "urn:homing:problem:not-yet")
    assert "does not know approvals of a second person" in refused.json()["detail"]
    assert (await site.send("operator", hold="1m")).status_code == 202
    assert asked == ["approvals", "held"]


async def test_in_a_lane_it_keeps_nobody_waiting(tmp_path: Path) -> None:
    lane = """
[[lane]]
name = "flight"
methods = ["ok", "refuse", "refresh"]
order = "fifo"
"""
    async with guarded(tmp_path, profiles=profiles_of(tmp_path / "profiles", lane)) as site:
        await person(site, "ben", "approver")
        await proposal(site, "boss", method="refresh")
        second = await proposal(site, "boss")
        assert (await decide(site, "ben", second, tag=await tag(site, second))).status_code == 200
        await becomes(site, second, "succeeded")


def profiles_of(folder: Path, more: str = "") -> dict[str, Path]:
    return {"dir": homing_with(folder, PROFILE + more)}


async def test_a_profile_asks_for_it_whoever_sends(tmp_path: Path) -> None:
    async with guarded(tmp_path, profiles=profiles_of(tmp_path / "profiles")) as site:
        await person(site, "ben", "approver")
        command = await proposal(site, "boss")
        assert (await decide(site, "boss", command, tag=await tag(site, command))).status_code == 403
        assert (await decide(site, "ben", command, tag=await tag(site, command))).status_code == 200
        await becomes(site, command, "succeeded")
        refused = await site.rig.http.post(
            "/v1/fleet-runs",
            json={"targets": {"devices": [OWN]}, "command": {"method": "ok"}},
            headers={**site.headers("operator"), "Idempotency-Key": "r"},
        )
        assert refused.status_code == 403, refused.text


async def test_where_nobody_is_asked_who_they_are_nobody_can_approve(tmp_path: Path) -> None:
    async with running(profiles=profiles_of(tmp_path / "profiles")) as rig:
        refused = await rig.send("ok")
        assert (refused.status_code, refused.json()["type"]) == (403, "urn:homing:problem:needs-second-person")
        assert "set HOMING_ACCESS_URL" in refused.json()["detail"]
        assert (await rig.http.get("/v1/approvals")).json() == {"approvals": [], "more": False}
        assert (await rig.send("silent", timeout="100ms")).status_code == 504
