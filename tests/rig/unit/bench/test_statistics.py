"""Percentiles and ratios."""

from __future__ import annotations

import random

import pytest

from homing_rig.statistics import Latency, median, percentile, ratio


@pytest.mark.parametrize(
    ("share", "value"), [(0.0, 1), (0.01, 1), (0.5, 50), (0.501, 51), (0.99, 99), (0.999, 100), (1.0, 100)]
)
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(share: float, value: int) -> None:
    assert percentile(range(1, 101), share) == value


def test_a_percentile_of_one_value_is_that_value_and_of_none_is_zero() -> None:
    assert [percentile([7], share) for share in (0.0, 0.5, 0.999)] == [7, 7, 7]
    assert percentile([], 0.5) == 0.0


def test_latency_sorts_and_turns_microseconds_into_milliseconds() -> None:
    values = [1000 * number for number in range(1, 2001)]
    random.Random(1).shuffle(values)
    assert Latency.of(values) == Latency(p50=1000.0, p99=1980.0, p999=1998.0)


def test_a_ratio_to_nothing_is_zero_not_an_accident() -> None:
    assert ratio(2, 4) == 0.5
    assert ratio(2, 0) == 0.0


def test_the_median_of_nothing_is_zero() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([]) == 0.0
