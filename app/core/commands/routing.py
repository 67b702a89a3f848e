"""The next place of a recorded response is decided here, and the dispatcher takes it there."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from app.core.commands.command import CommandState
from app.core.commands.reception import Reception
from app.core.values import value


class Follower(NamedTuple):
    """A held command that stands first in a lane, with its device."""

    command_id: str
    device_id: str


@value
class Outcome:
    """The end of a command. `finished_at` is in microseconds since the epoch on the store's clock; texts are JSON.

    `reception` is known where a response made the outcome. `trace` is that of the
    registration, in the wake-ups of responses only. `home_heard` is for the node that made the outcome: whether the
    home node, if it is another one, was listening when the store woke it. `token` is what a wake-up carried to be
    believed (app/core/cluster/wakekey.py). `follower` is for the node that made the outcome, too: who waits for the
    place in a lane that it has freed.
    """

    command_id: str
    state: CommandState
    finished_at: int
    received_by: str | None = None
    result: bytes | None = None
    error: bytes | None = None
    reception: Reception | None = None
    trace: str | None = None
    home_heard: bool = field(default=False, compare=False)
    follower: Follower | None = field(default=None, compare=False)
    token: str = field(default="", compare=False)


class MatchResult(StrEnum):
    """The result of the store's one atomic step for a response."""

    WON = "won"
    """It is the outcome."""
    PROGRESS = "progress"
    """The command is running now; no outcome yet."""
    LATE = "late"
    """It came after the deadline or a cancellation and was annexed."""
    DUPLICATE = "duplicate"
    """The command has its outcome (or its late annex) already."""
    FINISHED = "finished"
    """The command has its outcome already, and was left as it is, as the message may answer one that is open."""
    UNKNOWN = "unknown"
    """No command waits for this: never registered, or past its retention."""
    MISMATCH = "mismatch"
    """The command exists, and expects its response on another topic, or in the words of another profile."""


@value
class Recorded:
    """The store's account of a response.

    `outcome` is set for WON, LATE, DUPLICATE and FINISHED: the command has one then (a retried step must still
    deliver). `waiting` are the nodes that wait for the command: its home node first, then those that joined it. The
    store has sent a wake-up to each of them but the receiving node, in the same atomic step. `trace` is that of the
    registration.
    """

    verdict: MatchResult
    command_id: str | None = None
    outcome: Outcome | None = None
    waiting: tuple[str, ...] = ()
    trace: str | None = None


@value
class DeliverLocally:
    """A caller may be parked on this node: complete its waiter."""

    outcome: Outcome


@value
class Forwarded:
    """Only other nodes wait; their wake-ups are on the way."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Annexed:
    """A late response, kept with the command for whoever reads it."""

    command_id: str


@dataclass(frozen=True, slots=True)
class Progressed:
    """The command runs on."""

    command_id: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Nobody gets it; counted under `reason`."""

    reason: str


Decision = DeliverLocally | Forwarded | Annexed | Progressed | Drop


def route(recorded: Recorded, self_node: str) -> Decision:
    """Decide what a node does with a response after the store has recorded it."""
    match recorded.verdict:
        case MatchResult.WON if recorded.outcome is not None:
            if self_node in recorded.waiting:
                return DeliverLocally(recorded.outcome)
            return Forwarded(recorded.waiting)
        case MatchResult.DUPLICATE if recorded.outcome is not None and self_node in recorded.waiting:
            # The reply to the first attempt of this very step may have been lost; delivering twice changes nothing.
            return DeliverLocally(recorded.outcome)
        case MatchResult.PROGRESS if recorded.command_id is not None:
            return Progressed(recorded.command_id)
        case MatchResult.LATE if recorded.command_id is not None:
            return Annexed(recorded.command_id)
        case verdict:
            return Drop(verdict.value)
