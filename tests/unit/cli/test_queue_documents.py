"""`homing queue export` and `apply`: one document of all exchanges and queues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.unit.cli.conftest import FakeNode, Homing

ALARMS: Final[dict[str, Any]] = {
    "name": "alarms",
    "tenant": "",
    "created_at": "2026-03-01T08:00:00.000Z",
    "routes": [{"database": "events", "topic": "a/+"}, {"exchange": "ops", "key": "#"}],
    "loan": "30s",
    "retry": ["1s", "10s", "1m"],
    "max_deliveries": 5,
    "order": "none",
    "ttl": None,
    "delay": "0ms",
    "single": False,
    "ends_after": None,
    "labels": {},
}
OPS: Final = {"name": "ops", "kind": "topic", "created_at": "2026-03-01T08:00:00.000Z"}
THERE: Final = {"exchanges": [OPS], "queues": [ALARMS]}


def applied(homing: Homing, node: FakeNode, document: object, *options: str) -> tuple[int, str, str]:
    Path("queues.json").write_text(json.dumps(document))
    return homing("queue", "apply", "queues.json", *options, "--url", node.url)


def written(node: FakeNode) -> list[tuple[str, Any]]:
    return [(target, body) for method, target, _, body in node.asked if method == "PUT"]


def test_what_is_exported_is_as_it_was_when_it_is_applied(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, THERE)]
    code, out, _ = homing("queue", "export", "--url", fake_node.url)
    exported = json.loads(out)
    assert code == 0
    assert exported["exchanges"] == [{"name": "ops", "kind": "topic"}]
    assert not exported["queues"][0].keys() & {"created_at", "tenant", "counts"}
    documents: list[object] = [exported, THERE, [ALARMS], THERE | {"exchanges": []}]
    for document in documents:
        code, out, _ = applied(homing, fake_node, document)
        assert (code, {line.partition(" as ")[2] for line in out.splitlines()}) == (0, {"it was"}), out
    assert written(fake_node) == []


def test_a_member_that_is_not_named_has_its_default(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, THERE)]
    routes = [{"exchange": "ops"}, {"topic": "a/+", "database": "events"}]
    brief = {"queues": [{"name": "alarms", "routes": routes, "loan": "30000ms", "start": "-1h"}]}
    assert applied(homing, fake_node, brief)[:2] == (0, "queue alarms as it was\n")
    fake_node.answers = [(200, {"exchanges": [], "queues": [{**ALARMS, "loan": "1m", "labels": {"a": "b"}}]})]
    assert applied(homing, fake_node, brief, "--dry-run")[1] == "queue alarms would be changed: labels, loan\n"


def test_what_differs_is_named_and_written_once(homing: Homing, fake_node: FakeNode) -> None:
    wanted = {
        "exchanges": [{"name": "ops", "kind": "topic"}, {"name": "new", "kind": "fanout"}],
        "queues": [{"name": "alarms", "routes": [{"exchange": "new"}], "ttl": "1h"}, {"name": "x", "routes": []}],
    }
    fake_node.answers = [(200, {**THERE, **ALARMS}, {"ETag": '"7"'})]
    code, out, _ = applied(homing, fake_node, wanted, "--dry-run")
    assert (code, written(fake_node)) == (0, [])
    assert out.splitlines() == [
        "exchange ops as it was",
        "exchange new would be created",
        "queue alarms would be changed: routes, ttl",
        "queue x would be created",
    ]
    code, out, err = applied(homing, fake_node, wanted)
    assert (code, out.splitlines()[2]) == (0, "queue alarms changed: routes, ttl"), err
    assert [target for target, _ in written(fake_node)] == ["/v1/exchanges/new", "/v1/queues/alarms", "/v1/queues/x"]
    conditions = [headers.get("If-Match") for method, _, headers, _ in fake_node.asked if method == "PUT"]
    assert conditions == [None, '"7"', None]


def test_what_cannot_be_changed_is_named_and_nothing_is_written(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, THERE)]
    wanted = {
        "exchanges": [{"name": "ops", "kind": "direct"}, {"name": "new"}],
        "queues": [{**ALARMS, "order": "device"}, {"name": "x", "routes": []}],
    }
    for options in ((), ("--dry-run",)):
        code, out, err = applied(homing, fake_node, wanted, *options)
        assert (code, out) == (2, "")
        assert "exchange ops: kind cannot be changed; queue alarms: order cannot be changed" in err
    assert written(fake_node) == []


@pytest.mark.parametrize(
    "document",
    [
        "{",
        "17",
        "{}",
        '{"queue": []}',
        '{"queues": {}}',
        '{"queues": ["alarms"]}',
        '{"queues": [{"routes": []}]}',
        '{"exchanges": [{"kind": "topic"}]}',
        '{"exchanges": [{"name": ["ops"], "kind": "topic"}]}',
        '{"queues": [{"name": 7, "routes": []}]}',
        '{"queues": [{"name": "..", "routes": []}]}',
        '{"queues": [{"name": "a", "routes": []}, {"name": "a", "routes": []}]}',
        None,
    ],
)
def test_what_is_no_document_is_told_before_a_node_is_asked(
    homing: Homing, fake_node: FakeNode, document: str | None
) -> None:
    if document is not None:
        Path("queues.json").write_text(document)
    code, _, err = homing("queue", "apply", "queues.json", "--url", fake_node.url)
    assert (code, fake_node.asked) == (2, [])
    assert "FILE: " in err
    assert "[Errno" not in err


@pytest.mark.parametrize(
    "words", [("declare", "--topic", "a"), ("bind", "--topic", "a"), ("unbind", "--topic", "a"), ("consume",)]
)
def test_a_name_that_no_path_can_have_is_told_before_a_node_is_asked(
    homing: Homing, fake_node: FakeNode, words: tuple[str, ...]
) -> None:
    for name in ("", ".", "..", "a\udcff"):
        told = homing("queue", words[0], name, *words[1:], "--url", fake_node.url)
        assert told == (2, "", f"homing: QUEUE: {name!a} is no name of a queue\n")
    assert fake_node.asked == []
