"""The commands of the model of a state store, in the form in which those of a real one are compared with them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from app.core.commands.approval import ApprovalDecision
from app.core.commands.callback import Registration
from app.core.commands.command import OPEN_STATES, Command, CommandState
from app.core.commands.reception import Reception
from app.core.commands.routing import Outcome, Recorded
from app.core.profiles.correlation import Correlation
from app.store.commands import Finished, Joined, Registered
from app.store.holds import Claimed, Decided, Waits

S = CommandState


ORDER_OF_STATES = [S.PENDING, S.SENT, S.ACKNOWLEDGED, S.RUNNING]


FAR_AHEAD = 2**52
"""An instant (µs) that does not come while a history lasts."""


Plain = Any
"""Nested tuples and strings, to be compared."""


def plain(value: object) -> Plain:  # noqa: C901, PLR0911 - one line a type
    """Return what a store returned, without instants."""
    match value:
        case Registered(held=held):
            return "held" if held else "registered"
        case Claimed(command):
            return ("claimed", plain(command))
        case Waits(reason):
            return ("waits", reason.value)
        case Joined(command):
            return ("joined", plain(command))
        case Decided(won, outcome):
            return (won, plain(outcome))
        case Finished(won, outcome):
            return ("won" if won else "lost", plain(outcome))
        case Recorded(verdict, command_id, outcome, waiting):
            return (verdict.value, command_id, plain(outcome), waiting)
        case Outcome(command_id, state, _, received_by, result, error, reception):
            return (command_id, state.value, received_by, result, error, reception)
        case Command():
            late = json.loads(value.late) if value.late is not None else None
            if late is not None:
                assert late.pop("received_at") >= (value.finished_at or 0) >= value.created_at
            assert (value.finished_at is not None) == value.state.final
            return (
                (value.id, value.state.value, value.received_by, value.result, value.error),
                (value.device_id, value.method, value.params, value.profile, value.home_node, value.progress, late),
                (_found_later(value), value.matched_by, value.confirmed_by),
            )
        case Exception():
            return type(value).__name__
        case list():
            return [plain(one) for one in value]
    return value


def _found_later(command: Command) -> Plain:
    """Return what a probe found of a command after its time-out, without the instant."""
    if command.verified is None:
        return None
    found = json.loads(command.verified)
    assert found.pop("found_at") >= (command.finished_at or 0)
    return found


UNKNOWN: Plain = ("unknown", None, None, ())


@dataclass
class Row:
    """A command as the model knows it."""

    registration: Registration
    waiting: list[str]
    state: CommandState = S.PENDING
    result: bytes | None = None
    error: bytes | None = None
    by: str | None = None
    reception: Reception | None = None
    progress: bytes | None = None
    sender: str | None = None
    late: dict[str, Any] | None = None
    verified: dict[str, Any] | None = None
    freed: set[str] = field(default_factory=set)
    """Topics by order that the command does not keep occupied after its outcome."""
    token: str = ""
    claims: int = 0
    was_held: bool = False
    rests: bool = False
    """True if it keeps its place in a lane after its outcome."""
    passed_on: bool = False
    """True if its place in a lane is free, as the broker has it."""
    decision: ApprovalDecision | None = None
    ready: int = 0
    """Its place among those that stand in line, by when they came there."""

    @property
    def taken_by(self) -> str | None:
        """The node whose word alone makes it unsent: it took over sending it, or has claimed it."""
        if self.sender is not None or self.state is S.HELD or not self.was_held:
            return self.sender
        return self.registration.home_node

    def cancel(self, error: bytes) -> None:
        """End it while it waits."""
        self.state, self.error = S.CANCELLED, error
        self.freed.update(one.topic for one in self.registration.expectations)

    def rest(self) -> None:
        """Note that it had an outcome that is not success after it was sent."""
        self.rests = self.registration.lane is not None and bool(self.registration.lane.rest)

    @property
    def unapproved(self) -> bool:
        """True if it is held until a second person decides."""
        hold = self.registration.hold
        return self.state is S.HELD and hold is not None and hold.approval is not None and self.decision is None

    @property
    def lane_name(self) -> str | None:
        return None if self.registration.lane is None else self.registration.lane.name

    @property
    def open(self) -> bool:
        return self.state in OPEN_STATES

    @property
    def confirmed(self) -> bool:
        """True if a probe has settled it."""
        return self.reception is not None and self.reception.correlation is Correlation.PROBE

    @property
    def waits(self) -> bool:
        """True if a response may be for it."""
        return self.open and self.state is not S.HELD

    def occupies(self, topic: str) -> bool:
        expected = any(
            (one.topic, one.correlation) == (topic, Correlation.ORDER) for one in self.registration.expectations
        )
        return expected and (self.waits or (not self.open and topic not in self.freed))

    def outcome(self) -> Plain:
        return (self.registration.command_id, self.state.value, self.by, self.result, self.error, self.reception)

    def command(self) -> Plain:
        one = self.registration
        about = (one.device_id, one.method, one.params, one.profile, one.home_node, self.progress, self.late)
        how = self.reception
        found = (self.verified, None if how is None else how.correlation, None if how is None else how.finding)
        return (self.outcome()[:-1], about, found)  # the rest of how a response came in is told with the outcome only
