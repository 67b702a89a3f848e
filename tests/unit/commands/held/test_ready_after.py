"""A device that is back is left alone for as long as its profile says that it does not listen yet."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.access.ports import Everybody
from app.commands.held.held_judge import HeldJudge, Readiness
from app.core.commands.command import IfOffline
from app.core.events.presence import Whereabouts
from tests.contract.store_backends import registration

NOW = 1_700_000_000_000_000
SECOND = 1_000_000
HELD = registration(held=timedelta(hours=1), if_offline=IfOffline.HOLD).command(0, 0, held=True)
FOR_ITS_LANE = replace(HELD, if_offline=IfOffline.SEND)


class Ready:
    """An admission that has nothing against any command; devices listen so many seconds after they are back."""

    def __init__(self, seconds: float) -> None:
        self._after = timedelta(seconds=seconds)

    def ready_after(self, _profile: str) -> timedelta:
        return self._after

    def has_puback(self, _profile: str, method: str) -> bool:
        return method != "unconfirmed"

    def binds(self, _profile: str, _method: str) -> bool:
        return False

    async def admit(self, _request: object) -> SimpleNamespace:
        return SimpleNamespace(check=lambda: None)


def judge(seconds: float) -> HeldJudge:
    return HeldJudge(
        store=cast("Any", None),
        publisher=cast("Any", SimpleNamespace(connected=True, absence=SimpleNamespace(tells=lambda _profile: True))),
        admission=cast("Any", Ready(seconds)),
        may=lambda _command: None,
        renew=Everybody().renew,
        whereabouts=cast("Any", None),
        run_stands=cast("Any", None),
        time=cast("Any", SimpleNamespace(now=lambda: NOW)),
        now_us=lambda: NOW,
    )


@pytest.mark.parametrize(
    ("after", "place", "heard", "known_for", "readiness"),
    [
        (2, Whereabouts(True, NOW - 1 * SECOND), True, 0, Readiness.COMING),
        (2, Whereabouts(True, NOW - 2 * SECOND), True, 0, Readiness.READY),
        (0, Whereabouts(True, NOW), True, 0, Readiness.READY),
        (0, Whereabouts(True, NOW + 300 * SECOND), True, 0, Readiness.READY),
        # The clock of the node that heard it is ahead: what this node has seen itself counts.
        (2, Whereabouts(True, NOW + 300 * SECOND), True, 1.5, Readiness.COMING),
        (2, Whereabouts(True, NOW + 300 * SECOND), True, 2, Readiness.READY),
        # Nobody knows whether it is there, and it speaks again after a silence.
        (2, Whereabouts(None), True, 1.5, Readiness.COMING),
        (2, Whereabouts(None), True, 2, Readiness.READY),
        # Nobody has heard it, so the broker is asked by sending.
        (2, Whereabouts(None), False, 0, Readiness.READY),
        (2, Whereabouts(False, NOW - 9 * SECOND), True, 9, Readiness.WAITS),
    ],
)
async def test_it_is_sent_to_when_it_listens(
    after: float, place: Whereabouts, known_for: float, readiness: Readiness, *, heard: bool
) -> None:
    of_node = judge(after)
    signs = of_node.signs(place, heard=heard, known_for=known_for)
    assert await of_node.judge(HELD, signs) is readiness


async def test_what_waits_for_its_lane_alone_does_not_wait_for_that() -> None:
    of_node = judge(2)
    assert await of_node.judge(FOR_ITS_LANE, of_node.signs(Whereabouts(True, NOW))) is Readiness.READY


async def test_the_broker_says_nothing_of_commands_that_it_does_not_confirm() -> None:
    of_node = judge(0)
    unheard, unconfirmed = of_node.signs(Whereabouts(None)), replace(HELD, method="unconfirmed")
    assert await of_node.judge(HELD, unheard) is Readiness.READY
    assert await of_node.judge(unconfirmed, unheard) is Readiness.WAITS, "it would be lost, and nobody would know"
    heard = of_node.signs(Whereabouts(None), heard=True, known_for=9)
    assert await of_node.judge(unconfirmed, heard) is Readiness.READY
