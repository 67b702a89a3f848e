"""`python -m homing_rig.figures NAME`: one measurement, on nodes and services of its own."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final

import typer

from app.core.errors import HomingError
from app.runtime.telemetry import configure_logging
from homing_rig.figures.access import first, revocation
from homing_rig.figures.access_parts import parts
from homing_rig.figures.audit import audit
from homing_rig.figures.broker import broker
from homing_rig.figures.clients import failing, rolling
from homing_rig.figures.connects import connects
from homing_rig.figures.console import cost, verdicts
from homing_rig.figures.event_folder import event_folder
from homing_rig.figures.fleets import fleets
from homing_rig.figures.fleets_together import together
from homing_rig.figures.full_box import full_box
from homing_rig.figures.held import cost as held_cost
from homing_rig.figures.held import signs, stored
from homing_rig.figures.held_peers import peers as held_peers
from homing_rig.figures.herd import herd
from homing_rig.figures.kept_bytes import kept_bytes
from homing_rig.figures.kit import Findings, Format, as_json, as_markdown
from homing_rig.figures.limits import limits
from homing_rig.figures.logins import logins
from homing_rig.figures.made_up import made_up
from homing_rig.figures.many_queues import many as many_queues
from homing_rig.figures.one_process import one_process
from homing_rig.figures.outage import outage
from homing_rig.figures.primaries import channels, primaries
from homing_rig.figures.primary_away import primary_away
from homing_rig.figures.profiles import profiles
from homing_rig.figures.queue_commands import beside
from homing_rig.figures.queue_declarations import declaring
from homing_rig.figures.queue_delays import of_one_process
from homing_rig.figures.queue_peers import peers
from homing_rig.figures.queues import queues
from homing_rig.figures.small_box import small_box
from homing_rig.figures.stream_kills import single
from homing_rig.figures.stream_readers import filtered
from homing_rig.figures.streams import absent, many
from homing_rig.figures.tokens import tokens
from homing_rig.figures.webhooks import lanes, waiting

Measurement = Callable[..., Coroutine[Any, Any, None]]

MEASUREMENTS: Final[dict[str, Measurement]] = {
    "access-revocation": revocation,
    "access-outage": outage,
    "access-first": first,
    "access-parts": parts,
    "audit": audit,
    "broker": broker,
    "connects": connects,
    "event-folder": event_folder,
    "fleets": fleets,
    "fleets-together": together,
    "full-box": full_box,
    "held-cost": held_cost,
    "held-herd": herd,
    "held-peers": held_peers,
    "held-signs": signs,
    "held-stored": stored,
    "kept-bytes": kept_bytes,
    "limits": limits,
    "logins": logins,
    "tokens": tokens,
    "one-process": one_process,
    "profiles": profiles,
    "queues": queues,
    "queue-commands": beside,
    "queue-peers": peers,
    "queue-declaring": declaring,
    "queue-rocks": of_one_process,
    "queue-many": many_queues,
    "redis-channels": channels,
    "redis-primaries": primaries,
    "redis-primary-away": primary_away,
    "client-rolling": rolling,
    "client-failing": failing,
    "console-cost": cost,
    "console-verdicts": verdicts,
    "made-up": made_up,
    "small-box": small_box,
    "stream-absent": absent,
    "stream-many": many,
    "stream-readers": filtered,
    "stream-kills": single,
    "webhook-lanes": lanes,
    "webhook-waiting": waiting,
}
"""The measurements, by the name under which each is asked for."""


def verb(measure: Measurement) -> Callable[..., None]:
    """A function with the options of a measurement and `--format`, that runs it and ends with 1 if an aim is missed."""

    def run(*, chosen: Format, **options: Any) -> None:
        configure_logging("warning", "console")
        lines = sys.stdout if chosen is Format.TEXT else sys.stderr
        findings = Findings(inspect.getdoc(measure) or "", lambda line: print(line, file=lines, flush=True))
        try:
            asyncio.run(measure(findings, **options))
        except HomingError as error:
            sys.stderr.write(f"{error}\n")
            raise SystemExit(2) from None
        if chosen is not Format.TEXT:
            sys.stdout.write(as_json(findings) if chosen is Format.JSON else as_markdown(findings))
        raise SystemExit(0 if findings.reached else 1)

    of_measure = inspect.signature(measure, eval_str=True)
    option = Annotated[
        Format, typer.Option("--format", help="The form in which the figures are written to standard output.")
    ]
    own = inspect.Parameter("chosen", inspect.Parameter.KEYWORD_ONLY, default=Format.TEXT, annotation=option)
    parameters = [*(one for one in of_measure.parameters.values() if one.name != "findings"), own]
    run.__signature__ = of_measure.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


figures = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
for name, measurement in MEASUREMENTS.items():
    figures.command(name, help=inspect.getdoc(measurement))(verb(measurement))


if __name__ == "__main__":
    figures()
