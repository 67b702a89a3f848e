"""`homing analyze`: the three steps, all at once or each by itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from app.analysis.compact import Listing, Progress, compact, list_log
from app.analysis.lake import COMPACT, ROLLUP, Lake
from app.analysis.options import DAY, AnalyzeOptions
from app.analysis.places import Place
from app.analysis.report.make import report
from app.analysis.rollup import rollup, rollup_events, runs_of
from app.analysis.session import prepared, spark_session
from app.analysis.source import EVENTS, LATENCY
from app.core.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Session = Callable[[], SparkSession]


_SMALL: Final = 32 * 2**20
_FEW: Final = "-XX:TieredStopAtLevel=1"
"""For a log of so few bytes: optimising code, which two fifths of the processor time go into, would not pay."""


def quiet(_fraction: float, _text: str) -> None:
    """Progress that nobody looks at."""


def analyze(options: AnalyzeOptions, progress: Progress = quiet) -> dict[str, Any]:
    """In a session of its own, which is started when there is something to count. ConfigurationError says why not."""
    with ExitStack() as stack:

        def start() -> SparkSession:
            progress(0.0, "starting Spark")
            java = _FEW if options.master is None and _is_small(Place(options.log or options.out)) else ""
            name = f"homing {' '.join(options.steps)}"
            return stack.enter_context(spark_session(name, options.master, memory=options.memory, java=java))

        _count(start, options, progress)
    return _report(options, progress)


def run(spark: SparkSession, options: AnalyzeOptions, progress: Progress = quiet) -> dict[str, Any]:
    """In a session that is there already: of spark-submit, of a notebook, of Spark Connect. Returns the summary.

    The step report alone has one; it is empty without that.
    """
    _count(lambda: spark, options, progress)
    return _report(options, progress)


def _is_small(folder: Place) -> bool:
    return folder.local is not None and sum(one.size for one in folder.find(ending=".parquet").values()) <= _SMALL


def _count(start: Callable[[], SparkSession], options: AnalyzeOptions, progress: Progress) -> None:
    lake = Lake(options.out)
    with ExitStack() as stack:

        @cache
        def session() -> SparkSession:
            spark = start()
            stack.enter_context(prepared(spark))
            return spark

        if "compact" in options.steps:
            _compact(session, lake, options, lambda part, text: progress(0.2 + 0.2 * part, text))
            if options.events:
                _compact_events(session, lake, options, lambda part, text: progress(0.4 + 0.1 * part, text))
        if "rollup" in options.steps:
            _rollup(session, lake, options, lambda part, text: progress(0.5 + 0.3 * part, text))
            _rollup_events(session, lake, options, lambda part, text: progress(0.8 + 0.1 * part, text))


def _report(options: AnalyzeOptions, progress: Progress) -> dict[str, Any]:
    if "report" not in options.steps:
        return {}
    begin = 0.9 if len(options.steps) > 1 else 0.0
    return report(Lake(options.out), options, lambda part, text: progress(begin + (1 - begin) * part, text))


def _compact(session: Session, lake: Lake, options: AnalyzeOptions, progress: Progress) -> None:
    listing = list_log(LATENCY, options.log, _asked(options))
    dates = sorted(date for date in listing.by_date if options.wants(date))
    if not dates:
        raise ConfigurationError(_nothing(options, listing))
    there = {} if options.again else lake.days(COMPACT, LATENCY)
    new = [date for date in dates if date not in there or there[date].run != listing.run(date)]
    if new:
        compact(session(), lake, LATENCY, options.log, listing, new, progress)


def _compact_events(session: Session, lake: Lake, options: AnalyzeOptions, progress: Progress) -> None:
    listing = list_log(EVENTS, options.events, _asked(options))
    there = {} if options.again else lake.days(COMPACT, EVENTS)
    dates = sorted(date for date in listing.by_date if options.wants(date))
    new = [date for date in dates if date not in there or there[date].run != listing.run(date)]
    if new:
        compact(session(), lake, EVENTS, options.events, listing, new, progress)


def _rollup_events(session: Session, lake: Lake, options: AnalyzeOptions, progress: Progress) -> None:
    """As far as there are events: a log of commands may be looked at without them."""
    compacted = lake.days(COMPACT, EVENTS)
    there = {} if options.again else lake.days(ROLLUP, EVENTS)
    new = [
        date
        for date in compacted
        if options.wants(date) and (date not in there or there[date].run != compacted[date].run)
    ]
    if new:
        rollup_events(session(), lake, new, progress)


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


def _rollup(session: Session, lake: Lake, options: AnalyzeOptions, progress: Progress) -> None:
    compacted = lake.days(COMPACT, LATENCY)
    dates = [date for date in compacted if options.wants(date)]
    if not dates:
        raise ConfigurationError(f"{options.out}: no compacted day to roll up; `homing compact` makes them")
    there = {} if options.again else lake.days(ROLLUP, LATENCY)
    runs = runs_of(compacted, options.device_group)
    new = [date for date in dates if date not in there or there[date].run != runs[date]]
    if new:
        rollup(session(), lake, new, options.device_group, progress)
