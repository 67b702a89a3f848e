from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("10s", 10), ("1.5m", 90), ("2h", 7200), ("0s", 0), ("0.25s", 0.25)]
)
def test_durations_are_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "10", "10 s", "-1s", "1d", "1e3s", "s", "10s\n", "١s", "9" * 10 + "s", "1.s"])
def test_anything_else_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="allowed: a number and a unit out of ms, s, m, h"):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=10**9))
def test_what_is_written_can_be_read(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    if milliseconds < 10**9:
        assert parse_duration(format_duration(duration)) == duration
