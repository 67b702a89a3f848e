"""Commands, runs, schedules and approvals go on after a log-out; they end with the key that had begun the login."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from app.commands.held.held_judge import HeldJudge
from app.core.access.changes import Put, Revoke
from app.core.access.keys import by_key, make_key
from app.core.access.model import Binding, Credential, Kind, Principal, Role, Scheme
from app.runtime.system import SystemClock
from tests.api.rig import Rig
from tests.api.test_access import OWN, Site, guarded
from tests.api.test_schedules import BODY, NIGHTLY, decided, two_minutes_pass
from tests.api.test_two_persons import RULE, becomes, decide, in_an_hour, its_instant_comes, key, person, proposal, tag
from tests.waiting import eventually

DAY_US: Final = 24 * 3_600_000_000
RUNS: Final = "/v1/fleet-runs"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with guarded(tmp_path) as site:
        await person(site, "anna", "operator")
        await person(site, "ben", "approver")
        yield site


async def log_in(site: Site, name: str, principal: str, by: str = "") -> None:
    """Give somebody a login under this name, which a password has begun, or a key of theirs."""
    site.keys[name] = made = make_key(secrets.token_bytes)
    now_us = int(SystemClock().wall() * 1_000_000)
    login: dict[str, Any] = {"scheme": Scheme.LOGIN, "digest": made.digest, "created_us": now_us}
    label = by_key(site.keys[by].id) if by else "login"
    expires_us = now_us + DAY_US // 2
    await site.change(Put(Credential(id=made.id, principal_id=principal, name=label, expires_us=expires_us, **login)))


async def log_out(site: Site, name: str) -> None:
    assert (await site.rig.http.delete("/v1/login", headers=site.headers(name))).status_code == 204
    assert (await site.rig.http.get("/v1/me", headers=site.headers(name))).status_code == 401


async def held_by(site: Site, name: str) -> dict[str, Any]:
    answer = await site.send(name, hold="2h", not_before=in_an_hour())
    assert answer.status_code == 202, answer.text
    command: dict[str, Any] = answer.json()
    return command


async def test_what_is_held_is_sent_after_its_caller_has_logged_out(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log_in(site, "by password", "anna")
    await log_in(site, "by key", "anna", by="anna")
    monkeypatch.setattr(HeldJudge, "is_there", lambda *_, **__: False)
    held = [(await site.send(name, hold="2h")).json() for name in ("by password", "by key")]
    for name in ("by password", "by key"):
        await log_out(site, name)
    await its_instant_comes(site, monkeypatch)
    for one in held:
        await becomes(site, one, "succeeded")


@pytest.mark.parametrize("row", ["the key that began it", "the person", "a new password"])
async def test_what_ends_the_right_of_a_caller_who_had_logged_in(
    site: Site, row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await log_in(site, "login", "anna", by="anna" if row.startswith("the key") else "")
    held = await held_by(site, "login")
    facts: dict[str, Any] = {"id": "anna", "tenant_id": "air", "kind": Kind.USER, "name": "anna"}
    match row:
        case "the key that began it":
            await site.change(Revoke(credential_id=site.keys["anna"].id, at_us=1))
        case "the person":
            await site.change(Put(Principal(**facts, disabled_us=1)))
        case "a new password":
            await site.change(Put(Principal(**facts, not_before_us=int(SystemClock().wall() * 1_000_000) + 1)))
    await its_instant_comes(site, monkeypatch)
    assert (await becomes(site, held, "cancelled"))["error"]["code"] == "not_allowed_any_more"


async def test_a_key_that_ends_takes_the_approvals_of_its_logins_along(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await careful(site)
    await log_in(site, "ben's", "ben", by="ben")
    command = await proposal(site, hold="2h", not_before=in_an_hour())
    assert (await decide(site, "ben's", command, tag=await tag(site, command))).status_code == 200
    await site.change(Revoke(credential_id=site.keys["ben"].id, at_us=1))
    await its_instant_comes(site, monkeypatch)
    assert (await becomes(site, command, "cancelled"))["error"]["code"] == "not_allowed_any_more"


async def test_a_login_is_as_new_as_the_key_that_began_it(site: Site) -> None:
    """Somebody may have made that key to approve what they have asked for themselves."""
    await careful(site)
    await key(site, "new", "ben", created_us=int(SystemClock().wall() * 1_000_000))
    await log_in(site, "by a new key", "ben", by="new")
    await log_in(site, "by an old key", "ben", by="ben")
    command = await proposal(site)
    fingerprint = await tag(site, command)
    refused = await decide(site, "by a new key", command, tag=fingerprint)
    assert (refused.status_code, "your key is on record for less than 24h" in refused.json()["detail"]) == (403, True)
    assert (await decide(site, "by an old key", command, tag=fingerprint)).status_code == 200


async def careful(site: Site) -> None:
    await site.change(
        Put(Role(name="careful", tenant_id="air", rules=(RULE,))),
        Put(Binding(id="anna-careful", subject="anna", role="careful", tenant_id="air")),
    )


async def test_a_fleet_run_goes_on_when_whoever_began_it_has_logged_out(site: Site) -> None:
    await log_in(site, "login", "anna")
    body = {
        "targets": {"devices": [OWN, "drone-2"]},
        "command": {"method": "silent", "timeout": "1s", "hold": "1s"},
        "waves": [{"size": 1, "then": "wait"}],
    }
    run = (await site.rig.http.post(RUNS, json=body, headers=site.headers("login"))).json()
    url = f"{RUNS}/{run['id']}"
    await log_out(site, "login")
    await reaches(site.rig, url, "paused", headers=site.headers("anna"))
    answer = await site.rig.http.post(f"{url}/resume", headers=site.headers("anna"))
    assert answer.status_code == 200, answer.text
    assert "cancelled" not in (await reaches(site.rig, url, "failed", headers=site.headers("anna")))["counts"]


async def test_a_schedule_goes_on_when_whoever_wrote_it_has_logged_out(site: Site) -> None:
    await log_in(site, "login", "anna")
    put = await site.rig.http.put(
        NIGHTLY,
        json={**BODY, "device": OWN, "command": {"method": "ok", "hold": "1m"}},
        headers=site.headers("login"),
    )
    assert put.status_code == 201, put.text
    await log_out(site, "login")
    await two_minutes_pass(site.rig)
    assert (await decided(site.rig, "began", headers=site.headers("anna")))["paused"] is None


async def reaches(rig: Rig, url: str, state: str, **call: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def is_so() -> bool:
        found.update((await rig.http.get(url, **call)).json())
        return bool(found["state"] == state)

    await eventually(is_so)
    return found
