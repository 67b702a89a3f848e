"""Bands, burn rates and alerts, on windows made by hand."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from app.analysis.contracts import WINDOWS
from app.analysis.lake import Row
from app.analysis.stream.judge import Bands, Judge, _likely

BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


def window(minute: int, p99_ms: float = 800, *, timed_out: int = 0, commands: int = 100, **other: Any) -> Row:
    p99 = round(p99_ms * 1000)
    return {
        "start": BEGIN + timedelta(minutes=minute),
        "end": BEGIN + timedelta(minutes=minute + 1),
        "profile": "dji",
        "method": "takeoff",
        "commands": commands,
        "answered": commands - timed_out,
        "timed_out": timed_out,
        **dict.fromkeys(("failed", "cancelled", "unsent"), 0),
        **dict.fromkeys(("p50_us", "p90_us", "p99_us", "p999_us", "max_us"), p99),
        **other,
    }


def told(alerts: list[dict[str, Any]]) -> list[tuple[int, str, bool]]:
    minutes = [(datetime.fromisoformat(one["window_start"]) - BEGIN) // timedelta(minutes=1) for one in alerts]
    return [(minute, one["measure"], one["event"] == "raised") for minute, one in zip(minutes, alerts, strict=True)]


def usual(minutes: int, seed: int = 1) -> list[Row]:
    rng = random.Random(seed)
    return [window(n, 800 * rng.lognormvariate(0, 0.1), timed_out=int(rng.random() < 0.2)) for n in range(minutes)]


def test_nothing_is_told_of_an_ordinary_day() -> None:
    for seed in range(5):
        assert told(Judge(Bands()).judge(usual(1440, seed))) == []


def test_what_varies_much_has_a_wide_band() -> None:
    rng = random.Random(3)
    assert told(Judge(Bands()).judge(window(n, 800 * rng.lognormvariate(0, 0.4)) for n in range(1440))) == []


def test_a_slow_spell_is_told_of_once_and_again_when_it_is_over() -> None:
    windows = [*usual(30), *(window(n, 4000) for n in range(30, 36)), *(window(n) for n in range(36, 40))]
    judge = Judge(Bands())
    assert told(judge.judge(windows)) == [(30, "p99", True), (36, "p99", False)]
    assert 800_000 * 1.5 <= windows[29]["p99_limit_us"] < 3_000_000


def test_timeouts_out_of_the_ordinary_are_told_of() -> None:
    windows = [*usual(30), window(30, timed_out=20), window(31, timed_out=25), window(32)]
    assert told(Judge(Bands()).judge(windows)) == [(30, "timeout_share", True), (32, "timeout_share", False)]


def test_a_new_level_becomes_the_band_after_half_the_history() -> None:
    windows = [*usual(60), *(window(n, 4000) for n in range(60, 120))]
    assert told(Judge(Bands()).judge(windows)) == [(60, "p99", True), (91, "p99", False)]


def test_too_little_history_and_too_few_records_are_not_judged() -> None:
    assert told(Judge(Bands()).judge([*usual(14), window(14, 9000)])) == []
    assert told(Judge(Bands()).judge([*usual(30), window(30, 9000, commands=29)])) == []
    assert told(Judge(Bands()).judge([*usual(30), window(30, 9000, commands=30)])) == [(30, "p99", True)]


def test_minutes_with_few_commands_are_no_history_of_the_percentile() -> None:
    few = [window(n, 9000, commands=29) for n in range(20, 55)]
    assert told(Judge(Bands()).judge([*usual(20), *few, window(55, 4000)])) == [(55, "p99", True)]


def test_the_burn_rate_of_the_service_is_told_of_when_both_windows_burn() -> None:
    """99 %: 1 % may fail. 30 % of 100 a minute; over the hour it takes until a bit under half of it was so."""
    whole: dict[str, Any] = {"profile": None, "method": None}
    windows = [window(n, **whole) for n in range(60)]
    windows += [window(60 + n, timed_out=30, **whole) for n in range(60)]
    alerts = [one for one in Judge(Bands()).judge(windows) if one["measure"] == "burn_rate"]
    assert told(alerts) == [(88, "burn_rate", True)]  # 29 minutes of 30 timeouts: 870 of 6,000 are 14.5 times 1 %
    assert windows[60]["burn_5m"] == pytest.approx(30 / 500 / 0.01)
    assert windows[60]["burn_1h"] == pytest.approx(30 / 6000 / 0.01)
    assert windows[119]["burn_1h"] == pytest.approx(30)


def test_cancelled_commands_burn_nothing_and_unsent_ones_do() -> None:
    one = window(0, cancelled=50, unsent=10)
    Judge(Bands()).judge([one])
    assert one["burn_5m"] == pytest.approx(10 / 50 / 0.01)


def test_thresholds_that_are_given_hold_from_the_first_window() -> None:
    bands = Bands(timeout_share=0.1)
    assert told(Judge(bands).judge([window(0, timed_out=11), window(1, timed_out=10)])) == [
        (0, "timeout_share", True),
        (1, "timeout_share", False),
    ]


@pytest.mark.parametrize("cuts", [(10, 35), (31,), tuple(range(1, 60))])
def test_going_on_from_the_state_says_the_same(cuts: tuple[int, ...]) -> None:
    def windows() -> list[Row]:
        return [*usual(30), *(window(n, 4000, timed_out=9) for n in range(30, 40)), *(window(n) for n in range(40, 60))]

    whole = windows()
    expected = told(Judge(Bands()).judge(whole))
    past: list[Row] = []
    got, parts = [], windows()
    for begin, end in zip((0, *cuts), (*cuts, 60), strict=True):
        judge = Judge(Bands(), past)
        got += told(judge.judge(parts[begin:end]))
        past = pa.Table.from_pylist(
            [one for series in judge.past.values() for one in series], WINDOWS.arrow
        ).to_pylist()
    assert expected
    assert got == expected
    assert parts == whole


def test_the_state_is_bounded() -> None:
    judge = Judge(Bands())
    judge.judge(usual(1000))
    assert {name: len(windows) for name, windows in judge.past.items()} == {"dji/takeoff": 60}


def test_what_was_raised_stays_so_while_too_few_commands_tell() -> None:
    bands = Bands(timeout_share=0.1)
    quiet = [window(n, timed_out=0, commands=5) for n in range(1, 3)]
    windows = [window(0, timed_out=20), *quiet, window(3)]
    assert told(Judge(bands).judge(windows)) == [(0, "timeout_share", True), (3, "timeout_share", False)]
    assert [one["raised"] for one in windows] == ["timeout_share"] * 3 + [""]


def test_an_alert_says_all_and_has_the_same_id_each_time() -> None:
    bands = Bands(p99=timedelta(seconds=1.5))
    assert Judge(bands).judge([window(0, 4000)]) == [
        {
            "version": 1,
            "id": "p99:dji/takeoff:1970-01-01T00:00:00Z:raised",
            "event": "raised",
            "measure": "p99",
            "unit": "us",
            "profile": "dji",
            "method": "takeoff",
            "window_start": "1970-01-01T00:00:00Z",
            "window_end": "1970-01-01T00:01:00Z",
            "value": 4_000_000,
            "limit": 1_500_000,
            "records": 100,
            "sentence": "dji/takeoff: the 99th percentile, 4,000.0 ms, is over 1,500.0 ms in the minute from "
            "1970-01-01T00:00:00Z",
        }
    ]


@pytest.mark.parametrize(("trials", "share"), [(30, 0.003), (100, 0.01), (1000, 0.02), (5000, 0.0001)])
def test_the_likely_number_of_hits_is_that_of_the_binomial_distribution(trials: int, share: float) -> None:
    terms = [(1 - share) ** trials]
    for hits in range(1, trials + 1):
        terms.append(terms[-1] * (trials - hits + 1) / hits * share / (1 - share))
    hits = _likely(trials, share, 1e-6)
    assert sum(terms[hits + 1 :]) < 1e-6 <= sum(terms[hits:])
