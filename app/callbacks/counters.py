"""The counters of responses, of the wake-ups that bring them home, and of messages that were dropped."""

from __future__ import annotations

from typing import Final

from app.core.commands.routing import MatchResult
from app.runtime.families import CounterTable, counted

DROPPED: Final = counted("homing_dropped", "Messages that were dropped, by why", "reason")

COUNTERS: Final = CounterTable(
    named=(
        (
            counted("homing_responses", "Responses of devices that are on record, by what they were", "kind"),
            {
                "response.local": "local",
                "response.forwarded": "forwarded",
                "response.late": "late",
                "response.progress": "progress",
            },
        ),
        (
            counted("homing_responses_unrecorded", "Responses that the store did not take; they got no PUBACK"),
            {"response.not_recorded": ""},
        ),
        (
            counted("homing_responses_qos0", "Responses that came with QoS 0, for which nothing is promised"),
            {"response.qos0": ""},
        ),
        (
            counted("homing_wakeups", "Wake-ups that ended a command here: with the outcome, or read", "kind"),
            {"wakeup.delivered": "inline", "wakeup.fetched": "fetched"},
        ),
        (
            counted("homing_wakeups_lost", "Outcomes that were found by reading the store, as no wake-up had come"),
            {"sweep.delivered": ""},
        ),
        # The MQTT link counts these two without the prefix.
        (DROPPED, {"undecodable_topic": "undecodable_topic", "packet_too_large": "packet_too_large"}),
    ),
    prefixed={
        "drop.": DROPPED,
        "dropped_of.": counted(
            "homing_profile_dropped",
            "Messages on topics of a profile that were dropped, by why",
            *("profile", "reason"),
        ),
    },
    at_zero=(
        *(f"drop.{verdict}" for verdict in (MatchResult.DUPLICATE, MatchResult.UNKNOWN, MatchResult.MISMATCH)),
        *("drop.retained", "drop.foreign_id", "drop.bad_wake_up", "drop.forged_wake_up", "drop.unreadable_record"),
        *("drop.damaged_block", "drop.damaged_value", "drop.not_json", "drop.no_rule_holds"),
    ),
)
