"""Held commands whose interlocks have nothing to judge by keep no others waiting."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

from app.access.ports import Everybody
from app.commands.held.held_judge import BLIND_US, DeviceSigns, HeldJudge, Readiness
from app.commands.send.registrar import CommandRequest
from app.core.commands.command import Command
from app.core.errors import InterlockBlindError
from app.core.events.presence import Whereabouts
from tests.contract.store_backends import registration

THERE = DeviceSigns(online=True, heard=True)


class Blind:
    """An admission over an event log that does not answer; `lights` have no interlock."""

    def __init__(self) -> None:
        self.asked = 0

    def ready_after(self, _profile: str) -> timedelta:
        return timedelta()

    def binds(self, _profile: str, method: str) -> bool:
        return method != "lights"

    async def admit(self, request: CommandRequest) -> SimpleNamespace:
        if self.binds(request.profile, request.method):
            self.asked += 1
            raise InterlockBlindError("the event log did not answer within 1 s")
        return SimpleNamespace(check=lambda: None)


async def nobody_knows(_device: str) -> Whereabouts:
    return Whereabouts(None)


def command(method: str = "takeoff") -> Command:
    return replace(registration().command(0, 0), method=method)


async def test_an_event_log_that_does_not_answer_is_asked_once_a_second_for_all_of_them() -> None:
    admission, now = Blind(), [BLIND_US * 5]
    judge = HeldJudge(
        store=cast("Any", None),
        publisher=cast("Any", SimpleNamespace(connected=True)),
        admission=cast("Any", admission),
        may=lambda _command: None,
        renew=Everybody().renew,
        whereabouts=nobody_knows,
        run_stands=cast("Any", None),
        time=cast("Any", None),
        now_us=lambda: now[0],
    )
    for _ in range(5):
        assert await judge.judge(command(), THERE) is Readiness.WAITS
    assert admission.asked == 1
    assert await judge.judge(command("lights"), THERE) is Readiness.READY
    now[0] += BLIND_US
    assert await judge.judge(command(), THERE) is Readiness.WAITS
    assert admission.asked == 2
    now[0] -= BLIND_US * 3  # the clock of the node was set back
    assert await judge.judge(command(), THERE) is Readiness.WAITS
    assert admission.asked == 3
