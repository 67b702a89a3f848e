"""A node that has not heard of a right yet ends nothing for that: it reads the rules first, and waits until it can."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from app.access.authority import Authority
from app.commands.held.held_judge import HeldJudge
from app.core.access.changes import Put, Remove
from app.core.access.model import Binding
from tests.api.test_access import OWN, Site, guarded
from tests.api.test_logged_out import RUNS, reaches
from tests.api.test_schedules import BODY, NIGHTLY, decided, two_minutes_pass
from tests.api.test_two_persons import becomes, its_instant_comes, person

RIGHT: Final = Binding(id="anna-operator", subject="anna", role="operator", tenant_id="air")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path) as site:
        await person(site, "anna", "operator")
        yield site


async def loses_sight(site: Site) -> None:
    """Take a right away, and give it back behind the node's back: its rules are older than those of others."""
    await site.change(Remove(kind=Binding, id=RIGHT.id))
    site.directory.away = True
    await site.directory.apply([Put(RIGHT)])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Tell that the node has wanted to read the rules anew."""
    told, renew = asyncio.Event(), Authority.renew

    async def spied(authority: Authority) -> None:
        told.set()
        await renew(authority)

    monkeypatch.setattr(Authority, "renew", spied)
    return told


async def test_what_is_held_waits_for_the_rules(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeldJudge, "is_there", lambda *_, **__: False)
    held = (await site.send("anna", hold="2h")).json()
    await loses_sight(site)
    await its_instant_comes(site, monkeypatch)
    last: dict[str, Any] = (await site.send("admin", method="refuse", hold="1m")).json()
    await becomes(site, last, "failed")  # what was held before was looked at before
    await becomes(site, held, "held")
    site.directory.away = False
    assert (await site.send("admin", method="refuse", hold="1m")).status_code == 202  # the device is looked at
    await becomes(site, held, "succeeded")


async def test_a_target_waits_for_the_rules(site: Site, asked: asyncio.Event) -> None:
    body = {
        "targets": {"devices": [OWN, "drone-2"]},
        "command": {"method": "silent", "timeout": "1s", "hold": "1s"},
        "waves": [{"size": 1, "then": "wait"}],
    }
    run = (await site.rig.http.post(RUNS, json=body, headers=site.headers("anna"))).json()
    url, seen = f"{RUNS}/{run['id']}", site.headers("admin")
    await reaches(site.rig, url, "paused", headers=seen)
    await loses_sight(site)
    assert (await site.rig.http.post(f"{url}/resume", json={"forgive": True}, headers=seen)).status_code == 200
    await asked.wait()
    site.directory.away = False
    assert "cancelled" not in (await reaches(site.rig, url, "failed", headers=seen))["counts"]


async def test_an_occurrence_waits_for_the_rules(site: Site, asked: asyncio.Event) -> None:
    schedule = {**BODY, "device": OWN, "command": {"method": "ok", "hold": "1m"}}
    put = await site.rig.http.put(NIGHTLY, json=schedule, headers=site.headers("anna"))
    assert put.status_code == 201, put.text
    await loses_sight(site)
    await two_minutes_pass(site.rig)
    await asked.wait()
    site.directory.away = False
    assert (await decided(site.rig, "began", headers=site.headers("admin")))["paused"] is None
