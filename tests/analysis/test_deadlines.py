"""Learned deadlines: against a plain computation over the same files, and against what was planted."""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

from app.analysis.buckets import bucket
from app.analysis.contracts import ROLLUPS
from app.analysis.deadlines import DeadlineOptions, End, cut_of
from app.analysis.options import GROUP_PATTERN, AnalyzeOptions
from app.analysis.report.make import database, statements
from app.core.commands.deadlines import LearnedTimeouts
from app.core.errors import ConfigurationError
from app.profiles.timeouts import load_timeouts
from tests.analysis.results import analysis, rows
from tests.analysis.small_logs import BEGIN, late, outcome, timed_out, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOURS = 10
OPTIONS = DeadlineOptions(quantile=0.99, margin=0.5, shortest=timedelta(milliseconds=1))
RULE = GROUP_PATTERN


def planted(rng: random.Random) -> Iterator[dict[str, Any]]:
    """Two groups of devices, the second slower; a small third one; answers that come late, or never."""
    for number in range(6000):
        at = 3600 * HOURS * number / 6000
        group, median = ("dock-fw1", 400) if number % 3 else ("dock-fw2", 1200)
        group = "dock-fw3" if number % 150 == 0 else group
        device = f"{group}-{number % 7:04d}"
        took = median * math.exp(rng.gauss(0, 0.4))
        if number % 100 == 1:
            command = timed_out(at + 10, device_id=device)
            yield command
            if number % 200 == 1:
                yield late(command, 10_500 + number / 10)
            continue
        if number % 100 == 2:
            yield outcome(at, took, device_id=device, outcome="cancelled")
            continue
        yield outcome(at, took, device_id=device, outcome="failed" if number % 50 == 3 else "succeeded")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log")
    write(folder, planted(random.Random(7)))
    return folder


@dataclass(frozen=True, slots=True)
class Learned:
    deadlines: list[dict[str, Any]]
    deadlines_test: list[dict[str, Any]]
    file: str


@pytest.fixture(scope="module")
def learned(spark: SparkSession, log: Path) -> Learned:
    return learned_of(spark, log, log.parent / "out", OPTIONS)


def learned_of(spark: SparkSession, log: Path, out: Path, options: DeadlineOptions) -> Learned:
    analysis(spark, log, out, deadlines=options)
    return Learned(rows(out, "deadlines"), rows(out, "deadlines_test"), (out / "timeouts.toml").read_text("utf-8"))


def plain(log: Path, sql: str) -> list[tuple[Any, ...]]:
    """The same with DuckDB: `took` and `allowed` in microseconds, `answered` null for those without a response."""
    found = duckdb.sql(
        f"""WITH log AS (SELECT * FROM read_parquet('{log}/*/*/*.parquet')),
        late AS (SELECT command_id, min(recorded_at) AS late_at FROM log WHERE kind = 'late' GROUP BY ALL),
        command AS (
          SELECT *, epoch_us(coalesce(late_at, IF(outcome = 'timed_out', NULL, recorded_at))) - epoch_us(registered_at)
            AS took, epoch_us(deadline_at) - epoch_us(registered_at) AS allowed,
            regexp_extract(device_id, '{RULE}', 1) AS device_group
          FROM log LEFT JOIN late USING (command_id)
          WHERE kind = 'outcome' AND outcome IN ('succeeded', 'failed', 'timed_out'))
        {sql}"""
    )
    assert found is not None
    return found.fetchall()


def row_of(learned: Learned, group: str | None) -> dict[str, Any]:
    (row,) = [row for row in learned.deadlines if row["device_group"] == group]
    return row


def test_what_was_settled_without_a_response_tells_no_true_time(spark: SparkSession, tmp_path: Path) -> None:
    """A probe settles shortly before the deadline: for each answer that got lost the next timeout would be longer."""
    quick = [outcome(number, 400) for number in range(2000)]
    probed = [outcome(number, 9_500, correlation="probe") for number in range(40)]
    one_way = [outcome(number, 1, receiving_node=None, forwarded=False) for number in range(100)]
    write(tmp_path / "log", [*quick, *probed, *one_way, late(probed[0], 12_000)])
    row = row_of(learned_of(spark, tmp_path / "log", tmp_path / "out", OPTIONS), None)
    assert (row["responses"], row["late"], row["never_answered"]) == (2001, 1, 39)
    assert 400_000 <= row["quantile_us"] <= 410_000
    assert row["logged_timeout_us"] == 10_000_000


