"""`homing schedule`: fleet runs and commands that begin at set times, over the HTTP API of a node."""

from __future__ import annotations

from app.cli.verbs import Verb, group

application = group(
    "Fleet runs and commands that begin at the instants of a cron expression.",
    {
        "list": Verb("schedules.all", "name cron zone enabled paused next"),
        "show": Verb("schedules.get"),
        "put": Verb("schedules.put"),
        "delete": Verb("schedules.delete"),
    },
)
