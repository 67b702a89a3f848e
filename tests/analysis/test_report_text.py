"""The text of values and axes in the report."""

from __future__ import annotations

import pytest

from app.analysis.report.scales import log_scale
from app.analysis.report.text import THIN, duration, share


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (0, "0 s"),
        (7, "7 µs"),
        (999, "999 µs"),
        (999.6, "1.00 ms"),
        (1_234, "1.23 ms"),
        (99_960, "100 ms"),
        (999_600, "1.00 s"),
        (29_700_000, "29.7 s"),
        (180_000_000, "3.00 min"),
        (7_200_000_000, "2.00 h"),
        (-14_200_000, "−14.2 s"),
    ],
)
def test_durations(us: float | None, text: str) -> None:
    assert duration(us).replace(THIN, " ") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 %"),
        (1.0, "100 %"),
        (0.00001, "< 0.01 %"),
        (0.99999, "> 99.99 %"),
        (0.0123, "1.23 %"),
        (0.9985, "99.85 %"),
        (0.5, "50.0 %"),
        (-0.0746, "−7.46 %"),
    ],
)
def test_shares_are_none_or_all_only_when_they_are(value: float, text: str) -> None:
    assert share(value).replace(THIN, " ") == text


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (0.5, 3.0), (1e3, 1e9), (5.0, 5.1)])
def test_a_logarithmic_axis_has_ticks(low: float, high: float) -> None:
    assert 1 < len(log_scale([low, high]).ticks(duration)) <= 6
