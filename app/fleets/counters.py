"""The counters of fleet runs and schedules."""

from __future__ import annotations

from typing import Final

from app.core.fleets.run import Why
from app.core.schedules.schedule import OccurrenceResult
from app.runtime.families import CounterTable, counted

STOPPING: Final = (Why.RULE, Why.QUORUM, Why.WAVE, Why.APPROVAL)
"""The reasons for which a run stops by itself, and somebody has to look."""
COUNTERS: Final = CounterTable(
    named=(
        (counted("homing_fleet_commands", "Commands of fleet runs that this node registered"), {"fleet.commands": ""}),
        (
            counted("homing_fleet_again", "Commands of fleet runs that could not be registered at once"),
            {"fleet.again": ""},
        ),
        (counted("homing_fleet_runs_taken", "Fleet runs that this node began to drive"), {"fleet.taken": ""}),
        (
            counted("homing_fleet_runs_stopped", "Fleet runs that stopped by themselves, by why", "why"),
            {f"fleet.stopped.{one}": one for one in STOPPING},
        ),
        (
            counted("homing_schedule_occurrences", "Occurrences of schedules by what this node made of them", "result"),
            {f"schedule.{one}": one for one in OccurrenceResult if one is not OccurrenceResult.BEGINNING},
        ),
        (counted("homing_fleet_failures", "Drivers of fleet runs that failed unexpectedly"), {"fleet.failed": ""}),
    ),
)
