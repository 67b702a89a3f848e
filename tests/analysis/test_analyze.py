"""`homing analyze`: its numbers against DuckDB on the same files, and what it flags."""

from __future__ import annotations

import json
import math
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.parquet as pq
import pytest

from app.analysis.buckets import RELATIVE_ERROR
from app.analysis.contracts import EVENT_ROLLUPS, ROLLUPS, TABLES
from app.analysis.generate import generate
from app.analysis.lake import Lake
from app.analysis.options import AnalyzeOptions
from app.analysis.plant import GenerateOptions
from app.analysis.report.make import report
from tests.analysis.odd_logs import odd_records
from tests.analysis.results import analysis, one, queried, rows
from tests.analysis.small_logs import BEGIN, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


EXAMPLE = Path(__file__).parent.parent.parent / "docs" / "examples" / "anomalies.toml"
SEEDS = range(2, 1 + int(os.environ.get("ANALYSIS_SEEDS", "2")))
"""Further seeds than that of `analysed`; ANALYSIS_SEEDS=10 tries ten in all."""
CALLBACKS = 80_000


class Analysed:
    def __init__(self, spark: SparkSession, folder: Path, seed: int | None, plant: Path | None = None) -> None:
        """A log of that seed: few cells with many records; without one, many cells with few records, and odd ones."""
        self.log, self.out = folder / "log", folder / "out"
        self.truth: dict[str, Any] = {"anomalies": []}
        if seed is None:
            write(self.log, odd_records())
        else:
            options = GenerateOptions(callbacks=CALLBACKS, out=self.log, seed=seed, plant=plant, days=3)
            self.truth = generate(options)
        self.summary = analysis(spark, self.log, self.out)

    def duck(self, select: str, rest: str = "") -> list[tuple[Any, ...]]:
        """Return what DuckDB says of the same files."""
        return queried(
            f"SELECT {select} FROM read_parquet('{self.log}/date=*/hour=*/*.parquet', hive_partitioning=false) {rest}"
        ).fetchall()

    @property
    def planted(self) -> set[tuple[str, str]]:
        return {(row["kind"], row["subject"]) for row in self.truth["anomalies"]}

    @property
    def flagged(self) -> set[tuple[str, str]]:
        return {(row["kind"], row["subject"]) for row in self.summary["anomalies"]}


@pytest.fixture(scope="module")
def few(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    return Analysed(spark, tmp_path_factory.mktemp("few"), 1, EXAMPLE)


@pytest.fixture(scope="module")
def many(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    return Analysed(spark, tmp_path_factory.mktemp("many"), None)


@pytest.fixture(params=["few", "many"])
def analysed(request: pytest.FixtureRequest) -> Analysed:
    found: Analysed = request.getfixturevalue(request.param)
    return found


def between(before: str, after: str) -> str:
    """Microseconds between instants: 0 where clocks differ a little, null where they differ much."""
    apart = f"(epoch_us({after}) - epoch_us({before}))"
    return f"CASE WHEN {apart} < -10000 THEN NULL WHEN {apart} < 0 THEN 0 ELSE {apart} END"


ANSWERED = "kind = 'outcome' AND outcome IN ('succeeded', 'failed')"
QUANTILES = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999}


def near(exact: int) -> Any:  # noqa: ANN401 - of pytest
    """Within the stated error; microseconds are rounded."""
    return pytest.approx(exact, abs=1 + RELATIVE_ERROR * exact)


def nearest_rank(values: list[int], quantile: float) -> int:
    return values[max(0, math.ceil(quantile * len(values) - 1e-9) - 1)]


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("latency", ()),
        ("latency_by_method", ("profile", "method")),
        ("latency_by_node", ("node",)),
        ("latency_by_hour", ("hour",)),
        ("latency_by_hour_method", ("hour", "profile", "method")),
    ],
)
def test_percentiles_agree_with_duckdb_within_the_stated_error(
    analysed: Analysed, table: str, columns: tuple[str, ...]
) -> None:
    names = {"hour": "make_timestamp(epoch_us(date_trunc('hour', recorded_at)))", "node": "home_node"}
    group = "".join(f"{names.get(column, column)}, " for column in columns)
    exact = {
        row[:-3]: row[-3:]
        for row in analysed.duck(
            f"{group} coalesce(list(total_us ORDER BY total_us) FILTER (total_us IS NOT NULL), []), "
            "avg(total_us), count(*)",
            f"WHERE {ANSWERED} GROUP BY ALL",
        )
    }
    checked = 0
    for row in rows(analysed.out, table, "answered > 0"):
        values, mean, count = exact.pop(tuple(_naive(row[column]) for column in columns))
        assert row["answered"] == count
        checked += 1
        if not values:
            assert row["p50_us"] is None
            continue
        assert row["max_us"] == values[-1]
        assert row["mean_us"] == pytest.approx(mean, abs=1, rel=1e-9)
        for name, quantile in QUANTILES.items():
            assert row[name] == near(nearest_rank(values, quantile))
        assert row["p99_low_us"] <= nearest_rank(values, 0.99) <= row["p99_high_us"]
    assert not exact
    assert checked > 0


