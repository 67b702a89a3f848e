"""A table from what is known of a command to a sentence on what became of it, which may be that nobody knows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from app.core.commands.approval import ApprovalDecision
from app.core.commands.command import Command, CommandState
from app.core.commands.misses import NEAR, MissedMessage, Near
from app.core.commands.reach import DeliveryProgress

RECENT_US: Final = 600_000_000
"""A message that was heard longer than this before the end of a command says nothing about it."""


def decision_of(command: Command) -> ApprovalDecision | None:
    """Return what a second person has decided about a command."""
    return None if command.approval is None else command.approval.decision


class Verdict(StrEnum):
    """The probable reason as a code."""

    ANSWERED = "answered"
    DEVICE_REFUSED = "device_refused"
    PROBE_CONFIRMED = "probe_confirmed"
    PROBE_VERIFIED = "probe_verified"
    CANCELLED = "cancelled"
    WAITING = "waiting"
    HELD = "held"
    NOT_APPROVED = "not_approved"
    REFUSED_BY_SECOND = "refused_by_second"
    SUPERSEDED = "superseded"
    NOT_ALLOWED = "not_allowed_any_more"
    HOLD_EXPIRED = "hold_expired"
    NOT_HANDED_OVER = "not_handed_over"
    NOT_ACKNOWLEDGED = "not_acknowledged"
    NO_SUBSCRIBER = "no_subscriber"
    WRONG_PROFILE = "wrong_profile"
    SILENT = "silent"
    ANSWERED_LATE = "answered_late"
    ANSWERED_ELSEWHERE = "answered_elsewhere"
    ID_CHANGED = "id_changed"
    UNDECODABLE = "undecodable"
    NODE_DIED = "node_died"
    NO_IDEA = "no_idea"


@dataclass(frozen=True, slots=True)
class DeviceSighting:
    """The place where a device was heard last, on the topics of a profile. `at` is in microseconds since the epoch."""

    at: int
    node: str
    profile: str
    topic: str


@dataclass(frozen=True, slots=True)
class Hop:
    """A step of a command on its home node. `at` is in microseconds on the store's clock, None where not known."""

    at: int | None
    what: str
    reason: str = ""
    size: int | None = None


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node's report of what it knows of a command and its device."""

    node: str
    hops: Sequence[Hop] = ()
    misses: Sequence[MissedMessage] = ()
    heard: Sequence[DeviceSighting] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """All that is known of a command.

    `code` is that of its error, `reach` how far it came, `nearest` the message that came nearest to being its answer;
    `gaps` are sentences about what nobody can know any more.
    """

    command: Command
    code: str = ""
    reach: DeliveryProgress = DeliveryProgress()  # noqa: RUF009 - it is frozen
    nearest: Near | None = None
    heard: Sequence[DeviceSighting] = ()
    gaps: Sequence[str] = ()
    waits: Sequence[str] = ()
    """The reasons why a held command waits."""
    orphaned: bool = False
    """True if its home node has died or was restarted since it was registered."""

    @property
    def elsewhere(self) -> DeviceSighting | None:
        """The latest that was heard on topics of another profile, where nothing was on those of its own."""
        end = self.command.finished_at or self.command.deadline
        recent = [one for one in self.heard if one.at >= end - RECENT_US]
        if any(one.profile == self.command.profile for one in recent):
            return None
        return max(recent, key=lambda one: one.at, default=None)


@dataclass(frozen=True, slots=True)
class CommandDiagnosis:
    """A verdict, as a sentence, and by what it was reached."""

    code: Verdict
    text: str
    evidence: Sequence[str] = ()


def judge(case: Case) -> CommandDiagnosis:
    """The first row of the table that holds."""
    for holds, verdict, say in _TABLE:
        if holds(case):
            return CommandDiagnosis(verdict, say(case), _evidence(case, verdict))
    return CommandDiagnosis(Verdict.NO_IDEA, _no_idea(case), tuple(case.gaps))


def _evidence(case: Case, verdict: Verdict) -> Sequence[str]:
    if verdict is Verdict.HELD:
        return case.waits
    if verdict is Verdict.PROBE_CONFIRMED and (finding := case.command.confirmed_by) is not None:
        found = _finding(finding, case.command.finished_at or case.command.deadline)
        return (found,) if case.command.late is None else (found, _late_answer(case.command.late))
    if verdict is Verdict.PROBE_VERIFIED and (verified := case.command.verified) is not None:
        return (_finding(verified, json.loads(verified)["found_at"]),)
    if verdict is Verdict.REFUSED_BY_SECOND and (decision := decision_of(case.command)) is not None:
        return (decision.note,) if decision.note else ()
    if verdict in _FROM_ERROR and (message := _message(case.command)):
        return (message,)
    if verdict is Verdict.WRONG_PROFILE and (heard := case.elsewhere) is not None:
        return (f"{case.command.device_id} was heard on {heard.topic} (profile {heard.profile}, {heard.node})",)
    if verdict in _FROM_MISSES and (near := case.nearest) is not None:
        named = f", naming {near.miss.got!a}" if near.miss.got else ""
        return (f"a message on {near.miss.topic}{named} ({near.miss.reason}, {near.miss.node})",)
    return ()


