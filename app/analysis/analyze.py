"""`homing analyze`: the tables and the summary from a latency log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from app.analysis.cells import (
    CELLS,
    HOURLY,
    METHOD_CELLS,
    NAMES,
    ODDITIES,
    OUTCOMES,
    Measure,
    Span,
    counted,
    hour_number,
    names_view,
    views,
)
from app.analysis.deadlines_file import FILE_NAME as TIMEOUTS_NAME
from app.analysis.deadlines_query import Learned, cut_of, deadline_queries, learn
from app.analysis.devices import (
    NAMED_DEVICES,
    check_groups,
    counted_devices,
    device_numbers,
    device_queries,
    device_views,
    listed,
)
from app.analysis.judgement import Comparison, anomalies, change
from app.analysis.log import Log, open_log, read_again
from app.analysis.options import HOUR, AnalyzeOptions
from app.analysis.output import Output
from app.analysis.queries import table_queries
from app.analysis.report import write_report
from app.analysis.session import spark_session
from app.analysis.summary import Facts, summarize
from app.analysis.tables import DEADLINES, DEADLINES_TEST, QUARANTINE, TABLES
from app.core.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Progress = Callable[[float, str], None]

_ATTEMPTS: Final = 3
"""A log that is being written and cleaned may lose files under our hands that often."""
_WRITERS: Final = 3
"""Small queries mostly wait for the planner."""
_SAMPLE: Final = 24
"""Files out of which names are read at first; nearly always they have all of them."""
_ONE_PARTITION: Final = 2_000_000
"""What has no more rows is put into one partition, after which no query on it shuffles."""
SMALL: Final = {"spark.sql.adaptive.enabled": "false", "spark.sql.autoBroadcastJoinThreshold": "-1"}
"""Settings for queries on what is in one partition."""
_DAY: Final = 24


@dataclass(frozen=True, slots=True)
class Analysis:
    """What came of it."""

    summary: dict[str, Any]


def analyze(options: AnalyzeOptions, progress: Progress = lambda _fraction, _text: None) -> Analysis:
    """Read the log, write all tables and summary.json. ConfigurationError says in a sentence why it cannot."""
    progress(0.0, "looking at the files")
    log = open_log(options.log, options.first, options.end)
    with spark_session("homing analyze", options.master) as spark:
        return analyze_with(spark, options, log, progress)


def analyze_with(spark: SparkSession, options: AnalyzeOptions, log: Log, progress: Progress) -> Analysis:
    """The same in a session that is there already."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - an extra
    from pyspark.errors import PySparkException  # noqa: PLC0415

    output = Output(options.out)
    for _ in range(_ATTEMPTS):
        try:
            with _released(spark):
                return _Run(spark, options, log, output, progress).run()
        except (PySparkException, Py4JError) as error:
            before = len(log.files)
            progress(0.0, "a file could not be read: reading every file by itself")
            log = read_again(log)
            if len(log.files) == before:  # it was not a file
                raise ConfigurationError(f"Spark failed: {_first_line(error)}") from error
    raise ConfigurationError(f"{options.log}: files keep vanishing while they are read; analyze it when it is at rest")


@contextmanager
def _released(spark: SparkSession) -> Iterator[None]:
    """What is held in memory meanwhile is let go at the end: the session may go on."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - an extra

    java = spark.sparkContext._jsc  # noqa: SLF001 - nothing public lists what is held
    before = set(java.getPersistentRDDs())
    try:
        yield
    finally:
        with suppress(Py4JError, OSError):  # the JVM may be what failed
            for number, held in dict(java.getPersistentRDDs()).items():
                if number not in before:
                    held.unpersist()


def _first_line(error: Exception) -> str:
    """What an error of the JVM says, if the JVM is still there to ask."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - an extra

    try:
        lines = [line for line in str(error).splitlines() if line.strip()]
    except (Py4JError, OSError):
        lines = []
    return lines[0] if lines else "its JVM ended, perhaps for want of memory"


