"""Probes: what the last word of a device says about a command that it has not answered.

Only what the device said after the broker had the command counts, and whatever is unknown settles nothing. That a goal
was not reached is known only of a device that has answered a question: it had the command before that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from app.core.access.patterns import fits_any
from app.core.commands.command import CommandState
from app.core.errors import UndecodableMessageError
from app.core.payload import MISSING, JsonValue, lookup
from app.core.profiles.echoes import Wish
from app.core.profiles.interlocks import AHEAD, InterlockCondition, JudgedAs, presentable, worst_of
from app.core.profiles.sources import Decode
from app.core.profiles.templates import CommandFacts
from app.core.topics import TopicTemplate

_MICROSECOND: Final = timedelta(microseconds=1)
_AHEAD_US: Final = AHEAD // _MICROSECOND


class ProbeEvidence(StrEnum):
    """The reason for which a state says something about a command."""

    BOUND = "bound"
    """It names the command."""
    GOAL = "goal"
    """It is what was asked for, whoever did it."""
    NOT_DONE = "not_done"
    """It is not what was asked for, although the device had the command for as long as doing it takes."""


class Unsettled(StrEnum):
    """The reason for which a state settles nothing."""

    NO_PUBACK = "no_puback"
    """The broker has not said that it has the command, or that anybody was subscribed."""
    BLIND = "blind"
    """The event log could not be read."""
    UNTOLD = "untold"
    """The device has said nothing since the broker had the command."""
    UNKNOWN = "unknown"
    """The state cannot be read, lacks what it is judged by, or comes from the future."""
    ANOTHER = "another"
    """The state names another command, or none."""
    NOT_SO = "not_so"
    """The state is not what was asked for."""


@dataclass(frozen=True, slots=True)
class ProbeQuestion:
    """The command by which Homing asks a device for its state; to answer it harms nothing, however often."""

    method: str
    params: JsonValue


@dataclass(frozen=True, slots=True)
class Probe:
    """A rule of a profile: what the state of a device says about commands of these methods.

    With `bound`, the state names the command that it speaks of, and `done` or `not_done` ends it. With `goal`, a state
    that is as `done` says is enough, and `not_done` counts only `after` the device has answered the question `ask`. It
    begins `within` before the deadline.
    """

    methods: tuple[str, ...]
    """Patterns, in which `*` is any text."""
    topic: TopicTemplate
    decode: Decode
    done: tuple[InterlockCondition, ...]
    within: timedelta
    not_done: tuple[InterlockCondition, ...] = ()
    bound: tuple[Wish, ...] = ()
    goal: bool = False
    database: str | None = None
    ask: ProbeQuestion | None = None
    """The question that makes the device tell its state; None where it tells it by itself."""
    after: timedelta = timedelta()
    """The time that doing it takes."""

    def binds(self, method: str) -> bool:
        """True if it says something about commands of this method."""
        return fits_any(self.methods, method)


class ToldState(NamedTuple):
    """The last value of a topic as bytes, and when it was told, in microseconds since the epoch."""

    data: bytes
    at: int


@dataclass(frozen=True, slots=True)
class ProbeFinding:
    """The outcome of a command as its device's state has it. `at` is when that was told, in µs since the epoch."""

    state: CommandState
    evidence: ProbeEvidence
    topic: str
    at: int
    value: Mapping[str, JsonValue]
    """The values by which it was judged, by their paths."""
    size: int = 0
    """The bytes of the message that told the state."""

    def to_json(self) -> bytes:
        """Return it as records have it: plain ASCII without a blank, as it stands between blanks."""
        said = {"kind": self.evidence, "topic": self.topic, "at": self.at, "value": self.value}
        return json.dumps(said, separators=(",", ":")).replace(" ", "\\u0020").encode("ascii")


@dataclass(frozen=True, slots=True)
class ProbeLook:
    """The instant of a look at a state, and those by which it is judged; all in µs since the epoch.

    `since` is when the broker had the command at the latest. `answered_at` is when the device answered a question that
    was asked after that; None if it has answered none.
    """

    now: int
    since: int
    answered_at: int | None = None


def judge_state(
    probe: Probe, topic: str, told: ToldState | None, look: ProbeLook, facts: CommandFacts
) -> ProbeFinding | Unsettled:
    """Return what the last word on a topic says about a command.

    Clocks of the event log and of the store may differ by as much as `AHEAD`, so what was told within that after an
    instant may have been told before.
    """
    if told is None or told.at <= look.since + _AHEAD_US:
        return Unsettled.UNTOLD
    if told.at > look.now + _AHEAD_US:
        return Unsettled.UNKNOWN
    try:
        document = probe.decode(told.data)
    except UndecodableMessageError:
        return Unsettled.UNKNOWN
    if probe.bound and not all(wish.concerns(facts) and wish.granted(document, facts) for wish in probe.bound):
        return Unsettled.ANOTHER
    done, not_done = _judged(probe.done, document), _judged(probe.not_done, document)
    if done is JudgedAs.HOLDS and not_done is not JudgedAs.HOLDS:
        state, conditions = CommandState.SUCCEEDED, probe.done
        evidence = ProbeEvidence.BOUND if probe.bound else ProbeEvidence.GOAL
    elif not_done is JudgedAs.HOLDS and done is not JudgedAs.HOLDS and (probe.bound or _was_time(probe, told, look)):
        state, conditions = CommandState.FAILED, probe.not_done
        evidence = ProbeEvidence.BOUND if probe.bound else ProbeEvidence.NOT_DONE
    else:
        return Unsettled.NOT_SO if done is JudgedAs.VIOLATED else Unsettled.UNKNOWN
    return ProbeFinding(state, evidence, topic, told.at, _values(conditions, document), len(told.data))


def _was_time(probe: Probe, told: ToldState, look: ProbeLook) -> bool:
    """Return whether the device had the command for as long as doing it takes when it told its state.

    It had the command when it answered a question that came behind it on the same topic, and no sooner for certain.
    """
    if look.answered_at is None:
        return False
    return told.at > look.answered_at + probe.after // _MICROSECOND + _AHEAD_US


def _judged(conditions: tuple[InterlockCondition, ...], document: JsonValue) -> JudgedAs:
    """Return whether all of them hold; none at all says nothing."""
    if not conditions:
        return JudgedAs.UNKNOWN
    found = [(one, lookup(document, one.path)) for one in conditions]
    return worst_of(JudgedAs.UNKNOWN if value is MISSING else one.judge(value)[0] for one, value in found)


def _values(conditions: tuple[InterlockCondition, ...], document: JsonValue) -> Mapping[str, JsonValue]:
    found = {".".join(one.path): lookup(document, one.path) for one in conditions}
    return {path: presentable(value) for path, value in found.items() if value is not MISSING}
