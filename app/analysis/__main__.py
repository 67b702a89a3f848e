"""The analysis for `spark-submit` and `python -m app.analysis`; `homing analyze` has more options."""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from app.analysis.analyze import analyze
from app.analysis.options import LEVEL, MAX_PENDING, TOP, AnalyzeOptions, parse_moment
from app.core.errors import ConfigurationError


def main(arguments: list[str]) -> int:
    """Run the analysis; return the exit code."""
    parser = ArgumentParser(prog="app.analysis", description="Analyse a latency log. Spark's master is spark-submit's.")
    parser.add_argument("log", metavar="LOG_DIR", help="a folder or a URL")
    parser.add_argument("--out", required=True, metavar="DIR", help="a folder or a URL")
    for option in ("--from", "--to", "--compare-to"):
        parser.add_argument(option, metavar="HOUR", help="in UTC, such as 2026-11-21T07")
    parser.add_argument("--max-pending", type=int, default=MAX_PENDING)
    parser.add_argument("--top", type=int, default=TOP)
    parser.add_argument("--level", type=float, default=LEVEL)
    given = vars(parser.parse_args(arguments))
    hours = {name: given.pop(name) for name in ("from", "to", "compare_to")}
    begin, end, compare_to = (
        None if text is None else parse_moment(f"--{name.replace('_', '-')}", text) for name, text in hours.items()
    )
    analyze(AnalyzeOptions(begin=begin, end=end, compare_to=compare_to, **given), _say)
    return 0


def _say(fraction: float, text: str) -> None:
    sys.stderr.write(f"{fraction:4.0%} {text}\n")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ConfigurationError as error:
        sys.exit(f"app.analysis: {error}")
