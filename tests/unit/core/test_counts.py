"""Counts as people write them."""

from __future__ import annotations

import pytest

from app.core.counts import parse_count


@pytest.mark.parametrize(
    ("text", "count"), [("10M", 10_000_000), ("500k", 500_000), ("2.5M", 2_500_000), ("1_000", 1000)]
)
def test_counts_read_as_people_write_them(text: str, count: int) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["", "M", "-1", "1.5", "10 X", "1e6", "٣"])
def test_what_is_no_count_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="allowed: a whole number"):
        parse_count(text)
