"""From turns to the report: sums, medians, ratios, and how it looks."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from homing_rig.bench import BenchReport, render
from homing_rig.bench.generator import LoadResult
from homing_rig.bench.report import (
    CostReport,
    Memory,
    PendingReport,
    Side,
    Single,
    Turn,
    median_by_name,
    turn_ratios,
)


def turn(good: int, seconds: float = 1.0, cpu: dict[str, float] | None = None, **load: Any) -> Turn:
    latencies = load.pop("latencies", [1000] * good)
    return Turn(LoadResult(elapsed=seconds, completed=good, good=good, latencies=latencies, **load), cpu or {})


def costs(*seconds: float) -> list[Turn]:
    return [turn(100, cpu={"node-a": one}) for one in seconds]


def report(**changes: Any) -> BenchReport:
    whole = BenchReport(
        options={"in_flight": 128, "devices": 200, "profile": "dji", "nodes_url": None},
        cluster=Side.of([turn(400, cpu={"node-a": 0.08}, forwarded=200)]),
        no_op=Side.of([turn(1000, cpu={"no-op": 0.09})]),
        ratio=0.4,
        ratios=[0.4],
        single=Single.of([([250], [750])]),
        pending=[PendingReport.of("on all devices", (10, 10_000), [costs(0.01, 0.02), costs(0.011, 0.022)])],
        memory=Memory(9990, 1234.0, 567.0),
    )
    return replace(whole, **changes)


def text_of(whole: BenchReport) -> str:
    written = io.StringIO()
    Console(width=200, file=written).print(render(whole))
    return written.getvalue()


def test_a_side_takes_medians_of_turns_and_latency_of_all_commands() -> None:
    turns = [
        turn(100, cpu={"node-a": 0.02}, latencies=[1000] * 100),
        turn(300, cpu={"node-a": 0.03}, latencies=[2000] * 300, forwarded=200),
        turn(200, cpu={"node-a": 0.06}, latencies=[9000] * 200, lost=1, wrong=2, errors={"status_503": 3}),
    ]
    side = Side.of(turns)
    assert side.per_second == 200
    assert side.cpu == {"node-a": pytest.approx(200.0)}
    assert (side.latency.p50, side.latency.p99) == (2.0, 9.0)
    assert (side.commands, side.wrong, side.lost, side.errors) == (600, 2, 1, {"status_503": 3})
    assert side.forwarded == pytest.approx(1 / 3)


def test_a_rate_counts_good_answers_only() -> None:
    assert LoadResult(elapsed=2.0, completed=100, good=50).per_second == 25.0
    assert LoadResult().per_second == 0.0


def test_each_turn_is_compared_with_the_reference_of_its_own_round() -> None:
    cluster, no_op = [turn(400), turn(200)], [turn(1000), turn(400)]
    assert turn_ratios(cluster, no_op) == [0.4, 0.5]


def test_single_is_the_median_of_ratios_not_the_ratio_of_medians() -> None:
    single = Single.of([([100], [300]), ([1000], [2000]), ([200], [1000])])
    assert single.ratio == pytest.approx(3.0)
    assert (single.paho_p50, single.node_p50) == (0.2, 1.0)


def test_medians_by_name_leave_out_who_was_not_there() -> None:
    assert median_by_name([{"a": 1.0, "b": 5.0}, {"a": 3.0}]) == {"a": 2.0, "b": 5.0}


def test_growth_compares_most_with_fewest_turn_by_turn() -> None:
    turns = [costs(0.01, 0.04, 0.02), costs(0.09, 0.01, 0.01), costs(0.02, 0.04, 0.06)]
    pending = PendingReport.of("somewhere", (1, 2, 3), turns)
    assert pending.growth == {"node-a": pytest.approx(2.0)}
    assert list(pending.sides) == [1, 2, 3]
    assert pending.sides[3].cpu == {"node-a": pytest.approx(400.0)}


def test_the_report_is_clean_only_when_every_command_got_its_own_answer() -> None:
    assert report().clean
    assert not report(cluster=Side.of([turn(1, lost=1)])).clean
    assert not report(cluster=Side.of([turn(1, wrong=1)])).clean
    assert not report(no_op=Side.of([turn(1, errors={"status_500": 1})])).clean
    bad = PendingReport("x", {10: Side.of([turn(1, lost=1)])}, {})
    assert not report(pending=[bad]).clean


def test_the_json_has_everything() -> None:
    document = json.loads(report().as_json())
    assert document["ratio"] == 0.4
    assert document["cluster"]["cpu"] == {"node-a": 200.0}
    assert document["single"]["ratio"] == pytest.approx(3.0)
    assert document["pending"][0]["sides"]["10000"]["commands"] == 200
    assert document["machine"]["cpus"] >= 1


def test_people_see_the_ratio_the_shares_and_the_verdict() -> None:
    text = text_of(report())
    assert "commands / no-op = 0.400" in text
    assert "50.0%" in text
    assert "3.00" in text
    assert "node-a × 1.10" in text
    assert "1,234 bytes in the node and 567 in Redis" in text
    assert "Every command got its own answer; other programs kept 0.0 of" in text


def test_people_see_that_something_was_lost() -> None:
    text = text_of(report(cluster=Side.of([turn(10, lost=2, errors={"status_503": 1})])))
    assert "NOT every command got its own answer" in text
    assert "status_503 1" in text


def test_the_cost_of_the_latency_log_is_that_of_both_nodes_turn_by_turn_and_in_sum() -> None:
    without = [turn(100, cpu={"node-a": 0.01, "node-b": 0.01, "redis": 9.0}) for _ in range(3)]
    with_it = [turn(100, cpu={"node-a": seconds, "node-b": 0.01, "redis": 1.0}) for seconds in (0.05, 0.01, 0.012)]
    found = CostReport.of(without, with_it)
    assert found.cost == pytest.approx([1.0, 1.1, 3.0])
    assert found.median == pytest.approx(1.1)
    assert found.total == pytest.approx(0.102 / 0.06)
    loads = [[turn(10, cpu={"load": 0.01, "fleet": one})] for one in (0.01, 0.02)]
    assert CostReport.of(*loads).untouched == pytest.approx(1.5)
    text = text_of(report(latency_log=found))
    assert "× 1.100" in text
    assert "× 1.700" in text
    assert not report(latency_log=CostReport.of([turn(1, lost=1)], [turn(1)])).clean
    assert json.loads(report(latency_log=found, options={"latency_log": Path("/x")}).as_json())
