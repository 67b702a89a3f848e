"""Values of the hot path at run time; that nobody assigns to one is for the type checker to say."""

from __future__ import annotations

from dataclasses import field, replace

import pytest

from app.core.values import value


@value
class _Point:
    x: int
    said: str = field(default="", compare=False)


def test_values_are_compared_and_hashed_by_their_fields() -> None:
    assert _Point(1, "a") == _Point(1, "b") != _Point(2)
    assert {_Point(1, "a"): "found"}[_Point(1, "b")] == "found"
    assert replace(_Point(1, "a"), x=2) == _Point(2)


def test_a_value_has_no_other_attributes() -> None:
    with pytest.raises(AttributeError):
        _Point(1).y = 2  # type: ignore[attr-defined]
