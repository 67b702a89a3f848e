"""The analysis for `spark-submit` and `python -m app.analysis`: Spark's master and memory are those of the command."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from datetime import UTC, datetime, timedelta
from typing import Any

from app.analysis.analyze import analyze
from app.analysis.deadlines import DeadlineOptions
from app.analysis.options import DAY, LEVEL, MAX_PENDING, STEPS, TOP, AnalyzeOptions, parse_day
from app.analysis.rollups import GROUP_PATTERN
from app.core.durations import parse_duration
from app.core.errors import ConfigurationError
from app.system import SystemClock

_DAYS = {"--from": "begin", "--to": "end", "--compare-to": "compare_to", "--date": "date"}


def options(arguments: list[str]) -> AnalyzeOptions:
    """What the arguments ask for; they are those of `homing analyze`, `compact`, `rollup` and `report`."""
    parser = ArgumentParser(prog="app.analysis", description="Analyse a latency log. Spark's master is spark-submit's.")
    parser.add_argument("log", metavar="LOG_DIR", nargs="?", default="", help="a folder or a URL; for compact")
    parser.add_argument("--out", required=True, metavar="DIR", help="a folder or a URL")
    parser.add_argument("--steps", default=",".join(STEPS), help="some of compact,rollup,report")
    for option, name in _DAYS.items():
        parser.add_argument(option, dest=name, metavar="DAY", help="in UTC: 2026-11-21, yesterday or today-30")
    parser.add_argument("--again", action="store_true", help="also days that are done already")
    parser.add_argument("--device-group", default=GROUP_PATTERN, metavar="REGEX")
    parser.add_argument("--max-pending", type=int, default=MAX_PENDING)
    parser.add_argument("--top", type=int, default=TOP)
    parser.add_argument("--level", type=float, default=LEVEL)
    learned = DeadlineOptions()
    parser.add_argument("--timeout-quantile", dest="quantile", type=float, default=learned.quantile)
    parser.add_argument("--timeout-margin", dest="margin", type=float, default=learned.margin)
    parser.add_argument("--timeout-sample", dest="least_records", type=int)
    parser.add_argument("--timeout-min", dest="shortest", type=_duration, default=learned.shortest)
    parser.add_argument("--timeout-max", dest="longest", type=_duration, default=learned.longest)
    parser.add_argument("--held-out", dest="held_out", type=float, default=learned.held_out)
    given = vars(parser.parse_args(arguments))
    deadlines = DeadlineOptions(**{name: given.pop(name) for name in DeadlineOptions.__dataclass_fields__})
    named = given.pop("steps").split(",")
    steps = tuple(step for step in STEPS if step in named)
    today = datetime.fromtimestamp(SystemClock().wall(), UTC).date()
    days: dict[str, Any] = {
        name: parse_day(option, text, today) for option, name in _DAYS.items() if (text := given.pop(name))
    }
    if (only := days.pop("date", None)) is not None:
        days |= {"begin": only, "end": only + DAY}
    if "compact" in steps and not given["log"]:
        raise ConfigurationError("LOG_DIR is missing; the step compact reads it")
    return AnalyzeOptions(**given, **days, steps=steps, deadlines=deadlines)


def _duration(text: str) -> timedelta:
    return parse_duration(text)


def main(arguments: list[str]) -> int:
    """Run the analysis; return the exit code."""
    summary = analyze(options(arguments), _say)
    for row in summary.get("anomalies", ()):
        sys.stdout.write(f"flagged: {row['sentence']}\n")
    return 0


def _say(fraction: float, text: str) -> None:
    sys.stderr.write(f"{fraction:4.0%} {text}\n")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ConfigurationError as error:
        sys.exit(f"app.analysis: {error}")