def _finding(finding: bytes, settled_at: int) -> str:
    said = json.loads(finding)
    values = ", ".join(f"{path} was {json.dumps(value)}" for path, value in said["value"].items())
    age = max(0, settled_at - said["at"]) / 1_000_000
    return f"{values} on {said['topic']}, told {age:.1f} s before ({said['kind']})"


def _late_answer(late: bytes) -> str:
    return f"later the device answered that it has {json.loads(late)['state']}"


def _message(command: Command) -> str:
    """Return the sentence of an error that Homing made."""
    return str(json.loads(command.error or b"{}").get("message", ""))


def _second(case: Case) -> str:
    decision = decision_of(case.command)
    return "a second person" if decision is None else decision.name


def _state(*states: CommandState) -> Callable[[Case], bool]:
    return lambda case: case.command.state in states


def _code(code: str, state: CommandState = CommandState.UNSENT) -> Callable[[Case], bool]:
    return lambda case: case.command.state is state and case.code == code


def _nobody(case: Case) -> bool:
    return _code("no_subscriber")(case) or (_timed_out(case) and case.reach.subscribed is False)


def _timed_out(case: Case) -> bool:
    return case.command.state is CommandState.TIMED_OUT


def _unanswered(case: Case) -> bool:
    return _timed_out(case) or not case.command.state.final


def _nearby(fits: Callable[[Near], bool]) -> Callable[[Case], bool]:
    def holds(case: Case) -> bool:
        near = case.nearest
        return _unanswered(case) and near is not None and near.score >= NEAR and fits(near)

    return holds


def _miss(case: Case) -> Near:
    if case.nearest is None:
        raise ValueError("this row holds only where there is a miss")
    return case.nearest


def _wrong_profile(case: Case) -> str:
    heard = case.elsewhere
    other = "another one" if heard is None else heard.profile
    return (
        f"probably the wrong profile: it was sent as {case.command.profile}, and {case.command.device_id} was last "
        f"heard on topics of profile {other}; try that"
    )


def _not_handed_over(case: Case) -> str:
    why = f": {case.command.device_id} had said that it is offline" if case.code == "device_offline" else ""
    return f"it was not handed over to the MQTT broker, so nobody has it{why}"


def _told_late(case: Case) -> bool:
    """A state after the deadline, or another answer without an id, is no command's any more."""
    end = case.command.finished_at or case.command.deadline
    return _timed_out(case) and _nearby(
        lambda near: near.same_topic and near.miss.reason == "unknown" and not near.miss.got and near.miss.at >= end
    )(case)


def _confirmed(case: Case) -> str:
    became = "was done" if case.command.state is CommandState.SUCCEEDED else "was not done"
    return f"no answer came, and the device said of its state before the deadline that it {became}: a probe settled it"


def _verified(case: Case) -> str:
    became = "was done" if json.loads(case.command.verified or b"{}").get("state") == "succeeded" else "was not done"
    return (
        f"no answer came before the deadline; somebody had a probe look afterwards, and the state says that it {became}"
    )


def _elsewhere(case: Case) -> str:
    where = _miss(case).miss
    return (
        f"the device answered on {where.topic}, where profile {case.command.profile} expects no answer to this command"
    )


def _changed(case: Case) -> str:
    return f"the device answered on the right topic, but named {_miss(case).miss.got!a} instead of the command's id"


def _undecodable(case: Case) -> str:
    return f"a message on the right topic could not be read as an answer: {_miss(case).miss.reason}"


