"""`homing fleet send` makes the document of a run from options, and bars show how far a run is."""

from __future__ import annotations

from typing import Any

import pytest

from app.cli import fleet_follow
from app.cli.fleet_follow import ended_of, wave_of
from tests.unit.cli.conftest import FakeNode, Homing
from tests.unit.cli.test_verbs import RUN

BEGUN: dict[str, Any] = {"id": RUN, "state": "running", "total": 10, "counts": {"waiting": 10}}


def test_options_are_the_document_of_a_run(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(202, BEGUN)]
    code, out, _ = homing(
        *("fleet", "send", "cover_close", "speed=2", "-l", "site=north", "-l", "line=", "-d", "dock-*", "--online"),
        *("--waves", "5, 10%,rest", "--stop", "2.5%", "--stop", "3", "--in-flight", "7", "--rate", "100/s"),
        *("--timeout", "10s", "--hold", "1h", "--profile", "dji", "--key", "k", "--url", fake_node.url),
    )
    assert (code, out.splitlines()[1].split()) == (0, [RUN, "running", "10", "waiting=10"])
    method, path, headers, body = fake_node.asked[-1]
    assert (method, path, headers["Idempotency-Key"]) == ("POST", "/v1/fleet-runs", "k")
    assert body == {
        "targets": {"all": [{"devices": ["dock-*"]}, {"labels": {"site": "north", "line": ""}}, {"online": True}]},
        "command": {
            "method": "cover_close",
            "params": {"speed": 2},
            "timeout": "10s",
            "hold": "1h",
            "profile": "dji",
        },
        "waves": [5, "10%", "rest"],
        "stop": [{"share": "2.5%", "then": "pause"}, {"count": 3, "then": "pause"}],
        "in_flight": 7,
        "rate": "100/s",
    }


def test_what_nobody_names_is_left_to_the_node(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, {"total": 2, "waves": [2], "devices": ["dock-1", "dock-2"]})]
    code, out, _ = homing("fleet", "send", "x", "-d", "dock-1", "-d", "dock-2", "--dry-run", "--url", fake_node.url)
    assert (code, out.splitlines()[1].split()[0]) == (0, "2")
    _, path, _, body = fake_node.asked[-1]
    assert path == "/v1/fleet-runs?dry_run=true"
    assert body == {"targets": {"devices": ["dock-1", "dock-2"]}, "command": {"method": "x", "params": {}}}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ((), "nothing names a target; allowed: --device 'dock-*', --label site=north, or both"),
        (("--online",), "nothing names a target"),
        (("-l", "site"), "--label: 'site' is not NAME=VALUE"),
        (("-l", "=north"), "--label: '=north' is not NAME=VALUE"),
        (
            ("-d", "a", "--waves", "5,,rest"),
            "--waves: '' makes no sense; allowed: a number, a share such as 10%, or rest",
        ),
        (("-d", "a", "--waves", "-5"), "--waves: '-5' makes no sense"),
        (("-d", "a", "--waves", "٥"), "makes no sense; allowed: a number"),
        (("-d", "a", "--stop", "5.%5"), "--stop: '5.%5' makes no sense; allowed: a share such as 5%, or a number"),
        (("-d", "a", "--stop", "%"), "--stop: '%' makes no sense"),
        (("-d", "a", "height"), "params: 'height' is not KEY=VALUE"),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_is_asked(
    homing: Homing, fake_node: FakeNode, typed: tuple[str, ...], said: str
) -> None:
    code, _, err = homing("fleet", "send", "x", *typed, "--url", fake_node.url)
    assert (code, said in err, fake_node.asked) == (2, True, [])


WAVES = [{"size": 2, "current": False}, {"size": 5, "current": True}, {"size": 3, "current": False}]


@pytest.mark.parametrize(
    ("counts", "ended", "wave"),
    [
        ({"waiting": 10}, 0, (2, 0, 5)),
        ({"waiting": 3, "handed": 3, "succeeded": 3, "failed": 1}, 4, (2, 2, 5)),
        ({"succeeded": 10}, 10, (2, 5, 5)),
    ],
)
def test_a_wave_has_the_targets_that_ended_behind_those_before_it(
    counts: dict[str, int], ended: int, wave: tuple[int, int, int]
) -> None:
    run = {"total": 10, "counts": counts}
    assert ended_of(run) == ended
    assert wave_of({**run, "waves": WAVES}) == wave
    assert wave_of(run) is None


def test_people_see_bars(homing: Homing, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_follow, "ROUND_SECONDS", 0)
    monkeypatch.setattr("app.cli.output.StandardStream.is_terminal", True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich draws where nobody looks
    monkeypatch.setenv("TERM", "xterm")
    at_work = {**BEGUN, "counts": {"waiting": 3, "handed": 3, "succeeded": 3, "failed": 1}, "waves": WAVES}
    ended = {**at_work, "state": "failed", "counts": {"succeeded": 9, "failed": 1}}
    fake_node.answers = [(200, at_work), (200, ended)]
    code, out, err = homing("fleet", "watch", RUN, "--url", fake_node.url)
    assert (code, RUN in out) == (1, True)
    assert "failed=1" in err
    assert "wave 2 of 3" in err