def period(options: AnalyzeOptions, log: Log) -> tuple[Span, Comparison | None, str | None]:
    """The hours that are read, what is compared with what, and why nothing is."""
    if not log.files:
        reasons = ", ".join(sorted(log.quarantine.examples))
        raise ConfigurationError(f"{options.log}: no file can be used ({reasons})")
    hours = log.hours
    begin = options.begin or hours[0]
    end = hours[-1] + HOUR if options.end is None else min(options.end, hours[-1] + HOUR)
    if hours[-1] < begin:
        raise ConfigurationError(f"{options.log}: no usable file from {begin:%Y-%m-%dT%HZ} on")
    span = Span(min(hours[0], begin), begin, end)
    if options.begin is not None:
        if hours[0] < begin:
            return span, Comparison((span.first, begin), (begin, end)), None
        return span, None, f"the log has nothing from before {begin:%Y-%m-%dT%H:00Z}"
    length = (end - begin) // HOUR
    if length < 2:  # noqa: PLR2004 - one has no half
        return span, None, "the log covers one hour only"
    part = _DAY if length >= 2 * _DAY else length // 2
    middle = end - part * HOUR
    return span, Comparison((middle - part * HOUR, middle), (middle, end)), None


@contextmanager
def settings(spark: SparkSession, wanted: dict[str, str]) -> Iterator[None]:
    """Settings of Spark that hold inside."""
    before = {key: spark.conf.get(key) or "" for key in wanted}
    for key, value in wanted.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            spark.conf.set(key, value)


