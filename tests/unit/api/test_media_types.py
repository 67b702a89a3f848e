"""The media types that a caller accepts."""

from __future__ import annotations

import pytest

from app.api.media_types import accepts


@pytest.mark.parametrize(
    "accept",
    [
        b"text/csv",
        b"Text/CSV",
        b"text/html, text/csv;q=0.9",
        b" text/csv ; header=present ; q=0.001",
        b"text/csv;q=1",
        b"text/csv;q=0;q=x, text/csv",
    ],
)
def test_a_media_type_that_is_named_is_accepted(accept: bytes) -> None:
    assert accepts(accept, b"text/csv")


@pytest.mark.parametrize(
    "accept",
    [
        None,
        b"",
        b"text/html",
        b"text/csvs",
        b"text/csv;q=0",
        b"text/csv; q=0.000",
        b"text/csv;Q=0.",
        b"text/csv;header=present;q=0.0",
        b"*/*",
    ],
)
def test_what_is_not_named_or_weighs_nothing_is_not(accept: bytes | None) -> None:
    assert not accepts(accept, b"text/csv")
