"""The audit of a node: every command, refusal and change, by whom, and how it ended; never params or secrets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from app.api.representation import instant
from app.audit import recorder
from app.audit import writer as audit_writer
from app.audit.verification import verify
from app.core.access.changes import Put
from app.core.access.model import Role
from app.core.errors import DirectoryUnavailableError
from app.store.audit import AuditQuery, StoredLine
from tests.api.rig import Rig, until
from tests.api.test_access import OTHER, OWN, Site, guarded


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with audited(tmp_path) as site:
        yield site


@asynccontextmanager
async def audited(folder: Path, **settings: Any) -> AsyncIterator[Site]:
    """A node that writes its audit at once, on which somebody may read it."""
    with pytest.MonkeyPatch.context() as patch:  # before the node is made: its first line is written at once, too
        patch.setattr(recorder, "GAP_SECONDS", recorder.SLACK_SECONDS + 0.001)
        async with guarded(folder, **settings) as site:
            await site.change(Put(Role(name="auditor", tenant_id="air", rules=("allow audit *:* on *",))))
            await site.add("auditor", "auditor")
            yield site


async def ask(site: Site, who: str, path: str = "") -> httpx.Response:
    return await site.rig.http.get(f"/v1/audit{path}", headers=site.headers(who))


async def told(site: Site, *kinds: str) -> list[dict[str, Any]]:
    """Return what is on record, the oldest first, when all of it is; outcomes as if each had a line of its own."""
    audit: Any = site.rig.application.ports.audit
    await until(lambda: audit.fills()["audit"].size == 0 and written(site) >= int(audit._writer._chain.head.seq))
    found = (await ask(site, "boss", "?limit=200")).json()["lines"]
    lines = [part for one in reversed(found) for part in apart(one["line"])]
    return [one for one in sorted(lines, key=lambda line: line["at"]) if not kinds or one["kind"] in kinds]


def apart(line: dict[str, Any]) -> list[dict[str, Any]]:
    """A command whose outcome was known before its line was written has both in one."""
    if line["kind"] != "command" or "state" not in line:
        return [line]
    state, ended = line.pop("state"), line.pop("ended")
    outcome = {name: line[name] for name in ("command", "device", "tenant")}
    return [line, {**outcome, "kind": "outcome", "state": state, "at": ended}]


def written(site: Site) -> int:
    return site.rig.counters["audit.written"]


async def test_a_command_is_on_record_with_who_asked_and_how_it_ended(site: Site) -> None:
    headers = {**site.headers("operator"), "User-Agent": "curl/8"}
    sent = await site.rig.http.post(
        f"/v1/devices/{OWN}/commands", json={"method": "ok", "params": {"pin": "canary-4711"}}, headers=headers
    )
    asked, ended = await told(site, "command", "outcome")
    key, at = site.keys["operator"].id, asked.pop("at")
    assert asked == {
        "kind": "command",
        "who": "operator",
        "key": key,
        "tenant": "air",
        "from": "127.0.0.1",
        "agent": "curl/8",
        "command": sent.json()["id"],
        "device": OWN,
        "profile": "homing",
        "method": "ok",
    }
    assert ended.pop("at") >= at
    assert ended == {
        "kind": "outcome",
        "command": sent.json()["id"],
        "device": OWN,
        "tenant": "air",
        "state": "succeeded",
    }
    everything = await site.directory.audit.page(AuditQuery(limit=10_000))
    assert not any(b"4711" in entry.body for entry in everything.entries)


async def test_refusals_cancellations_and_repetitions_are_on_record(site: Site) -> None:
    await site.send("viewer")
    await site.send("operator", OTHER)
    sent = await site.rig.http.post(
        f"/v1/devices/{OWN}/commands",
        json={"method": "silent"},
        headers={**site.headers("operator"), "Prefer": "respond-async", "Idempotency-Key": "k"},
    )
    await site.rig.http.post(
        f"/v1/devices/{OWN}/commands",
        json={"method": "silent"},
        headers={**site.headers("admin"), "Prefer": "respond-async", "Idempotency-Key": "k"},
    )
    await site.rig.http.delete(f"/v1/commands/{sent.json()['id']}", headers=site.headers("admin"))
    lines = await told(site, "refused", "command", "joined", "cancel", "outcome")
    assert [(one["kind"], one.get("who")) for one in lines] == [
        ("refused", "viewer"),
        ("refused", "operator"),
        ("command", "operator"),
        ("joined", "admin"),
        ("cancel", "admin"),
        ("outcome", None),
    ]
    assert lines[0]["why"] == "send on 'drone-1' is allowed by no rule"
    assert lines[-1]["state"] == "cancelled"


async def test_changes_over_http_are_on_record_with_who_made_them(site: Site) -> None:
    body = {"rules": ["allow read *:* on *"]}
    await site.rig.http.put("/v1/roles/pilot", json=body, headers=site.headers("admin"))
    line = (await told(site, "changes"))[-1]
    assert (line["who"], line["tenant"], line["key"], line["via"]) == ("admin", "air", site.keys["admin"].id, "http")
    assert line["changes"] == [{"do": "put", "what": "role 'pilot' of tenant 'air'", "to": {"rules": body["rules"]}}]
    assert line["version"] == await site.directory.version()


async def test_who_belongs_to_a_tenant_reads_its_lines(site: Site) -> None:
    await site.send("operator")
    await site.send("neighbour", OTHER)
    await told(site)
    lines = (await ask(site, "auditor", "?limit=200")).json()["lines"]
    assert {one["line"]["tenant"] for one in lines} == {"air"}
    assert [one["kind"] for line in lines for one in apart(line["line"])].count("command") == 1
    assert (await ask(site, "viewer")).status_code == 403
    assert (await ask(site, "auditor", "/verify")).status_code == 403
    assert len((await ask(site, "auditor", "?who=operator")).json()["lines"]) == 1
    assert (await ask(site, "auditor", f"?device={OTHER}")).json()["lines"] == []
    assert (await ask(site, "auditor", "?since=2999-01-01T00:00:00Z")).json()["lines"] == []
    assert (await ask(site, "auditor", "?until=2000-01-01T00:00:00Z")).json()["lines"] == []
    assert (await ask(site, "auditor", "?limit=200&until=2999-01-01T00:00:00Z")).json()["lines"] == lines
    middle = lines[1]["at"]
    older = (await ask(site, "auditor", f"?limit=200&until={middle}")).json()["lines"]
    assert [one["at"] for one in older] == [one["at"] for one in lines if one["at"] < middle] + [
        one["at"] for one in lines if one["at"] == middle and one["line"]["at"] % 1000 == 0
    ]
    assert all(instant(one["line"]["at"]) == one["at"] for one in lines)
    for wrong in ("?until=tomorrow", "?since=yesterday", "?cursor=x", "?limit=0", "?whom=x"):
        assert (await ask(site, "auditor", wrong)).status_code == 422
    said = (await ask(site, "auditor", "?until=tomorrow")).json()
    reason = "no instant; allowed: RFC 3339, such as 2026-03-01T08:00:00Z"
    assert said["errors"] == [{"field": "query.until", "reason": reason}]


async def test_pages_lead_through_all_lines(site: Site) -> None:
    for _ in range(4):
        await site.send("operator")
    await told(site)
    expected = [one["line"] for one in (await ask(site, "boss", "?limit=200")).json()["lines"]]
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = (await ask(site, "boss", f"?limit=3{cursor}")).json()
        found += [one["line"] for one in page["lines"]]
        if page["cursor"] is None:
            break
        cursor = f"&cursor={page['cursor']}"
    assert found == expected
    assert len(found) > 3


async def test_what_was_changed_in_the_database_is_found(site: Site) -> None:
    await site.send("operator")
    await told(site)
    intact = (await ask(site, "boss", "/verify")).json()
    assert (intact["intact"], intact["faults"]) == (True, [])
    store: Any = site.directory.audit

    async def forge(connection: AsyncConnection) -> None:
        await connection.exec_driver_sql("UPDATE audit SET body = x'7b7d' WHERE seq = 1 AND writer <> 'directory'")

    await store._calls.transaction(forge, homing_writes=True)
    found = (await ask(site, "boss", "/verify")).json()
    assert not found["intact"]
    assert found["faults"][0]["what"] == "the line, or one before it, is not what was written"


async def test_an_audit_that_was_emptied_with_its_heads_is_told_as_empty(site: Site) -> None:
    await site.send("operator")
    await told(site)
    some = (await ask(site, "boss", "/verify")).json()
    assert (some["empty"], some["reason"]) == (False, None)
    store: Any = site.directory.audit

    async def empty(connection: AsyncConnection) -> None:
        await connection.exec_driver_sql("DELETE FROM audit")
        await connection.exec_driver_sql("DELETE FROM audit_heads")

    await store._calls.transaction(empty, homing_writes=True)
    found = (await ask(site, "boss", "/verify")).json()
    assert (found["lines"], found["empty"]) == (0, True)
    assert found["reason"] == (
        f"the audit is empty, there is nothing to verify; the directory has had {site.version} changes, and each "
        "leaves a line unless HOMING_AUDIT=off: if it was on, somebody has emptied the audit"
    )


class Away:
    """An audit's database that can be taken away."""

    def __init__(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        self.away = False
        self.lost_replies = 0
        self._append = site.directory.audit.append
        monkeypatch.setattr(site.directory.audit, "append", self.append)

    async def append(self, lines: Sequence[StoredLine], facts: int) -> None:
        if self.away:
            raise DirectoryUnavailableError("the access directory does not answer")
        await self._append(lines, facts)
        if self.lost_replies:
            self.lost_replies -= 1
            raise DirectoryUnavailableError("the reply was lost")


async def test_lines_wait_for_the_database_and_are_all_there_afterwards(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await told(site)
    database = Away(site, monkeypatch)
    database.away = True
    assert [(await site.send("operator")).status_code for _ in range(5)] == [200] * 5
    audit: Any = site.rig.application.ports.audit
    await until(lambda: bool(audit.health != "ok"))
    assert 5 <= audit.fills()["audit"].size <= 10
    database.away, database.lost_replies = False, 2
    assert len(await told(site, "command", "outcome")) == 10
    assert (await ask(site, "boss", "/verify")).json()["intact"]


async def test_what_there_is_no_room_for_is_counted_and_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    await told(site)
    database = Away(site, monkeypatch)
    database.away = True
    with monkeypatch.context() as full:
        full.setattr(audit_writer, "MOST_LINES", 2)
        audit: Any = site.rig.application.ports.audit
        audit._room = audit._writer.room
        for _ in range(8):
            await site.send("viewer")
    assert site.rig.counters["audit.dropped"] == 6
    database.away = False
    await told(site)
    await site.send("viewer")
    lines = await told(site, "refused", "dropped")
    assert [(one["kind"], one.get("count")) for one in lines] == [
        ("refused", None),
        ("refused", None),
        ("dropped", 6),
        ("refused", None),
    ]
    assert (await ask(site, "boss", "/verify")).json()["intact"]


async def test_commands_are_refused_where_they_must_be_on_record_and_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with audited(tmp_path, audit_required=True) as site:
        database = Away(site, monkeypatch)
        assert (await site.send("operator")).status_code == 200
        database.away = True
        audit: Any = site.rig.application.ports.audit
        await site.send("viewer")  # something to write
        await until(lambda: bool(audit.health != "ok"))
        refused = await site.send("operator")
        assert refused.status_code == 503
        assert "the audit cannot be written" in refused.json()["detail"]
        database.away = False
        await until(lambda: bool(audit.health == "ok"))
        assert (await site.send("operator")).status_code == 200


@pytest.mark.parametrize(("mode", "kinds"), [("changes", {"changes", "refused"}), ("off", set())])
async def test_less_is_put_on_record_where_less_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, kinds: set[str]
) -> None:
    async with audited(tmp_path, audit=mode) as site:
        await site.send("operator")
        await site.send("viewer")
        await site.rig.http.put("/v1/roles/pilot", json={"rules": []}, headers=site.headers("admin"))
        if mode == "changes":
            await until(lambda: site.rig.counters["audit.written"] == 1)
        found = (await ask(site, "boss", "?limit=200")).json()["lines"]
        assert {one["line"]["kind"] for one in found} == kinds


async def test_writers_tell_of_each_other(site: Site) -> None:
    await site.send("operator")
    audit: Any = site.rig.application.ports.audit
    await site.rig.http.put("/v1/roles/pilot", json={"rules": []}, headers=site.headers("admin"))
    await audit.tell_heads()
    await audit.tell_heads()
    seen = await told(site, "seen")
    assert [[one[0] for one in line["seen"]] for line in seen] == [["directory"]]
    store: Any = site.directory.audit

    async def cut(connection: AsyncConnection) -> None:
        await connection.exec_driver_sql("DELETE FROM audit WHERE writer = 'directory'")
        await connection.exec_driver_sql("DELETE FROM audit_heads")

    await store._calls.transaction(cut, homing_writes=True)
    assert [one.writer for one in (await verify(store)).faults] == ["directory"]


async def test_an_open_node_keeps_no_audit(rig: Rig) -> None:
    assert rig.application.ports.audit is None
    assert (await rig.http.get("/v1/audit")).status_code == 404


async def test_who_follows_and_who_changes_webhooks_is_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = {"secret_key": "0123456789abcdef" * 4}
    async with audited(tmp_path, webhooks=served) as site:
        headers, http = site.headers("admin"), site.rig.http
        sent = await site.send("operator")
        await http.get(f"/v1/commands/{sent.json()['id']}/events", headers=headers)
        body = {"url": "https://receiver.example/canary-4711", "events": ["command.failed"]}
        made = (await http.post("/v1/webhooks", json=body, headers=headers)).json()
        assert (await http.patch(f"/v1/webhooks/{made['id']}", json={"enabled": False}, headers=headers)).is_success
        assert (await http.post(f"/v1/webhooks/{made['id']}/rotate", headers=headers)).is_success
        assert (await http.delete(f"/v1/webhooks/{made['id']}", headers=headers)).is_success
        lines = await told(site, "stream", "webhook")
        assert {one["who"] for one in lines} == {"admin"}
        assert {one["tenant"] for one in lines} == {"air"}
        assert [(one["command"], one["device"]) for one in lines[:1]] == [(sent.json()["id"], OWN)]
        assert [(one["webhook"], one["do"], one.get("parts")) for one in lines[1:]] == [
            (made["id"], "create", None),
            (made["id"], "change", ["enabled"]),
            (made["id"], "rotate", None),
            (made["id"], "remove", None),
        ]
        everything = await site.directory.audit.page(AuditQuery(limit=10_000))
        assert not any(b"4711" in entry.body for entry in everything.entries)