class _Run:
    """One attempt."""

    def __init__(
        self, spark: SparkSession, options: AnalyzeOptions, log: Log, output: Output, progress: Progress
    ) -> None:
        self._spark = spark
        self._options = options
        self._log = log
        self._output = output
        self._progress = progress
        self._views: dict[str, str] = {}
        self._span, self._compared, self._why_not = period(options, log)
        self._last = max(log.hours[-1], self._span.begin)
        self._cut = cut_of(self._span.begin, self._last, options.deadlines.held_out)
        self._salt = 0

    def run(self) -> Analysis:
        self._read_log()
        self._progress(0.05, f"reading {sum(file.records for file in self._log.files):,} records: devices")
        self._count_devices()
        self._progress(0.3, "times")
        self._count()
        self._count_odd()
        queries = self._queries()
        with settings(self._spark, SMALL):
            self._write(queries)
        learned = self._learn()
        return self._finish(queries | deadline_queries(self._span.begin, self._cut), learned)

    def _count_devices(self) -> None:
        """The pass over all records by device, with names for what it counted by hash."""
        self._salt = names_view(self._spark, "some_log")
        hashed = counted_devices(self._span, self._salt)
        rows = self._keep("hashed_device", self._spark.sql(hashed))
        if self._keep("counted_device", self._spark.sql(NAMED_DEVICES)) != rows:  # a name that is in few files only
            self._name_all()
            self._keep("counted_device", self._spark.sql(NAMED_DEVICES))
        self._define(device_views(self._options.device_group))
        chosen, numbers = listed(self._options.top), device_numbers(self._options.device_group)
        self._keep("listed_device", self._spark.sql(chosen))
        self._keep("device", self._spark.table("device"))
        self._keep("device_number", self._spark.sql(numbers), hint="broadcast")
        check_groups(self._spark, self._options.device_group)
        self._views |= {
            "names": NAMES,
            "hashed_device": hashed,
            "counted_device": NAMED_DEVICES,
            "listed_device": chosen,
            "device_number": numbers,
        }

    def _count(self) -> None:
        """The pass over all records by time, with names for what it counted by hash."""
        rows = self._keep("counted", counted(self._spark, self._span, self._salt, self._cut))
        if self._keep("cell", self._spark.sql(CELLS)) != rows:
            self._name_all()
            self._keep("cell", self._spark.sql(CELLS))
        self._views |= {
            "counted": "-- counts per group and bucket of the view log: app/analysis/cells.py",
            "cell": CELLS,
        }
        self._define(views(self._span))
        for name, text in (("method_cell", METHOD_CELLS), ("hourly", HOURLY)):
            self._keep(name, self._spark.sql(text))
            self._views[name] = text

    def _name_all(self) -> None:
        if names_view(self._spark, "log") != self._salt:
            raise ConfigurationError("names in the log have equal hashes: analyze fewer hours with --from and --to")

    def _read_log(self) -> None:
        self._log.some(_SAMPLE).frame(self._spark).createOrReplaceTempView("some_log")
        frame = self._log.frame(self._spark)
        check = self._log.record_check
        text = "SELECT * FROM the Parquet files of the log"
        if check is not None:
            frame = frame.selectExpr("*", f"{check} AS reason")
            frame.where("reason IS NOT NULL").createOrReplaceTempView("bad")
            bad = "SELECT reason, count(*) AS records, min(command_id) AS example FROM bad GROUP BY reason"
            for row in self._spark.sql(bad).collect():
                self._log.quarantine.add(row.reason, row.example or "", records=row.records)
            frame = frame.where("reason IS NULL").drop("reason")
            text += f" WHERE ({check}) IS NULL"
        frame.createOrReplaceTempView("log")
        self._views = {"log": text}

    def _keep(self, name: str, frame: DataFrame, hint: str = "") -> int:
        """Compute it now, and hold it: it is small. Returns its rows."""
        # Not persist: Spark looks cached plans up by their form, misses some, and would read the log once more.
        kept = frame.localCheckpoint()
        rows = int(kept._jdf.queryExecution().toRdd().count())  # noqa: SLF001 - DataFrame.count plans and compiles again
        if rows <= _ONE_PARTITION:
            kept = kept.coalesce(1)
        (kept.hint(hint) if hint else kept).createOrReplaceTempView(name)
        return rows

    def _define(self, texts: dict[str, str]) -> None:
        for name, text in texts.items():
            self._spark.sql(text).createOrReplaceTempView(name)
        self._views |= texts

    def _count_odd(self) -> None:
        """Records that were read, and left out of all tables or of some."""
        rows = self._spark.sql(
            f"SELECT {Measure.ODD:d} AS measure, bucket, sum(n) AS n FROM odd_cell WHERE bucket > 1 GROUP BY bucket "
            f"UNION ALL SELECT {Measure.OUTCOME:d}, bucket, sum(n) FROM hourly_cell "
            f"WHERE measure = {Measure.OUTCOME:d} AND bucket >= {len(OUTCOMES)} GROUP BY bucket"
        ).collect()
        for row in rows:
            reason = ODDITIES[row.bucket] if row.measure == Measure.ODD else "unknown_outcome"
            self._log.quarantine.add(reason, self._example(reason), records=row.n)

    def _example(self, reason: str) -> str:
        known = ", ".join(f"'{outcome}'" for outcome in OUTCOMES)
        conditions = {
            "unknown_outcome": f"kind = 'outcome' AND outcome NOT IN ({known})",
            "unknown_kind": "kind NOT IN ('outcome', 'late', 'duplicate')",
            "clock_jump": "kind = 'outcome' AND (received_at < published_at - INTERVAL 10 MILLISECONDS OR "
            "woken_at < recorded_at - INTERVAL 10 MILLISECONDS)",
        }
        row = self._spark.sql(f"SELECT min(command_id) FROM log WHERE {conditions[reason]}").first()
        return str(row[0]) if row is not None else ""

    def _queries(self) -> dict[str, str]:
        found = {
            **table_queries(self._options.max_pending, hour_number(self._span.first)),
            **device_queries(),
            "change": change(self._compared, self._options.level),
            "anomalies": anomalies(self._options.level),
        }
        return {table.name: found[table.name] for table in TABLES if table.name in found}

    def _write(self, queries: dict[str, str]) -> None:
        tables = {table.name: table for table in TABLES}
        done = 0

        def write(name: str) -> None:
            self._output.write(tables[name], self._spark.sql(queries[name]))

        with ThreadPoolExecutor(_WRITERS) as pool:
            for name, _ in zip(queries, pool.map(write, queries), strict=True):
                done += 1
                self._progress(0.75 + 0.2 * done / len(queries), f"table {name}")
        self._output.write(QUARANTINE, self._quarantined())

    def _learn(self) -> Learned:
        """Timeouts, from the period alone."""
        self._progress(0.95, "deadlines")
        rule, wanted = self._options.device_group, self._options.deadlines
        learned = learn(self._spark, self._span.begin, self._last, self._cut, rule, wanted)
        for table, rows in ((DEADLINES, learned.deadlines), (DEADLINES_TEST, learned.deadlines_test)):
            schema = ", ".join(f"{column.name} {column.type}" for column in table.columns)
            values = [tuple(row[column.name] for column in table.columns) for row in rows]
            self._output.write(table, self._spark.createDataFrame(values, schema))
        return learned

    def _quarantined(self) -> DataFrame:
        columns = [column.name for column in QUARANTINE.columns]
        schema = ", ".join(f"{column.name} {column.type}" for column in QUARANTINE.columns)
        rows = [tuple(row[name] for name in columns) for row in self._log.quarantine.rows()]
        return self._spark.createDataFrame(rows, schema)

    def _finish(self, queries: dict[str, str], learned: Learned) -> Analysis:
        facts = Facts(self._options, self._log, self._span, self._compared, self._why_not, queries, self._views)
        summary = summarize(facts, self._output.rows)
        self._output.commit((table.name for table in TABLES), summary, {TIMEOUTS_NAME: learned.file})
        self._progress(0.98, "the report")
        write_report(self._options.out)
        self._progress(1.0, "done")
        return Analysis(summary)
