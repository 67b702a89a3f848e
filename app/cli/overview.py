"""`homing overview`: the cluster at a glance."""

from __future__ import annotations

from typing import Any, Final

from app.cli.calls import AsJson, ContextName, Output, Url, connected, form
from app.cli.output import Form, out, table, tell, written

_NOBODY: Final = "nobody"


def overview(
    *, url: Url = None, context: ContextName = None, output: Output = Form.HUMAN, as_json: AsJson = False
) -> None:
    """Show which party is in trouble (Homing, broker, devices or callers), what fails and what is open."""
    shown = form(output, as_json=as_json)
    with connected(url, context, shown) as homing:
        found = homing.overview()
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
