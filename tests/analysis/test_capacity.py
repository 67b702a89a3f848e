"""The load of a period that began while commands were open."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.analysis.results import analysis, one
from tests.analysis.small_logs import BEGIN, outcome, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = 3600
DAY = 24 * HOUR


def test_what_was_registered_before_a_period_does_not_stretch_it(spark: SparkSession, tmp_path: Path) -> None:
    """A command of twenty hours, and one that was held for a day and cancelled, come to their end in the period."""
    short = [outcome(DAY + 100 * number + 1, 1000) for number in range(DAY // 100)]
    long = outcome(DAY + 8 * HOUR, 20 * HOUR * 1000)
    held = outcome(DAY + 6 * HOUR, DAY * 1000, outcome="cancelled", receiving_node=None, total_us=None)
    write(tmp_path / "log", [outcome(10, 1000), *short, long, held])
    analysis(spark, tmp_path / "log", tmp_path / "out", begin=date(2026, 1, 6), end=date(2026, 1, 7))
    row = one(tmp_path / "out", "capacity", "node = 'all'")
    span = DAY - 90  # up to the last ten seconds with a command
    assert row["arrivals_mean"] == pytest.approx(len(short) / span)
    assert row["in_flight_mean"] == pytest.approx((len(short) + 8 * HOUR) / span)
    assert row["in_flight_peak"] == pytest.approx(1.1)
    assert row["in_flight_peak_at"] == BEGIN + timedelta(days=1)
