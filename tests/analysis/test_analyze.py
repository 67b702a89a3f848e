"""`homing analyze`: its numbers against DuckDB on the same files, and what it flags."""

from __future__ import annotations

import json
import math
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from app.analysis.analyze import SMALL, settings
from app.analysis.cells import Span, clash, counted
from app.analysis.generate import GenerateOptions, generate_with
from app.analysis.log import Log, LogFile, Quarantine
from app.analysis.options import HOUR
from app.analysis.tables import RELATIVE_ERROR, TABLES
from tests.analysis.results import analysis, one, queried, rows
from tests.analysis.small_logs import BEGIN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


EXAMPLE = Path(__file__).parent.parent.parent / "docs" / "examples" / "anomalies.toml"
SEEDS = range(2, 1 + int(os.environ.get("ANALYSIS_SEEDS", "2")))
"""Further seeds than that of `analysed`; ANALYSIS_SEEDS=10 tries ten in all."""
CALLBACKS = 80_000


class Analysed:
    def __init__(self, spark: SparkSession, folder: Path, seed: int, plant: Path | None) -> None:
        self.log, self.out = folder / "log", folder / "out"
        options = GenerateOptions(callbacks=CALLBACKS, out=self.log, seed=seed, plant=plant, days=3)
        self.truth = generate_with(spark, options).truth
        self.summary = analysis(spark, self.log, self.out)

    def duck(self, select: str, rest: str = "") -> list[tuple[Any, ...]]:
        """What DuckDB says of the same files."""
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
def analysed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    return Analysed(spark, tmp_path_factory.mktemp("analysed"), 1, EXAMPLE)


ANSWERED = "kind = 'outcome' AND outcome IN ('succeeded', 'failed')"
QUANTILES = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999}


def nearest_rank(values: list[int], quantile: float) -> int:
    return values[max(0, math.ceil(quantile * len(values) - 1e-9) - 1)]


def test_no_plan_has_a_cartesian_product_or_runs_python_row_by_row(spark: SparkSession, analysed: Analysed) -> None:
    span = Span(BEGIN, BEGIN, BEGIN + timedelta(days=3))
    frames = {"counted": counted(spark, span, 0, BEGIN + timedelta(days=2))}
    with settings(spark, SMALL):
        for table in analysed.summary["tables"]:
            if table["name"] == "quarantine":  # no query: what reading the files left out
                continue
            for number, text in enumerate(table["query"].split(";\n")):
                frames[f"{table['name']} {number}"] = spark.sql(text)
        plans = {name: frame._jdf.queryExecution().executedPlan().toString() for name, frame in frames.items()}
    assert len(plans) > 10
    for name, plan in plans.items():
        assert "Scan" in plan, name
        for forbidden in ("CartesianProduct", "NestedLoopJoin", "Python", "ArrowEval"):
            assert forbidden not in plan, (name, plan)


@pytest.mark.parametrize(
    ("grain", "columns"),
    [
        ("all", ()),
        ("method", ("profile", "method")),
        ("node", ("node",)),
        ("hour", ("hour",)),
        ("hour_method", ("hour", "profile", "method")),
        ("hour_method_node", ("hour", "profile", "method", "node")),
    ],
)
def test_percentiles_agree_with_duckdb_within_the_stated_error(
    analysed: Analysed, grain: str, columns: tuple[str, ...]
) -> None:
    names = {"hour": "date_trunc('hour', recorded_at AT TIME ZONE 'UTC')", "node": "home_node"}
    group = "".join(f"{names.get(column, column)}, " for column in columns)
    exact = {
        row[:-3]: row[-3:]
        for row in analysed.duck(
            f"{group} list(total_us ORDER BY total_us), avg(total_us), count(*)",
            f"WHERE {ANSWERED} GROUP BY ALL",
        )
    }
    checked = 0
    for row in rows(analysed.out, "latency", f"grain = '{grain}' AND answered > 0"):
        values, mean, count = exact.pop(tuple(_naive(row[column]) for column in columns))
        assert row["answered"] == count
        assert row["max_us"] == values[-1]
        assert row["mean_us"] == pytest.approx(mean, abs=1)
        for name, quantile in QUANTILES.items():
            assert row[name] == pytest.approx(nearest_rank(values, quantile), rel=RELATIVE_ERROR)
        assert row["p99_low_us"] <= nearest_rank(values, 0.99) <= row["p99_high_us"]
        checked += 1
    assert not exact
    assert checked > 0


def _naive(value: object) -> object:
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value


def test_outcomes_are_counted_exactly(analysed: Analysed) -> None:
    total = one(analysed.out, "latency", "grain = 'all'")
    exact = dict(analysed.duck("outcome, count(*)", "WHERE kind = 'outcome' GROUP BY ALL"))
    assert {name: total[name] for name in exact} == exact
    assert total["commands"] == CALLBACKS
    assert total["timed_out_share"] == pytest.approx(exact["timed_out"] / CALLBACKS)


