"""`homing analyze`: the three steps, all at once or each by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from app.analysis.compact import Listing, Progress, compact, list_log
from app.analysis.lake import COMPACT, ROLLUP, Lake
from app.analysis.options import DAY, AnalyzeOptions
from app.analysis.period import report
from app.analysis.rollup import rollup, runs_of
from app.analysis.session import prepared, spark_session
from app.analysis.source import LATENCY
from app.analysis.texts import local_path
from app.core.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SMALL: Final = 32 * 2**20
_FEW: Final = "-XX:TieredStopAtLevel=1"
"""For a log of so few bytes: optimising code, which two fifths of the processor time go into, would not pay."""


def quiet(_fraction: float, _text: str) -> None:
    """Progress that nobody looks at."""


def analyze(options: AnalyzeOptions, progress: Progress = quiet) -> dict[str, Any]:
    """In a session of its own. ConfigurationError says in a sentence why it cannot."""
    if options.log and (local := local_path(options.log)) is not None and not local.is_dir():
        raise ConfigurationError(f"{options.log}: there is no such folder")
    progress(0.0, "starting Spark")
    java = _FEW if options.master is None and _is_small(local_path(options.log or options.out)) else ""
    name = f"homing {' '.join(options.steps)}"
    with spark_session(name, options.master, memory=options.memory, java=java) as spark:
        return run(spark, options, progress)


def _is_small(folder: Path | None) -> bool:
    sizes = 0
    for file in folder.rglob("*.parquet") if folder is not None else ():
        sizes += file.stat().st_size if file.exists() else 0
        if sizes > _SMALL:
            return False
    return folder is not None


def run(spark: SparkSession, options: AnalyzeOptions, progress: Progress = quiet) -> dict[str, Any]:
    """In a session that is there already: of spark-submit, of a notebook, of Spark Connect. Returns the summary.

    The step report alone has one; it is empty without that.
    """
    with prepared(spark):
        lake = Lake(spark, options.out)
        if "compact" in options.steps:
            progress(0.05, "looking at the files")
            _compact(lake, options, lambda part, text: progress(0.05 + 0.35 * part, text))
        if "rollup" in options.steps:
            _rollup(lake, options, lambda part, text: progress(0.4 + 0.3 * part, text))
        if "report" in options.steps:
            return report(lake, options, lambda part, text: progress(0.7 + 0.3 * part, text))
    return {}


def _compact(lake: Lake, options: AnalyzeOptions, progress: Progress) -> None:
    listing = list_log(lake.spark, LATENCY, options.log, _asked(options))
    dates = sorted(date for date in listing.by_date if options.wants(date))
    if not dates:
        raise ConfigurationError(_nothing(options, listing))
    there = {} if options.again else lake.days(COMPACT, LATENCY)
    new = [date for date in dates if date not in there or there[date].run != listing.run(date)]
    if new:
        compact(lake, LATENCY, options.log, listing, new, progress)


def _asked(options: AnalyzeOptions) -> list[str] | None:
    """The days that are listed; None is all that there are."""
    if options.first is None or options.end is None:
        return None
    return [(options.first + DAY * number).isoformat() for number in range((options.end - options.first) // DAY)]


def _nothing(options: AnalyzeOptions, listing: Listing) -> str:
    span = "".join(f" {word} {day}" for word, day in (("from", options.begin), ("to", options.end)) if day)
    strays = len(listing.strays)
    further = (
        f"; {strays} Parquet files lie elsewhere, such as {listing.strays[0].rsplit('/', 1)[-1]}" if strays else ""
    )
    return f"{options.log}: no file of a latency log (date=YYYY-MM-DD/hour=HH/*.parquet){span}{further}"


def _rollup(lake: Lake, options: AnalyzeOptions, progress: Progress) -> None:
    compacted = lake.days(COMPACT, LATENCY)
    dates = [date for date in compacted if options.wants(date)]
    if not dates:
        raise ConfigurationError(f"{options.out}: no compacted day to roll up; `homing compact` makes them")
    there = {} if options.again else lake.days(ROLLUP, LATENCY)
    runs = runs_of(compacted, options.device_group)
    new = [date for date in dates if date not in there or there[date].run != runs[date]]
    if new:
        rollup(lake, new, options.device_group, progress)
