"""The streaming query: the rollup `latency_hourly`, by minute; each comes out once, when it is closed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import duckdb
import pyarrow as pa

from app.analysis.buckets import QUANTILES
from app.analysis.lake import Row
from app.analysis.places import no_pattern
from app.analysis.rollup import ANSWERED, LATENCY_CELLS
from app.analysis.session import SETTINGS as COMMON
from app.analysis.source import LATENCY, ddl
from app.latency.schema import COLUMNS, ColumnType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from app.analysis.stream.run import FollowOptions

READ: Final = {"profile", "method"}.union(
    column.name for column in COLUMNS if column.required or column.type is ColumnType.MICROSECONDS
)
"""Columns of the log that the query reads."""
FILES_AT_ONCE: Final = 1000
"""Bounds memory when there are months to catch up with."""
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
_SOUND: Final = f"NOT coalesce({' OR '.join(f'({check})' for check in LATENCY.further.values())}, false)"
"""Leaves out the records whose values would have `compact` put them into quarantine."""
_TIMELY: Final = """\
recorded_at <= least(_metadata.file_modification_time, current_timestamp()) + INTERVAL '{lateness}' SECONDS
  AND instr(_metadata.file_path, date_format(recorded_at, "'/date='yyyy-MM-dd'/hour='HH'/'")) > 0"""
"""One record of the future would close all minutes before it. It would also be written before it was recorded: before
the time of its file, or, where the same clock has gone wrong, before the time of this machine when its batch began."""
WRONG_TIME: Final = "wrong_time"
_COUNTS: Final = ("failed", "timed_out", "cancelled", "unsent")
_WINDOWS: Final = f"""\
WITH cell AS (
  SELECT *, if(bucket < 0, 0, round(exp((bucket + 0.5) * ln(1.02::DOUBLE)))) AS middle FROM (
    FROM minutes WHERE method IS NOT NULL
    UNION ALL SELECT * REPLACE (NULL AS profile, NULL AS method) FROM minutes
  )
), ranked AS (
  SELECT *, sum(commands) FILTER (bucket IS NOT NULL) OVER (series ORDER BY bucket) AS upto,
    sum(commands) FILTER (bucket IS NOT NULL) OVER series AS total
  FROM cell WINDOW series AS (PARTITION BY start, profile, method)
)
SELECT start, "end", profile, method, sum(commands)::BIGINT AS commands,
  sum(if({ANSWERED}, commands, 0))::BIGINT AS answered,
  {", ".join(f"sum(if(outcome = '{name}', commands, 0))::BIGINT AS {name}" for name in _COUNTS)},
  max(longest_us) AS max_us,
  {
    ", ".join(
        f"least(min(middle) FILTER (upto >= ceil({share} * total - 1e-6)), max_us)::BIGINT AS {name}_us"
        for name, share in QUANTILES.items()
    )
}
FROM ranked GROUP BY ALL"""
"""Percentiles are nearest-rank, from the middle of a bucket: as in the tables of a report."""


def start(
    spark: SparkSession, options: FollowOptions, checkpoint: Path, take: Callable[[DataFrame, int], None]
) -> StreamingQuery:
    """Start it. `take` gets the closed minutes of each batch; after a crash it gets the last batch again, the same."""
    from pyspark.sql.functions import expr  # noqa: PLC0415 - an extra

    source = spark.readStream.schema(ddl(LATENCY.columns)).options(
        maxFilesPerTrigger=FILES_AT_ONCE,
        pathGlobFilter="*.parquet",
        recursiveFileLookup=True,  # with partitions, a file in a folder of another form would end the query
    )
    seconds = options.lateness.total_seconds()
    whole = source.parquet(no_pattern(options.log)).where(_WHOLE).where(_SOUND)
    record = whole.selectExpr("*", f"{_TIMELY.format(lateness=seconds)} AS timely")
    record = record.observe(WRONG_TIME, expr("count_if(NOT timely)").alias(WRONG_TIME)).where("timely")
    record.withWatermark("recorded_at", f"{seconds} seconds").selectExpr(
        "* EXCEPT (timely)",
        "to_date(recorded_at) AS date",
        "window(recorded_at, '1 minute') AS minute",
    ).createOrReplaceTempView("record")
    writer = spark.sql(LATENCY_CELLS.format(by="minute")).writeStream.outputMode("append")
    writer = writer.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    if options.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{options.trigger.total_seconds()} seconds").start()


def closed_windows(minutes: pa.Table) -> list[Row]:
    """The closed minutes of a batch, each method alone and all together; what has no method is among all alone."""
    with duckdb.connect() as base:
        base.execute("SET TimeZone = 'UTC'")
        base.register("minutes", minutes)
        rows: list[Row] = base.sql(_WINDOWS).to_arrow_table().to_pylist()
    return rows
