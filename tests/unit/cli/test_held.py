"""`homing held`: what waits for devices that are away."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.cli.conftest import FakeNode, Homing
from tests.unit.cli.test_send import COMMAND

OPENS = "2026-03-01T07:00:00.000Z"
UNTIL = "2026-03-01T08:00:00.000Z"


def held(last: str, **changes: Any) -> dict[str, Any]:
    hold = {"waits_for": ["time", "lane"], "lane": "flight", "not_before": OPENS, "until": UNTIL, "claims": 1}
    return COMMAND | {"id": COMMAND["id"][:-1] + last, "state": "held", "result": None, "hold": hold} | changes


def cancelled(last: str, claims: int = 1) -> dict[str, Any]:
    return held(last, state="cancelled", hold={"waits_for": [], "until": UNTIL, "claims": claims})


@pytest.mark.parametrize(
    ("typed", "asked"),
    [((), "/v1/commands?state=held"), (("--device", "dock-1"), "/v1/devices/dock-1/commands?state=held")],
)
def test_a_list_says_what_each_waits_for(
    homing: Homing, fake_node: FakeNode, typed: tuple[str, ...], asked: str
) -> None:
    fake_node.answers = [(200, {"commands": [held("A")], "cursor": None})]
    code, out, err = homing("held", "list", *typed, "--url", fake_node.url)
    assert (code, err) == (0, "")
    head, line = out.splitlines()
    assert head.split() == ["id", "device", "method", "waits_for", "lane", "not_before", "until", "claims"]
    assert line.split() == [held("A")["id"], "dock-1", "cover_open", "time,", "lane", "flight", OPENS, UNTIL, "1"]
    assert [one[:2] for one in fake_node.asked] == [("GET", asked)]


def test_all_that_waits_for_a_device_is_cancelled(homing: Homing, fake_node: FakeNode) -> None:
    first = {"commands": [held("A")], "cursor": "c"}
    second = {"commands": [held("B")], "cursor": None}
    fake_node.answers = [(200, first), (200, second), (200, cancelled("A")), (200, cancelled("B"))]
    code, out, err = homing("held", "cancel", "dock-1", "--json", "--url", fake_node.url)
    assert (code, err) == (0, "")
    assert [(one["id"][-1], one["state"]) for one in json.loads(out)] == [("A", "cancelled"), ("B", "cancelled")]
    assert [one[:2] for one in fake_node.asked[2:]] == [("DELETE", f"/v1/commands/{held(last)['id']}") for last in "AB"]


def test_what_was_sent_or_ended_meanwhile_is_told(homing: Homing, fake_node: FakeNode) -> None:
    ended = (409, {"detail": "it had an outcome"})
    listed = {"commands": [held("A"), held("B")], "cursor": None}
    fake_node.answers = [(200, listed), (200, cancelled("A", claims=2)), ended]
    code, out, err = homing("held", "cancel", "dock-1", "--json", "--url", fake_node.url)
    assert (code, len(json.loads(out))) == (0, 1)
    assert f"{held('A')['id']} was being sent when it was cancelled: the device may act" in err
    assert f"{held('B')['id']} had an outcome first" in err
