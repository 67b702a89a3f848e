"""An event is written once for all followers who want and may know the same."""

from __future__ import annotations

from collections import Counter

from app.commands.follow.stream import Begun, PageViews, StreamFollower
from app.core.commands.command import CommandState
from app.core.commands.stream import CommandChange, CommandChangeKind, Marks, Position, StreamPage


def change(number: int) -> CommandChange:
    return CommandChange(
        position=Position(1000 + number, 0, 7),
        kind=CommandChangeKind.OUTCOME,
        command_id=f"007-{number}",
        number=1,
        at=1_000_000,
        state=CommandState.SUCCEEDED,
        device_id="dock-1",
        profile="dji",
        method="cover_open",
        text=None,
    )


class Listener:
    """Writes the numbers of events, and how often it was asked to; of `view` all are told the same."""

    def __init__(self, view: str) -> None:
        self.view = view
        self.asked = 0

    def event(self, one: CommandChange) -> bytes:
        self.asked += 1
        return f"{self.view}{one.position.ms} ".encode()

    def gap(self, since: int) -> bytes:
        return b"gap %d " % since

    def cut_off(self) -> None:
        raise AssertionError


def follower(listener: Listener, whole: int = 0) -> StreamFollower:
    one = StreamFollower(Begun(Marks(()), whole, gap=False), listener, Counter())
    one.caught_up()
    return one


def page(*numbers: int, whole: int = 0) -> PageViews:
    return PageViews(StreamPage([change(one) for one in numbers], Marks(()), 2000, complete=True, whole=whole))


def test_events_are_written_once_for_all_who_are_told_the_same() -> None:
    listeners = [Listener("a"), Listener("a"), Listener("b")]
    told = page(1, 2)
    for one in (followers := [follower(listener) for listener in listeners]):
        one.tell(told)
    assert [one.take() for one in followers] == [b"a1001 a1002 ", b"a1001 a1002 ", b"b1001 b1002 "]
    assert [listener.asked for listener in listeners] == [2, 0, 2]


def test_a_gap_is_told_to_each_who_has_it_before_the_events_that_all_are_told() -> None:
    behind, beside = follower(Listener("a")), follower(Listener("a"), whole=1500)
    told = page(1, whole=1500)
    behind.tell(told)
    beside.tell(told)
    assert behind.take() == b"gap 1500 a1001 "
    assert beside.take() == b"a1001 "
