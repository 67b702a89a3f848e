from __future__ import annotations

import pytest

from app.core.cluster.wakeup import decode_wake_up
from app.core.commands.command import CommandState
from app.core.commands.routing import (
    Annexed,
    Decision,
    DeliverLocally,
    Drop,
    Forwarded,
    MatchResult,
    Outcome,
    Progressed,
    Recorded,
    route,
)

OUTCOME = Outcome("042-A", CommandState.SUCCEEDED, 17, "n2", b"{}", None)


@pytest.mark.parametrize(
    ("recorded", "decision"),
    [
        (Recorded(MatchResult.WON, "042-A", OUTCOME, ("n1",)), DeliverLocally(OUTCOME)),
        (Recorded(MatchResult.WON, "042-A", OUTCOME, ("n2", "n1")), DeliverLocally(OUTCOME)),
        (Recorded(MatchResult.WON, "042-A", OUTCOME, ("n2", "n3")), Forwarded(("n2", "n3"))),
        (Recorded(MatchResult.DUPLICATE, "042-A", OUTCOME, ("n1",)), DeliverLocally(OUTCOME)),
        (Recorded(MatchResult.DUPLICATE, "042-A", OUTCOME, ("n2",)), Drop("duplicate")),
        (Recorded(MatchResult.DUPLICATE, "042-A"), Drop("duplicate")),
        (Recorded(MatchResult.PROGRESS, "042-A"), Progressed("042-A")),
        (Recorded(MatchResult.LATE, "042-A"), Annexed("042-A")),
        (Recorded(MatchResult.UNKNOWN), Drop("unknown")),
        (Recorded(MatchResult.MISMATCH, "042-A"), Drop("mismatch")),
    ],
)
def test_where_a_recorded_response_goes(recorded: Recorded, decision: Decision) -> None:
    assert route(recorded, "n1") == decision


def test_a_wake_up_carries_the_outcome_or_the_id_alone() -> None:
    assert decode_wake_up(b"042-A\0succeeded\x0017\0n2\0{}\0") == ("042-A", OUTCOME)
    assert decode_wake_up(b"042-A") == ("042-A", None)


@pytest.mark.parametrize("data", [b"\xff", b"042-A\0succeeded", b"042-A\0failed\0x\0\0\0"])
def test_what_is_no_wake_up_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - which kind does not matter to anybody
        decode_wake_up(data)


def test_what_a_later_version_adds_to_a_wake_up_is_not_looked_at() -> None:
    data = b"042-A\0succeeded\x0017\0n2\0{}\0\0- 2 token more\0another field"
    command_id, outcome = decode_wake_up(data)
    assert (command_id, outcome) == ("042-A", OUTCOME)
    assert outcome is not None
    assert outcome.token == "token"


def test_an_outcome_of_a_later_version_is_a_hint() -> None:
    assert decode_wake_up(b"042-A\0paused\x0017\0n2\0{}\0\0- 2 token") == ("042-A", None)
