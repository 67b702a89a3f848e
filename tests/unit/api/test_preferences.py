from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.preferences import Preference, read_preference

S = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, Preference()),
        (b"", Preference()),
        (b"respond-async", Preference(respond_async=True)),
        (b"Respond-Async", Preference(respond_async=True)),
        (b'respond-async=""', Preference(respond_async=True)),
        (b"wait=10", Preference(wait=10 * S)),
        (b'wait="10"', Preference(wait=10 * S)),
        (b"wait = 10", Preference(wait=10 * S)),
        (b"respond-async, wait=10", Preference(respond_async=True, wait=10 * S)),
        (b"respond-async; wait=10", Preference(respond_async=True)),  # a parameter of the first
        (b"wait=10; x=y, respond-async", Preference(respond_async=True, wait=10 * S)),
        (b'foo="a, wait=3", wait=10', Preference(wait=10 * S)),
        (b"wait=1, wait=2", Preference(wait=S)),
        (b"wait=x, wait=2", Preference()),
        (b"wait=1.5", Preference()),
        (b"wait=\xb2", Preference()),
        (b"wait=9999999999", Preference()),
        (b"waiting=5", Preference()),
        (b"x-wait=5", Preference()),
    ],
)
def test_preferences_are_read(header: bytes | None, expected: Preference) -> None:
    assert read_preference(header) == expected


@given(st.binary(max_size=200))
def test_no_header_is_too_strange(header: bytes) -> None:
    read_preference(header)


def test_the_limit_is_the_wait_or_nothing_for_async() -> None:
    assert Preference().limit is None
    assert Preference(respond_async=True).limit == timedelta()
    assert Preference(wait=5 * S).limit == 5 * S
    assert Preference(respond_async=True, wait=5 * S).limit == 5 * S