def _silent(case: Case) -> str:
    last = "it was not heard since the nodes started"
    if case.heard:
        latest = max(case.heard, key=lambda one: one.at)
        at = datetime.fromtimestamp(latest.at / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        last = f"it was last heard at {at} on {latest.topic}"
    return f"the MQTT broker took the command, and {case.command.device_id} did not answer; {last}"


def _no_idea(case: Case) -> str:
    return "no idea: " + ("; ".join(case.gaps) or "what is known fits no verdict")


def _died(case: Case) -> str:
    return (
        f"its home node {case.command.home_node} died or was restarted while the command was open: it may or may not "
        "have been sent"
    )


def _died_meanwhile(case: Case) -> str:
    return (
        f"{_died(case)}; until its deadline an answer counts, and a repetition with its idempotency key waits for it: "
        "whoever may do it twice sends it with another key"
    )


def _is_silence(case: Case) -> bool:
    """Claimed only where every node was asked and has been there all the time."""
    told = case.reach.published and case.reach.acknowledged and case.reach.subscribed is not False
    return _timed_out(case) and bool(told) and not case.gaps and not _is_near(case)


def _is_near(case: Case) -> bool:
    return case.nearest is not None and case.nearest.score >= NEAR


_FROM_ERROR: Final = (Verdict.SUPERSEDED, Verdict.NOT_ALLOWED, Verdict.HOLD_EXPIRED)
_FROM_MISSES: Final = (Verdict.ANSWERED_ELSEWHERE, Verdict.ID_CHANGED, Verdict.UNDECODABLE)

_BROKEN: Final = frozenset(
    (
        *("not_json", "not_utf8", "not_cbor", "not_msgpack", "not_protobuf", "not_empty", "no_json_value", "empty"),
        *("too_deep", "too_large", "duplicate_key", "lone_surrogate", "not_a_number", "number_out_of_range"),
        *("no_correlation", "no_rule_holds", "correlation_contradicts", "no_device"),
    )
)
"""Reasons for which what looks like an answer is none. Others are about messages that never meant to be one."""

_TABLE: Final[Sequence[tuple[Callable[[Case], bool], Verdict, Callable[[Case], str]]]] = (
    (lambda case: case.command.confirmed_by is not None, Verdict.PROBE_CONFIRMED, _confirmed),
    (_state(CommandState.SUCCEEDED), Verdict.ANSWERED, lambda _: "it has succeeded"),
    (
        _state(CommandState.FAILED),
        Verdict.DEVICE_REFUSED,
        lambda _: "the device answered that it will not or cannot",
    ),
    (
        _code(Verdict.REFUSED_BY_SECOND, CommandState.CANCELLED),
        Verdict.REFUSED_BY_SECOND,
        lambda case: f"{_second(case)} has refused it; the device was not told",
    ),
    (
        _code(Verdict.SUPERSEDED, CommandState.CANCELLED),
        Verdict.SUPERSEDED,
        lambda _: "a later command took its place while it waited: nobody has it",
    ),
    (
        _code(Verdict.NOT_ALLOWED, CommandState.CANCELLED),
        Verdict.NOT_ALLOWED,
        lambda _: "when it had its turn, a right that it needed was gone: nobody has it",
    ),
    (
        _state(CommandState.CANCELLED),
        Verdict.CANCELLED,
        lambda _: "a caller cancelled it; the device was not told",
    ),
    (
        _state(CommandState.HELD),
        Verdict.HELD,
        lambda case: f"it waits to be sent to {case.command.device_id}, and nobody has it",
    ),
    (_code(Verdict.HOLD_EXPIRED), Verdict.HOLD_EXPIRED, lambda _: "its hold ended before it was sent: nobody has it"),
    (_code(Verdict.NOT_APPROVED), Verdict.NOT_APPROVED, lambda _: "no second person has approved it in time"),
    (
        lambda case: _timed_out(case) and case.command.late is not None,
        Verdict.ANSWERED_LATE,
        lambda _: "the device answered after the deadline: give it a longer timeout",
    ),
    (lambda case: _timed_out(case) and case.command.verified is not None, Verdict.PROBE_VERIFIED, _verified),
    (
        _told_late,
        Verdict.ANSWERED_LATE,
        lambda case: (
            f"probably answered after the deadline: {case.command.device_id} said something on "
            f"{_miss(case).miss.topic} then, where its answer was expected; give it a longer timeout"
        ),
    ),
    (_nearby(lambda near: near.same_id and not near.same_topic), Verdict.ANSWERED_ELSEWHERE, _elsewhere),
    (_nearby(lambda near: near.same_topic and near.like_id), Verdict.ID_CHANGED, _changed),
    (
        _nearby(lambda near: near.same_topic and near.miss.reason in _BROKEN),
        Verdict.UNDECODABLE,
        _undecodable,
    ),
    (lambda case: _nobody(case) and case.elsewhere is not None, Verdict.WRONG_PROFILE, _wrong_profile),
    (
        _nobody,
        Verdict.NO_SUBSCRIBER,
        lambda case: (
            f"nobody was subscribed to its topic: {case.command.device_id} is not connected, or has another id"
        ),
    ),
    (
        lambda case: case.command.state is CommandState.UNSENT or (_timed_out(case) and case.reach.published is False),
        Verdict.NOT_HANDED_OVER,
        _not_handed_over,
    ),
    (
        lambda case: _timed_out(case) and case.reach.published is None,
        Verdict.NODE_DIED,
        _died,
    ),
    (
        lambda case: _timed_out(case) and case.reach.acknowledged is False,
        Verdict.NOT_ACKNOWLEDGED,
        lambda _: "the MQTT broker did not acknowledge it: it may or may not have been delivered",
    ),
    (
        lambda case: _is_silence(case) and case.elsewhere is not None and case.reach.subscribed is None,
        Verdict.WRONG_PROFILE,
        _wrong_profile,
    ),
    (_is_silence, Verdict.SILENT, _silent),
    (
        lambda case: case.command.state is CommandState.PENDING and case.orphaned,
        Verdict.NODE_DIED,
        _died_meanwhile,
    ),
    (
        lambda case: not case.command.state.final,
        Verdict.WAITING,
        lambda _: "it is open: there is no answer yet, and its deadline has not passed",
    ),
)