def test_the_cost_of_forwarding_agrees_with_duckdb(analysed: Analysed) -> None:
    exact = analysed.duck(
        "receiving_node, home_node, count(*), list(epoch_us(woken_at) - epoch_us(recorded_at))",
        f"WHERE {ANSWERED} GROUP BY ALL",
    )
    assert len(exact) == 9
    for receiving, home, count, hops in exact:
        row = one(
            analysed.out, "forwarding", f"grain = 'pair' AND receiving_node = '{receiving}' AND home_node = '{home}'"
        )
        assert row["commands"] == count
        assert row["forwarded"] == (receiving != home)
        assert row["hop_p50_us"] == pytest.approx(nearest_rank(sorted(hops), 0.5), rel=RELATIVE_ERROR)
        assert row["hop_max_us"] == max(hops)
    both = rows(analysed.out, "forwarding", "grain = 'forwarded'")
    assert sum(row["share"] for row in both) == pytest.approx(1)


def test_stages_agree_with_duckdb(analysed: Analysed) -> None:
    expressions = {
        "register": "register_us",
        "publish": "publish_us",
        "device": "epoch_us(received_at) - epoch_us(published_at)",
        "record": "record_us",
        "wake": "epoch_us(woken_at) - epoch_us(recorded_at)",
        "deliver": "deliver_us",
    }
    for stage, sql in expressions.items():
        (values,) = analysed.duck(f"list({sql}) FILTER (WHERE {sql} IS NOT NULL)", f"WHERE {ANSWERED}")[0]
        row = one(analysed.out, "stages", f"grain = 'all' AND stage = '{stage}'")
        assert row["commands"] == len(values)
        assert row["p99_us"] == pytest.approx(nearest_rank(sorted(values), 0.99), rel=RELATIVE_ERROR)
        assert row["mean_us"] == pytest.approx(sum(values) / len(values), abs=1)
    shares = [row["share"] for row in rows(analysed.out, "stages", "grain = 'all'")]
    assert sum(shares) == pytest.approx(1)


def test_late_and_duplicate_responses_are_all_there(analysed: Analysed) -> None:
    exact = {kind: count for kind, count in analysed.duck("kind, count(*)", "GROUP BY ALL") if kind != "outcome"}
    found = {kind: sum(row["responses"] for row in rows(analysed.out, "late", f"kind = '{kind}'")) for kind in exact}
    assert found == exact
    assert len(exact) == 2


def test_devices_and_their_intervals_agree_with_duckdb(analysed: Analysed) -> None:
    for row in rows(analysed.out, "devices"):
        (facts,) = analysed.duck(
            "count(*), count_if(outcome = 'failed'), count_if(outcome = 'timed_out'), "
            f"list(total_us ORDER BY total_us) FILTER (WHERE {ANSWERED})",
            f"WHERE kind = 'outcome' AND device_id = '{row['device_id']}'",
        )
        commands, failed, timeouts, times = facts
        assert (row["commands"], row["failed"], row["timed_out"]) == (commands, failed, timeouts)
        assert row["flaky_low"] <= row["flaky_share"] <= row["flaky_high"]
        assert row["p50_us"] == pytest.approx(nearest_rank(times, 0.5), rel=RELATIVE_ERROR)
        assert row["p50_low_us"] <= nearest_rank(times, 0.5) <= row["p50_high_us"]
        if row["slowness_low"] is not None:  # too few were answered
            assert row["slowness_low"] <= row["slowness"] <= row["slowness_high"]
    assert [row["rank"] for row in rows(analysed.out, "devices", "list = 'flakiest'")] == list(range(1, 21))


def test_wilson_intervals_are_those_of_the_textbook(analysed: Analysed) -> None:
    row = rows(analysed.out, "devices", "list = 'flakiest' AND rank = 1")[0]
    n, share, z = row["commands"], row["flaky_share"], 1.959964
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    assert (row["flaky_low"], row["flaky_high"]) == pytest.approx((centre - half, centre + half))


@pytest.mark.parametrize("equal", ["by_home", "by_pair", "by_method", "by_node"])
def test_names_with_equal_hashes_are_noticed(equal: str) -> None:
    from pyspark.sql import Row  # noqa: PLC0415 - an extra

    names = [("dji", "land", "n1", "n2"), ("homing", "light", "n2", "n1")]
    rows_ = [
        Row(
            profile=profile, method=method, home=home, receiving=receiving, by_home=k, by_pair=k, by_method=k, by_node=k
        )
        for k, (profile, method, home, receiving) in enumerate(names)
    ]
    assert not clash(rows_)
    assert not clash([*rows_, *rows_])
    assert clash([Row(**{**row.asDict(), equal: 0}) for row in rows_])


