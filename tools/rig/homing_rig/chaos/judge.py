"""Reads events one by one and finds what must not be; memory grows with the number of commands, not of events."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from app.core.commands.command import CommandState
from homing_rig.chaos.evidence import Evidence, Seen, Wish, answer_bit, is_final
from homing_rig.chaos.findings import Findings
from homing_rig.chaos.history import (
    GONE,
    REDIS_KEYS_AFTER_TTL,
    REDIS_KEYS_BASELINE,
    AnswerAcked,
    Answered,
    Completion,
    End,
    Event,
    Executed,
    Fail,
    Fault,
    FinalRead,
    Header,
    HistoryError,
    Invoke,
    MarkRead,
    Metric,
    Ok,
    OperationKind,
    Unknown,
)
from homing_rig.chaos.judge_command import judge_command, judge_keys
from homing_rig.chaos.judge_order import LaneJudge, MarkJudge
from homing_rig.chaos.outages import StoreOutages
from homing_rig.chaos.report import Report

_OK: Final = 200
_ACCEPTED: Final = 202
_NO_ANSWER: Final = 504


class Judge:
    """Give it all events in order with `take`, then ask for the `report`."""

    def __init__(self, header: Header) -> None:
        self._findings = Findings(header)
        self._figures = self._findings.figures
        self._checked = self._findings.checked
        self._violate = self._findings.violate
        self._retention = header.retention
        self._grace = header.grace
        self._ended: float | None = None
        self._invoked: dict[int, tuple[int, Invoke]] = {}
        """Operations that have not ended, with the lines of their beginning."""
        self._wishes: dict[str, Wish] = {}
        self._commands: dict[str, Evidence] = {}
        self._unacked: dict[int, int] = {}
        """Sequence of a published answer -> its bit."""
        self._keys_in_redis: dict[str, tuple[float, int]] = {}
        self._lanes = LaneJudge(self._findings)
        self._outages = StoreOutages()
        self._takers: dict[type[Event], Callable[[Any, int], None]] = {
            Invoke: self._invoke,
            Ok: self._complete,
            Fail: self._complete,
            Unknown: self._complete,
            Executed: self._executed,
            Answered: self._answered,
            AnswerAcked: self._answer_acked,
            Fault: self._fault,
            FinalRead: self._final_read,
            MarkRead: MarkJudge(self._findings).read,
            Metric: self._metric,
            End: self._end,
        }

    def take(self, event: Event, line: int) -> None:
        """Take the event of a line; HistoryError when it cannot follow those before."""
        if self._ended is not None:
            raise HistoryError(f"line {line}: nothing may follow the end")
        taker = self._takers.get(type(event))
        if taker is None:
            raise HistoryError(f"line {line}: a header stands in the first line only")
        taker(event, line)

    def _invoke(self, event: Invoke, line: int) -> None:
        if event.op in self._invoked:
            raise HistoryError(f"line {line}: operation {event.op} was invoked before")
        self._invoked[event.op] = (line, event)
        if event.kind is not OperationKind.COMMAND:
            self._figures.count["reads" if event.kind is OperationKind.READ else "cancels"] += 1
            return
        self._figures.count["calls"] += 1
        if event.nonce is None:
            return
        wish = self._wishes.get(event.nonce)
        if wish is None:
            device = None if event.device is None else sys.intern(event.device)
            lasts = event.hold + event.timeout
            wish = self._wishes[event.nonce] = Wish(device, event.key, line, event.at, lasts, event.lane)
        wish.last_invoked, wish.lasts = event.at, event.hold + event.timeout
        wish.open_attempts += 1

    def _complete(self, event: Completion, line: int) -> None:
        try:
            invoked, invoke = self._invoked.pop(event.op)
        except KeyError:
            raise HistoryError(f"line {line}: operation {event.op} was not invoked, or has ended before") from None
        figures = self._figures
        figures.count["ok" if isinstance(event, Ok) else "fail" if isinstance(event, Fail) else "unknown"] += 1
        figures.count["replayed"] += event.replayed
        if event.latency > invoke.timeout + self._grace:
            figures.note("hung", invoked, line)
        wish = None if invoke.nonce is None else self._wishes.get(invoke.nonce)
        if wish is not None:
            wish.open_attempts -= isinstance(event, Fail)
        if isinstance(event, Ok) and event.status in (_OK, _ACCEPTED) and invoke.kind is OperationKind.COMMAND:
            figures.answered(invoke, event)
            if wish is not None:
                wish.answered = True
        command_id = event.command_id or invoke.command_id
        if command_id is not None:
            self._answer(command_id, invoke, event, line)

    def _answer(self, command_id: str, invoke: Invoke, event: Completion, line: int) -> None:
        evidence = self._evidence(command_id)
        state = event.state
        if invoke.kind is OperationKind.COMMAND:
            self._belongs(command_id, evidence, invoke.nonce, line)
            if event.status in (_OK, _ACCEPTED, _NO_ANSWER):
                if not evidence.accepted:
                    evidence.accepted, evidence.since = line, invoke.at
                evidence.due = min(evidence.due, event.at + invoke.hold + invoke.timeout)
            if event.status == _NO_ANSWER:
                state = state or CommandState.TIMED_OUT.value
            self._fits_its_status(command_id, event.status, state, line)
        if state is not None:
            seen = Seen(state, event.result_nonce, line)
            told = invoke.kind is not OperationKind.READ
            self._see(command_id, evidence, seen, (invoke.at, event.at), told=told)
            self._annex(command_id, evidence, event, line)

    def _fits_its_status(self, command_id: str, status: int | None, state: str | None, line: int) -> None:
        timed_out = state == CommandState.TIMED_OUT
        if (status == _NO_ANSWER and not timed_out) or (
            status == _OK and (timed_out or state is None or not is_final(state))
        ):
            self._violate("answer_differs", command_id, f"{command_id} was answered {status} with state {state}", line)

    def _final_read(self, event: FinalRead, line: int) -> None:
        evidence = self._evidence(event.command_id)
        evidence.final_line, evidence.claims = line, event.claims
        seen = Seen(event.state, event.result_nonce, line)
        self._see(event.command_id, evidence, seen, (event.at, event.at), told=False)
        self._annex(event.command_id, evidence, event, line)

    def _see(self, command_id: str, evidence: Evidence, seen: Seen, when: tuple[float, float], *, told: bool) -> None:
        """Somebody asked and was shown a command in this state, `when` he did: it was so at some instant between."""
        asked_at, seen_at = when
        if seen.state == GONE:
            evidence.gone_line, evidence.gone_at = seen.line, seen_at
            if evidence.accepted and (self._retention is None or seen_at < evidence.since + self._retention):
                self._violate(
                    "command_lost", command_id, f"{command_id} is not on record", evidence.accepted, seen.line
                )
            return
        if not is_final(seen.state):
            evidence.open_line, evidence.open_at = seen.line, asked_at
            evidence.late_final |= asked_at > evidence.due + self._grace
            outcome = evidence.outcome
            if outcome is not None:
                self._checked["I2"] += 1
                if asked_at > evidence.final_at:
                    said = f"{command_id} was {outcome.state} and is {seen.state} again"
                    self._violate("left_outcome", command_id, said, outcome.line, seen.line)
            return
        evidence.final_at = min(evidence.final_at, seen_at)
        seen = self._corrected(command_id, evidence, seen)
        self._compare(command_id, evidence, seen, told=told)
        if told:
            evidence.told = evidence.told or seen
        else:
            evidence.stored = evidence.stored or seen

    def _compare(self, command_id: str, evidence: Evidence, seen: Seen, *, told: bool) -> None:
        same, other = (evidence.told, evidence.stored) if told else (evidence.stored, evidence.told)
        if same is not None:
            self._checked["I2"] += 1
            if not same.agrees(seen):
                self._violate("outcome_changed", command_id, f"{command_id}: {same}, then {seen}", same.line, seen.line)
                return
        if other is not None:
            self._checked["I2"] += 1
            self._checked["I5"] += 1
            if not other.agrees(seen):
                answer, record = (seen, other) if told else (other, seen)
                said = f"{command_id}: the caller was told {answer}, stored is {record}"
                self._violate("answer_differs", command_id, said, answer.line, record.line)

    def _annex(self, command_id: str, evidence: Evidence, event: Completion | FinalRead, line: int) -> None:
        evidence.late_final |= event.overrun is not None and self._is_late(event, event.overrun)
        evidence.late |= event.late
        if event.late_nonce is not None and evidence.nonce is not None:
            self._check_nonce(command_id, evidence, event.late_nonce, line)

    def _is_late(self, event: Completion | FinalRead, overrun: float) -> bool:
        """True if the outcome came later after its deadline than the store allowed."""
        if not isinstance(event, FinalRead) or event.ended is None:
            return overrun > self._grace
        return event.ended > self._outages.writable(event.ended - overrun, self._grace) + self._grace

    def _corrected(self, command_id: str, evidence: Evidence, seen: Seen) -> Seen:
        """The outcome as it should read: that it is another's is noted here, and said once is enough."""
        if seen.nonce is None or evidence.nonce is None:
            return seen
        self._check_nonce(command_id, evidence, seen.nonce, seen.line)
        return seen._replace(nonce=evidence.nonce)

    def _check_nonce(self, command_id: str, evidence: Evidence, nonce: str, line: int) -> None:
        """A result that is shown for a command is its own."""
        self._checked["I3"] += 1
        if nonce != evidence.nonce:
            said = f"{command_id} has nonce {evidence.nonce} and shows the result of {nonce}"
            self._violate("wrong_answer", command_id, said, evidence.nonce_line, line)

    def _belongs(self, command_id: str, evidence: Evidence, nonce: str | None, line: int) -> None:
        if nonce is None:
            return
        if evidence.nonce is None:
            evidence.nonce, evidence.nonce_line = nonce, line
            if evidence.told is not None:
                evidence.told = self._corrected(command_id, evidence, evidence.told)
            if evidence.stored is not None:
                evidence.stored = self._corrected(command_id, evidence, evidence.stored)
        elif evidence.nonce != nonce:
            said = f"{command_id} is named for nonce {evidence.nonce} and for {nonce}"
            self._violate("wrong_command", command_id, said, evidence.nonce_line, line)

    def _executed(self, event: Executed, line: int) -> None:
        self._figures.count["executions"] += 1
        wish = None if event.nonce is None else self._wishes.get(event.nonce)
        if wish is None:
            self._figures.count["foreign_executions"] += 1
        evidence = self._evidence(event.command_id)
        self._belongs(event.command_id, evidence, event.nonce, line)
        if evidence.executed and event.dup:
            self._figures.count["dup_executions"] += 1
        elif evidence.executed:
            said = f"{event.device} received {event.command_id} twice without the DUP flag"
            self._violate("executed_twice", event.command_id, said, evidence.executed, line)
        elif wish is not None and wish.lane is not None:
            self._lanes.executed(wish, event, line)
        evidence.executed = evidence.executed or line
        if wish is not None:
            self._executed_wish(wish, event, line)

    def _executed_wish(self, wish: Wish, event: Executed, line: int) -> None:
        self._checked["F5"] += 1
        if event.at > wish.last_invoked + wish.lasts + self._grace:
            self._figures.count["late_executions"] += 1
            late = event.at - wish.last_invoked - wish.lasts
            said = f"{event.command_id} reached {event.device} {late:.1f} s after its deadline"
            self._violate("executed_late", event.command_id, said, wish.line, line)
        if wish.device is not None and wish.device != event.device:
            said = f"{event.command_id} was for {wish.device} and reached {event.device}"
            self._violate("wrong_device", event.command_id, said, wish.line, line)
        if wish.key is None:
            return
        self._checked["I7"] += 1
        if wish.executed_as is None:
            wish.executed_as, wish.executed = event.command_id, line
        elif wish.executed_as != event.command_id:
            said = f"{event.device} executed key {wish.key} as {wish.executed_as} and as {event.command_id}"
            self._violate("executed_twice", event.command_id, said, wish.executed, line)

    def _answered(self, event: Answered, line: int) -> None:
        if event.sequence in self._unacked:
            raise HistoryError(f"line {line}: answer {event.sequence} was published before")
        bit = answer_bit(event.state)
        self._unacked[event.sequence] = bit
        if bit:
            self._lanes.answered(event.command_id)
            evidence = self._evidence(event.command_id)
            evidence.answers |= bit
            evidence.answered = evidence.answered or line

    def _answer_acked(self, event: AnswerAcked, line: int) -> None:
        bit = self._unacked.pop(event.sequence, None)
        if bit is None:
            raise HistoryError(f"line {line}: answer {event.sequence} was not published, or was acknowledged before")
        if not bit:
            return
        self._figures.count["answers_acked"] += 1
        evidence = self._evidence(event.command_id)
        evidence.acked_count += 1
        evidence.acked = evidence.acked or line

    def _fault(self, event: Fault, _line: int) -> None:
        self._figures.fault(event)
        self._outages.take(event)

    def _metric(self, event: Metric, line: int) -> None:
        self._figures.metric(event, line)
        if event.name in (REDIS_KEYS_BASELINE, REDIS_KEYS_AFTER_TTL):
            self._keys_in_redis[event.name] = (event.value, line)

    def _end(self, event: End, _line: int) -> None:
        self._ended = event.at

    def report(self) -> Report:
        """Judge what can only be judged at the end, and sum up. Call it once."""
        if self._ended is not None:
            for line, invoke in self._invoked.values():
                if self._ended - invoke.at > invoke.timeout + self._grace:
                    self._figures.note("hung", line)
        for command_id, evidence in self._commands.items():
            judge_command(self._findings, command_id, evidence, self._wishes.get(evidence.nonce or ""))
        judge_keys(self._findings, self._keys_in_redis)
        self._lanes.judge(self._commands)
        self._figures.count["commands"] = len(self._commands)
        for wish in self._wishes.values():
            self._figures.count["keys"] += wish.key is not None
            self._figures.count["keys_unanswered"] += wish.key is not None and not wish.answered
        return self._findings.report(complete=self._ended is not None)

    def _evidence(self, command_id: str) -> Evidence:
        evidence = self._commands.get(command_id)
        if evidence is None:
            evidence = self._commands[command_id] = Evidence()
        return evidence