def test_quantiles_and_counts_are_those_of_a_plain_computation(learned: Learned, log: Path) -> None:
    sql = "count(took), quantile_disc(took, 0.99), count_if(took > allowed), count_if(took IS NULL) FROM command"
    expected: dict[str | None, tuple[Any, ...]] = {None: plain(log, f"SELECT {sql}")[0]}
    expected |= {row[0]: row[1:] for row in plain(log, f"SELECT device_group, {sql} GROUP BY ALL")}
    # A group with too few responses to learn from is with the rest of its method.
    assert {row["device_group"] for row in learned.deadlines} == set(expected) - {"dock-fw3"}
    for group in (None, "dock-fw1", "dock-fw2"):
        responses, exact, came_late, never = expected[group]
        row = row_of(learned, group)
        assert (row["responses"], row["late"], row["never_answered"]) == (responses, came_late, never)
        assert exact <= row["quantile_us"] <= exact * 1.02


def test_a_late_response_counts_with_its_true_time(learned: Learned) -> None:
    """Else the 99th percentile would end at the deadline: 1 % of the commands are late or never answered."""
    assert row_of(learned, None)["late"] > 0
    assert max(ends_of(0)[0], row_of(learned, None)["logged_timeout_us"]) == 10_000_000


def test_groups_are_drawn_towards_their_method_by_the_stated_formula(learned: Learned) -> None:
    whole = row_of(learned, None)
    for group in ("dock-fw1", "dock-fw2"):
        row = row_of(learned, group)
        weight = row["responses"] / (row["responses"] + 10 / 0.01)
        shrunk = math.exp(weight * math.log(row["quantile_us"]) + (1 - weight) * math.log(whole["quantile_us"]))
        assert row["weight"] == pytest.approx(weight)
        assert row["shrunk_us"] == pytest.approx(shrunk, abs=1)
        low, high = sorted((row["quantile_us"], whole["quantile_us"]))
        assert low < row["shrunk_us"] < high
        assert shrunk * 1.5 <= row["timeout_us"] <= shrunk * 1.5 * 1.01
    assert (whole["weight"], whole["shrunk_us"]) == (1, whole["quantile_us"])


def test_too_small_a_sample_gets_no_timeout_of_its_own(learned: Learned, tmp_path: Path) -> None:
    file = load(learned, tmp_path)
    of_method = timedelta(microseconds=row_of(learned, None)["timeout_us"])
    assert file.timeout("dji", "takeoff", "dock-fw3-0001") == of_method
    assert file.timeout("dji", "takeoff", "dock-fw2-0001") == timedelta(
        microseconds=row_of(learned, "dock-fw2")["timeout_us"]
    )
    assert file.timeout("dji", "land", "dock-fw2-0001") is None


def load(learned: Learned, tmp_path: Path) -> LearnedTimeouts:
    """As a node does."""
    path = tmp_path / "timeouts.toml"
    path.write_text(learned.file, encoding="utf-8")
    return load_timeouts(path)


def bucket_of(value: int) -> int:
    """The bucket of a whole number."""
    return -1 if value < 1 else math.floor(math.log(value) / math.log(1.02))


def ends_of(number: int) -> tuple[int, int]:
    """The least number of a bucket, and the least above it."""
    if number < 0:
        return 0, 1
    low, high = (math.ceil(math.exp(at * math.log(1.02)) - 1e-6) for at in (number, number + 1))
    return low, high


CUT = BEGIN + timedelta(hours=1)
"""The instant at which the held-out hours begin."""


def cell(end: End, took_us: int | None, commands: int = 1, **other: Any) -> dict[str, Any]:
    """Commands that are alike, in the held-out hours."""
    given = {"profile": "dji", "method": "takeoff", "device_group": "", "hour": CUT, "late_hour": None, **other}
    number = None if took_us is None else bucket_of(took_us)
    counts = {"commands": commands, "sum_us": (took_us or 0) * commands, "timeout_us": 10_000_000 * commands}
    return given | {"end": int(end), "bucket": number} | counts


NO_PERIOD = {"begin": 0, "asked": 0, "since": 0, "middle": 0, "level": 0, "success": 0, "max_pending": 0}


