"""`homing send`: what it asks, what it prints, and its exit code."""

from __future__ import annotations

import json
from typing import Any

import pytest

import homing_client
from app.api.command_body import MEMBERS
from app.cli.outcome import percent_of
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
        (401, {"detail": "who are you?"}, 8, "who are you?"),
        (403, {"detail": "the rules do not allow this"}, 8, "the rules do not allow this"),
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
        "--params",
        '{"list": [1], "height": 1}',
    ]
    options = ["--timeout", "1.5m", "--profile", "dji", "--idempotency-key", "k1", "--node", fake_node.url]
    code, _, _ = homing("send", "a:b", "cover_open", *typed, *options)
    assert code == 0
    ((method, path, headers, body),) = fake_node.asked
    assert (method, path) == ("POST", "/v1/devices/a:b/commands")
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
    typed = [
        "--one-way",
        "--if-offline",
        "fail",
        "--timeout",
        "1s",
        "--profile",
        "dji",
        "-p",
        "n=1",
        "--notify",
        "wh_1",
        "--hold",
        "8h",
        "--not-before",
        "2026-11-21T10:00:00Z",
        "--replaces",
        "cover",
    ]
    assert homing("send", "dock-1", "cover_open", *typed, "--node", fake_node.url)[0] == 0
    assert set(fake_node.asked[0][3]) == set(MEMBERS)
    assert (fake_node.asked[0][3]["one_way"], fake_node.asked[0][3]["if_offline"]) == (True, "fail")
    assert homing("send", "dock-1", "cover_open", "--if-offline", "hold", "--node", fake_node.url)[0] == 2


def test_a_held_command_is_told_of_and_not_waited_for(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(202, COMMAND | {"state": "held"})] * 2
    code, out, _ = homing("send", "dock-1", "cover_open", "--hold", "8h", "--node", fake_node.url)
    assert code == 0
    assert "cover_open on dock-1: held" in out
    assert "homing explain 042-01J0000000000000000000000A shows what it waits for" in out
    assert fake_node.asked[0][3] == {"method": "cover_open", "params": {}, "hold": "8h"}
    at = ("--not-before", "2026-03-01T08:00:00Z")
    assert homing("send", "dock-1", "cover_open", "--hold", "8h", *at, "--node", fake_node.url)[0] == 0
    assert fake_node.asked[1][3]["not_before"] == "2026-03-01T08:00:00Z"
    code, _, err = homing("send", "dock-1", "cover_open", "--hold", "8", "--node", fake_node.url)
    assert code == 2
    assert "--hold: '8' is not a duration" in err


def test_it_says_how_long_it_took_and_where_the_answer_came_in(homing: Homing, fake_node: FakeNode) -> None:
    times = {"created_at": "2026-03-01T08:00:00.000Z", "finished_at": "2026-03-01T08:00:00.128Z"}
    fake_node.answers = [(200, COMMAND | times | {"received_by": "node-3"})]
    _, out, _ = homing("send", "dock-1", "cover_open", "--node", fake_node.url)
    assert "cover_open on dock-1: succeeded in 128 ms (answer came in on node-3)" in out


def test_an_outcome_that_is_a_problem_in_http_is_told_as_any_other(homing: Homing, fake_node: FakeNode) -> None:
    error = {"code": "no_subscriber", "message": "nobody is subscribed to homing/dock-1/command"}
    fake_node.answers = [
        (409, {"detail": "…", "command": COMMAND | {"state": "unsent", "result": None, "error": error}})
    ]
    code, out, err = homing("send", "dock-1", "cover_open", "--node", fake_node.url)
    assert (code, err) == (5, "")
    assert "cover_open on dock-1: unsent" in out
    assert "no_subscriber: nobody is subscribed to homing/dock-1/command" in out
    assert "next    is it switched on" in out


@pytest.mark.parametrize("known", [True, False], ids=["the node said which it is", "not yet"])
def test_ctrl_c_says_which_command_goes_on(
    homing: Homing, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    fake_node.answers = [(202, COMMAND | {"state": "pending"})]
    monkeypatch.setattr(homing_client.Homing, "watch" if known else "send", interrupted)
    code, out, err = homing("send", "dock-1", "cover_open", "--node", fake_node.url)
    assert (code, out) == (130, "")
    assert ("homing watch " + COMMAND["id"] if known else "homing list --device dock-1") in err


def test_json_is_what_people_know_and_params_may_be_an_object(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, COMMAND)]
    code, out, _ = homing("send", "dock-1", "cover_open", "--json", '{"a": 1}', "b=2", "--node", fake_node.url)
    assert (code, json.loads(out)) == (0, COMMAND)
    assert fake_node.asked[0][3]["params"] == {"a": 1, "b": 2}


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


def test_it_follows_what_takes_longer_to_its_outcome(homing: Homing, fake_node: FakeNode) -> None:
    pending = COMMAND | {"state": "pending"}
    ended = COMMAND | {"state": "timed_out", "result": None, "last_progress": {"percent": 40}}
    fake_node.answers = [
        (202, pending),
        (200, [("command", pending), ("progress", {"seq": 1, "progress": {"percent": 40}}), ("outcome", ended)]),
    ]
    code, out, _ = homing("send", "dock-1", "cover_open", "--node", fake_node.url)
    assert code == 3
    assert "timed_out" in out
    assert '{"percent": 40}' in out
    assert f"homing probe {COMMAND['id']} looks whether it was done; homing get shows an answer that comes late" in out
    assert [(method, path) for method, path, _, _ in fake_node.asked[1:]] == [
        ("GET", f"/v1/commands/{COMMAND['id']}/events")
    ]


