"""Token buckets keep to their rate, whatever the clock and the callers do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.access.limits import Buckets
from app.core.access.rules import Limit

SECOND = 1_000_000
TEN = Limit(10, SECOND, 20)


def taken(buckets: Buckets, attempts: int, now_us: int, *, limit: Limit = TEN, nodes: int = 1) -> int:
    return sum(not buckets.take([("me", limit)], nodes, now_us) for _ in range(attempts))


def test_a_burst_at_once_and_then_the_rate() -> None:
    buckets = Buckets()
    assert taken(buckets, 100, 0) == 20
    assert taken(buckets, 100, SECOND) == 10
    assert taken(buckets, 100, SECOND) == 0
    assert taken(buckets, 100, 100 * SECOND) == 20


def test_who_is_refused_learns_when_there_will_be_a_token() -> None:
    buckets = Buckets()
    taken(buckets, 20, 0)
    wait = buckets.take([("me", TEN)], 1, 0)
    assert wait == pytest.approx(0.1)
    assert buckets.take([("me", TEN)], 1, round(wait * SECOND)) == 0


def test_each_of_four_nodes_has_a_quarter() -> None:
    buckets = Buckets()
    assert taken(buckets, 100, 0, nodes=4) == 5
    assert taken(buckets, 100, 10 * SECOND, nodes=4) == 5  # no more than the share of the burst
    assert taken(Buckets(), 100, 0, limit=Limit(1, SECOND, 1), nodes=4) == 1


def test_a_token_is_taken_from_all_buckets_or_from_none() -> None:
    buckets, one = Buckets(), Limit(1, SECOND, 1)
    assert buckets.take([("a", TEN), ("b", one)], 1, 0) == 0
    assert buckets.take([("a", TEN), ("b", one)], 1, 0) > 0
    assert taken_of_a(buckets) == 19


def taken_of_a(buckets: Buckets) -> int:
    return sum(not buckets.take([("a", TEN)], 1, 0) for _ in range(100))


def test_a_clock_that_steps_back_gives_and_takes_nothing() -> None:
    buckets = Buckets()
    assert taken(buckets, 15, 10 * SECOND) == 15
    assert taken(buckets, 100, 0) == 5
    assert taken(buckets, 100, SECOND) == 10


def test_the_bucket_that_was_used_least_recently_is_forgotten() -> None:
    buckets = Buckets(most=2)
    for key in ("a", "b", "a", "c"):
        buckets.take([(key, TEN)], 1, 0)
    assert len(buckets) == 2
    assert taken_of_a(buckets) == 18


@given(st.lists(st.integers(0, 3 * SECOND), max_size=200), st.integers(1, 5))
def test_no_more_than_the_burst_and_what_the_rate_gives(pauses: list[int], nodes: int) -> None:
    buckets, now, count = Buckets(), 0, 0
    for pause in pauses:
        now += pause
        count += taken(buckets, 1, now, nodes=nodes)
    assert count <= max(1, TEN.burst / nodes) + TEN.count * now / SECOND / nodes + 1e-6
