"""`homing overview`: the cluster at a glance."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Final

import typer

from app.cli.calls import AsJson, ContextName, Output, Url, connected, following, form
from app.cli.output import Form, Stop, out, table, tell, written
from app.runtime.exits import Exit

_NOBODY: Final = "nobody"


def overview(
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show the overview again whenever it changes.")
    ] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="End after this number of overviews; needs --follow.")
    ] = None,
    url: Url = None,
    context: ContextName = None,
    output: Output = Form.HUMAN,
    as_json: AsJson = False,
) -> None:
    """Show which party is in trouble (Homing, broker, devices or callers), what fails and what is open."""
    shown = form(output, as_json=as_json)
    if count is not None and not follow:
        raise Stop("--count: needs --follow", Exit.USAGE)
    if not follow:
        with connected(url, context, shown) as homing:
            _show(homing.overview(), shown)
        return
    with following(url, context, shown) as homing:
        for one in islice(homing.watch_overview(), count):
            _show(one, shown)


def _show(found: Any, shown: Form) -> None:  # noqa: ANN401 - a JSON object
    if shown is not Form.HUMAN:
        out.line(written(found))
        return
    verdict = found.get("verdict") or {}
    tell(out, f"In trouble: {verdict.get('party') or _NOBODY}. {verdict.get('text')}")
    hour = (found.get("last_hour") or {}).get("total")
    if hour:
        tell(out, f"Last hour: {hour['begun']} sent, {_ended(hour['ended'])}, p99 {_seconds(hour['p99_ms'])}.")
    if found.get("trouble"):
        table(shown, found["trouble"], _trouble, ("party", "reason", "commands", "devices", "method", "newest"))
    if found.get("open_commands"):
        table(shown, found["open_commands"], _open, ("open", "device", "method", "since"))


def _ended(outcomes: Any) -> str:  # noqa: ANN401 - a JSON object
    told = [f"{count} {outcome.replace('_', ' ')}" for outcome, count in sorted(outcomes.items())]
    return ", ".join(told) or "none ended"


def _seconds(ms: int | None) -> str:
    return "unknown" if ms is None else f"{ms / 1000:.2f} s"


def _trouble(one: Any) -> tuple[str, ...]:  # noqa: ANN401 - a JSON object
    method = f"{one['profile']}:{one['method']}"
    counts = (str(one["count"]), str(one["devices"]))
    return (one["party"] or "unclear", one["code"] or "unknown", *counts, method, one["newest"]["id"])


def _open(one: Any) -> tuple[str, ...]:  # noqa: ANN401 - a JSON object
    return one["id"], one["device_id"], f"{one['profile']}:{one['method']}", one["created_at"]
