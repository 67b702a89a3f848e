"""Token buckets keep to their rate, whatever the clock and the callers do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.access.limits import MOST_TOLD, Buckets, Shares
from app.core.access.rules import Limit

SECOND = 1_000_000
TEN = Limit(10, SECOND, 20)


def taken(buckets: Buckets, attempts: int, now_us: int, *, limit: Limit = TEN, nodes: int = 1) -> int:
    return sum(not buckets.take([("me", limit, 1 / nodes)], now_us) for _ in range(attempts))


def test_a_burst_at_once_and_then_the_rate() -> None:
    buckets = Buckets()
    assert taken(buckets, 100, 0) == 20
    assert taken(buckets, 100, SECOND) == 10
    assert taken(buckets, 100, SECOND) == 0
    assert taken(buckets, 100, 100 * SECOND) == 20


def test_who_is_refused_learns_when_there_will_be_a_token() -> None:
    buckets = Buckets()
    taken(buckets, 20, 0)
    wait = buckets.take([("me", TEN, 1.0)], 0)
    assert wait == pytest.approx(0.1)
    assert buckets.take([("me", TEN, 1.0)], round(wait * SECOND)) == 0


def test_each_of_four_nodes_has_a_quarter() -> None:
    buckets = Buckets()
    assert taken(buckets, 100, 0, nodes=4) == 5
    assert taken(buckets, 100, 10 * SECOND, nodes=4) == 5  # no more than the share of the burst
    assert taken(Buckets(), 100, 0, limit=Limit(1, SECOND, 1), nodes=4) == 1


def test_a_token_is_taken_from_all_buckets_or_from_none() -> None:
    buckets, one = Buckets(), Limit(1, SECOND, 1)
    assert buckets.take([("a", TEN, 1.0), ("b", one, 1.0)], 0) == 0
    assert buckets.take([("a", TEN, 1.0), ("b", one, 1.0)], 0) > 0
    assert taken_of_a(buckets) == 19


def taken_of_a(buckets: Buckets) -> int:
    return sum(not buckets.take([("a", TEN, 1.0)], 0) for _ in range(100))


def test_a_clock_that_steps_back_gives_and_takes_nothing() -> None:
    buckets = Buckets()
    assert taken(buckets, 15, 10 * SECOND) == 15
    assert taken(buckets, 100, 0) == 5
    assert taken(buckets, 100, SECOND) == 10


def test_a_bucket_that_was_empty_when_a_clock_stepped_back_fills_from_then_on() -> None:
    buckets, day = Buckets(), 86_400 * SECOND
    assert taken(buckets, 20, day) == 20
    assert taken(buckets, 1, 0) == 0
    assert taken(buckets, 100, SECOND) == 10


def test_the_half_that_was_used_longest_ago_is_forgotten() -> None:
    buckets, two = Buckets(most=4), Limit(2, 3600 * SECOND, 2)
    for now_us, key in enumerate("abcdabe"):
        buckets.take([(key, two, 1.0)], now_us)
    assert len(buckets) == 3  # c and d went, and e came
    assert [round(buckets.left(key, two, 1.0, 9)) for key in "abcde"] == [0, 0, 2, 2, 1]


@given(st.lists(st.integers(0, 3 * SECOND), max_size=200), st.integers(1, 5))
def test_no_more_than_the_burst_and_what_the_rate_gives(pauses: list[int], nodes: int) -> None:
    buckets, now, count = Buckets(), 0, 0
    for pause in pauses:
        now += pause
        count += taken(buckets, 1, now, nodes=nodes)
    assert count <= max(1, TEN.burst / nodes) + TEN.count * now / SECOND / nodes + 1e-6


class Nodes:
    """Some nodes that share a limit and tell each other every second."""

    def __init__(self, count: int) -> None:
        self.shares = [Shares(lambda: count) for _ in range(count)]
        self.buckets = [Buckets() for _ in range(count)]
        self.apart = False
        self.credit = [0.0] * count

    def second(self, second: int, offered: list[int], limit: Limit) -> int:
        """Return how many are admitted in a second in which so many are asked of each."""
        admitted = 0
        for step in range(100):
            now_us = second * SECOND + step * SECOND // 100
            for node, rate in enumerate(offered):
                self.credit[node] += rate / 100
                while self.credit[node] >= 1:
                    self.credit[node] -= 1
                    share = self.shares[node].ask("k")
                    admitted += not self.buckets[node].take([("k", limit, share)], now_us)
        told = [one.tell() for one in self.shares]
        for node, one in enumerate(self.shares):
            one.hear(None if self.apart else told[:node] + told[node + 1 :])
        return admitted


HUNDRED = Limit(100, SECOND, 100)


@pytest.mark.parametrize("offered", [[210, 60, 30], [300, 0, 0], [100, 100, 100], [1, 1, 298]])
def test_shares_follow_demand(offered: list[int]) -> None:
    """300 a second at a limit of 100: from the third second on, all nodes together admit what the rule allows."""
    nodes = Nodes(3)
    admitted = [nodes.second(second, offered, HUNDRED) for second in range(12)]
    assert all(95 <= one <= 110 for one in admitted[3:]), admitted
    assert sum(one.of("k") for one in nodes.shares) == pytest.approx(1)


def test_demand_that_moves_is_followed() -> None:
    nodes = Nodes(3)
    for second in range(6):
        nodes.second(second, [300, 0, 0], HUNDRED)
    admitted = [nodes.second(second, [0, 0, 300], HUNDRED) for second in range(6, 18)]
    assert all(one <= 110 for one in admitted), admitted
    assert all(one >= 75 for one in admitted[1:]), admitted
    assert all(one >= 93 for one in admitted[6:]), admitted


def test_nodes_that_hear_nothing_have_equal_shares() -> None:
    nodes = Nodes(3)
    nodes.apart = True
    admitted = [nodes.second(second, [200, 200, 200], HUNDRED) for second in range(6)]
    assert all(one <= 110 for one in admitted[1:]), admitted
    alone = Shares(lambda: 3)
    assert alone.ask("k") == pytest.approx(1 / 3)


def test_what_is_told_is_bounded_and_forgotten() -> None:
    shares = Shares(lambda: 2)
    for key in range(MOST_TOLD * 2):
        for _ in range(1 + (key >= MOST_TOLD)):
            shares.ask(str(key))
    told = shares.tell()
    assert len(told) == MOST_TOLD
    assert set(told.values()) == {2.0}
    for _ in range(10):
        told = shares.tell()
    assert told == {}
