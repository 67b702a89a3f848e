"""`homing compact`, `homing rollup` and `homing report`: the steps of `homing analyze`, each by itself."""

from __future__ import annotations

from app.cli.analyze import (
    CompareTo,
    Date,
    From,
    Group,
    HeldOut,
    Level,
    Log,
    Longest,
    Margin,
    Master,
    MaxPending,
    Memory,
    Out,
    Quantile,
    Sample,
    Shortest,
    To,
    Top,
    bounds,
    run_steps,
)
from app.core.errors import ConfigurationError


def compact(
    log_dir: Log, *, out_dir: Out, date: Date = None, begin: From = None, end: To = None, master: Master = None,
    memory: Memory = "1536m",
) -> None:  # fmt: skip
    """The first step of `analyze`: days of a latency log as clean records in large files."""
    run_steps(("compact",), out_dir, master, memory, _days(date, begin, end), log=log_dir, again=True)


def rollup(
    *, out_dir: Out, date: Date = None, begin: From = None, end: To = None, device_group: Group = None,
    master: Master = None, memory: Memory = "1536m",
) -> None:  # fmt: skip
    """The second step of `analyze`: compacted days as counts that can be added up."""
    run_steps(("rollup",), out_dir, master, memory, _days(date, begin, end), again=True, device_group=device_group)


def report(  # noqa: PLR0913 - one per option
    *,
    out_dir: Out,
    begin: From = None,
    end: To = None,
    compare_to: CompareTo = None,
    max_pending: MaxPending = 20_000,
    top: Top = 20,
    level: Level = 0.001,
    device_group: Group = None,
    master: Master = None,
    memory: Memory = "1536m",
    timeout_quantile: Quantile = 0.999,
    timeout_margin: Margin = 0.25,
    timeout_sample: Sample = None,
    timeout_min: Shortest = "1s",
    timeout_max: Longest = "1h",
    held_out: HeldOut = 0.2,
) -> None:
    """The third step of `analyze`: tables, timeouts.toml and report.html of any period that was rolled up."""
    learned = {"quantile": timeout_quantile, "margin": timeout_margin, "least_records": timeout_sample}
    learned |= {"held_out": held_out, **bounds(timeout_min, timeout_max)}
    period = {"begin": begin, "end": end, "compare_to": compare_to}
    shown = {"max_pending": max_pending, "top": top, "level": level, "device_group": device_group}
    run_steps(("report",), out_dir, master, memory, period, learned, **shown)


def _days(date: str | None, begin: str | None, end: str | None) -> dict[str, str | None]:
    if date is not None and (begin or end):
        raise ConfigurationError("--date: not together with --from and --to")
    return {"date": date} if date is not None else {"begin": begin, "end": end}