def _naive(value: object) -> object:
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value


def test_outcomes_are_counted_exactly(analysed: Analysed) -> None:
    total = one(analysed.out, "latency")
    exact = dict(analysed.duck("outcome, count(*)", "WHERE kind = 'outcome' GROUP BY ALL"))
    assert {name: total[name] for name in exact} == exact
    assert total["commands"] == sum(exact.values())
    assert total["timed_out_share"] == pytest.approx(exact["timed_out"] / total["commands"])


def test_the_cost_of_forwarding_agrees_with_duckdb(analysed: Analysed) -> None:
    exact = analysed.duck(
        f"receiving_node, home_node, count(total_us), list({between('recorded_at', 'woken_at')})",
        f"WHERE {ANSWERED} GROUP BY ALL",
    )
    assert len(rows(analysed.out, "forwarding")) == len(exact)
    for receiving, home, count, all_hops in exact:
        hops = [hop for hop in all_hops if hop is not None]
        row = one(analysed.out, "forwarding", f"receiving_node = '{receiving}' AND home_node = '{home}'")
        assert row["commands"] == count
        assert row["forwarded"] == (receiving != home)
        if hops:
            assert row["hop_p50_us"] == near(nearest_rank(sorted(hops), 0.5))
            assert row["hop_max_us"] == max(hops)
    both = rows(analysed.out, "hops")
    assert sum(row["share"] for row in both) == pytest.approx(1)


def test_stages_agree_with_duckdb(analysed: Analysed) -> None:
    expressions = {
        "register": "register_us",
        "publish": "publish_us",
        "device": between("published_at", "received_at"),
        "record": f"coalesce(record_us, {between('received_at', 'recorded_at')})",
        "wake": between("recorded_at", "woken_at"),
        "deliver": "deliver_us",
    }
    for stage, sql in expressions.items():
        (values,) = analysed.duck(f"list({sql}) FILTER (WHERE {sql} IS NOT NULL)", f"WHERE {ANSWERED}")[0]
        row = one(analysed.out, "stages", f"stage = '{stage}'")
        assert row["commands"] == len(values)
        assert row["p99_us"] == near(nearest_rank(sorted(values), 0.99))
        assert row["mean_us"] == pytest.approx(sum(values) / len(values), abs=1)
    shares = [row["share"] for row in rows(analysed.out, "stages")]
    assert sum(shares) == pytest.approx(1)


def test_late_and_duplicate_responses_are_all_there(analysed: Analysed) -> None:
    exact = {kind: count for kind, count in analysed.duck("kind, count(*)", "GROUP BY ALL") if kind != "outcome"}
    found = {kind: sum(row["responses"] for row in rows(analysed.out, "late", f"kind = '{kind}'")) for kind in exact}
    assert found == exact
    assert len(exact) == 2


def test_devices_and_their_intervals_agree_with_duckdb(analysed: Analysed) -> None:
    exact = {
        row[0]: row[1:]
        for row in analysed.duck(
            "device_id, count(*), count_if(outcome = 'failed'), count_if(outcome = 'timed_out'), "
            f"list(total_us ORDER BY total_us) FILTER (WHERE {ANSWERED} AND total_us IS NOT NULL)",
            "WHERE kind = 'outcome' GROUP BY device_id",
        )
    }
    found = rows(analysed.out, "devices")
    assert {row["device_id"] for row in found} == set(exact)
    for row in found:
        commands, failed, timeouts, times = exact[row["device_id"]]
        assert (row["commands"], row["failed"], row["timed_out"]) == (commands, failed, timeouts)
        assert row["flaky_low"] <= row["flaky_share"] <= row["flaky_high"]
        if times:
            assert row["p50_us"] == near(nearest_rank(times, 0.5))
            assert row["max_us"] == times[-1]
        if row["slowness_low"] is not None:  # enough were answered
            assert row["slowness_low"] <= row["slowness"] <= row["slowness_high"]
    ranks = sorted(row["flaky_rank"] for row in found if row["flaky_rank"] is not None)
    assert ranks == list(range(1, len(ranks) + 1))
    assert ranks


