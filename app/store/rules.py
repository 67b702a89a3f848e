"""Rules by which all stores decide alike, so that no two of them differ."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import cache
from typing import Final

from app.core.commands.approval import ApprovalDecision
from app.core.commands.callback import Registration
from app.core.commands.command import OPEN_STATES, TRANSITIONS, CommandEvent, CommandState
from app.core.commands.faults import fault
from app.core.commands.reach import NOTHING_KNOWN, timed_out
from app.core.errors import IllegalTransitionError, InvalidInputError
from app.core.profiles.probes import ProbeEvidence, ProbeFinding

MAX_JOINED: Final = 4
"""The number of nodes besides the home node that are woken for one command."""

SWEEP_LIMIT: Final = 100
"""The number of commands of a partition that one sweep ends: nobody else is served while a script runs."""

TOLD_WITHIN: Final = timedelta(days=1)
"""The time that nodes have to collect of what endpoints are to be told."""

NO_RESPONSE: Final = timed_out(NOTHING_KNOWN)
"""The error of a command that another node than its home ends at its deadline."""
HOLD_EXPIRED: Final = fault(
    "hold_expired",
    "it was held until the end of its hold, and was not sent: its device was not there, its turn in its lane did not "
    "come, or an interlock did not let it go",
)
"""The error of a command whose hold has ended."""
NOT_APPROVED: Final = fault("not_approved", "no second person has approved it in time; it was not sent")
"""The error of a command about which nobody has decided in time."""
NOT_DONE: Final = fault("not_done", "no answer came; the state of the device names this command, as one not done")
"""The error of a command that has failed, as a state said that names it."""
GOAL_NOT_REACHED: Final = fault(
    "not_done", "no answer came; the device was asked for its state, and told it as if the command was not done"
)
"""The error of a command that has failed, as a device said that was asked for its state."""
CONFIRMED_FROM: Final = OPEN_STATES - {CommandState.HELD}
"""The states from which a probe may settle a command: those of commands that were sent, or are about to be."""
MOST_HELD: Final = 100
"""The number of commands of one device that may be held."""
MOST_HELD_OF_LANE: Final = 50
"""The number of commands of one lane of a device that may be held."""
LANE_LOOK: Final = timedelta(seconds=1)
"""The time after the deadline of a command in which whoever waits for its place in a lane looks again."""
WITHOUT_END: Final = 10**17
"""The instant (µs) of what comes by somebody's word alone: far away."""
MOST_HELD_OF_PARTITION: Final = 1_000
"""The number of commands of a partition that may be held: a script looks at all of them."""
GONE: Final = fault("gone", "the command is not on record any more")

_MICROSECOND: Final = timedelta(microseconds=1)
_ENDING: Final = {
    CommandState.SUCCEEDED: CommandEvent.SUCCEED,
    CommandState.TIMED_OUT: CommandEvent.EXPIRE,
    CommandState.CANCELLED: CommandEvent.CANCEL,
    CommandState.UNSENT: CommandEvent.REFUSE,
}
_MARKING: Final = {CommandState.SENT: CommandEvent.PUBLISH, CommandState.ACKNOWLEDGED: CommandEvent.PUBACK}


@cache
def ended_by(state: CommandState, *, only_held: bool = False) -> frozenset[CommandState]:
    """The states from which a command may be ended so; ValueError when this is no end that a node decides.

    With `only_held`, none but the one of what nobody has been sent.
    """
    if state not in _ENDING:
        raise ValueError(f"a command is not finished as {state}; allowed: {', '.join(_ENDING)}")
    before = _before(_ENDING[state], state)
    return before & {CommandState.HELD} if only_held else before


@cache
def marked_by(state: CommandState) -> frozenset[CommandState]:
    """From which states a command goes on to this one; ValueError when it is not for marking."""
    if state not in _MARKING:
        raise ValueError(f"a command is not marked as {state}; allowed: {', '.join(_MARKING)}")
    return _before(_MARKING[state], state)


def _before(event: CommandEvent, state: CommandState) -> frozenset[CommandState]:
    return frozenset(before for before in OPEN_STATES if TRANSITIONS[before].get(event) is state)


def micros(duration: timedelta) -> int:
    """A duration in whole microseconds."""
    return duration // _MICROSECOND


