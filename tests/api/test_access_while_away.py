"""Rules while the access directory is away: they go on until they are too old."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from app.core.access.changes import Revoke
from tests.api.rig import until
from tests.api.test_access import guarded, site
from tests.waiting import PATIENCE

__all__ = ["site"]  # fixtures


async def test_the_rules_go_on_while_the_directory_is_away_until_they_are_too_old(tmp_path: Path) -> None:
    async with guarded(tmp_path, {"stale": "6s"}) as site:
        site.directory.away = True
        assert (await site.send("operator")).status_code == 200
        assert (await site.rig.http.get("/readyz")).status_code == 200
        authority: Any = site.rig.application.ports.access
        await until(lambda: bool("ok" not in authority.health))
        refused = await site.send("operator")
        assert refused.status_code == 503
        assert refused.json()["detail"] == (
            "the access rules are too old to act on: the access directory does not answer"
        )
        assert (await site.rig.http.get("/v1/commands", headers=site.headers("viewer"))).status_code == 200
        assert (await site.rig.http.get("/readyz")).json()["checks"]["access"] == "the access directory does not answer"
        site.directory.away = False
        await until(lambda: bool(authority.health == "ok"))
        assert (await site.send("operator")).status_code == 200


async def test_a_node_that_cannot_read_the_directory_serves_and_says_so(tmp_path: Path) -> None:
    async with guarded(tmp_path, {}) as site:
        authority: Any = site.rig.application.ports.access
        site.directory.away = True
        await until(lambda: bool(authority.health != "ok"))
        ready = await site.rig.http.get("/readyz")
        assert ready.status_code == 200
        said = ready.json()["checks"]["access"]
        assert re.fullmatch(r"ok, but by the rules of \d+ s ago: the access directory does not answer", said)
        assert (
            'homing_dependency_up{dependency="access"} 1'
            in (await site.rig.http.get("/metrics", headers=site.headers("boss"))).text
        )
        site.directory.away = False
        await until(lambda: bool(authority.health == "ok"))


async def test_who_waits_while_the_rules_are_too_old_is_judged_when_they_are_new_again(tmp_path: Path) -> None:
    async with guarded(tmp_path, {"stale": "1s"}) as site:
        waiting = asyncio.create_task(site.send("operator", method="silent", timeout="1m"))
        await until(lambda: len(site.rig.application.parking) == 1)
        site.directory.away = True
        authority: Any = site.rig.application.ports.access
        await until(lambda: bool("ok" not in authority.health))
        await site.directory.apply([Revoke(credential_id=site.keys["operator"].id, at_us=1)])
        site.directory.away = False
        await until(lambda: bool(authority.health == "ok"))
        async with asyncio.timeout(PATIENCE):
            assert (await waiting).status_code == 401