@pytest.mark.parametrize(
    ("reported", "percent"),
    [
        ({"percent": 40}, 40),
        ({"status": "x", "progress": {"percent": 99.5, "step": 3}}, 99.5),
        ({"progress": 40}, None),
        ({"percent": 140}, None),
        ({"percent": True}, None),
        ([{"percent": 4}], None),
        (None, None),
    ],
)
def test_the_bar_finds_how_far_a_device_is(reported: object, percent: float | None) -> None:
    assert percent_of(reported) == percent


@pytest.mark.parametrize("output", ["json", "ndjson"])
def test_json_output_of_a_problem_is_the_problem(homing: Homing, fake_node: FakeNode, output: str) -> None:
    problem = {"title": "Timed out", "status": 504, "command_id": COMMAND["id"], "detail": "[red]no[/red] answer"}
    fake_node.answers = [(504, problem)]
    code, out, err = homing("send", "dock-1", "cover_open", "--output", output, "--node", fake_node.url)
    assert (code, json.loads(out), err) == (3, problem, "")


def test_text_of_a_device_is_never_markup(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, COMMAND | {"state": "failed", "error": {"code": "x", "message": "[bold]\x1b[31m!"}})]
    _, out, _ = homing("send", "dock-1", "cover_open", "--node", fake_node.url)
    assert "[bold]" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-p", "x"], "params: 'x' is not KEY=VALUE"),
        (["=1"], "params: '=1' is not KEY=VALUE"),
        (["--params", "{"], "--params: not JSON"),
        (["--params", "[1]"], "--params: must be an object"),
        (["{"], "params: not JSON"),
        (["--params", '{"a": NaN}'], "--params: not JSON"),
        (["--timeout", "10"], "--timeout: '10' is not a duration; allowed: a number and a unit"),
        (["--idempotency-key", "a b"], "--idempotency-key: "),
        (["--node", "localhost:8080"], "'localhost:8080' is not a URL; write http://host:port"),
        (["--node", "http://x:99999"], "'http://x:99999': "),
        (["--context", "x"], "there is no context 'x'; known: none yet"),
    ],
)
def test_wrong_input_gets_a_sentence(homing: Homing, arguments: list[str], sentence: str) -> None:
    code, out, err = homing("send", "dock-1", "cover_open", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"homing: {sentence}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("device", "part"),
    [("do/ck 1", "do%2Fck%201"), ("do%2Fck%201", "do%252Fck%25201"), ("dock?x=1", "dock%3Fx%3D1")],
)
def test_a_name_with_a_slash_is_one_part_of_the_path(
    homing: Homing, fake_node: FakeNode, device: str, part: str
) -> None:
    homing("send", device, "cover_open", "--node", fake_node.url)
    assert fake_node.asked[0][1] == f"/v1/devices/{part}/commands"


@pytest.mark.parametrize("device", ["do//ck", "+", "", "dock#x=1", "50%"])
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


def test_where_the_node_is_stands_in_the_environment_and_never_in_its_settings(
    homing: Homing, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_node.answers = [(200, COMMAND)]
    monkeypatch.setenv("HOMING_NODE", "nonsense")
    monkeypatch.setenv("HOMING_API_PORT", "nonsense")
    monkeypatch.setenv("HOMING_URL", fake_node.url)
    monkeypatch.setenv("HOMING_KEY", "k")
    assert homing("send", "dock-1", "cover_open")[0] == 0
    assert fake_node.asked[0][2]["Authorization"] == "Bearer k"


REFUSED = {
    "dry_run": True,
    "would": "refuse",
    "device_id": "dock-1",
    "method": "cover_open",
    "refusals": [{"detail": "cover_open was not sent to dock-1: interlock on_the_ground refuses"}],
    "waits_for": ["lane"],
    "interlocks": [
        {
            "interlock": "on_the_ground",
            "conditions": [
                {"path": "inputs.mode", "wanted": {"is_in": [0]}, "result": "violated", "value": 4, "age": "0.8s"}
            ],
        }
    ],
    "lane": {"name": "flight", "order": "fifo", "in_flight": 1, "waiting": 2, "position": 3},
}


def test_a_dry_run_says_what_would_become_of_a_command(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, REFUSED), (200, REFUSED | {"would": "send"})]
    code, out, _ = homing("send", "dock-1", "cover_open", "-p", "n=1", "--dry-run", "--node", fake_node.url)
    assert code == 5
    assert "would refuse: cover_open to dock-1" in out
    assert "refused: cover_open was not sent to dock-1: interlock on_the_ground refuses" in out
    assert "lane flight (fifo): 1 in flight, 2 wait; position 3" in out
    assert "on_the_ground" in out.splitlines()[-1]
    assert "violated" in out.splitlines()[-1]
    ((method, path, headers, body),) = fake_node.asked
    assert (method, path) == ("POST", "/v1/devices/dock-1/commands?dry_run=true")
    assert body == {"method": "cover_open", "params": {"n": 1}, "dry_run": True}
    assert not {"Idempotency-Key", "Prefer"} & set(headers)
    assert homing("send", "dock-1", "cover_open", "--dry-run", "--json", "--node", fake_node.url)[0] == 0


def test_what_an_interlock_refuses_was_not_sent(homing: Homing, fake_node: FakeNode) -> None:
    """A dry run and `homing interlocks check` have the same exit code."""
    for kind, expected in (("interlock", 5), ("key-reused", 2)):
        problem = {"type": f"urn:homing:problem:{kind}", "title": "no", "status": 409, "detail": "the drone flies"}
        fake_node.answers = [(409, problem)]
        code, _, err = homing("send", "dock-1", "cover_close", "--url", fake_node.url)
        assert (code, "the drone flies" in err) == (expected, True)
