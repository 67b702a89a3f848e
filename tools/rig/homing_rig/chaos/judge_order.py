"""Judgements of orders: commands of a lane as their device has them, and marks of targets as the store has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from app.core.commands.command import CommandState
from app.core.fleets.marks import MARK_OF_WORD, TargetMark
from homing_rig.chaos.evidence import Evidence, Wish
from homing_rig.chaos.findings import Findings
from homing_rig.chaos.history import Executed, MarkRead


class _Turn(NamedTuple):
    """A command that its device got."""

    asked: int
    """The line in which it was asked for: these are in the order of the lane."""
    command_id: str
    line: int


class LaneJudge:
    """Judges lanes by the books of devices, which get one command after the other."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._last: dict[tuple[str, str], _Turn] = {}
        self._in_hand: set[str] = set()
        self._together: list[tuple[_Turn, _Turn]] = []

    def executed(self, wish: Wish, event: Executed, line: int) -> None:
        """Note that a device got a command of a lane for the first time."""
        place, turn = (event.device, wish.lane or ""), _Turn(wish.line, event.command_id, line)
        last = self._last.get(place)
        if last is not None:
            self._findings.checked["I9"] += 1
            if last.asked > turn.asked:
                said = (
                    f"{event.device} got {turn.command_id} after {last.command_id}, which stood behind it in its lane"
                )
                self._findings.violate("lane_order", turn.command_id, said, last.line, line)
            elif last.command_id in self._in_hand:
                self._together.append((last, turn))
            self._in_hand.discard(last.command_id)
        self._last[place] = turn
        self._in_hand.add(event.command_id)

    def answered(self, command_id: str) -> None:
        """Note that a device has answered for good."""
        self._in_hand.discard(command_id)

    def judge(self, commands: Mapping[str, Evidence]) -> None:
        """Judge those that came while a device had one in hand: it may, if that one's time was over."""
        for first, second in self._together:
            outcome = commands[first.command_id].outcome
            if outcome is None or outcome.state != CommandState.TIMED_OUT:
                said = f"{second.command_id} came while its device had {first.command_id} of the same lane in hand"
                self._findings.violate("lane_together", second.command_id, said, first.line, second.line)


_RANKS: Final = {TargetMark.WAITING: 0, TargetMark.HANDED: 1}
_ENDED: Final = 2


class MarkJudge:
    """Judges the marks of targets, which one reader reads, one reading after the other."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._last: dict[tuple[str, int], tuple[TargetMark, int]] = {}

    def read(self, event: MarkRead, line: int) -> None:
        """Judge a mark that was read, beside the one before."""
        place, mark = (event.run, event.target), MARK_OF_WORD[event.mark]
        last, last_line = self._last.get(place, (TargetMark.WAITING, line))
        self._findings.checked["I10"] += 1
        if last.ended or _RANKS.get(mark, _ENDED) < _RANKS[last]:
            said = f"target {event.target} of {event.run} was {last.word} and is {mark.word}"
            self._findings.violate("mark_back", f"{event.run} {event.target}", said, last_line, line)
        self._last[place] = mark, line
