"""The counters of commands: how they were sent and ended, followed and explained."""

from __future__ import annotations

from typing import Final

from app.core.profiles.probes import ProbeEvidence, Unsettled
from app.runtime.families import CounterTable, counted
from app.store.server_starts import Reclaimed

COUNTERS: Final = CounterTable(
    named=(
        (
            counted("homing_sweep_timed_out", "Commands of other nodes that this node ended after their deadline"),
            {"sweep.timed_out": ""},
        ),
        (
            counted("homing_commands_repeated", "Commands of dead nodes that this node sent, as they may be repeated"),
            {"repeat.sent": ""},
        ),
        (counted("homing_held_sent", "Held commands that this node claimed and sent"), {"held.sent": ""}),
        (
            counted("homing_held_given_back", "Claims that this node undid, as nobody had the command", "reason"),
            {
                "held.given_back.no_subscriber": "no_subscriber",
                "held.given_back.not_handed_over": "not_handed_over",
                "held.given_back.late": "late",
            },
        ),
        (
            counted("homing_held_reasserted", "Claims that this node told a store which had forgotten them", "result"),
            {f"held.reasserted.{one}": str(one) for one in (Reclaimed.AGAIN, Reclaimed.RESTORED, Reclaimed.TAKEN)},
        ),
        (
            counted(
                "homing_held_refused",
                "Held commands that were cancelled as their caller lost the right, or their run had ended",
            ),
            {"held.refused": ""},
        ),
        (
            counted("homing_approvals", "Decisions of second persons about commands", "decision"),
            {"approval.approved": "approve", "approval.refused": "refuse"},
        ),
        (
            counted("homing_commands_joined", "Calls that joined a command by its idempotency key"),
            {"command.joined": ""},
        ),
        (
            counted("homing_publishes_failed", "Commands that the broker did not take, or perhaps took", "reason"),
            {"publish.refused": "unsent", "publish.unconfirmed": "unconfirmed"},
        ),
        (
            counted("homing_publishes_unmatched", "Commands to topics that nobody is subscribed to (0x10)"),
            {"publish_unmatched": ""},
        ),
        (counted("homing_stream_gaps", "Streams of all commands that were told of a gap"), {"happening.gaps": ""}),
        (
            counted("homing_happenings", "What this node read of all commands, while streams follow them"),
            {"happening.read": ""},
        ),
        (
            counted("homing_explanations_incomplete", "Explanations that a node did not answer for in time"),
            {"explain.unanswered": ""},
        ),
        (
            counted("homing_interlock", "Commands that interlocks judged", "result"),
            {
                "interlock.holds": "holds",
                "interlock.violated": "violated",
                "interlock.unknown": "unknown",
                "interlock.blind": "blind",
            },
        ),
        (
            counted(
                "homing_probe",
                "Unanswered commands that a probe looked for in the state of devices",
                "result",
            ),
            {f"probe.{one}": str(one) for one in (*ProbeEvidence, *Unsettled)},
        ),
        (
            counted("homing_probe_questions", "Questions of probes to devices", "result"),
            {f"probe.question.{one}": one for one in ("answered", "unanswered", "shared", "not_sent", "full")},
        ),
        (
            counted(
                "homing_probe_verified",
                "Commands that had timed out, and for which a probe looked on request",
                "result",
            ),
            {f"verified.{one}": str(one) for one in (*ProbeEvidence, *Unsettled)},
        ),
        (
            counted("homing_probe_contradicted", "Late answers that said something else than a probe had settled"),
            {"probe.contradicted": ""},
        ),
    ),
    prefixed={"explained.": counted("homing_explanations", "Commands that were explained", "verdict")},
    at_zero=("explained.no_idea",),
)
