"""Tallies of commands: quantiles, sums over nodes, and what another node is told."""

from __future__ import annotations

import random

import orjson
import pytest

from app.core.last_hour import BOUNDS, MINUTES, CommandTally, LastHour, MethodName, together


def tally(*seconds: float, outcome: str = "succeeded", timeout: float = 10.0) -> CommandTally:
    found = CommandTally()
    for one in seconds:
        found.end(outcome, one, timeout)
    return found


def test_quantiles_are_within_the_bucket_of_the_true_one() -> None:
    chance = random.Random(7)
    values = sorted(chance.lognormvariate(-1, 1.5) for _ in range(2000))
    found = tally(*values)
    for share in (0.5, 0.95, 0.99):
        true = values[int(share * len(values)) - 1]
        above = next(bound for bound in BOUNDS if bound >= true)
        below = max((bound for bound in BOUNDS if bound < true), default=0.0)
        quantile = found.quantile(share)
        assert quantile is not None
        assert below <= quantile <= above


def test_one_value_gives_its_bucket_and_none_gives_none() -> None:
    assert CommandTally().quantile(0.5) is None
    assert tally(0.3).quantile(0.99) == pytest.approx(0.35, rel=0.01)
    assert tally(4000.0).quantile(0.99) == pytest.approx(300.0, rel=0.02)
    unknown = CommandTally()
    unknown.end("timed_out", None, 3.0)
    assert (unknown.quantile(0.5), unknown.ended, unknown.timeout) == (None, {"timed_out": 1}, 3.0)


def test_another_node_is_told_all_of_it() -> None:
    told = LastHour({28_000: tally(0.1, 2.0)}, {MethodName("dji", "cover_open"): tally(0.2, outcome="failed")})
    again = LastHour.of(orjson.loads(orjson.dumps(told.told())))
    assert again.told() == told.told()


@pytest.mark.parametrize(
    "said", [{}, {"minutes": [[1]], "methods": []}, {"minutes": [["x", 1, {}, {}, 0]], "methods": []}]
)
def test_what_is_no_hour_is_refused(said: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        LastHour.of(said)


def test_the_hour_of_several_nodes_is_their_sum_without_what_is_older_or_to_come() -> None:
    now, own, other = 28_000, MethodName("dji", "a"), MethodName("dji", "b")
    first = LastHour({now: tally(0.1), now - MINUTES: tally(0.1), now + 1: tally(0.1)}, {own: tally(0.1)})
    second = LastHour({now: tally(0.2, timeout=30.0)}, {own: tally(0.2), other: tally(0.2, 0.2, 0.2)})
    found = together([first, second], now, most_methods=1)
    assert list(found.minutes) == [now]
    assert (found.minutes[now].ended, found.minutes[now].timeout) == ({"succeeded": 2}, 30.0)
    assert list(found.methods) == [other]
    assert first.minutes[now].ended == {"succeeded": 1}, "what a node knows is not changed"