def made_of(name: str, cells: list[dict[str, Any]], options: DeadlineOptions = OPTIONS) -> list[dict[str, Any]]:
    """The rows that tables.sql makes of them: deadlines, deadlines_learned or deadlines_test."""
    (schema,) = (table.arrow for table in ROLLUPS if table.name == "deadlines_hourly")
    with database("64m") as base:
        base.register("cells", pa.Table.from_pylist(cells, schema))
        base.execute("CREATE VIEW rollups.deadlines_hourly AS FROM cells")
        for made, sql in statements(**NO_PERIOD, cut=CUT.timestamp(), **options.as_json()):
            if made.startswith("deadline") or "CREATE MACRO" in sql:
                base.execute(sql)
        rows: list[dict[str, Any]] = base.sql(f"FROM {name}").to_arrow_table().to_pylist()
        return rows


def test_a_method_with_too_few_responses_says_so() -> None:
    (row,) = made_of("deadlines", [cell(End.ANSWERED, 1_000_000, 40)])
    assert (row["timeout_us"], row["why_not"]) == (None, "40 responses; at least 100 are needed")


def test_the_back_test_is_that_of_a_plain_computation(
    spark: SparkSession, learned: Learned, log: Path, tmp_path: Path
) -> None:
    """Learned from the first eight hours with what was known then, judged on the last two."""
    cut = f"TIMESTAMPTZ '{(BEGIN + timedelta(hours=8)).isoformat()}'"
    earlier = (
        f"SELECT count(took), quantile_disc(took, 0.99) FROM command WHERE recorded_at < {cut} "
        f"AND (late_at IS NULL OR late_at < {cut})"
    )
    for file in log.glob("*/*/*.parquet"):
        if file.parent.name < "hour=08":
            target = tmp_path / "log" / file.relative_to(log)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)
    blind = DeadlineOptions(quantile=0.99, margin=0.5, shortest=timedelta(milliseconds=1), held_out=0)
    then = learned_of(spark, tmp_path / "log", tmp_path / "out", blind)
    ((responses, exact),) = plain(log, earlier)
    assert row_of(then, None)["responses"] == responses
    assert exact <= row_of(then, None)["quantile_us"] <= exact * 1.02
    timeouts = {row["device_group"] or "": row["timeout_us"] for row in then.deadlines if row["timeout_us"]}
    cases = " ".join(f"WHEN '{group}' THEN {timeout}" for group, timeout in timeouts.items() if group)
    ((commands, known, wrong, wrong_logged, waited, logged),) = plain(
        log,
        f"""SELECT count(*), count(took), count_if(took > learned), count_if(took > allowed),
          sum(least(coalesce(took, learned), learned)) / 1e6, sum(least(coalesce(took, allowed), allowed)) / 1e6
        FROM (SELECT *, CASE device_group {cases} ELSE {timeouts[""]} END AS learned FROM command
          WHERE recorded_at >= {cut})
        """,
    )
    whole, method = sorted(learned.deadlines_test, key=lambda row: row["method"] or "")
    assert (whole["method"], method["method"]) == (None, "takeoff")
    for row in (whole, method):
        assert (row["commands"], row["responses"], row["wrong_logged"], row["without"]) == (
            commands,
            known,
            wrong_logged,
            0,
        )
        assert wrong <= row["wrong"] <= wrong + 3  # those in the bucket of the timeout count, too
        assert row["waited_s"] == pytest.approx(waited, rel=0.001)
        assert row["waited_logged_s"] == pytest.approx(logged)
        assert row["saved_s"] == pytest.approx(logged - waited, rel=0.01)
        assert row["wrong_share"] == pytest.approx(row["wrong"] / known)


def test_the_back_test_of_planted_commands() -> None:
    commands = [
        cell(End.ANSWERED, 1_000_000, 90),
        cell(End.ANSWERED, 5_000_000, 6),
        cell(End.LATE, 12_000_000, 2),
        cell(End.NEVER, None, 2),
        cell(End.CANCELLED, 500_000, 50),
    ]
    # The bucket of 2.64 s ends at 2.66 s; with half of that added, and three digits, it is 3.99 s.
    before = [cell(End.ANSWERED, 2_640_000, 1000, hour=BEGIN)]
    rows = made_of("deadlines_test", [*before, *commands])
    (whole,) = [row for row in rows if row["method"] is None]
    assert made_of("deadlines_learned WHERE earlier", before)[0]["timeout_us"] == 3_990_000
    assert (whole["commands"], whole["responses"], whole["wrong"], whole["wrong_logged"]) == (100, 98, 8, 2)
    assert whole["waited_logged_s"] == 90 + 30 + 20 + 20
    assert whole["waited_s"] == pytest.approx(90 + (6 + 2 + 2) * 3.99)
    assert (whole["saved_s"], whole["saved_share"]) == pytest.approx((30.1, 30.1 / 160))
    assert {row["without"] for row in made_of("deadlines_test", commands)} == {100}


