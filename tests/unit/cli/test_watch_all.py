"""`homing watch` without an id: what happens to all commands."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.cli.conftest import FakeNode, Homing
from tests.unit.cli.test_send import COMMAND

ID = COMMAND["id"]
TOLD: dict[str, Any] = {
    "seq": 1,
    "at": "2026-03-01T08:00:00.000Z",
    "command_id": ID,
    "device_id": "dock-1",
    "profile": "dji",
    "method": "cover_open",
    "state": "running",
    "progress": {"percent": 40},
}
ENDED = {**TOLD, "seq": 2, "state": "failed", "error": {"code": 1, "message": "é"}}
LATE = {**TOLD, "seq": 3, "state": "timed_out", "late": {"state": "succeeded", "error": None}}
GAP = {"since": "2026-03-01T07:59:00.000Z"}
EVENTS = [("gap", GAP), ("bookmark", {"at": GAP["since"]}), ("progress", TOLD), ("outcome", ENDED), ("late", LATE)]


def test_what_happens_is_a_line_each(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, {}), (200, EVENTS)]
    filters = ("--device", "dock-*", "--state", "failed", "--state", "running", "--kind", "outcome")
    code, out, err = homing("watch", "-n", "4", *filters, "--url", fake_node.url)
    assert (code, err.splitlines()) == (
        0,
        ["homing: some are missing: they were dropped before they were read; there are all since " + GAP["since"]],
    )
    begin = f"2026-03-01T08:00:00.000Z {ID} dock-1 cover_open"
    assert out.splitlines() == [
        f'{begin} progress {{"percent": 40}}',
        f'{begin} failed {{"code": 1, "message": "é"}}',
        f'{begin} late {{"state": "succeeded", "error": null}}',
    ]
    _, (_, target, headers, _) = fake_node.asked
    assert target == "/v1/commands/events?device=dock-%2A&state=failed%2Crunning&kind=outcome"
    assert headers["Accept"] == "text/event-stream"


def test_for_programs_it_is_an_object_a_line(homing: Homing, fake_node: FakeNode) -> None:
    fake_node.answers = [(200, {}), (200, EVENTS)]
    code, out, _ = homing("watch", "-n", "2", "--output", "ndjson", "--url", fake_node.url)
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == [
        {"kind": "gap", "id": "", **GAP},
        {"kind": "progress", "id": "", **TOLD},
    ]


@pytest.mark.parametrize("option", [("--device", "x"), ("--kind", "late"), ("-n", "1")])
def test_an_id_and_filters_do_not_go_together(homing: Homing, option: tuple[str, str]) -> None:
    assert homing("watch", ID, *option) == (2, "", "homing: ID and filters: give one of the two\n")
