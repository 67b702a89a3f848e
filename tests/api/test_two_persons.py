"""Commands that a second person has to approve, over HTTP: who may, for exactly what, and what is sent then."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from app.commands.held.held_judge import HeldJudge
from app.core.access.changes import Put, Remove, Revoke
from app.core.access.keys import make_key
from app.core.access.model import Binding, Credential, Kind, Principal, Role, Scheme
from app.core.commands.command import Command
from app.runtime.system import SystemClock
from tests.api.test_access import OWN, Site, guarded
from tests.waiting import eventually

RULE: Final = "require 2 send *:ok on * within 10m"
PROFILE: Final = """
[[approval]]
methods = ["ok", "ref*"]
within = "5m"
"""


@asynccontextmanager
async def with_two_persons(folder: Path) -> AsyncIterator[Site]:
    """A site where anna may propose what ben may approve."""
    async with guarded(folder) as site:
        await site.change(Put(Role(name="careful", tenant_id="air", rules=(RULE,))))
        await person(site, "anna", "operator", "careful")
        await person(site, "ben", "approver")
        yield site


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with with_two_persons(tmp_path) as site:
        yield site


async def person(site: Site, name: str, *roles: str, tenant: str | None = "air", **more: Any) -> None:
    """Somebody who has been on record for long, with a key."""
    facts: dict[str, Any] = {"kind": Kind.USER, "name": name, **more}
    await site.change(Put(Principal(id=name, tenant_id=tenant, **facts)))
    await key(site, name, name)
    await site.change(*[Put(Binding(id=f"{name}-{one}", subject=name, role=one, tenant_id=tenant)) for one in roles])


async def key(site: Site, name: str, principal: str, created_us: int = 0) -> None:
    site.keys[name] = made = make_key(secrets.token_bytes)
    facts: dict[str, Any] = {"scheme": Scheme.KEY, "name": name, "digest": made.digest, "created_us": created_us}
    await site.change(Put(Credential(id=made.id, principal_id=principal, **facts)))


async def proposal(site: Site, who: str = "anna", **more: Any) -> dict[str, Any]:
    answer = await site.send(who, **more)
    assert answer.status_code == 202, answer.text
    command: dict[str, Any] = answer.json()
    assert (command["state"], "approval" in command["hold"]["waits_for"]) == ("held", True)
    return command


async def listed(site: Site, who: str) -> list[dict[str, Any]]:
    answer = await site.rig.http.get("/v1/approvals", headers=site.headers(who))
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["approvals"]
    return found


async def tag(site: Site, command: dict[str, Any], who: str = "boss") -> str:
    return next(str(one["fingerprint"]) for one in await listed(site, who) if one["command"]["id"] == command["id"])


async def decide(
    site: Site,
    who: str | None,
    command: dict[str, Any],
    decision: str = "approve",
    *,
    tag: str | None = None,
    **more: Any,
) -> httpx.Response:
    condition = {} if tag is None else {"If-Match": f'"{tag}"'}
    return await site.rig.http.post(
        f"/v1/commands/{command['id']}/approvals",
        json={"decision": decision, **more},
        headers={**site.headers(who), **condition},
    )


def in_an_hour() -> str:
    return datetime.fromtimestamp(SystemClock().wall() + 3600, UTC).isoformat()


async def becomes(site: Site, command: dict[str, Any], state: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    async def is_so() -> bool:
        answer = await site.rig.http.get(f"/v1/commands/{command['id']}", headers=site.headers("viewer"))
        found.update(answer.json())
        return bool(found["state"] == state)

    await eventually(is_so)
    return found


async def explain(site: Site, command: dict[str, Any]) -> dict[str, Any]:
    answer = await site.rig.http.get(f"/v1/commands/{command['id']}/explain", headers=site.headers("viewer"))
    found: dict[str, Any] = answer.json()
    return found


async def test_it_is_sent_once_another_person_has_approved_exactly_it(site: Site) -> None:
    command = await proposal(site, params={"height": 30})
    assert site.rig.device.received == []
    (found,) = await listed(site, "ben")
    assert (found["command"]["id"], found["asked_by"], found["may_decide"]) == (command["id"], "anna", True)
    decided = await decide(site, "ben", command, tag=found["fingerprint"], note="seen on site")
    assert decided.status_code == 200, decided.text
    approval = decided.json()["hold"]["approval"]
    assert (approval["decision"], approval["by"], approval["note"]) == ("approve", "ben", "seen on site")
    done = await becomes(site, command, "succeeded")
    assert done["hold"]["claims"] == 1
    assert [one["id"] for one in site.rig.device.received] == [command["id"]]
    timeline = (await explain(site, command))["timeline"]
    assert [one["reason"] for one in timeline if one["what"] == "approved"] == ["by ben: seen on site"]
    assert await listed(site, "ben") == []
    over = await decide(site, "ben", command, tag=found["fingerprint"])
    assert (over.status_code, over.json()["type"]) == (409, "urn:homing:problem:approval-over")
    assert (await site.send("anna", method="refuse")).status_code == 200, "other methods need nobody"


async def test_who_waits_is_told_the_outcome_and_the_refusal(site: Site) -> None:
    answers = []
    for decision, state in (("approve", "succeeded"), ("refuse", "cancelled")):
        url, headers = f"/v1/devices/{OWN}/commands", {**site.headers("anna"), "Prefer": "wait=60"}
        waiting = asyncio.create_task(site.rig.http.post(url, json={"method": "ok"}, headers=headers))
        found: list[dict[str, Any]] = []

        async def is_there(found: list[dict[str, Any]] = found) -> bool:
            found[:] = await listed(site, "ben")
            return bool(found)

        await eventually(is_there)
        assert (
            await decide(site, "ben", found[0]["command"], decision, tag=found[0]["fingerprint"])
        ).status_code == 200
        answers.append(await waiting)
        assert (answers[-1].status_code, answers[-1].json()["state"]) == (200, state)
    assert answers[-1].json()["error"]["code"] == "refused_by_second"
    assert answers[-1].json()["error"]["message"] == "ben has refused it: no reason was given"
    assert len(site.rig.device.received) == 1
    explained = await explain(site, answers[-1].json())
    assert (explained["verdict"]["code"], explained["verdict"]["text"]) == (
        "refused_by_second",
        "ben has refused it; the device was not told",
    )
    assert [one["reason"] for one in explained["timeline"] if one["what"] == "refused"] == ["by ben"]


DAY_US: Final = 24 * 3600 * 1_000_000


async def setting(site: Site, row: str) -> None:  # noqa: C901 - a row each
    """Put somebody called `second` on record, as the row says."""
    now_us = int(SystemClock().wall() * 1_000_000)
    match row:
        case "another key of the one who asks":
            await key(site, "second", "anna")
        case "a service":
            await person(site, "second", "approver", kind=Kind.SERVICE)
        case "on record since today":
            await person(site, "second", "approver", created_us=now_us - DAY_US // 2)
        case "a key of today":
            await person(site, "second", "approver")
            await key(site, "second", "second", created_us=now_us)
        case "a password of today":
            await person(site, "second", "approver", not_before_us=now_us - DAY_US // 2)
        case "the same address":
            await site.change(Put(Principal(id="anna", tenant_id="air", kind=Kind.USER, name="anna", email="A@x.org")))
            await person(site, "second", "approver", email="a@x.org")
        case "no right to approve":
            await person(site, "second", "operator")
        case "a right for another method":
            await site.change(Put(Role(name="some", tenant_id="air", rules=("allow approve *:land on *",))))
            await person(site, "second", "viewer", "some")
        case "no right to read":
            await person(site, "second")
        case "of another tenant":
            await person(site, "second", "admin", tenant="ground")


@pytest.mark.parametrize(
    ("row", "status", "said"),
    [
        ("another key of the one who asks", 403, "you have asked for it yourself"),
        ("a service", 403, "you are a service"),
        ("on record since today", 403, "you are on record for less than 24h"),
        ("a key of today", 403, "your key is on record for less than 24h"),
        ("a password of today", 403, "your password counts for less than 24h"),
        ("the same address", 403, "the same e-mail address"),
        ("no right to approve", 403, "approve on 'drone-1'"),
        ("a right for another method", 403, "approve on 'drone-1'"),
        ("no right to read", 404, "no command "),
        ("of another tenant", 404, "no command "),
    ],
)
async def test_nobody_else_is_a_second_person(site: Site, row: str, status: int, said: str) -> None:
    await site.change(Put(Binding(id="anna-admin", subject="anna", role="admin", tenant_id="air")))
    await setting(site, row)
    command = await proposal(site)
    fingerprint = await tag(site, command)
    for decision in ("approve", "refuse"):
        refused = await decide(site, "second", command, decision, tag=fingerprint)
        assert (refused.status_code, said in refused.json()["detail"]) == (status, True), refused.text
    if status == 403 and row != "no right to approve":
        (shown,) = await listed(site, "second")
        assert (shown["may_decide"], said in shown["why_not"]) == (False, True)
    for who, expected in ((None, 401), ("anna", 403)):
        assert (await decide(site, who, command, tag=fingerprint)).status_code == expected
    assert (await becomes(site, command, "held"))["hold"]["approval"].keys() == {"until"}
    assert (await decide(site, "ben", command, tag=fingerprint)).status_code == 200
    await becomes(site, command, "succeeded")


BAD: Final[list[tuple[object, dict[str, str], int, str]]] = [
    ({"decision": "approve"}, {}, 428, "If-Match is missing"),
    ({"decision": "approve"}, {"If-Match": '"0123456789abcdef01234567"'}, 412, "If-Match does not name"),
    ({"decision": "approve"}, {"If-Match": "x"}, 422, "is no list of tags"),
    ({"decision": "yes"}, {"If-Match": "*"}, 422, "decision"),
    ({}, {"If-Match": "*"}, 422, "decision"),
    ({"decision": "approve", "note": 7}, {"If-Match": "*"}, 422, "note"),
    ({"decision": "approve", "note": "a\nb"}, {"If-Match": "*"}, 422, "is not allowed; a note is one line"),
    ({"decision": "approve", "note": "x" * 501}, {"If-Match": "*"}, 422, "note"),
    ({"decision": "approve", "more": 1}, {"If-Match": "*"}, 422, "more"),
    ({"decision": "approve"}, {"If-Match": "*", "If-None-Match": "*"}, 422, "If-None-Match"),
    ([], {"If-Match": "*"}, 422, ""),
]


async def test_bad_input_decides_nothing(site: Site) -> None:
    command = await proposal(site)
    for body, headers, status, said in BAD:
        refused = await site.rig.http.post(
            f"/v1/commands/{command['id']}/approvals", json=body, headers={**site.headers("ben"), **headers}
        )
        assert (refused.status_code, said in refused.text) == (status, True), (body, refused.text)
        assert (await becomes(site, command, "held"))["hold"]["approval"].keys() == {"until"}


async def test_one_of_them_is_shown_by_its_id_as_the_list_has_it(site: Site) -> None:
    command = await proposal(site)
    path = f"/v1/commands/{command['id']}/approvals"
    for who in ("anna", "ben"):
        assert [(await site.rig.http.get(path, headers=site.headers(who))).json()] == await listed(site, who)
    assert (await site.rig.http.get(path, headers=site.headers("nobody"))).status_code == 404
    assert (await decide(site, "ben", command, tag=await tag(site, command))).status_code == 200
    over = await site.rig.http.get(path, headers=site.headers("ben"))
    assert (over.status_code, "ben has approved" in over.json()["detail"]) == (409, True)


async def test_the_list_reads_once_what_waits_for_no_person(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    get = site.rig.store.get

    async def noted(ids: Sequence[str]) -> list[Command | None]:
        if asyncio.current_task() is caller:  # and not that which looks for devices
            asked.extend(ids)
        return await get(ids)

    caller = asyncio.current_task()
    monkeypatch.setattr(site.rig.store, "get", noted)
    held = await site.send("anna", method="fly", hold="2h", not_before=in_an_hour())
    assert (held.status_code, held.json()["state"]) == (202, "held")
    assert (await listed(site, "ben"), await listed(site, "ben")) == ([], [])
    command = await proposal(site)
    for _ in range(2):
        assert [one["command"]["id"] for one in await listed(site, "ben")] == [command["id"]]
    assert asked == [held.json()["id"], command["id"], command["id"]]


async def test_what_waits_for_nobody_is_not_decided_about(site: Site) -> None:
    plain = (await site.send("operator", method="silent", timeout="1m", hold="1m")).json()
    refused = await decide(site, "ben", plain, tag="*")
    assert (refused.status_code, refused.json()["detail"]) == (409, f"command {plain['id']} needs no second person")
    cancelled = await proposal(site)
    assert (
        await site.rig.http.delete(f"/v1/commands/{cancelled['id']}", headers=site.headers("anna"))
    ).status_code == 200
    refused = await decide(site, "ben", cancelled, tag="*")
    assert "is cancelled: nobody is asked any more" in refused.json()["detail"]
    unknown = {"id": cancelled["id"][:-1] + ("0" if cancelled["id"][-1] != "0" else "1")}
    assert (await decide(site, "ben", unknown, tag="*")).status_code == 404


async def test_its_time_passes_and_it_is_unsent(site: Site) -> None:
    await site.change(Put(Role(name="careful", tenant_id="air", rules=("require 2 send *:ok on * within 1s",))))
    command = await proposal(site)
    fingerprint = await tag(site, command)
    ended = await becomes(site, command, "unsent")
    assert ended["error"]["code"] == "not_approved"
    assert (await explain(site, command))["verdict"]["code"] == "not_approved"
    assert (await decide(site, "ben", command, tag=fingerprint)).status_code == 409
    assert site.rig.device.received == []


async def its_instant_comes(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the node judge what waits for an instant; the store still has it wait."""
    monkeypatch.setattr(HeldJudge, "_too_early", lambda *_: False)
    monkeypatch.setattr(HeldJudge, "is_there", lambda *_, **__: True)
    assert (await site.send("admin", method="refuse", hold="1m")).status_code == 202  # the device is looked at


