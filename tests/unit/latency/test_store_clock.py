"""The clock of the store, as a node learns it."""

from __future__ import annotations

import random

import pytest

from app.latency.clock import WINDOW_SECONDS, StoreClock

OFFSET = 1_700_000_000_000_000


def store_us(at: float, drift: float = 0.0) -> int:
    return round(OFFSET + at * 1e6 * (1 + drift))


def test_nothing_is_known_before_the_first_sample() -> None:
    assert StoreClock().store_time(5.0) is None


def test_the_sample_with_the_shortest_round_trip_counts() -> None:
    clock = StoreClock()
    clock.learn(10.0, 10.4, store_us(10.39))  # 190 ms off
    clock.learn(11.0, 11.002, store_us(11.001))
    clock.learn(12.0, 12.1, store_us(12.01))
    assert clock.store_time(20.0) == store_us(20.0)


@pytest.mark.parametrize("seed", range(20))
def test_the_error_is_half_the_shortest_round_trip_at_most(seed: int) -> None:
    chance = random.Random(seed)
    clock, shortest, at = StoreClock(), 1.0, 100.0
    for _ in range(200):
        there, back = chance.expovariate(300), chance.expovariate(300)
        clock.learn(at, at + there + back, store_us(at + there))
        shortest = min(shortest, there + back)
        at += 0.05
    error = abs((clock.store_time(at) or 0) - store_us(at))
    assert error <= shortest / 2 * 1e6 + 1


def test_a_good_sample_is_forgotten_after_two_windows() -> None:
    clock, drift = StoreClock(), 0.001
    clock.learn(0.0, 0.0, store_us(0.0, drift))
    at = 0.0
    while at < 4 * WINDOW_SECONDS:
        at += 1.0
        clock.learn(at - 0.01, at, store_us(at - 0.005, drift))
        if at < WINDOW_SECONDS:
            assert clock.store_time(at) == OFFSET + at * 1e6  # slower samples do not count
    error = abs((clock.store_time(at) or 0) - store_us(at, drift))
    assert error <= 2 * WINDOW_SECONDS * drift * 1e6


def test_after_a_long_silence_the_next_sample_counts_however_slow() -> None:
    clock = StoreClock()
    clock.learn(0.0, 0.001, store_us(0.0005))
    assert clock.store_time(1000.0) == store_us(1000.0)
    clock.learn(1000.0, 1000.5, store_us(1000.25) + 70)
    assert clock.store_time(1000.0) == store_us(1000.0) + 70


def test_a_command_that_took_long_teaches_nothing() -> None:
    clock = StoreClock()
    clock.learn(100.0, 100.1, store_us(100.05))
    clock.learn(50.0, 50.0, store_us(50.0) + 1_000_000)
    assert clock.store_time(200.0) == store_us(200.0)
