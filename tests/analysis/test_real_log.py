"""The analysis of a log that three real nodes wrote, one of which was killed: its numbers are what the callers saw."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from app.analysis.buckets import RELATIVE_ERROR
from app.analysis.source import CLOCK_TOLERANCE_US
from tests.analysis.real_run import METHODS, NODES, Seen, happen, named
from tests.analysis.results import analysis
from tests.cluster.harness import Json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Analysed:
    """The log, read without Spark, and what the analysis made of it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.run = asyncio.run(happen(folder / "log"))
        self.files = named(self.run.log)
        self.rows: list[Json] = [row for path in self.files for row in pq.ParquetFile(path).read().to_pylist()]
        self.outcomes = [row for row in self.rows if row["kind"] == "outcome"]
        self.answered = [row for row in self.outcomes if row["outcome"] in ("succeeded", "failed")]
        self._out = folder / "out"
        self.summary = analysis(spark, self.run.log, self._out)

    def table(self, name: str, **where: object) -> list[Json]:
        found: list[Json] = pq.read_table(self._out / "tables" / name).to_pylist()
        return [row for row in found if all(row[column] == value for column, value in where.items())]

    def seen(self) -> list[Seen]:
        """The outcomes that callers saw, and of the killed node's open interval what it closed after all: as a rule
        nothing.
        """
        closed = [row for row in self.outcomes if row["command_id"] in self.run.lost]
        return self.run.seen + [Seen(row["command_id"], "n2", row["method"], row["outcome"]) for row in closed]


@pytest.fixture(scope="module")
def analysed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    return Analysed(spark, tmp_path_factory.mktemp("real"))


def test_every_command_that_ended_is_in_the_log_once(analysed: Analysed) -> None:
    rows = {row["command_id"]: row for row in analysed.outcomes}
    seen = {one.command_id: one for one in analysed.seen()}
    assert len(rows) == len(analysed.outcomes)
    assert set(rows) == set(seen)
    for command_id, one in seen.items():
        row = rows[command_id]
        assert (row["home_node"], row["method"], row["outcome"]) == (one.node, one.method, one.outcome)
        if one.took is not None:
            assert 0 < row["total_us"] <= one.took * 1e6 + 1
    # What is compared below was there to be seen.
    assert {one.outcome for one in seen.values()} == {"succeeded", "failed", "timed_out", "cancelled"}
    assert {row["writing_node"] for row in analysed.outcomes if row["home_node"] == "n2"} > {"n2"}


def test_the_kill_changed_no_file_that_was_closed(analysed: Analysed) -> None:
    run = analysed.run
    assert any(path.name.startswith("n2-") for path in run.closed)
    assert {path: path.read_bytes() for path in run.closed} == run.closed
    assert {row["command_id"] for row in analysed.outcomes}.issuperset(
        row["command_id"] for path in run.closed for row in pq.ParquetFile(path).read(["command_id"]).to_pylist()
    )


def test_nothing_is_left_out_and_what_the_killed_node_left_behind_is_ignored(analysed: Analysed) -> None:
    assert analysed.run.left
    assert all(path.exists() for path in analysed.run.left)
    assert analysed.summary["quarantined"] == analysed.table("quarantine") == []
    assert analysed.summary["log"]["files"] == len(analysed.files)
    assert analysed.summary["log"]["records"] == len(analysed.rows)
    assert analysed.summary["log"]["missing_hours"] == []


def test_outcomes_are_counted_as_the_callers_saw_them(analysed: Analysed) -> None:
    def exact(seen: Iterable[Seen]) -> dict[str, int]:
        found = Counter(one.outcome for one in seen)
        counts = {name: found[name] for name in ("succeeded", "failed", "timed_out", "cancelled", "unsent")}
        return counts | {"commands": found.total(), "answered": found["succeeded"] + found["failed"]}

    def counts(table: str, **where: str) -> dict[str, int]:
        (row,) = analysed.table(table, **where)
        return {name: row[name] for name in exact(())}

    seen = analysed.seen()
    assert counts("latency") == exact(seen)
    for node in NODES:
        assert counts("latency_by_node", node=node) == exact(one for one in seen if one.node == node)
    for method in METHODS:
        assert counts("latency_by_method", method=method) == exact(one for one in seen if one.method == method)


