"""Tells what would become of a command, and how interlocks judge it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.cli.output import Form, Stop, out, table, tell, written
from app.runtime.exits import Exit

CONDITIONS: Final = ("interlock", "condition", "result", "value", "age", "needed")


def report_dry_run(found: Mapping[str, Any], form: Form) -> None:
    """Print a dry run. Stop with exit code 5 where the command would be refused."""
    if form is not Form.HUMAN:
        out.line(written(found))
    else:
        for line in _lines(found):
            tell(out, line)
        if found.get("interlocks"):
            print_interlocks(found["interlocks"])
    if found.get("would") == "refuse":
        raise Stop("", Exit.UNSENT)


def print_interlocks(judged: Sequence[Mapping[str, Any]]) -> None:
    """Print interlocks that were judged, for people: a row for each condition."""
    rows = [(one["interlock"], row) for one in judged for row in one["conditions"]]
    table(Form.HUMAN, rows, _condition, CONDITIONS)


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    what = f"{found.get('method')} to {found.get('device_id')}"
    yield f"would {found.get('would')}: {what}"
    for refusal in found.get("refusals") or ():
        yield f"refused: {refusal['detail']}"
    if found.get("waits_for"):
        yield f"waits for: {', '.join(found['waits_for'])}"
    if found.get("joins"):
        yield f"joins: {found['joins']}"
    if lane := found.get("lane"):
        place = "it has room" if lane["position"] is None else f"position {lane['position']}"
        yield f"lane {lane['name']} ({lane['order']}): {lane['in_flight']} in flight, {lane['waiting']} wait; {place}"


def _condition(one: tuple[str, Mapping[str, Any]]) -> tuple[str, ...]:
    interlock, row = one
    value = written(row["value"]) if "value" in row else str(row.get("because", ""))
    return interlock, row["path"], row["result"], value, str(row.get("age", "")), needed(row)


def needed(row: Mapping[str, Any]) -> str:
    """Return what a condition wants, in words."""
    return " and ".join(f"{name} {written(value)}" for name, value in row["wanted"].items())
