"""Every operation of a node is a verb, which asks for what was typed."""

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
from app.profiles.loader import shipped_file
from tests.api.documents import document_of
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
    "GET /v1/broker/sessions/{client_id}": ["broker", "show", "dock-1"],
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
        document = await document_of(rig)
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
        fake_node.answers = [(200, {}), (200, [("bookmark", {}), ("outcome", COMMAND)])]
    if operation == "GET /v1/events/stream":
        fake_node.answers = [(200, {}), (200, [("bookmark", {"cursor": "1"}), ("event", ANSWER["events"][0])])]
    if operation == "GET /v1/overview/events":
        told = [("overview", ANSWER), ("bookmark", {"at": "2026-03-01T08:00:00.000Z"})]
        fake_node.answers = [(200, {}), (200, told)]
    if operation == "GET /v1/traffic":
        heard = {"at": "2026-03-01T08:00:00.000Z", "bytes": 1, "retain": False, "payload": "x", "cut": False}
        end = {"heard": 1, "strangers": 0, "dropped": 0, "outcomes": []}
        begun = ("listening", {"topics": ["a/#"], "for": "1s"})
        fake_node.answers = [(200, [begun, ("message", {**ANSWER, **heard, "topic": "a/b"}), ("end", end)])]
    if operation == "POST /v1/queues/{name}/take":
        lent = {"loan": "x", "delivery": 1, "until": "", "database": "events", "event": ANSWER["events"][0]}
        fake_node.answers = [(200, {}), (200, {"events": [lent]}), (200, {"settled": 1, "over": []})]
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


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("abort", "cancel its held commands; with --cancel-open, also those in flight"),
        ("resume", "With --forgive, what has failed"),
    ],
)
def test_help_names_options_as_they_are_typed(homing: Homing, verb: str, said: str) -> None:
    assert said in " ".join(homing("fleet", verb, "--help")[1].split())


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


def test_the_reference_has_every_verb_and_every_operation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text("utf-8")
    for words in [[one] for one in (*ROOT_VERBS, *GROUPS)] + [verb_of(typed) for typed in VERBS.values()]:
        assert re.search(rf"`(homing ({' '.join(words[:-1])} )?)?{words[-1]}[` ]", page), words


def verb_of(typed: list[str]) -> list[str]:
    """The words of a command line that are verbs."""
    return typed[: 3 if typed[0] == "admin" else 2 if typed[0] in GROUPS else 1]


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
