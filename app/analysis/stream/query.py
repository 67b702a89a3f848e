"""The streaming query: outcomes to counts per minute, method and bucket; a minute comes out once, when it is closed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from app.analysis.buckets import bucket, middle_of
from app.analysis.rollup import ANSWERED
from app.analysis.session import SETTINGS as COMMON
from app.analysis.source import LATENCY, ddl
from app.analysis.stream.judge import MINUTE, Window
from app.analysis.stream.options import FollowOptions
from app.latency.schema import COLUMNS, Kind

READ: Final = frozenset(column.name for column in COLUMNS if column.required) | {"profile", "method", "total_us"}
"""Columns of the log that the query reads."""

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SETTINGS: Final = {
    **COMMON,
    # What is no Parquet, or another kind of it, is left out; app/analysis/stream/foreign.py counts it.
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    # The vectorized reader ends the query when a foreign file has a list where we have a text; this one does not.
    "spark.sql.parquet.enableVectorizedReader": "false",
}
_WHOLE: Final = " AND ".join(f"{column.name} IS NOT NULL" for column in COLUMNS if column.required)
"""Also makes Spark read these columns, and so leave out files that have none or others of these names."""
_COUNTS: Final = {
    "commands": "count(*)",
    "answered": f"count_if({ANSWERED})",
    "failed": "count_if(outcome = 'failed')",
    "timed_out": "count_if(outcome = 'timed_out')",
    "cancelled": "count_if(outcome = 'cancelled')",
    "unsent": "count_if(outcome = 'unsent')",
    "max_us": f"max(IF({ANSWERED} AND total_us >= 0, total_us, NULL))",
}


def start(
    spark: SparkSession, options: FollowOptions, checkpoint: str, take: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """Start it. `take` gets the closed minutes of each batch; after a crash it gets the last batch again, the same."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - an extra

    session = spark.newSession()
    for key, value in SETTINGS.items():
        session.conf.set(key, value)
    source = session.readStream.schema(ddl(LATENCY.columns)).options(
        maxFilesPerTrigger=options.max_files,
        pathGlobFilter="*.parquet",
        recursiveFileLookup=True,  # with partitions, a file in a folder of another form would end the query
    )
    of_answered = f"IF({ANSWERED} AND total_us >= 0, {bucket('total_us')}, NULL)"
    lateness = f"{round(options.lateness.total_seconds() * 1000)} milliseconds"
    minute = f.window("recorded_at", f"{MINUTE} seconds").alias("minute")
    minutes = (
        source.parquet(options.log)
        .where(f"kind = '{Kind.OUTCOME}' AND {_WHOLE}")
        .withWatermark("recorded_at", lateness)
        .groupBy(minute, "profile", "method", f.expr(of_answered).alias("bucket"))
        .agg(*(f.expr(sql).alias(name) for name, sql in _COUNTS.items()))
    )
    writer = minutes.writeStream.outputMode("append").foreachBatch(take).option("checkpointLocation", checkpoint)
    if options.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(options.trigger.total_seconds() * 1000)} milliseconds").start()


def closed_windows(minutes: DataFrame) -> list[Window]:
    """The closed minutes of a batch, each method alone and all together. Only counts per bucket leave Spark.

    A command without a method counts among all alone.
    """
    rows = minutes.selectExpr("unix_seconds(minute.start) AS start", "profile", "method", "bucket", *_COUNTS).collect()
    series: dict[tuple[int, str | None, str | None], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        series[row.start, None, None].append(row.asDict())
        if row.method is not None:
            series[row.start, row.profile, row.method].append(row.asDict())
    return [_window(*key, cells) for key, cells in series.items()]


def _window(start: int, profile: str | None, method: str | None, cells: list[dict[str, Any]]) -> Window:
    histogram: dict[int, int] = {}
    for cell in cells:
        if cell["bucket"] is not None:
            histogram[cell["bucket"]] = histogram.get(cell["bucket"], 0) + cell["commands"]
    longest = max((cell["max_us"] for cell in cells if cell["max_us"] is not None), default=0)
    counts = {name: sum(cell[name] for cell in cells) for name in _COUNTS if name != "max_us"}
    return Window(
        start=start,
        profile=profile,
        method=method,
        **counts,
        p50_us=_percentile(histogram, 500, longest),
        p90_us=_percentile(histogram, 900, longest),
        p99_us=_percentile(histogram, 990, longest),
        p999_us=_percentile(histogram, 999, longest),
        max_us=longest if histogram else None,
    )


def _percentile(histogram: dict[int, int], per_mille: int, longest: int) -> int | None:
    """The nearest rank, from the middle of its bucket; as in the other tables."""
    rank = -(-sum(histogram.values()) * per_mille // 1000)
    for number, count in sorted(histogram.items()):
        rank -= count
        if rank <= 0:
            return min(middle_of(number), longest)
    return None