def test_a_late_response_that_nobody_knew_of_is_no_response_yet() -> None:
    cells = [
        cell(End.LATE, 12_000_000, hour=BEGIN, late_hour=CUT),
        cell(End.CANCELLED, 1_000_000, hour=BEGIN, late_hour=CUT),
        cell(End.ANSWERED, 1_000_000, hour=BEGIN),
        cell(End.ANSWERED, 1_000_000),
    ]
    ((then,), (now,)) = (made_of(name, cells) for name in ("deadlines_learned WHERE earlier", "deadlines"))
    assert (then["responses"], then["late"], then["never_answered"]) == (1, 0, 1)
    assert (now["responses"], now["late"], now["never_answered"]) == (4, 1, 0)


def test_timeouts_keep_within_their_bounds() -> None:
    cells = [cell(End.ANSWERED, took, 1000, method=name) for took, name in ((1000, "fast"), (10**9, "slow"))]
    options = DeadlineOptions(shortest=timedelta(seconds=2), longest=timedelta(seconds=30))
    rows = made_of("deadlines", cells, options)
    assert {row["method"]: row["timeout_us"] for row in rows} == {"fast": 2_000_000, "slow": 30_000_000}


@pytest.mark.parametrize(
    ("hours", "share", "held_out"), [(10, 0.2, 2), (24, 0.2, 5), (2, 0.2, 1), (1, 0.2, 0), (10, 0, 0), (3, 0.9, 2)]
)
def test_the_latest_hours_are_held_out(hours: int, share: float, held_out: int) -> None:
    own: list[datetime] = [BEGIN + timedelta(hours=number) for number in range(hours)]
    end = BEGIN + timedelta(hours=hours)
    assert cut_of(own, share) == end - timedelta(hours=held_out)
    if hours > 2:
        long_ago = datetime(1970, 1, 1, tzinfo=UTC)
        assert cut_of([long_ago, *own[1:]], share) == end - timedelta(hours=held_out), "only hours with records count"


def test_buckets_are_the_same_in_sql_and_here(spark: SparkSession) -> None:
    """Over 76 h as well: 2^38 microseconds."""
    values = [0, 1, 2, 50, 63, 64, 127, 128, 129, 255, 256, 1000, 999_999, 1 << 30, (1 << 30) - 1, 1 << 39, 10**15]
    found = spark.sql(f"SELECT v, {bucket('v')} AS bucket FROM (SELECT explode(array{tuple(values)}) AS v)").collect()
    with database("64m") as base:
        for _, sql in statements(**NO_PERIOD, cut=0, **OPTIONS.as_json()):
            if "CREATE MACRO" in sql:
                base.execute(sql)
        for row in found:
            assert row.bucket == bucket_of(row.v)
            ((low, high, middle),) = base.sql(
                f"SELECT low({row.bucket}), high({row.bucket}), middle({row.bucket})"
            ).fetchall()
            assert (low, high) == ends_of(row.bucket)
            assert middle == (0 if row.bucket < 0 else round(math.exp((row.bucket + 0.5) * math.log(1.02))))
            assert low <= row.v < high <= max(low + 1, low * 1.02 + 1)
            assert abs(middle - row.v) <= max(1, 0.01 * row.v)


@pytest.mark.parametrize(
    ("options", "rule", "sentence"),
    [
        ({"quantile": 1.0}, None, "--timeout-quantile is 1; allowed: 0.5 to 0.99999"),
        ({"margin": -1}, None, "--timeout-margin is -1; allowed: 0 to 10"),
        ({"held_out": 0.95}, None, "--held-out is 0.95; allowed: 0 to 0.9"),
        ({"shortest": timedelta()}, None, "--timeout-min is 0ms; allowed: 1ms to 720h"),
        ({"shortest": timedelta(hours=2)}, None, "--timeout-max is 1h; allowed: 2h to 720h"),
        ({}, "(a)(b)", "--device-group: '(a)(b)' has 2 groups in parentheses"),
    ],
)
def test_wrong_options_get_a_sentence(options: dict[str, Any], rule: str | None, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        AnalyzeOptions(log="", out="", device_group=rule or RULE, deadlines=DeadlineOptions(**options))
    assert str(refused.value).startswith(sentence)
