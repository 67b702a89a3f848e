"""`homing send`: what it asks, what it prints, and its exit code."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.api.command_body import MEMBERS
from app.cli.client import NodeClient
from tests.unit.cli.conftest import FakeNode, Homing

COMMAND: dict[str, Any] = {
    "id": "042-01J0000000000000000000000A",
    "device_id": "dock-1",
    "method": "cover_open",
    "state": "succeeded",
    "result": {"angle": 90},
    "error": None,
}


@pytest.mark.parametrize(
    ("status", "body", "code", "said"),
    [
        (200, COMMAND, 0, "succeeded"),
        (200, COMMAND | {"state": "failed", "error": {"code": "314000", "message": "busy"}}, 1, "314000: busy"),
        (200, COMMAND | {"state": "cancelled"}, 4, "cancelled"),
        (504, {"detail": "the device did not answer"}, 3, "the device did not answer"),
        (503, {"detail": "the broker is away"}, 5, "the broker is away"),
        (429, {"detail": "too much"}, 5, "too much"),
        (422, {"detail": "method: empty"}, 2, "method: empty"),
        (409, {"detail": "the key is in use"}, 2, "the key is in use"),
        (404, {"title": "Not Found"}, 2, "Not Found"),
        (500, {"title": "Oops"}, 7, "Oops"),
    ],
)
def test_the_exit_code_tells_the_outcome(
    homing: Homing, fake_node: FakeNode, status: int, body: dict[str, Any], code: int, said: str
) -> None:
    fake_node.answers = [(status, body)]
    ended, out, err = homing("send", "dock-1", "cover_open", "--node", fake_node.url)
    assert ended == code
    assert said in out + err


def test_it_asks_for_what_was_typed(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, COMMAND)]
    typed = [
        "-p",
        "height=30",
        "-p",
        "name=a=b",
        "-p",
        "on=true",
        "-p",
        "nan=NaN",
        "--json",
        '{"list": [1], "height": 1}',
    ]
    options = ["--timeout", "1.5m", "--profile", "dji", "--idempotency-key", "k1", "--node", fake_node.url]
    code, _, _ = homing("send", "a:b", "cover_open", *typed, *options)
    assert code == 0
    ((method, path, headers, body),) = fake_node.asked
    assert (method, path) == ("POST", "/v1/devices/a%3Ab/commands")
    assert headers["Idempotency-Key"] == "k1"
    assert headers["Prefer"] == "wait=1"
    assert body == {
        "method": "cover_open",
        "params": {"list": [1], "height": 30, "name": "a=b", "on": True, "nan": "NaN"},
        "timeout": "90s",
        "profile": "dji",
    }


def test_all_that_a_body_may_have_can_be_typed(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, COMMAND)]
    typed = ["--one-way", "--if-offline", "fail", "--timeout", "1s", "--profile", "dji", "-p", "n=1"]
    assert homing("send", "dock-1", "cover_open", *typed, "--node", fake_node.url)[0] == 0
    assert set(fake_node.asked[0][3]) == set(MEMBERS)
    assert (fake_node.asked[0][3]["one_way"], fake_node.asked[0][3]["if_offline"]) == (True, "fail")
    assert homing("send", "dock-1", "cover_open", "--if-offline", "hold", "--node", fake_node.url)[0] == 2


def test_it_says_how_long_it_took_and_where_the_answer_came_in(homing: Homing, fake_node: FakeNode) -> None:
    times = {"created_at": "2026-03-01T08:00:00.000Z", "finished_at": "2026-03-01T08:00:00.128Z"}
    fake_node.answers = [(200, COMMAND | times | {"received_by": "node-3"})]
    _, out, _ = homing("send", "dock-1", "cover_open", "--node", fake_node.url)
    assert "cover_open on dock-1: succeeded in 128 ms (answer came in on node-3)" in out


def test_a_problem_with_a_command_is_said_in_its_words(homing: Homing, fake_node: FakeNode) -> None:
    problem = {"detail": "nobody is subscribed to homing/dock-1/command", "command": COMMAND | {"state": "unsent"}}
    fake_node.answers = [(409, problem)]
    code, _, err = homing("send", "dock-1", "cover_open", "--node", fake_node.url)
    assert (code, err) == (5, "homing: nobody is subscribed to homing/dock-1/command (HTTP 409)\n")


@pytest.mark.parametrize("known", [True, False], ids=["the node said which it is", "not yet"])
def test_ctrl_c_says_which_command_goes_on(
    homing: Homing, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    fake_node.answers = [(202, COMMAND | {"state": "pending"})]
    monkeypatch.setattr(NodeClient, "get_command" if known else "post_command", interrupted)
    code, out, err = homing("send", "dock-1", "cover_open", "--node", fake_node.url)
    assert (code, out) == (130, "")
    where = f"/v1/commands/{COMMAND['id']}" if known else "/v1/devices/dock-1/commands"
    assert f"curl {fake_node.url}{where}" in err


def test_what_was_not_typed_is_left_to_the_node(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, COMMAND)]
    homing("send", "dock-1", "cover_open", "--node", fake_node.url)
    assert fake_node.asked[0][3] == {"method": "cover_open", "params": {}}


def test_async_prints_the_id_and_does_not_wait(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(202, COMMAND | {"state": "pending", "result": None})]
    code, out, _ = homing("send", "dock-1", "cover_open", "--async", "--node", fake_node.url)
    assert code == 0
    assert COMMAND["id"] in out
    assert [headers.get("Prefer") for _, _, headers, _ in fake_node.asked] == ["respond-async"]


def test_it_looks_again_when_the_node_sends_it_away_without_an_outcome(homing: Homing, fake_node: FakeNode) -> None:
    pending = COMMAND | {"state": "pending"}
    fake_node.answers = [(202, pending), (200, pending), (200, COMMAND | {"state": "timed_out"})]
    code, out, _ = homing("send", "dock-1", "cover_open", "--node", fake_node.url)
    assert code == 3
    assert "timed_out" in out
    assert [(method, path) for method, path, _, _ in fake_node.asked[1:]] == [
        ("GET", f"/v1/commands/{COMMAND['id']}")
    ] * 2


def test_json_output_is_the_node_s_answer_whatever_it_is(homing: Homing, fake_node: FakeNode) -> None:
    problem = {"title": "Timed out", "status": 504, "command_id": COMMAND["id"], "detail": "[red]no[/red] answer"}
    fake_node.answers = [(504, problem)]
    code, out, err = homing("send", "dock-1", "cover_open", "--output", "json", "--node", fake_node.url)
    assert (code, json.loads(out), err) == (3, problem, "")


def test_text_of_a_device_is_never_markup(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, COMMAND | {"state": "failed", "error": {"code": "x", "message": "[bold]\x1b[31m!"}})]
    _, out, _ = homing("send", "dock-1", "cover_open", "--node", fake_node.url)
    assert "[bold]" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-p", "x"], "--param: 'x' is not KEY=VALUE"),
        (["-p", "=1"], "--param: '=1' is not KEY=VALUE"),
        (["--json", "{"], "--json: not JSON"),
        (["--json", "[1]"], "--json: must be an object"),
        (["--timeout", "10"], "--timeout: '10' is not a duration; allowed: a number and a unit"),
        (["--idempotency-key", "a b"], "--idempotency-key: "),
        (["--node", "localhost:8080"], "--node: 'localhost:8080' is not a URL; write http://host:port"),
        (["--node", "http://x:99999"], "--node: "),
    ],
)
def test_wrong_input_gets_a_sentence(homing: Homing, arguments: list[str], sentence: str) -> None:
    code, out, err = homing("send", "dock-1", "cover_open", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"homing: {sentence}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("device", ["do/ck", "+", "", "dock?x=1"])
def test_F93_a_wrong_device_id_is_not_sent(homing: Homing, fake_node: FakeNode, device: str) -> None:
    code, _, err = homing("send", device, "cover_open", "--node", fake_node.url)
    assert code == 2
    assert err.startswith("homing: device_id: ")
    assert fake_node.asked == []


def test_a_node_that_is_not_there_gets_a_sentence(homing: Homing) -> None:
    code, _, err = homing("send", "dock-1", "cover_open", "--node", "http://127.0.0.1:1")
    assert (code, err) == (6, "homing: http://127.0.0.1:1 cannot be reached: Connection refused\n")


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"\xff"])
def test_something_else_that_answers_is_told_from_a_node(homing: Homing, fake_node: FakeNode, body: bytes) -> None:
    fake_node.answers = [(200, body)]
    code, _, err = homing("send", "dock-1", "cover_open", "--node", fake_node.url)
    assert code == 6
    assert "that is no Homing node" in err


def test_the_default_node_is_the_port_of_the_settings(
    homing: Homing, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_node.answers = [(200, COMMAND)]
    monkeypatch.setenv("HOMING_API_PORT", fake_node.url.rpartition(":")[2])
    assert homing("send", "dock-1", "cover_open")[0] == 0
