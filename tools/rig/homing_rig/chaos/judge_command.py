"""Judgements of a command, and of Redis, that need the whole history."""

from __future__ import annotations

from collections.abc import Mapping

from app.core.commands.command import CommandState
from homing_rig.chaos.evidence import ANSWERED_STATES, Evidence, Wish, answer_bit
from homing_rig.chaos.findings import Findings
from homing_rig.chaos.history import REDIS_KEYS_AFTER_TTL, REDIS_KEYS_BASELINE


def judge_command(findings: Findings, command_id: str, evidence: Evidence, wish: Wish | None) -> None:
    """Everything about one command; `wish` is what its caller wanted, None for one that nobody in this run sent."""
    figures, outcome = findings.figures, evidence.outcome
    if outcome is not None:
        figures.count[f"state.{outcome.state}"] += 1
    figures.count["answers_late"] += evidence.late
    if evidence.late_final:
        figures.note("late_finals", outcome.line if outcome is not None else evidence.open_line)
    _judge_result(findings, command_id, evidence)
    _judge_sending(findings, command_id, evidence, wish)
    readable = _judge_end(findings, command_id, evidence) if evidence.accepted else True
    if evidence.acked:
        readable &= _judge_answers(findings, command_id, evidence)
    if not readable:
        figures.note("unread", evidence.accepted or evidence.acked)


def judge_keys(findings: Findings, keys: Mapping[str, tuple[float, int]]) -> None:
    """Judge that nothing remains in Redis, from how many keys it had before and after."""
    if len(keys) < 2:  # noqa: PLR2004 - before and after
        return
    (before, before_line), (after, after_line) = keys[REDIS_KEYS_BASELINE], keys[REDIS_KEYS_AFTER_TTL]
    findings.checked["I8"] += 1
    if before != after:
        said = f"Redis had {before:g} keys before the first command and has {after:g} after the last retention"
        findings.violate("keys_left", "redis", said, before_line, after_line)


def _judge_result(findings: Findings, command_id: str, evidence: Evidence) -> None:
    """Judge that a result without a nonce, such as a refusal, is its command's own: the device must have sent it."""
    outcome = evidence.outcome
    if outcome is None or outcome.state not in ANSWERED_STATES or not evidence.answers:
        return
    findings.checked["I3"] += 1
    if not evidence.answers & answer_bit(outcome.state):
        said = f"{command_id} is {outcome.state}, which its device never answered"
        findings.violate("wrong_answer", command_id, said, evidence.answered, outcome.line)


def _judge_sending(findings: Findings, command_id: str, evidence: Evidence, wish: Wish | None) -> None:
    """Judge that nothing unsent reaches a device: a caller who was told so may send it again."""
    outcome = evidence.outcome
    if not evidence.executed:
        return
    if outcome is not None and outcome.state == CommandState.UNSENT:
        said = f"{command_id} is unsent and was executed"
        findings.violate("executed_unsent", command_id, said, outcome.line, evidence.executed)
    elif evidence.claims == 0:
        said = f"{command_id} was executed, and no node has ever claimed it"
        findings.violate("executed_unclaimed", command_id, said, evidence.executed, evidence.final_line)
    elif wish is not None and not wish.open_attempts:
        said = f"{command_id} was executed, though every attempt of its caller was told that nothing happened"
        findings.violate("executed_unsent", command_id, said, wish.line, evidence.executed)


def _judge_end(findings: Findings, command_id: str, evidence: Evidence) -> bool:
    """Judge that an accepted command has one outcome; False when there is not enough to judge it by."""
    findings.figures.count["accepted"] += 1
    if findings.has("command_lost", command_id):
        findings.checked["I1"] += 1
        return True
    if evidence.outcome is not None:
        findings.checked["I1"] += 1
        return evidence.final_line > 0
    if evidence.open_at > evidence.due + findings.header.grace:
        findings.checked["I1"] += 1
        said = f"{command_id} was accepted and has no outcome after its deadline"
        findings.violate("never_final", command_id, said, evidence.accepted, evidence.open_line)
        return True
    return False


def _judge_answers(findings: Findings, command_id: str, evidence: Evidence) -> bool:
    """Judge that acknowledged answers are on record; False when nobody looked for them afterwards."""
    outcome = evidence.outcome
    if evidence.final_line < evidence.acked:
        return False
    if outcome is not None and (outcome.state in ANSWERED_STATES or evidence.late):
        # One answer is kept; what else the device sent repeats it.
        findings.checked["I4"] += evidence.acked_count
        findings.figures.count["answers_repeated"] += evidence.acked_count - 1
        return True
    if evidence.gone_line == evidence.final_line:
        retention = findings.header.retention
        if retention is not None and evidence.gone_at >= evidence.since + retention:
            return False
        state = "not on record"
    else:
        state = "open" if outcome is None else f"{outcome.state} without a late annex"
    findings.checked["I4"] += evidence.acked_count
    if not findings.has("command_lost", command_id):
        said = f"the broker acknowledged an answer to {command_id}, which is {state}"
        findings.violate("answer_lost", command_id, said, evidence.acked, evidence.final_line)
    return True