def test_percentiles_are_those_of_the_rows(analysed: Analysed) -> None:
    grains: list[tuple[str, dict[str, str], str, str]] = [("latency", {}, "kind", "outcome")]
    grains += [("latency_by_node", {"node": node}, "home_node", node) for node in NODES]
    grains += [("latency_by_method", {"method": method}, "method", method) for method in METHODS]
    for table, where, column, value in grains:
        (row,) = analysed.table(table, **where)
        times = sorted(one["total_us"] for one in analysed.answered if one[column] == value)
        for name, quantile in (("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99)):
            assert row[name] == pytest.approx(nearest_rank(times, quantile), rel=RELATIVE_ERROR)
        assert row["max_us"] == times[-1]
        assert row["mean_us"] == pytest.approx(sum(times) / len(times), abs=1)


def nearest_rank(values: list[int], quantile: float) -> int:
    return values[math.ceil(quantile * len(values) - 1e-9) - 1]


def test_forwarding_is_what_receiving_and_home_nodes_say(analysed: Analysed) -> None:
    answered = analysed.answered
    assert all(row["forwarded"] == (row["receiving_node"] != row["home_node"]) for row in answered)
    pairs = Counter((row["receiving_node"], row["home_node"]) for row in answered)
    found = analysed.table("forwarding")
    assert {(row["receiving_node"], row["home_node"]): row["commands"] for row in found} == pairs
    assert len(pairs) == len(NODES) ** 2  # each node received for each
    (forwarded,) = analysed.table("hops", forwarded=True)
    count = sum(count for (receiving, home), count in pairs.items() if receiving != home)
    assert forwarded["commands"] == count
    assert forwarded["share"] == pytest.approx(count / len(answered))
    (figure,) = (one for one in analysed.summary["figures"] if one["name"] == "forwarded_share")
    assert figure["value"] == forwarded["share"]


def test_late_and_duplicate_responses_are_those_that_the_devices_sent(analysed: Analysed) -> None:
    run = analysed.run
    table = analysed.table("late")
    for kind, sent in (("late", run.late), ("duplicate", run.twice)):
        rows = [row for row in analysed.rows if row["kind"] == kind]
        # While a node is killed the broker may give the responses that it had to another one.
        assert Counter(row["command_id"] for row in rows if row["command_id"] not in run.through) == Counter(sent)
        exact = Counter((row["receiving_node"], row["home_node"]) for row in rows)
        found: Counter[tuple[str, str]] = Counter()
        for row in table:
            if row["kind"] == kind:
                found[row["receiving_node"], row["home_node"]] += row["responses"]
        assert found == exact


def test_all_three_nodes_have_their_load(analysed: Analysed) -> None:
    answered, rows = analysed.answered, {row["node"]: row for row in analysed.table("nodes")}
    assert set(rows) == set(NODES)
    for node, row in rows.items():
        assert row["commands"] == sum(one.node == node for one in analysed.seen())
        assert row["received"] == sum(one["receiving_node"] == node for one in answered)
        assert row["forwarded_in"] == sum(one["home_node"] == node and one["forwarded"] for one in answered)
        assert row["forwarded_out"] == sum(one["receiving_node"] == node and one["forwarded"] for one in answered)
        further = Counter(one["kind"] for one in analysed.rows if one["receiving_node"] == node)
        assert (row["late"], row["duplicates"]) == (further["late"], further["duplicate"])
    assert sum(row["commands_share"] for row in rows.values()) == pytest.approx(1)


def between(row: Json, before: str, after: str) -> int | None:
    """Microseconds between two instants; null where one is unknown, or two clocks seem to have gone backwards."""
    if row[before] is None or row[after] is None:
        return None
    took = (row[after] - row[before]) // timedelta(microseconds=1)
    return max(took, 0) if took >= -CLOCK_TOLERANCE_US else None


def stage_of(row: Json, stage: str) -> int | None:
    match stage:
        case "device":
            return between(row, "published_at", "received_at")
        case "wake":
            return between(row, "recorded_at", "woken_at")
        case "record" if row["record_us"] is None:
            return between(row, "received_at", "recorded_at")
        case _:
            took: int | None = row[f"{stage}_us"]
            return took


def test_stages_are_those_of_the_records_and_lie_within_the_whole(analysed: Analysed) -> None:
    stages = {row["stage"]: row for row in sorted(analysed.table("stages"), key=lambda row: row["position"])}
    assert list(stages) == ["register", "publish", "device", "record", "wake", "deliver"]
    assert sum(row["share"] for row in stages.values()) == pytest.approx(1)
    for stage, row in stages.items():
        values = [took for one in analysed.answered if (took := stage_of(one, stage)) is not None]
        assert row["commands"] == len(values)
        assert row["mean_us"] == pytest.approx(sum(values) / len(values), abs=1)
    for stage in ("register", "wake"):
        assert stages[stage]["commands"] == len(analysed.answered)
    # A node that has just started, and does not know the store's time yet, cannot say when a response came in.
    timed = sum(row["received_at"] is not None for row in analysed.answered)
    assert 0.9 * len(analysed.answered) < timed
    for stage in ("device", "record"):
        assert 0.9 * timed < stages[stage]["commands"] <= timed
    # What one clock measured: the call, from publishing to knowing the outcome, the hand-over; and no time twice.
    for row in analysed.answered:
        parts = row["register_us"] + row["respond_us"] + (row["deliver_us"] or 0)
        assert parts <= row["total_us"] + 3  # each was rounded
    # Slow devices take 20 ms at least.
    slow = sum(row["device_id"].startswith("slow") for row in analysed.answered)
    assert stages["device"]["mean_us"] * stages["device"]["commands"] > 20_000 * slow > 0
