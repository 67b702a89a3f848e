"""Verbs print words for people and JSON for programs, and say in a sentence why something cannot be done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.cli import fleet_follow
from tests.unit.cli.conftest import FakeNode, Homing
from tests.unit.cli.test_send import COMMAND
from tests.unit.cli.test_verbs import ANSWER, ID, RUN, VERBS


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
        (200, {}),
        (200, [("gap", {"until": "2026-03-01T07:00:00.000Z"}), ("event", event)]),
        (200, [("event", event)]),
    ]
    code, out, err = homing("events", "follow", "--count", "2", "--url", fake_node.url)
    assert (code, out.splitlines()) == (0, ['2026-03-01T08:00:00.000Z a/b {"n": 1}'] * 2)
    assert err == (
        "homing: events until 2026-03-01T07:00:00.000Z are missing: they were dropped, are damaged, or Redis has "
        "forgotten them\n"
    )
    fake_node.answers = [(200, {}), (200, [("problem", {"status": 404, "detail": "there is no such database"})])]
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
    unknown = {"type": "urn:homing:problem:command-not-found", "detail": f"there is no command {ID}"}
    fake_node.answers = [(404, unknown)]
    said = f"homing: there is no command {ID}: homing list shows those on record\n"
    for verb in ("get", "watch", "cancel", "explain"):
        assert homing(verb, ID, "--url", fake_node.url) == (2, "", said)
        assert json.loads(homing(verb, ID, "--url", fake_node.url, "--json")[1])["detail"]
    fake_node.asked.clear()
    said = "homing: 'nope' is no id of a command: homing list shows them\n"
    assert homing("get", "nope", "--url", fake_node.url) == (2, "", said)
    assert fake_node.asked == []


def test_a_node_that_does_not_know_a_verb_is_not_said_to_lack_the_command(homing: Homing, fake_node: FakeNode) -> None:
    detail = "no such path; /openapi.json lists all of them"
    fake_node.answers = [(404, {"type": "urn:homing:problem:not-found", "detail": detail})]
    assert homing("probe", ID, "--url", fake_node.url) == (2, "", f"homing: {detail} (HTTP 404)\n")


def test_a_finding_of_a_later_node_is_shown_as_it_is(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, {"result": "by_camera", "command": COMMAND})]
    code, out, err = homing("probe", ID, "--url", fake_node.url)
    assert (code, err) == (3, "")
    assert out.startswith("by_camera: ")


def test_a_node_that_cannot_serve_says_so(homing: Homing, fake_node: FakeNode) -> None:
    index = {"name": "homing", "version": "0.2.0", "node_id": "n1"}
    broken = {"state": "not_ready", "checks": {"mqtt": "no connection"}}
    fake_node.answers = [(200, index), (200, {"status": "ok"}), (503, broken)]
    code, out, _ = homing("status", "--url", fake_node.url)
    assert code == 1
    assert out.splitlines() == ["homing 0.2.0, node n1: not_ready", "  mqtt    no connection"]


def test_explain_tells_people_what_it_was_and_what_nobody_knows(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, ANSWER)]
    code, out, _ = homing("explain", ID, "--url", fake_node.url)
    assert code == 0
    first, *_, verdict, evidence, gap = out.strip().splitlines()
    assert first == f"{COMMAND['method']} on {COMMAND['device_id']}: {COMMAND['state']}"
    assert "n1  published  a/b" in out
    assert (verdict, evidence) == ("What it was: the device did not answer", "  every node was asked")
    assert gap == "  not known: n2 was restarted"


def test_a_reader_goes_on_where_it_was_and_commits_what_it_has_shown(homing: Homing, fake_node: FakeNode) -> None:
    kept = ANSWER["cursors"][0]
    told = [("event", ANSWER["events"][0], "2.y"), ("event", ANSWER["events"][0], "2.z")]
    fake_node.answers = [(200, {}), (200, kept, {"etag": '"t"'}), (200, told), (200, kept)]
    code, out, err = homing("events", "follow", "a/+", "--reader", "archive", "--count", "2", "--url", fake_node.url)
    assert (code, err, len(out.splitlines())) == (0, "", 2)
    _, first, second, third = fake_node.asked
    assert (first[:2], second[0]) == (("GET", "/v1/cursors/archive"), "GET")
    assert second[2]["Last-Event-ID"] == kept["cursor"]
    assert (third[:2], third[3]) == (("PUT", "/v1/cursors/archive"), {"cursor": "2.z", "topic": "a/+"})
    assert third[2]["If-Match"] == '"t"'
    both = homing("events", "follow", "--reader", "archive", "--distinct", "--url", fake_node.url)
    assert both[0] == 2


def test_a_reader_whose_place_was_taken_stops(homing: Homing, fake_node: FakeNode) -> None:
    problem = {"type": "urn:homing:problem:precondition-failed", "title": "x", "status": 412, "detail": "is taken"}
    told = [("event", ANSWER["events"][0], "2.y")]
    fake_node.answers = [(200, {}), (200, ANSWER["cursors"][0]), (200, told), (412, problem)]
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


def test_a_run_is_followed_until_it_stands_still(
    homing: Homing, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_follow, "ROUND_SECONDS", 0)
    began = {"id": RUN, "state": "running", "total": 2, "counts": {"handed": 2}}
    for state, expected in (("succeeded", 0), ("failed", 1), ("lapsed", 3), ("aborted", 4), ("paused", 9)):
        fake_node.answers = [(200, began), (200, began), (200, {**began, "state": state, "counts": {"failed": 2}})]
        code, out, err = homing("fleet", "watch", RUN, "--url", fake_node.url)
        assert (code, out.splitlines()[1].split()) == (expected, [RUN, state, "2", "failed=2"])
        assert err.splitlines() == [f"{RUN}  running  handed=2", f"{RUN}  {state}  failed=2"]


def test_results_of_a_run_are_a_parquet_file(homing: Homing, fake_node: FakeNode, tmp_path: Path) -> None:
    fake_node.answers = [(200, b"PAR1\r\n\xff")]
    place = tmp_path / "results.parquet"
    assert homing("fleet", "results", RUN, "--parquet", str(place), "--url", fake_node.url)[:2] == (0, "")
    assert place.read_bytes() == b"PAR1\r\n\xff"
    assert fake_node.asked[-1][2]["Accept"] == "application/vnd.apache.parquet"
    code, _, err = homing("fleet", "results", RUN, "--parquet", str(tmp_path), "--url", fake_node.url)
    assert (code, str(tmp_path) in err) == (2, True)
    code, _, err = homing("fleet", "results", RUN, "--csv", "--parquet", str(place), "--url", fake_node.url)
    assert (code, "two forms of one table" in err) == (2, True)
    problem = {"type": "urn:homing:problem:invalid-input", "title": "x", "status": 422, "detail": "homing[latency]"}
    fake_node.answers = [(422, problem)]
    other = tmp_path / "other"
    code, _, err = homing("fleet", "results", RUN, "--parquet", str(other), "--url", fake_node.url)
    assert (code, "homing[latency]" in err, other.exists()) == (2, True, False)


@pytest.mark.parametrize("verb", ["events follow", "watch", "overview --follow", f"watch {ID}"])
def test_those_who_follow_outlast_the_restart_of_a_node(homing: Homing, fake_node: FakeNode, verb: str) -> None:
    known = (200, ANSWER | COMMAND | {"state": "sent"})
    told = [("overview", ANSWER), ("event", ANSWER["events"][0]), ("outcome", COMMAND)]
    fake_node.answers = [known, *[(503, {})] * 4, (200, told), (404, {"type": "gone", "status": 404, "title": "gone"})]
    code, out, _ = homing(*verb.split(), "--url", fake_node.url)
    assert code == (0 if ID in verb else 2)
    assert len(out.splitlines()) >= 1
    assert homing(*verb.split(), "--url", "http://127.0.0.1:9")[0] == 6  # there never was one
