"""Figures that scenarios share, taken from what callers and devices know at the end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from app.core.commands.command import CommandState
from homing_rig.chaos.history import Mode
from homing_rig.chaos.load import Call
from homing_rig.chaos.recorder import Recorder
from homing_rig.chaos.rig import GRACE, Rig
from homing_rig.chaos.scenario import Figure


def quantile(values: Iterable[float], share: float) -> float:
    """The value that this share of all values does not exceed; not a number, which reaches no figure, without any."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else math.nan


def milliseconds(calls: Sequence[Call], share: float) -> float:
    """A quantile of how long parked callers with an outcome waited, retries included."""
    done = (call.seconds for call in calls if call.mode is Mode.SYNC and call.answer == "final")
    return round(1000 * quantile(done, share), 1)


def measure(rig: Rig) -> None:
    """Measure what every scenario tells."""
    calls, finals = rig.load.calls, rig.finals.commands
    executed = {command_id for fleet in rig.fleets for command_id in fleet.executions}
    states = {command_id: str(said.get("state", "gone")) for command_id, said in finals.items()}
    overruns = [_overrun(rig.recorder, said) for said in finals.values() if said.get("finished_at")]
    rig.measures |= {
        "callers": len(calls),
        "callers_failed": sum(call.answer == "unanswered" for call in calls),
        "callers_refused": sum(call.answer == "unanswered" and call.error == "not-sent" for call in calls),
        "callers_timed_out": sum(call.state == CommandState.TIMED_OUT for call in calls),
        "succeeded": sum(state == CommandState.SUCCEEDED for state in states.values()),
        "timed_out": sum(state == CommandState.TIMED_OUT for state in states.values()),
        "not_back": rig.nemesis.counts["not back"],
        "died": sum(node.died for node in rig.nodes.values()),
        "never_delivered": sum(
            state == CommandState.TIMED_OUT and command_id not in executed for command_id, state in states.items()
        ),
        "unfinished": sum(state == "gone" or not CommandState(state).final for state in states.values()),
        "overrun_s": round(max(overruns, default=0.0), 3),
        "past_deadline": sum(fleet.counts["late"] for fleet in rig.fleets),
        "unmatched": sum(fleet.counts["unmatched"] for fleet in rig.fleets),
        "rig_late_s": round(rig.load.late, 2),
        "retries": sum(call.attempts - 1 for call in calls),
        "p50_ms": milliseconds(calls, 0.50),
        "p99_ms": milliseconds(calls, 0.99),
    }


def stands(rig: Rig) -> float:
    """Return for how many seconds at most no device got anything, from the first command to the last one."""
    longest = 0.0
    for fleet in rig.fleets:
        instants = sorted(at for got in fleet.got.values() for at, _ in got)
        longest = max([longest, *(later - earlier for earlier, later in pairwise(instants))])
    return round(longest, 2)


def _overrun(recorder: Recorder, said: dict[str, Any]) -> float:
    """The seconds from the deadline, or from when Redis was back if that was away then, to the outcome."""
    ended, due = (
        recorder.instant(datetime.fromisoformat(said[name]).timestamp()) for name in ("finished_at", "deadline")
    )
    return ended - recorder.outages.writable(due, GRACE)


LOST = Figure("lost", "=", 0, "responses lost that the broker had acknowledged to a device")
WRONG = Figure("wrong", "=", 0, "results of another command")
DUPLICATES = Figure("duplicates", "=", 0, "commands with a second outcome, keys executed twice")
HUNG = Figure("hung", "=", 0, "requests that were not answered by their deadline + 2 s")
UNFINISHED = Figure("unfinished", "=", 0, "commands without an outcome at the end, or not on record")
UNREAD = Figure("unread", "=", 0, "commands that no node could be asked about")
OVERRUN = Figure("overrun_s", "<=", GRACE, "seconds from a command's deadline to its outcome, at most", timing=True)
ANSWERED = Figure("callers_failed", "=", 0, "callers who got no answer, retries with their key included")

NOT_BACK = Figure("not_back", "=", 0, "nodes that did not serve again after all faults were over")
DIED = Figure("died", "=", 0, "nodes that ended though nobody had ended them")
REFUSED = Figure("refused_rights", "=", 0, "calls that Redis refused, as a node's user has no right to them")
TRACEBACKS = Figure("tracebacks", "=", 0, "records of nodes with a traceback: mistakes that they survived")
PROVOKED = Figure("kinds_in_vain", "=", 0, "kinds of faults in the schedule of which none met anybody")

SOUND = (LOST, WRONG, DUPLICATES, HUNG, UNFINISHED, UNREAD, OVERRUN, NOT_BACK, DIED, REFUSED, TRACEBACKS, PROVOKED)
"""The figures that hold in every scenario."""

NOBODY_WAITS = ("I1", "I2", "I3", "I4", "I7", "F5")
"""Invariants for which a run has evidence although all callers take 202, so that nobody is told an outcome."""