def test_capacity_agrees_with_duckdb(analysed: Analysed) -> None:
    row = one(analysed.out, "capacity", "node = 'all'")
    spans = analysed.duck("epoch_us(registered_at), total_us", "WHERE kind = 'outcome'")
    begin = min(registered for registered, _ in spans) // 10_000_000
    end = max(registered for registered, _ in spans) // 10_000_000 + 1
    assert row["in_flight_mean"] == pytest.approx(
        sum(total for _, total in spans) / ((end - begin) * 10_000_000), rel=1e-6
    )
    changes: dict[int, list[int]] = {}
    for registered, total in spans:
        changes.setdefault(registered // 10_000_000, [0, 0])[0] += 1
        changes.setdefault((registered + total) // 10_000_000, [0, 0])[1] += 1
    level, peak = 0, 0
    for window in sorted(changes):
        arrived, ended = changes[window]
        level += arrived - ended
        peak = max(peak, level)
    assert row["in_flight_peak"] == peak
    assert row["arrivals_peak"] == max(arrived for arrived, _ in changes.values()) / 10
    assert row["max_pending"] == 3 * 20_000


def test_load_per_node_adds_up(analysed: Analysed) -> None:
    nodes = rows(analysed.out, "nodes")
    exact = dict(analysed.duck("home_node, count(*)", "WHERE kind = 'outcome' GROUP BY ALL"))
    assert {row["node"]: row["commands"] for row in nodes} == exact
    assert sum(row["commands_share"] for row in nodes) == pytest.approx(1)
    assert sum(row["forwarded_in"] for row in nodes) == sum(row["forwarded_out"] for row in nodes) > 0


def test_change_tests_agree_with_a_plain_computation(analysed: Analysed) -> None:
    end = max(datetime.fromisoformat(analysed.summary["period"]["to"]), BEGIN)
    day, before = end - timedelta(days=1), end - timedelta(days=2)
    sides = {
        name: [
            value
            for (value,) in analysed.duck(
                "total_us",
                f"WHERE {ANSWERED} AND recorded_at >= TIMESTAMPTZ '{begin}' AND recorded_at < TIMESTAMPTZ '{until}'",
            )
        ]
        for name, begin, until in (("before", before, day), ("after", day, end))
    }
    row = one(analysed.out, "change", "scope = 'all' AND test = 'median'")
    assert (row["before_records"], row["after_records"]) == (len(sides["before"]), len(sides["after"]))
    ranked = sorted([(value, 0) for value in sides["before"]] + [(value, 1) for value in sides["after"]])
    below, wins = 0, 0
    for _, side in ranked:
        wins += below * side
        below += 1 - side
    effect = 2 * wins / (len(sides["before"]) * len(sides["after"])) - 1
    assert row["effect"] == pytest.approx(effect, abs=0.005)  # buckets tie what is equal to 1 %
    for tested in rows(analysed.out, "change"):
        assert tested["p"] <= tested["q"] <= 1
        assert tested["p"] == pytest.approx(math.erfc(abs(tested["z"]) / math.sqrt(2)), abs=2e-7)


def test_what_was_planted_is_flagged_and_nothing_else(analysed: Analysed) -> None:
    assert len(analysed.planted) == 4
    assert analysed.flagged == analysed.planted


@pytest.mark.parametrize("seed", SEEDS)
def test_what_other_seeds_plant_is_flagged_and_nothing_else(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    other = Analysed(spark, tmp_path, seed, EXAMPLE)
    assert other.flagged == other.planted


def test_nothing_is_flagged_where_nothing_was_planted(spark: SparkSession, tmp_path: Path) -> None:
    assert Analysed(spark, tmp_path, 11, None).flagged == set()


def test_every_table_has_the_columns_it_is_described_with(analysed: Analysed) -> None:
    for table in TABLES:
        schema = pq.read_schema(next((analysed.out / table.name).glob("*.parquet")))
        assert schema.names == [column.name for column in table.columns]
        keys = [tuple(str(row[name]) for name in table.key) for row in rows(analysed.out, table.name)]
        assert len(keys) == len(set(keys))


def test_every_figure_is_in_the_table_it_names(analysed: Analysed) -> None:
    assert len(analysed.summary["figures"]) == 17
    for figure in analysed.summary["figures"]:
        assert one(analysed.out, figure["table"], figure["where"])[figure["column"]] == figure["value"]
    assert all(table["query"] for table in analysed.summary["tables"])


def test_the_summary_is_json_that_says_where_everything_comes_from(analysed: Analysed) -> None:
    summary = json.loads((analysed.out / "summary.json").read_text(encoding="utf-8"))
    assert [table["name"] for table in summary["tables"]] == [table.name for table in TABLES]
    assert summary["relative_error"] == RELATIVE_ERROR
    assert summary["log"]["records"] == analysed.duck("count(*)")[0][0]


def test_some_of_the_files_are_of_all_nodes() -> None:
    """Names are looked for in them: a node that they lack costs another pass over the log."""
    for nodes in (1, 2, 3, 4, 8, 50):
        files = tuple(LogFile(f"node-{node}", BEGIN + hour * HOUR) for hour in range(48) for node in range(nodes))
        some = Log("", files, Quarantine()).some(24).files
        assert 24 <= len(some) <= max(48, nodes)
        assert {file.path for file in some} == {file.path for file in files}