def test_wilson_intervals_are_those_of_the_textbook(few: Analysed) -> None:
    row = one(few.out, "devices", "flaky_rank = 1")
    n, share, z = row["commands"], row["flaky_share"], 1.959964
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    assert (row["flaky_low"], row["flaky_high"]) == pytest.approx((centre - half, centre + half))


def test_capacity_agrees_with_a_plain_computation(analysed: Analysed) -> None:
    row = one(analysed.out, "capacity", "node = 'all'")
    spans = analysed.duck("epoch_us(registered_at), coalesce(total_us, 0)", "WHERE kind = 'outcome'")
    width = 10_000_000
    flights: dict[int, float] = {}
    whole: list[tuple[int, int]] = []
    arrived: dict[int, int] = {}
    for registered, total in spans:
        arrived[registered // width] = arrived.get(registered // width, 0) + 1
        first, last = registered // width, (registered + total) // width
        for window in (first, last) if first < last else (first,):
            within = min(registered + total, (window + 1) * width) - max(registered, window * width)
            flights[window] = flights.get(window, 0.0) + within / width
        if last - first > 1:
            whole.extend(((first + 1, 1), (last, -1)))
    open_, steps = 0, dict[int, int]()
    for window, step in whole:
        steps[window] = steps.get(window, 0) + step
    for window in range(min(flights), max(flights) + 1):
        open_ += steps.get(window, 0)
        flights[window] = flights.get(window, 0.0) + open_
    span = (max(flights) - min(flights) + 1) * width
    assert row["in_flight_mean"] == pytest.approx(sum(total for _, total in spans) / span, rel=1e-6)
    assert row["in_flight_peak"] == pytest.approx(max(flights.values()))
    assert row["in_flight_mean"] <= row["in_flight_peak"]
    assert row["arrivals_peak"] == max(arrived.values()) / 10
    ((nodes,),) = analysed.duck("count(DISTINCT home_node)", "WHERE kind = 'outcome'")
    assert row["max_pending"] == nodes * 20_000


def test_load_per_node_adds_up(analysed: Analysed) -> None:
    nodes = rows(analysed.out, "nodes")
    exact = dict(analysed.duck("home_node, count(*)", "WHERE kind = 'outcome' GROUP BY ALL"))
    assert {row["node"]: row["commands"] for row in nodes if row["commands"]} == exact
    assert sum(row["commands_share"] for row in nodes) == pytest.approx(1)
    assert sum(row["forwarded_in"] for row in nodes) == sum(row["forwarded_out"] for row in nodes) > 0


def test_change_tests_agree_with_a_plain_computation(few: Analysed) -> None:
    end = max(datetime.fromisoformat(few.summary["period"]["to"]), BEGIN)
    day, before = end - timedelta(days=1), end - timedelta(days=2)
    sides = {
        name: [
            value
            for (value,) in few.duck(
                "total_us",
                f"WHERE {ANSWERED} AND recorded_at >= TIMESTAMPTZ '{begin}' AND recorded_at < TIMESTAMPTZ '{until}'",
            )
        ]
        for name, begin, until in (("before", before, day), ("after", day, end))
    }
    row = one(few.out, "change", "scope = 'all' AND test = 'median'")
    assert (row["before_records"], row["after_records"]) == (len(sides["before"]), len(sides["after"]))
    ranked = sorted([(value, 0) for value in sides["before"]] + [(value, 1) for value in sides["after"]])
    below, wins = 0, 0
    for _, side in ranked:
        wins += below * side
        below += 1 - side
    effect = 2 * wins / (len(sides["before"]) * len(sides["after"])) - 1
    assert row["effect"] == pytest.approx(effect, abs=0.005)  # buckets tie what is equal to 1 %
    for tested in rows(few.out, "change"):
        assert tested["p"] <= tested["q"] <= 1
        assert tested["p"] == pytest.approx(math.erfc(abs(tested["z"]) / math.sqrt(2)), abs=2e-7)


def test_what_was_planted_is_flagged_and_nothing_else(few: Analysed) -> None:
    assert len(few.planted) == 4
    assert few.flagged == few.planted


def test_too_few_that_succeed_are_flagged_though_nothing_differs_from_its_peers(few: Analysed, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(few.out, out)
    total = one(few.out, "latency")
    missed = 1 - total["succeeded"] / (total["commands"] - total["cancelled"])
    options = AnalyzeOptions(out=str(out), steps=("report",), success=1 - missed / 1.5)
    summary = report(Lake(str(out)), options, lambda _fraction, _text: None)
    found = {row["subject"]: row for row in summary["anomalies"] if row["kind"] == "success"}
    assert found["All commands"]["value"] == pytest.approx(missed)
    assert found["All commands"]["sentence"].startswith(f"All commands: {missed:.1%} of ")
    for subject, row in found.items():
        assert row["value"] > (1 if subject == "All commands" else 2) * row["expected"]


def test_the_verdict_is_the_medians_of_the_stages(analysed: Analysed) -> None:
    stages = {row["stage"]: row["p50_us"] for row in rows(analysed.out, "stages")}
    parts = {row["part"]: row["p50_us"] for row in rows(analysed.out, "verdict")}
    assert parts["broker"] == min(stages["publish"], stages["device"])
    assert parts["broker"] + parts["device"] == stages["device"]
    assert parts["homing"] == sum(stages[name] for name in ("register", "record", "wake", "deliver"))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.long
def test_what_other_seeds_plant_is_flagged_and_nothing_else(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    other = Analysed(spark, tmp_path, seed, EXAMPLE)
    assert other.flagged == other.planted


def test_nothing_is_flagged_where_nothing_was_planted(spark: SparkSession, tmp_path: Path) -> None:
    assert Analysed(spark, tmp_path, 11).flagged == set()


def test_every_table_has_the_columns_it_is_described_with(analysed: Analysed) -> None:
    for table in TABLES:
        schema = pq.read_schema(next((analysed.out / "tables" / table.name).glob("*.parquet")))
        assert schema.names == [column.name for column in table.columns]
        keys = [tuple(str(row[name]) for name in table.key) for row in rows(analysed.out, table.name)]
        assert len(keys) == len(set(keys))


def test_odd_ids_and_rare_values_are_counted_and_nothing_is_left_out_but_jumps(many: Analysed) -> None:
    assert [(row["reason"], row["files"]) for row in many.summary["quarantined"]] == [("clock_jump", 0)]
    groups = {row["device_group"] for row in rows(many.out, "devices") if not row["device_id"].startswith("dock")}
    assert groups <= {"", "ÄÖ", "sensor"}  # an id without a number at its end is of no group
    assert one(many.out, "latency")["max_us"] > 1 << 38  # 76 h
    page = (many.out / "report.html").read_text(encoding="utf-8")
    assert "離陸" in page


def test_every_figure_is_in_the_table_it_names(analysed: Analysed) -> None:
    assert len(analysed.summary["figures"]) == 17
    for figure in analysed.summary["figures"]:
        assert one(analysed.out, figure["table"], figure["where"] or "true")[figure["column"]] == figure["value"]


def test_the_summary_is_json_that_says_where_everything_comes_from(few: Analysed) -> None:
    summary = json.loads((few.out / "summary.json").read_text(encoding="utf-8"))
    assert [table["name"] for table in summary["tables"]] == [table.name for table in TABLES]
    assert all(table["query"] for table in summary["tables"])
    assert summary["relative_error"] == RELATIVE_ERROR
    assert summary["log"]["records"] == few.duck("count(*)")[0][0]


def test_the_statements_of_the_summary_make_the_tables_again(few: Analysed) -> None:
    with duckdb.connect() as base:
        base.execute("SET TimeZone = 'UTC'; CREATE SCHEMA rollups")
        for rollup in (*ROLLUPS, *EVENT_ROLLUPS):
            folder = few.out / "rollups" / rollup.name
            base.register(
                f"{rollup.name}_rows",
                pq.read_table(folder) if any(folder.rglob("*.parquet")) else rollup.arrow.empty_table(),
            )
            base.execute(f"CREATE VIEW rollups.{rollup.name} AS FROM {rollup.name}_rows")
        for table in few.summary["tables"]:
            base.execute(table["query"])
        counts = {table.name: base.sql(f"SELECT count(*) FROM {table.name}").fetchall()[0][0] for table in TABLES}
        latency = base.sql("SELECT commands, p50_us, p999_us FROM latency").fetchall()
    assert counts == {table.name: len(rows(few.out, table.name)) for table in TABLES}
    assert latency == [tuple(one(few.out, "latency")[name] for name in ("commands", "p50_us", "p999_us"))]
