"""Every operation of a node is a verb; and what verbs ask, print and end with."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from app.cli import root
from app.cli.root import ALL as ROOT_VERBS
from app.cli.root import ELSEWHERE, GROUPS, PANELS
from app.core.access.keys import make_key
from app.profiles.loader import shipped_file
from homing_client.contexts import Contexts, default_path
from tests.api.rig import running
from tests.unit.cli.conftest import FakeNode, Homing
from tests.unit.cli.test_send import COMMAND

ID: Final = COMMAND["id"]
RUN: Final = "run-01JC8ZQ5M7W3T9K2V4X6Y8B0D1"
RUN_FILE: Final = Path(__file__).parents[3] / "docs" / "examples" / "fleet-run.json"
NODE: Final = {"node_id": "n1", "incarnation": "0" * 26, "started_at": "2026-03-01T08:00:00.000Z", "self": True}
PROPOSAL: Final = {
    "command": {**COMMAND, "hold": {"approval": {"until": "2026-03-01T08:00:00.000Z"}}},
    "asked_by": "anna",
    "fingerprint": "0123456789abcdef01234567",
    "may_decide": True,
}
ANSWER: Final[dict[str, Any]] = {
    **COMMAND,
    **PROPOSAL,
    "lane": "flight",
    "resumed": True,
    "commands": [COMMAND],
    "devices": [{"id": "dock-1", "profile": "dji", "labels": {"a": "b"}}],
    "nodes": [NODE],
    "self": {"state": "ready"},
    "open": True,
    "checks": {"store": "ok"},
    "profiles": [{"name": "dji", "methods": 92, "description": "docks"}],
    "default": "dji",
    "verdict": {"code": "silent", "text": "the device did not answer", "evidence": ["every node was asked"]},
    "timeline": [{"at": None, "node": "n1", "what": "published", "topic": "a/b", "reason": None, "bytes": 3}],
    "gaps": ["n2 was restarted"],
    "methods": [{"name": "cover_open", "usual": "30s", "danger": "none", "title": "Open the cover"}],
    "events": [{"at": "2026-03-01T08:00:00.000Z", "topic": "a/b", "data": {"n": 1}}],
    "topics": [{"topic": "a/b", "at": "2026-03-01T08:00:00.000Z", "device_id": None, "kind": "event"}],
    "cursors": [{"name": "archive", "topic": "a/+", "cursor": "2.x", "committed_at": "2026-03-01T08:00:00.000Z"}],
    "streams": [{"structure": "a/+"}],
    "databases": [{"name": "events", "retention": "720h", "shards": 4}],
    "positions": [17],
    "approvals": [PROPOSAL],
    "interlocks": [
        {
            "profile": "dji",
            "interlock": "on_the_ground",
            "methods": ["cover_*"],
            "say": "the drone stands in its dock",
            "result": "holds",
            "when": [{"path": "inputs.mode", "wanted": {"is_in": [0]}}],
            "conditions": [{"path": "inputs.mode", "wanted": {"is_in": [0]}, "result": "holds", "value": 0}],
        }
    ],
    "exchanges": [{"name": "ops", "kind": "topic", "created_at": "2026-03-01T08:00:00.000Z"}],
    "queues": [{"name": "alarms", "routes": [{"database": "events", "topic": "a/+"}], "loan": "30s"}],
    "letters": [{"at": "2026-03-01T08:00:00.000Z", "reason": "retry", "deliveries": 5, "event": {"topic": "a/b"}}],
    "consumers": [{"consumer": "w1", "asked_at": "2026-03-01T08:00:00.000Z"}],
    "settled": 1,
    "runs": [{"id": RUN, "state": "paused", "total": 12, "counts": {"failed": 1, "waiting": 11}}],
    "targets": [{"device_id": "dock-1", "wave": 1, "state": "failed", "command_id": ID, "code": 42, "message": "no"}],
    "schedules": [{"name": "nightly", "cron": "0 6 * * *", "zone": "UTC", "next": ["2026-03-01T06:00:00.000Z"]}],
    "total": 12,
    "counts": {"failed": 1, "waiting": 11},
    "webhooks": [{"id": "wh_1", "url": "https://a.example/hook", "events": ["command.failed"], "enabled": True}],
    "deliveries": [{"event_id": "evt_1", "type": "command.failed", "progress": "waiting", "attempts": 1}],
    "delivered": True,
    "keys": [{"id": "K1", "principal": "ci", "label": "", "created_at": "2026-03-01T08:00:00.000Z"}],
    "tenants": [{"id": "air", "name": "Air", "devices": ["dock-*"]}],
    "principals": [{"id": "ci", "name": "ci", "kind": "service", "tenant": None, "disabled": False}],
    "roles": [{"name": "pilot", "tenant": None, "rules": ["allow send *:* on *"]}],
    "bindings": [{"role": "pilot", "devices": ["dock-*"]}],
    "lines": [{"writer": "n1", "seq": 1, "line": {"who": "ci"}}],
    "sessions": [{"client_id": "dock-1", "principal": "device:dock-1", "connected": True}],
    "retained": [{"topic": "a/b", "qos": 1, "bytes": 3, "client_id": "dock-1"}],
    "readings": [{"profile": "dji", "outcome": "event", "sentence": "event osd of dock-1"}],
    "faults": [],
    "hints": [],
    "publishes": ["publishes to a/b"],
    "reads": [],
    "accepted": True,
    "answers": None,
    "allowed": True,
    "intact": True,
}
"""Something of all that verbs look for."""

VERBS: Final[dict[str, list[str]]] = {
    "POST /v1/devices/{device_id}/commands": ["send", "dock-1", "cover_open"],
    "GET /v1/devices/{device_id}/commands": ["list", "--device", "dock-1"],
    "GET /v1/commands": ["list"],
    "GET /v1/commands/{command_id}": ["get", ID],
    "GET /v1/commands/{command_id}/events": ["watch", ID],
    "GET /v1/commands/events": ["watch", "--device", "dock-*", "--count", "1"],
    "GET /v1/commands/{command_id}/explain": ["explain", ID],
    "DELETE /v1/commands/{command_id}": ["cancel", ID],
    "GET /v1/devices": ["devices", "list"],
    "GET /v1/devices/{device_id}": ["devices", "show", "dock-1"],
    "PUT /v1/devices/{device_id}": ["devices", "put", "dock-1"],
    "DELETE /v1/devices/{device_id}": ["devices", "remove", "dock-1"],
    "GET /v1/profiles": ["profiles"],
    "GET /v1/profiles/{name}/methods": ["methods", "dji"],
    "GET /v1/traffic": ["traffic", "a/#", "--for", "1s", "-n", "1"],
    "POST /v1/profiles/trial": ["trial", "a/b", '{"n": 1}'],
    "POST /v1/profiles/draft": ["draft", str(shipped_file("homing"))],
    "GET /v1/nodes": ["nodes"],
    "GET /v1/overview": ["overview"],
    "GET /v1/overview/events": ["overview", "--follow", "-n", "1"],
    "GET /v1/me": ["whoami"],
    "GET /": ["status"],
    "GET /healthz": ["status"],
    "GET /readyz": ["status"],
    "GET /metrics": ["metrics"],
    "GET /v1/events": ["events", "read", "a/+", "--from", "-10m", "-n", "1"],
    "GET /v1/events/stream": ["events", "follow", "a/+", "--from", "-10m", "--count", "1"],
    "POST /v1/events": ["events", "publish", "a/b", '{"n": 1}'],
    "GET /v1/topics": ["events", "topics", "a/#"],
    "GET /v1/events/{database}/{shard}/{position}": ["events", "show", "events.2.1772352000000000"],
    "GET /v1/streams": ["events", "streams"],
    "GET /v1/cursors": ["events", "cursors"],
    "GET /v1/cursors/{name}": ["events", "cursor", "dji"],
    "PUT /v1/cursors/{name}": ["events", "commit", "dji", "2.x", "--topic", "a/+", "--if-match", '"1"'],
    "DELETE /v1/cursors/{name}": ["events", "forget", "dji"],
    "GET /v1/databases": ["events", "databases"],
    "GET /v1/state/{topic}": ["state", "show", "a/b"],
    "PUT /v1/state/{topic}": ["state", "put", "a/b", '{"n": 1}', "--if-match", '"1"'],
    "GET /v1/devices/{device_id}/state": ["state", "device", "dock-1"],
    "GET /v1/approvals": ["held", "approvals"],
    "POST /v1/devices/{device_id}/lanes/{lane}/resume": ["held", "resume", "dock-1", "flight"],
    "POST /v1/commands/{command_id}/probe": ["probe", ID],
    "GET /v1/commands/{command_id}/approvals": ["held", "approve", ID, "--yes"],
    "POST /v1/commands/{command_id}/approvals": ["held", "refuse", ID, "--yes"],
    "GET /v1/interlocks": ["interlocks", "list"],
    "GET /v1/devices/{device_id}/interlocks": ["interlocks", "check", "dock-1", "cover_open"],
    "POST /v1/transactions": ["state", "transact", '{"write": [{"topic": "a", "data": 1}]}'],
    "GET /v1/exchanges": ["exchange", "list"],
    "PUT /v1/exchanges/{name}": ["exchange", "declare", "dji", "fanout"],
    "GET /v1/exchanges/{name}": ["exchange", "show", "dji"],
    "DELETE /v1/exchanges/{name}": ["exchange", "delete", "dji"],
    "POST /v1/exchanges/{name}/messages": ["exchange", "publish", "dji", "low.it", '{"n": 1}', "--message-id", "m"],
    "GET /v1/queues": ["queue", "list"],
    "PUT /v1/queues/{name}": ["queue", "declare", "dji", "--topic", "a/+", "--loan", "1m", "--if-match", '"1"'],
    "POST /v1/queues/{name}/bind": ["queue", "bind", "dji", "--topic", "a/+", "--if-match", '"1"'],
    "POST /v1/queues/{name}/unbind": ["queue", "unbind", "dji", "--key", "ops:low.*"],
    "GET /v1/queues/{name}": ["queue", "show", "dji"],
    "DELETE /v1/queues/{name}": ["queue", "delete", "dji", "--only-empty"],
    "POST /v1/queues/{name}/take": ["queue", "consume", "dji", "--count", "1"],
    "POST /v1/queues/{name}/settle": ["queue", "settle", "dji", '{"done": ["x"]}'],
    "POST /v1/queues/{name}/rewind": ["queue", "rewind", "dji", "--to", "now"],
    "POST /v1/queues/{name}/purge": ["queue", "purge", "dji"],
    "POST /v1/queues/{name}/redrive": ["queue", "redrive", "dji"],
    "GET /v1/queues/{name}/dead": ["queue", "dead", "dji"],
    "GET /v1/queues/{name}/consumers": ["queue", "consumers", "dji"],
    "DELETE /v1/queues/{name}/consumers/{consumer}": ["queue", "send-away", "dji", "w1"],
    "GET /v1/fleet-runs": ["fleet", "list"],
    "POST /v1/fleet-runs": ["fleet", "run", str(RUN_FILE), "--key", "rollout-7"],
    "GET /v1/fleet-runs/{run_id}": ["fleet", "show", RUN],
    "GET /v1/fleet-runs/{run_id}/targets": ["fleet", "targets", RUN, "--state", "failed"],
    "GET /v1/fleet-runs/{run_id}/explain": ["fleet", "explain", RUN],
    "POST /v1/fleet-runs/{run_id}/pause": ["fleet", "pause", RUN],
    "POST /v1/fleet-runs/{run_id}/resume": ["fleet", "resume", RUN, "--forgive"],
    "POST /v1/fleet-runs/{run_id}/abort": ["fleet", "abort", RUN, "--cancel-open"],
    "POST /v1/fleet-runs/{run_id}/retry": ["fleet", "retry", RUN, "--of", "failed"],
    "GET /v1/schedules": ["schedule", "list"],
    "PUT /v1/schedules/{name}": ["schedule", "put", "dji", '{"cron": "0 6 * * *"}', "--if-match", "t"],
    "GET /v1/schedules/{name}": ["schedule", "show", "dji"],
    "DELETE /v1/schedules/{name}": ["schedule", "delete", "dji"],
    "GET /v1/webhooks": ["webhooks", "list"],
    "POST /v1/webhooks": ["webhooks", "create", "https://a.example/hook", "--event", "command.failed"],
    "GET /v1/webhooks/{webhook_id}": ["webhooks", "show", "wh_1"],
    "PATCH /v1/webhooks/{webhook_id}": ["webhooks", "update", "wh_1", "--disabled", "--to", "https://b.example"],
    "DELETE /v1/webhooks/{webhook_id}": ["webhooks", "delete", "wh_1"],
    "POST /v1/webhooks/{webhook_id}/rotate": ["webhooks", "rotate", "wh_1"],
    "POST /v1/webhooks/{webhook_id}/test": ["webhooks", "test", "wh_1"],
    "GET /v1/webhooks/{webhook_id}/deliveries": ["webhooks", "deliveries", "wh_1", "--limit", "5"],
    "POST /v1/webhooks/{webhook_id}/deliveries/{event_id}/retry": ["webhooks", "redeliver", "wh_1", "evt_1"],
    "GET /v1/keys": ["admin", "keys", "list"],
    "POST /v1/keys": ["admin", "keys", "create", "--label", "x", "--days", "3", "--narrow", "allow read *:* on *"],
    "POST /v1/keys/{key_id}/rotate": ["admin", "keys", "rotate", "K1", "--grace", "1h"],
    "DELETE /v1/keys/{key_id}": ["admin", "keys", "revoke", "K1"],
    "GET /v1/tenants": ["admin", "tenants", "list"],
    "GET /v1/tenants/{tenant_id}": ["admin", "tenants", "show", "air"],
    "PUT /v1/tenants/{tenant_id}": ["admin", "tenants", "put", "air", '{"devices": []}'],
    "DELETE /v1/tenants/{tenant_id}": ["admin", "tenants", "remove", "air"],
    "GET /v1/principals": ["admin", "principals", "list"],
    "GET /v1/principals/{principal_id}": ["admin", "principals", "show", "ci"],
    "PUT /v1/principals/{principal_id}": ["admin", "principals", "put", "ci", '{"kind": "service"}'],
    "DELETE /v1/principals/{principal_id}": ["admin", "principals", "remove", "ci"],
    "GET /v1/principals/{subject}/bindings": ["admin", "principals", "bindings", "ci"],
    "PUT /v1/principals/{subject}/bindings": ["admin", "principals", "bind", "ci", "[]"],
    "GET /v1/roles": ["admin", "roles", "list"],
    "GET /v1/roles/{name}": ["admin", "roles", "show", "dji"],
    "PUT /v1/roles/{name}": ["admin", "roles", "put", "dji", "allow send *:* on *", "--tenant", "air"],
    "DELETE /v1/roles/{name}": ["admin", "roles", "remove", "dji"],
    "GET /v1/access": ["admin", "access", "export"],
    "PUT /v1/access": ["admin", "access", "apply", "{}", "--dry-run"],
    "POST /v1/access/check": ["admin", "access", "check", "ci", "send", "--device", "dock-1"],
    "GET /v1/audit": ["admin", "audit", "list", "--who", "ci"],
    "GET /v1/audit/verify": ["admin", "audit", "verify"],
    "GET /v1/broker/sessions": ["broker", "sessions"],
    "DELETE /v1/broker/sessions/{client_id}": ["broker", "end", "dock-1"],
    "GET /v1/broker/retained": ["broker", "retained", "--topic", "a/+"],
    "DELETE /v1/broker/retained": ["broker", "delete", "a/b"],
}

OTHER_NAMES: Final = {"POST /v1/commands/{command_id}/cancel"}
"""Operations that are others by a younger name: verbs speak to nodes of the version before, too."""
LOGINS: Final = {"POST /v1/login", "DELETE /v1/login"}
"""`homing login` and `logout`, which have tests of their own below: they ask for a password, and keep a key."""


async def test_every_operation_is_a_verb() -> None:
    async with running() as rig:
        document = (await rig.http.get("/openapi.json")).json()
    there = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    assert there == VERBS.keys() | LOGINS | OTHER_NAMES


PLAIN: Final = {"GET /metrics", "DELETE /v1/devices/{device_id}", "POST /v1/events", "POST /v1/queues/{name}/take"}
"""Operations whose answer has one form only."""
PATH: Final = {
    "client_id": "dock-1",
    "command_id": ID,
    "device_id": "dock-1",
    "lane": "flight",
    "name": "dji",
    "topic": "a%2Fb",
    "consumer": "w1",
    "webhook_id": "wh_1",
    "event_id": "evt_1",
    "key_id": "K1",
    "run_id": RUN,
    "tenant_id": "air",
    "principal_id": "ci",
    "subject": "ci",
    "database": "events",
    "shard": "2",
    "position": "1772352000000000",
}


@pytest.mark.parametrize("operation", VERBS)
@pytest.mark.parametrize("output", ["human", "json", "ndjson"])
def test_a_verb_asks_for_its_operation(homing: Homing, fake_node: FakeNode, operation: str, output: str) -> None:
    fake_node.answers = [(200, ANSWER)]
    if operation == "GET /v1/commands/{command_id}/events":
        fake_node.answers = [(200, ANSWER), (200, [("outcome", COMMAND)])]
    if operation == "GET /v1/commands/events":
        fake_node.answers = [(200, [("bookmark", {}), ("outcome", COMMAND)])]
    if operation == "GET /v1/events/stream":
        fake_node.answers = [(200, [("bookmark", {"cursor": "1"}), ("event", ANSWER["events"][0])])]
    if operation == "GET /v1/overview/events":
        fake_node.answers = [(200, [("overview", ANSWER), ("bookmark", {"at": "2026-03-01T08:00:00.000Z"})])]
    if operation == "GET /v1/traffic":
        heard = {"at": "2026-03-01T08:00:00.000Z", "bytes": 1, "retain": False, "payload": "x", "cut": False}
        end = {"heard": 1, "strangers": 0, "dropped": 0, "outcomes": []}
        begun = ("listening", {"topics": ["a/#"], "for": "1s"})
        fake_node.answers = [(200, [begun, ("message", {**ANSWER, **heard, "topic": "a/b"}), ("end", end)])]
    if operation == "POST /v1/queues/{name}/take":
        lent = {"loan": "x", "delivery": 1, "until": "", "database": "events", "event": ANSWER["events"][0]}
        fake_node.answers = [(200, {"events": [lent]}), (200, {"settled": 1, "over": []})]
    if operation == "POST /v1/commands/{command_id}/probe":
        verified = {"state": "succeeded", "value": {"on": True}, "topic": "a/b", "at": "2026-03-01T08:00:00.000Z"}
        fake_node.answers = [(200, {"result": "goal", "command": {**COMMAND, "verified": verified}})]
    form = [] if operation in PLAIN else ["--output", output]
    code, out, err = homing(*VERBS[operation], "--url", fake_node.url, *form)
    assert code == 0, err
    asked = {f"{method} {target.partition('?')[0]}" for method, target, _, _ in fake_node.asked}
    assert operation.format(**PATH) in asked
    if form and output == "json":
        json.loads(out or "null")
    if form and output == "ndjson":
        assert all(json.loads(line) for line in out.splitlines())


def test_what_is_typed_is_what_is_asked(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, ANSWER)]
    for operation, body in {
        "POST /v1/webhooks": {"url": "https://a.example/hook", "events": ["command.failed"]},
        "PATCH /v1/webhooks/{webhook_id}": {"url": "https://b.example", "enabled": False},
        "POST /v1/keys": {"label": "x", "days": 3, "narrow": ["allow read *:* on *"]},
        "PUT /v1/principals/{subject}/bindings": {"bindings": []},
        "PUT /v1/roles/{name}": {"rules": ["allow send *:* on *"], "tenant": "air"},
        "POST /v1/access/check": {"principal": "ci", "action": "send", "device": "dock-1"},
        "POST /v1/events": [{"topic": "a/b", "data": {"n": 1}}],
    }.items():
        fake_node.asked.clear()
        assert homing(*VERBS[operation], "--url", fake_node.url)[0] == 0
        assert fake_node.asked[0][3] == body
    fake_node.asked.clear()
    homing(*VERBS["PUT /v1/state/{topic}"], "--url", fake_node.url)
    assert fake_node.asked[0][2]["If-Match"] == '"1"'
    homing(*VERBS["GET /v1/events"], "--url", fake_node.url)
    assert fake_node.asked[1][1] == "/v1/events?topic=a%2F%2B&from=-10m"


def test_lists_have_columns_and_what_can_be_changed_has_a_tag(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, ANSWER)]
    code, out, _ = homing("webhooks", "list", "--url", fake_node.url)
    head, line = out.splitlines()
    assert (code, head.split()) == (0, ["id", "url", "events", "devices", "methods", "enabled"])
    assert line.split() == ["wh_1", "https://a.example/hook", "command.failed", "yes"]
    fake_node.answers = [(200, {"name": "pilot", "rules": ["allow read *:* on *"]}, {"ETag": '"3"'})]
    code, out, err = homing("admin", "roles", "show", "pilot", "--url", fake_node.url)
    assert (code, out, err) == (0, "name   pilot\nrules  allow read *:* on *\n", 'tag "3"\n')
    fake_node.answers = [(200, {"id": "wh_1"}, {"ETag": '"4"'})]
    assert homing("webhooks", "show", "wh_1", "--url", fake_node.url) == (0, "id  wh_1\n", 'tag "4"\n')
    fake_node.asked.clear()
    homing("webhooks", "update", "wh_1", "--disabled", "--if-match", '"4"', "--url", fake_node.url)
    assert (fake_node.asked[0][2]["If-Match"], fake_node.asked[0][3]) == ('"4"', {"enabled": False})


def test_deliveries_are_read_page_by_page_up_to_the_limit(homing: Homing, fake_node: FakeNode) -> None:
    def page(first: int, size: int, cursor: str | None) -> tuple[int, dict[str, Any]]:
        found = [{"event_id": f"evt_{number}"} for number in range(first, first + size)]
        return 200, {"waiting": 0, "deliveries": found, "cursor": cursor}

    fake_node.answers = [page(0, 200, "a"), page(200, 50, "b")]
    code, out, _ = homing("webhooks", "deliveries", "wh_1", "--limit", "250", "--url", fake_node.url)
    assert (code, out.count("evt_")) == (0, 250)
    queries = [target.partition("?")[2] for _, target, _, _ in fake_node.asked]
    assert queries == ["limit=200", "limit=50&cursor=a"]
    fake_node.asked.clear()
    fake_node.answers = [page(0, 50, "a")]
    assert homing("webhooks", "deliveries", "wh_1", "--url", fake_node.url)[1].count("evt_") == 50
    assert len(fake_node.asked) == 1


def test_people_see_words_and_not_json(homing: Homing, fake_node: FakeNode) -> None:
    where = ("--url", fake_node.url)
    fake_node.answers = [(200, {"delivered": True, "status": 204, "reason": None})]
    assert homing("webhooks", "test", "wh_1", *where)[1] == "delivered  yes\nstatus     204\n"
    event = {"at": "2026-03-01T08:00:00.000Z", "topic": "a/b", "data": {"n": 1}, "kind": None}
    fake_node.answers = [(200, {"device_id": "dock-1", "presence": {"online": True}, "values": [event]})]
    assert homing("state", "device", "dock-1", *where)[1].splitlines() == [
        "device_id  dock-1",
        "presence   online=yes",
        "values",
        '  at=2026-03-01T08:00:00.000Z topic=a/b data={"n": 1}',
    ]
    fake_node.answers = [(200, {"lines": [{"writer": "n1", "seq": 1, "line": {"who": "ci", "roles": ["a", "b"]}}]})]
    assert homing("admin", "audit", "list", *where)[1].splitlines()[1].split("  ")[-1] == "who=ci roles=a, b"
    fake_node.answers = [(200, {"events": [event], "cursor": "1", "more": False})]
    assert homing("events", "read", *where)[1] == '2026-03-01T08:00:00.000Z  a/b  {"n": 1}\n'


def test_an_answer_that_is_no_is_an_exit_code(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, {"delivered": False, "allowed": False, "intact": False})]
    for typed in (
        VERBS["POST /v1/webhooks/{webhook_id}/test"],
        VERBS["POST /v1/access/check"],
        ["admin", "audit", "verify"],
    ):
        assert homing(*typed, "--url", fake_node.url)[0] == 1


def test_an_audit_that_is_empty_is_not_said_to_be_verified(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, {"intact": True, "lines": 0, "empty": True, "reason": "the audit is empty"})]
    code, out, _ = homing("admin", "audit", "verify", "--url", fake_node.url)
    assert (code, out.splitlines()[-1]) == (9, "reason  the audit is empty")


def test_what_makes_no_sense_gets_a_sentence(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, ANSWER)]
    where = ("--url", fake_node.url)
    assert homing("state", "put", "a", "{", *where)[2].startswith("homing: DATA: not JSON: ")
    assert homing("webhooks", "show", "..", *where) == (2, "", "homing: webhook_id: '..' cannot be part of a path\n")
    assert homing("webhooks", "create", "https://a.example", *where)[0] == 2
    assert fake_node.asked == []


def test_who_follows_events_is_told_what_is_missing(homing: Homing, fake_node: FakeNode) -> None:
    event = ANSWER["events"][0]
    fake_node.answers = [
        (200, [("gap", {"until": "2026-03-01T07:00:00.000Z"}), ("event", event)]),
        (200, [("event", event)]),
    ]
    code, out, err = homing("events", "follow", "--count", "2", "--url", fake_node.url)
    assert (code, out.splitlines()) == (0, ['2026-03-01T08:00:00.000Z a/b {"n": 1}'] * 2)
    assert err == "homing: events until 2026-03-01T07:00:00.000Z are gone: they were dropped before they were read\n"
    fake_node.answers = [(200, [("problem", {"status": 404, "detail": "there is no such database"})])]
    assert homing("events", "follow", "--url", fake_node.url) == (
        2,
        "",
        "homing: there is no such database (HTTP 404)\n",
    )


def test_lists_are_cut_where_they_were_asked_to_be(homing: Homing, fake_node: FakeNode) -> None:
    page = {"commands": [COMMAND] * 3, "cursor": "c1"}
    fake_node.answers = [(200, page)]
    code, out, _ = homing("list", "-n", "5", "--state", "succeeded", "--output", "ndjson", "--url", fake_node.url)
    assert (code, len(out.splitlines())) == (0, 5)
    assert [target for _, target, _, _ in fake_node.asked] == [
        "/v1/commands?state=succeeded&limit=5",
        "/v1/commands?state=succeeded&limit=5&cursor=c1",
    ]
    assert homing("list", "-n", "0", "--url", fake_node.url)[0] == 2


def test_a_pipe_has_no_width(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, {"commands": [COMMAND | {"device_id": "d" * 128, "method": "m" * 64}], "cursor": None})]
    _, out, _ = homing("list", "--url", fake_node.url)
    head, line = out.splitlines()
    assert head.split() == ["id", "device", "method", "state", "created", "took"]
    assert line.split()[:4] == [ID, "d" * 128, "m" * 64, "succeeded"]


def test_what_is_not_there_gets_a_sentence(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(404, {"detail": f"there is no command {ID}"})]
    said = f"homing: there is no command {ID}: homing list shows those on record\n"
    for verb in ("get", "watch", "cancel", "explain"):
        assert homing(verb, ID, "--url", fake_node.url) == (2, "", said)
        assert json.loads(homing(verb, ID, "--url", fake_node.url, "--json")[1])["detail"]
    fake_node.asked.clear()
    said = "homing: 'nope' is no id of a command: homing list shows them\n"
    assert homing("get", "nope", "--url", fake_node.url) == (2, "", said)
    assert fake_node.asked == []


def test_a_node_that_cannot_serve_says_so(homing: Homing, fake_node: FakeNode) -> None:
    index = {"name": "homing", "version": "0.2.0", "node_id": "n1"}
    broken = {"state": "not_ready", "checks": {"mqtt": "no connection"}}
    fake_node.answers = [(200, index), (200, {"status": "ok"}), (503, broken)]
    code, out, _ = homing("status", "--url", fake_node.url)
    assert code == 1
    assert out.splitlines() == ["homing 0.2.0, node n1: not_ready", "  mqtt    no connection"]


def test_any_operation_can_be_called(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, '["é"]'.encode())]
    typed = ["api", "put", "/v1/roles/x?tenant=a{b}", '{"rules": []}', "--if-match", '"1"']
    assert homing(*typed, "--url", fake_node.url) == (0, '["\\u00e9"]\n', "")
    ((method, path, headers, body),) = fake_node.asked
    assert (method, path, headers["If-Match"], body) == ("PUT", "/v1/roles/x?tenant=a%7Bb%7D", '"1"', {"rules": []})
    assert homing("api", "get", "v1/me", "--url", fake_node.url)[0] == 0
    assert fake_node.asked[1][1] == "/v1/me"
    said = "homing: METHOD: 'FOO' is none; allowed: GET, POST, PUT, PATCH, DELETE\n"
    assert homing("api", "FOO", "/v1/me", "--url", fake_node.url) == (2, "", said)
    assert homing("api", "POST", "/v1", "{", "--url", fake_node.url)[0] == 2


def test_without_a_verb_there_is_help(homing: Homing) -> None:
    code, out, err = homing()
    assert (code, err) == (0, "")
    for word in ("send", "watch", "login", "doctor", "--install-completion"):
        assert word in out
    assert homing("version") == homing("--version")


def test_help_has_each_verb_once_under_what_it_is_for(homing: Homing) -> None:
    _, out, _ = homing("--help")
    assert re.findall(r"^╭─ (.+?) ─", out, re.MULTILINE)[1:] == list(PANELS)
    assert re.findall(r"^│ ([a-z][a-z-]+) ", out, re.MULTILINE) == [*ROOT_VERBS, *sorted(ELSEWHERE), "version"]
    assert not GROUPS - ROOT_VERBS.keys()
    for entry in ROOT_VERBS.values():
        assert entry.sentence.endswith(".")
    assert "HOMING_KEY" not in out


def test_a_verb_of_a_distribution_that_is_not_installed_names_it(
    homing: Homing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root, "entry_points", lambda **_: ())
    assert homing("chaos") == (
        *(2, ""),
        "homing: `homing chaos` comes with homing-rig, which is not installed (docs/install.md)\n",
    )
    assert "chaos" not in homing("--help")[1]


def test_roles_are_a_noun_of_their_own(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, ANSWER)]
    told = [homing(*words, "list", "--url", fake_node.url) for words in (("roles",), ("admin", "roles"))]
    assert told[0] == told[1]
    assert told[0][0] == 0


def test_a_verb_does_not_load_the_others() -> None:
    """Check what a verb imports, which is what makes a command line slow."""
    code = (
        "import sys; from app.cli.root import application_for; application_for(['send']); "
        "print([name for name in ('asyncio', 'httpx2', 'pydantic_settings', 'sqlalchemy') if name in sys.modules])"
    )
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": f"{root}:{root / 'client'}"}
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=root, env=environment
    )
    assert done.stdout == "[]\n"


KEY: Final = make_key(lambda count: b"k" * count).text
OPEN: Final = (200, {"open": True})
LIMITS: Final = [
    {"rule": "limit send *:* on * 5/s", "name": "few.1", "per": "principal", "share": 1.0, "left": 3, "count": 5},
    {"rule": "limit send *:* on * concurrent 1 per device", "name": "few.2", "per": "device", "share": 1, "left": None},
]
WHO: Final = (200, {"open": False, "principal": "ci", "tenant": "air", "roles": ["pilot"], "limits": LIMITS})
REFUSED: Final = (401, {"detail": "this node has to know who asks"})


def test_a_key_is_tried_and_kept(homing: Homing, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    _type(monkeypatch, KEY)
    fake_node.answers = [REFUSED, WHO]
    code, out, err = homing("login", fake_node.url, "--stdin")
    assert (code, out, err) == (0, "", f"You are ci at {fake_node.url}; kept as context 127.0.0.1.\n")
    assert [headers.get("Authorization") for _, _, headers, _ in fake_node.asked] == [None, f"Bearer {KEY}"]
    assert default_path().stat().st_mode & 0o777 == 0o600
    code, out, _ = homing("whoami")
    assert code == 0
    assert out.splitlines()[0] == f"You are ci at {fake_node.url}"
    assert "pilot" in out
    assert out.splitlines()[-2:] == [
        "  limit   limit send *:* on * 5/s: 3 left on this node",
        "  limit   limit send *:* on * concurrent 1 per device: counted for each device",
    ]
    assert KEY not in homing("context", "list", "--json")[1]


def test_a_key_that_is_refused_is_not_kept(
    homing: Homing, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    _type(monkeypatch, KEY)
    fake_node.answers = [REFUSED]
    assert homing("login", fake_node.url, "--stdin")[0] == 8
    _type(monkeypatch, "")
    assert homing("login", fake_node.url, "--stdin")[0] == 2
    assert not default_path().exists()


def test_a_node_that_asks_nobody_needs_no_key(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [OPEN]
    code, _, err = homing("login", fake_node.url, "--context", "here")
    assert (code, err) == (0, f"Nobody is asked who they are at {fake_node.url}; kept as context here.\n")


def test_people_log_in_by_password_and_out(
    homing: Homing, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    _type(monkeypatch, "correct horse")
    fake_node.answers = [(201, {"key": KEY}), WHO]
    code, _, err = homing("login", fake_node.url, "--user", "ann", "--tenant", "air", "--stdin", "--context", "c")
    assert code == 0, err
    assert fake_node.asked[0][3] == {"name": "ann", "password": "correct horse", "tenant": "air"}
    assert Contexts.load().get("c").key == KEY
    fake_node.asked.clear()
    fake_node.answers = [(204, b"")]
    assert homing("logout") == (0, "", "The key of context c is removed here. Its login has ended.\n")
    assert [(method, path) for method, path, _, _ in fake_node.asked] == [("DELETE", "/v1/login")]
    assert fake_node.asked[0][2]["Authorization"] == f"Bearer {KEY}"
    assert Contexts.load().get("c").key is None
    assert homing("logout") == (0, "", "c has no key.\n")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (409, "It is still valid: homing keys revoke {id}."),
        (401, "The node does not take it any more."),
        (503, "The node says: full."),
    ],
)
def test_who_logs_out_is_told_what_becomes_of_the_key(
    homing: Homing, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch, status: int, said: str
) -> None:
    _type(monkeypatch, KEY)
    fake_node.answers = [REFUSED, WHO]
    homing("login", fake_node.url, "--stdin", "--context", "c")
    fake_node.answers = [(status, {"detail": "full"})]
    told = said.format(id=KEY.split("_")[1])
    assert homing("logout") == (0, "", f"The key of context c is removed here. {told}\n")


def test_where_no_terminal_is_nobody_is_asked_for_a_secret(
    homing: Homing, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    _type(monkeypatch, KEY)
    fake_node.answers = [REFUSED]
    for typed in (["login", fake_node.url], ["login", fake_node.url, "--user", "ann"]):
        code, out, err = homing(*typed)
        assert (code, out) == (2, "")
        assert err == "homing: there is no terminal to ask at: give it on standard input, with --stdin\n"


def test_contexts_are_chosen_and_forgotten(homing: Homing, fake_node: FakeNode, tmp_path: Path) -> None:
    fake_node.answers = [OPEN]
    for name in ("a", "b"):
        homing("login", fake_node.url, "--context", name)
    assert [line.split()[0:2] for line in homing("context", "list")[1].splitlines()[1:]] == [
        ["a", fake_node.url],
        ["b", "*"],
    ]
    assert homing("context", "use", "a")[0] == 0
    assert Contexts.load().current == "a"
    assert homing("context", "remove", "a")[0] == 0
    assert homing("logout")[0] == 2
    code, _, err = homing("context", "use", "x")
    assert (code, err) == (2, "homing: there is no context 'x'; known: b\n")
    default_path().chmod(0o644)
    assert "chmod 600" in homing("whoami")[2]


def _type(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    import io  # noqa: PLC0415

    monkeypatch.setattr("sys.stdin", io.StringIO(f"{line}\n"))


def test_explain_tells_people_what_it_was_and_what_nobody_knows(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, ANSWER)]
    code, out, _ = homing("explain", ID, "--url", fake_node.url)
    assert code == 0
    first, *_, verdict, evidence, gap = out.strip().splitlines()
    assert first == f"{COMMAND['method']} on {COMMAND['device_id']}: {COMMAND['state']}"
    assert "n1  published  a/b" in out
    assert (verdict, evidence) == ("What it was: the device did not answer", "  every node was asked")
    assert gap == "  not known: n2 was restarted"


def test_the_reference_has_every_verb_and_every_operation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text("utf-8")
    for words in [[one] for one in (*ROOT_VERBS, *GROUPS)] + [verb_of(typed) for typed in VERBS.values()]:
        assert re.search(rf"`(homing ({' '.join(words[:-1])} )?)?{words[-1]}[` ]", page), words


def verb_of(typed: list[str]) -> list[str]:
    """The words of a command line that are verbs."""
    return typed[: 3 if typed[0] == "admin" else 2 if typed[0] in GROUPS else 1]


def test_a_reader_goes_on_where_it_was_and_commits_what_it_has_shown(homing: Homing, fake_node: FakeNode) -> None:
    kept = ANSWER["cursors"][0]
    told = [("event", ANSWER["events"][0], "2.y"), ("event", ANSWER["events"][0], "2.z")]
    fake_node.answers = [(200, kept, {"etag": '"t"'}), (200, told), (200, kept)]
    code, out, err = homing("events", "follow", "a/+", "--reader", "archive", "--count", "2", "--url", fake_node.url)
    assert (code, err, len(out.splitlines())) == (0, "", 2)
    first, second, third = fake_node.asked
    assert (first[:2], second[0]) == (("GET", "/v1/cursors/archive"), "GET")
    assert second[2]["Last-Event-ID"] == kept["cursor"]
    assert (third[:2], third[3]) == (("PUT", "/v1/cursors/archive"), {"cursor": "2.z", "topic": "a/+"})
    assert third[2]["If-Match"] == '"t"'
    both = homing("events", "follow", "--reader", "archive", "--distinct", "--url", fake_node.url)
    assert both[0] == 2


def test_a_reader_whose_place_was_taken_stops(homing: Homing, fake_node: FakeNode) -> None:
    problem = {"type": "urn:homing:problem:precondition-failed", "title": "x", "status": 412, "detail": "is taken"}
    fake_node.answers = [(200, ANSWER["cursors"][0]), (200, [("event", ANSWER["events"][0], "2.y")]), (412, problem)]
    code, _, err = homing("events", "follow", "--reader", "archive", "--count", "1", "--url", fake_node.url)
    assert (code, "is taken" in err) == (2, True)


def test_results_of_a_run_are_all_targets_or_csv(homing: Homing, fake_node: FakeNode) -> None:
    page = {"targets": ANSWER["targets"], "cursor": None}
    fake_node.answers = [(200, {**page, "cursor": "x"}), (200, page)]
    code, out, _ = homing("fleet", "results", RUN, "--url", fake_node.url)
    assert (code, len(out.splitlines())) == (0, 3), "a head and both pages"
    table = 'device_id,message\r\ndock-1,"no\nGPS"\r\n'
    fake_node.answers = [(200, table.encode())]
    code, out, _ = homing("fleet", "results", RUN, "--csv", "--state", "failed", "--url", fake_node.url)
    assert (code, out) == (0, table.removesuffix("\r\n") + "\n")
    method, target, headers, _ = fake_node.asked[-1]
    assert (method, target) == ("GET", f"/v1/fleet-runs/{RUN}/targets?state=failed")
    assert headers["Accept"] == "text/csv"