def retention_of(registration: Registration) -> timedelta:
    """The time that a record outlives its outcome: not less than it has to keep a topic or a lane, or to be told."""
    least = TOLD_WITHIN if registration.notify else timedelta()
    rest = timedelta() if registration.lane is None else registration.lane.rest
    return max(registration.retention, registration.quarantine, rest, least)


def busy(device_id: str, quarantine_left_us: int | None) -> str:
    """The reason why a device can take no command now: one is open, or a late answer to an ended one is possible."""
    if quarantine_left_us is None:
        return f"device {device_id} has a command in flight that an answer may mean"
    return (
        f"device {device_id} had no answer to a command that has ended without one; a late answer could be taken for "
        f"that of this command, so it takes none for another {quarantine_left_us / 1e6:.1f} s (quarantine_seconds of "
        "its profile)"
    )


def superseded(by: str) -> bytes:
    """The error of a command that waited in a lane in which only the last one waits."""
    return fault("superseded", f"command {by} came after it in its lane, where only the last one waits")


def replaced(by: str) -> bytes:
    """The error of a command that waited under a key, of which the last one stays."""
    return fault("superseded", f"command {by} came after it, and takes the place of what waits with the same key")


def refused_by_second(decision: ApprovalDecision) -> bytes:
    """The error of a command that a second person has refused."""
    return fault("refused_by_second", f"{decision.name} has refused it: {decision.note or 'no reason was given'}")


def error_of_finding(finding: ProbeFinding) -> bytes | None:
    """The error of a command that a probe settles."""
    if finding.state is not CommandState.FAILED:
        return None
    return GOAL_NOT_REACHED if finding.evidence is ProbeEvidence.NOT_DONE else NOT_DONE


def verified_annex(finding: ProbeFinding) -> bytes:
    """Return what a probe found after a time-out: a JSON text up to the instant, which the store puts there."""
    return b'{"state":"%b",%b,"found_at":' % (finding.state.encode(), finding.to_json()[1:-1])


def verified_news(finding: ProbeFinding) -> bytes:
    """Return what streams of all commands tell of it."""
    return b'{"state":"%b","kind":"%b"}' % (finding.state.encode(), finding.evidence.encode())


def not_verified(command_id: str, what_it_is: str) -> IllegalTransitionError:
    """The refusal to look for a command that has ended otherwise."""
    sentence = f"a command that is {what_it_is} needs no probe; allowed: one that has timed out, without a late answer"
    return IllegalTransitionError(command_id, sentence)


def not_confirmed(command_id: str, what_it_is: str) -> IllegalTransitionError:
    """The refusal to settle a command by a probe."""
    return IllegalTransitionError(command_id, f"a command that is {what_it_is} is not settled by a probe")


def lane_taken(device_id: str, lane: str) -> str:
    """The reason why a command without a hold is not taken."""
    return (
        f"lane {lane} of device {device_id} is taken by commands that came before; send it again later, or with a hold"
    )


def too_many_held(device_id: str, lane: str | None = None) -> str:
    """The reason why no further command can be held for a device, and in a lane of it."""
    if lane is not None:
        return (
            f"device {device_id} has {MOST_HELD} held commands, or lane {lane} of it has {MOST_HELD_OF_LANE}; cancel "
            "some, or wait until they were sent"
        )
    return (
        f"device {device_id} has {MOST_HELD} held commands, or those that share its part of the store have "
        f"{MOST_HELD_OF_PARTITION}; cancel some, or wait until they were sent"
    )


def late_annex(state: CommandState, result: bytes | None, error: bytes | None, received_at: int) -> bytes:
    """The JSON text of a late response."""
    return b'{"state":"%b","result":%b,"error":%b,"received_at":%d}' % (
        state.value.encode(),
        result or b"null",
        error or b"null",
        received_at,
    )


CURSOR: Final = "([0-9]{1,16})_([0-9A-Z-]{1,64})"
_CURSOR: Final = re.compile(CURSOR, re.ASCII)
MOST_PLACE: Final = 16 + 1 + 64
"""Bytes of the longest cursor."""


def page_cursor(created_at: int, command_id: str) -> str:
    """The cursor at which the next page begins: after this command."""
    return f"{created_at}_{command_id}"


def page_start(cursor: str | None) -> tuple[int, str] | None:
    """Instant and id that the page comes after; InvalidInputError when the cursor is not one of ours."""
    if cursor is None:
        return None
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise InvalidInputError("cursor", "is none that a page gave; leave it out for the first page")
    return int(found[1]), found[2]