@pytest.mark.parametrize(
    "row", ["approver's key", "approver's role", "approver disabled", "sender's key", "sender's role"]
)
async def test_both_must_still_be_allowed_when_it_leaves(site: Site, row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for an instant after its approval; meanwhile one of both loses the right."""
    command = await proposal(site, hold="2h", not_before=in_an_hour())
    assert (await decide(site, "ben", command, tag=await tag(site, command))).status_code == 200
    match row:
        case "approver's key" | "sender's key":
            who = "ben" if row.startswith("approver") else "anna"
            await site.change(Revoke(credential_id=site.keys[who].id, at_us=1))
        case "approver's role":
            await site.change(Remove(kind=Binding, id="ben-approver"))
        case "approver disabled":
            await site.change(Put(Principal(id="ben", tenant_id="air", kind=Kind.USER, name="ben", disabled_us=1)))
        case "sender's role":
            await site.change(Remove(kind=Binding, id="anna-operator"))
    await its_instant_comes(site, monkeypatch)
    ended = await becomes(site, command, "cancelled")
    assert ended["error"]["code"] == "not_allowed_any_more"
    assert "or who has approved it may not approve it any more" in ended["error"]["message"]


async def test_a_rule_that_comes_later_counts_for_what_is_held(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = await site.send("operator", hold="2h", not_before=in_an_hour())
    assert answer.status_code == 202
    await site.change(Put(Binding(id="op-careful", subject="operator", role="careful", tenant_id="air")))
    await its_instant_comes(site, monkeypatch)
    ended = await becomes(site, answer.json(), "cancelled")
    assert ended["error"]["code"] == "not_allowed_any_more"
    assert "approved" not in ended["error"]["message"]


async def test_the_hold_of_the_caller_is_kept_and_bounds_the_approval(site: Site) -> None:
    command = await proposal(site, hold="2m")
    assert command["hold"]["until"] == command["hold"]["approval"]["until"]
    longer = await proposal(site, hold="1h")
    assert longer["hold"]["until"] > longer["hold"]["approval"]["until"]
    assert longer["hold"]["waits_for"] == ["approval", "device"]


async def test_a_repeated_call_joins_the_proposal(site: Site) -> None:
    url, headers = f"/v1/devices/{OWN}/commands", {**site.headers("anna"), "Idempotency-Key": "k"}
    first, again = [await site.rig.http.post(url, json={"method": "ok"}, headers=headers) for _ in range(2)]
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["idempotent-replayed"] == "true"
    assert len(await listed(site, "ben")) == 1


async def test_explain_and_a_dry_run_say_it(site: Site) -> None:
    command = await proposal(site)
    explained = await site.rig.http.get(f"/v1/commands/{command['id']}/explain", headers=site.headers("ben"))
    assert explained.json()["verdict"]["code"] == "held"
    assert "a second person has to approve it within" in explained.json()["verdict"]["evidence"][0]
    dry = await site.rig.http.post(
        f"/v1/devices/{OWN}/commands?dry_run=true",
        json={"method": "ok", "dry_run": True},
        headers=site.headers("anna"),
    )
    assert dry.status_code == 200, dry.text
    assert (dry.json()["would"], dry.json()["waits_for"]) == ("wait", ["approval"])
    assert len(await listed(site, "ben")) == 1
