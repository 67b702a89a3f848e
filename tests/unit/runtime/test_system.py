from __future__ import annotations

import re
import time
from itertools import pairwise

import pytest

from app.core.clock import Clock, IdFactory
from app.runtime.system import SystemClock, new_ulid

A_DAY = 86_400


@pytest.fixture
def frozen_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_123_456_789)


def test_the_system_fills_the_ports() -> None:
    clock: Clock = SystemClock()
    ids: IdFactory = new_ulid
    assert clock.wall() > A_DAY
    assert ids()


def test_the_monotonic_clock_measures_in_seconds() -> None:
    clock = SystemClock()
    outer_from, before, inner_from = time.perf_counter(), clock.monotonic(), time.perf_counter()
    time.sleep(0.02)
    inner_to, after, outer_to = time.perf_counter(), clock.monotonic(), time.perf_counter()
    resolution = 0.001
    assert inner_to - inner_from - resolution <= after - before <= outer_to - outer_from + resolution


def test_an_id_is_a_ulid_of_this_moment() -> None:
    early = int(SystemClock().wall() * 1000)
    ulid = new_ulid()
    late = int(SystemClock().wall() * 1000)
    assert re.fullmatch("[0-7][0-9A-HJKMNP-TV-Z]{25}", ulid)
    alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    milliseconds = sum(alphabet.index(digit) * 32**place for place, digit in enumerate(reversed(ulid[:10])))
    assert early <= milliseconds <= late


def test_ids_of_different_milliseconds_sort_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter(range(1_700_000_000_000_000_000, 1_700_000_000_100_000_000, 1_000_000))
    monkeypatch.setattr(time, "time_ns", lambda: next(moments))
    ids = [new_ulid() for _ in range(100)]
    assert ids == sorted(ids)


@pytest.mark.usefixtures("frozen_time")
def test_ids_of_one_millisecond_share_only_their_time() -> None:
    ids = [new_ulid() for _ in range(1000)]
    assert len({ulid[:10] for ulid in ids}) == 1
    assert len({ulid[10:] for ulid in ids}) == 1000


@pytest.mark.usefixtures("frozen_time")
def test_an_id_does_not_follow_from_the_one_before() -> None:
    ids = [new_ulid() for _ in range(100)]
    assert all(a[10:18] != b[10:18] for a, b in pairwise(ids))
