"""`homing analyze`: the three steps, all at once or each by itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from app.analysis.compact import Progress, compact, list_log, plans
from app.analysis.lake import COMPACT, ROLLUP, Lake
from app.analysis.options import DAY, AnalyzeOptions
from app.analysis.report.make import report
from app.analysis.rollup import rollup, runs_of
from app.analysis.session import mebibytes, prepared, spark_session
from app.analysis.source import EVENTS, LATENCY, Source
from app.core.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Session = Callable[[int], SparkSession]
    """Makes a session for so many bytes to be counted; the number matters only to the first caller."""

_SMALL: Final = 128 * 2**20
"""The bytes up to which optimising code, which takes two fifths of the processor time, does not pay."""


def analyze(options: AnalyzeOptions, progress: Progress = lambda _fraction, _text: None) -> dict[str, Any]:
    """In a session of its own, which is started when there is something to count. ConfigurationError says why not."""
    with ExitStack() as stack:

        def start(size: int) -> SparkSession:
            progress(0.0, "starting Spark")
            java = "-XX:TieredStopAtLevel=1" if size <= _SMALL else ""
            name = f"homing {' '.join(options.steps)}"
            return stack.enter_context(spark_session(name, options.master, memory=options.memory, java=java))

        stack.enter_context(Lake(options.out).alone())
        _count(start, options, progress)
        return _report(options, progress)


def run(
    spark: SparkSession, options: AnalyzeOptions, progress: Progress = lambda _fraction, _text: None
) -> dict[str, Any]:
    """In a session that is there already: of spark-submit, of a notebook, of Spark Connect. Returns the summary.

    The step report alone has one; it is empty without that.
    """
    with Lake(options.out).alone():
        _count(lambda _size: spark, options, progress)
        return _report(options, progress)


def _count(start: Session, options: AnalyzeOptions, progress: Progress) -> None:
    lake = Lake(options.out)
    started: list[SparkSession] = []
    with ExitStack() as stack:

        def session(size: int) -> SparkSession:
            if not started:
                started.append(start(size))
                stack.enter_context(prepared(started[0]))
            return started[0]

        for source, root, begin, size in ((LATENCY, options.log, 0.2, 0.25), (EVENTS, options.events, 0.7, 0.1)):
            if "compact" in options.steps and (root or source is LATENCY):
                _compact(session, lake, source, root, options, _part(progress, begin, size))
            if "rollup" in options.steps:
                _rollup(session, lake, source, options, _part(progress, begin + size, size))


def _report(options: AnalyzeOptions, progress: Progress) -> dict[str, Any]:
    if "report" not in options.steps:
        return {}
    if options.steps == ("report",):
        return report(Lake(options.out), options, progress)
    # The JVM keeps its heap as long as this process lasts: beside it, less has to do.
    beside = replace(options, memory=f"{mebibytes(options.memory) // 3}m")
    return report(Lake(options.out), beside, _part(progress, 0.9, 0.1))


def _part(progress: Progress, begin: float, size: float) -> Progress:
    return lambda fraction, text: progress(begin + size * fraction, text)


def _compact(
    session: Session, lake: Lake, source: Source, root: str, options: AnalyzeOptions, progress: Progress
) -> None:
    asked = None
    if options.first is not None and options.end is not None:
        length = (options.end - options.first) // DAY
        asked = [(options.first + DAY * number).isoformat() for number in range(length)]
    listing = list_log(source, root, asked)
    dates = [date for date in sorted(listing.by_date) if options.wants(date)]
    if not dates and source is LATENCY:
        span = "".join(f" {word} {day}" for word, day in (("from", options.begin), ("to", options.end)) if day)
        if strays := listing.strays:
            span += f"; {len(strays)} Parquet files lie elsewhere, such as {strays[0].rsplit('/', 1)[-1]}"
        raise ConfigurationError(f"{root}: no file of a latency log (date=YYYY-MM-DD/hour=HH/*.parquet){span}")
    there = {} if options.again else lake.days(COMPACT, source)
    new = [date for date in dates if date not in there or not listing.is_of(there[date])]
    if days := plans(lake, listing, new, progress):
        size = sum(listing.by_date[date][path].size for date, one in days.items() for path in one.read)
        compact(session(size), lake, listing, days, progress, options.days_at_once)


def _rollup(session: Session, lake: Lake, source: Source, options: AnalyzeOptions, progress: Progress) -> None:
    """Roll up events as far as there are any: a log of commands may be looked at without them."""
    compacted = lake.days(COMPACT, source)
    runs = {date: run for date, run in runs_of(compacted, options.device_group).items() if options.wants(date)}
    if not runs and source is LATENCY:
        raise ConfigurationError(f"{options.out}: no compacted day to roll up; `homing compact` makes them")
    there = {} if options.again else lake.days(ROLLUP, source)
    if new := [date for date, run in runs.items() if date not in there or there[date].run != run]:
        size = 64 * sum(compacted[date].records for date in new)  # a record takes about 64 bytes on disk
        rollup(session(size), lake, source, new, options, progress)
