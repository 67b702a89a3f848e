from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.core.access.patterns import expression, overlap, validate_pattern
from app.core.errors import InvalidInputError
from app.core.identifiers import validate_device_id
from tests.unit.core.access.reference import fits
from tests.unit.core.hostile_ids import hostile_ids

PATTERNS = st.text("ab*.", max_size=6)
SHORT_PATTERNS = st.text("ab*", max_size=4)
TEXTS = st.text("ab.\n*", max_size=8)
ALL_TEXTS = ["".join(letters) for length in range(9) for letters in product("ab", repeat=length)]


@settings(deadline=None)
@given(PATTERNS, TEXTS)
@example("a*b*b", "abb")
@example("a", "a\n")
@example("*", "\n\n")
@example("a.b", "aab")
@example("", "")
def test_a_pattern_fits_what_it_says(pattern: str, text: str) -> None:
    assert (re.fullmatch(expression(pattern), text) is not None) == fits(pattern, text)


@settings(deadline=None)
@given(SHORT_PATTERNS, SHORT_PATTERNS)
@example("a*", "*b")
@example("a*b", "ab*")
@example("*a*", "b*")
@example("ab", "a")
@example("", "*")
@example("", "a*")
def test_patterns_overlap_when_a_text_fits_both(one: str, other: str) -> None:
    # Two patterns that overlap share a text that is no longer than the letters of both.
    shared = any(fits(one, text) and fits(other, text) for text in ALL_TEXTS)
    assert overlap(one, other) == shared
    assert overlap(other, one) == shared


def test_many_stars_take_no_longer_than_the_name() -> None:
    assert not re.fullmatch(expression("*a" * 60 + "*b*c"), "a" * 128)
    assert not overlap("*a" * 60 + "b", "*a" * 60 + "c")


@pytest.mark.parametrize("pattern", ["*", "dock-*", "*-7", "a*b*c", "SN0001", "a.b:c_d-e", "x" * 128])
def test_good_patterns_come_back_unchanged(pattern: str) -> None:
    assert validate_pattern("device", pattern) == pattern


def test_a_pattern_is_escaped_as_the_ids_are_that_fit_it() -> None:
    assert validate_pattern("device", "living room/*") == "living%20room%2F*"
    assert validate_pattern("device", "living%20room%2F*") == "living%20room%2F*"
    assert validate_pattern("device", "*/lamp *") == "*%2Flamp%20*"
    assert fits(validate_pattern("device", "living room/*"), validate_device_id("living room/lamp 1"))


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        ("", "device: is empty; * stands for all"),
        ("dock-?", "device: '?' at index 5 is not allowed; allowed: A-Z a-z 0-9 _ . : -, * for any text"),
        ("dock-[12]", "device: '[' at index 5 is not allowed"),
        ("dock-+", "device: '+' at index 5 is not allowed"),
        ("lamp/#", "device: '#' at index 5 is not allowed"),
        ("a%2*", "device: '%' at index 1 is not allowed"),
        ("ü" * 30, "device: has 180 characters where it is escaped; allowed are 128"),
        ("dock\n", "device: U+000A at index 4 is not allowed"),
        ("x" * 129, "device: has 129 characters; allowed are 128"),
    ],
)
def test_a_wrong_pattern_is_told(pattern: str, sentence: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        validate_pattern("device", pattern)
    assert str(error.value).startswith(sentence)


def test_profiles_have_names_of_their_own() -> None:
    assert validate_pattern("profile", "dji*", of_profiles=True) == "dji*"
    for wrong in ("DJI", "dji:x", "dji.x"):
        with pytest.raises(InvalidInputError, match=r"a-z 0-9 _ -, \* for any text"):
            validate_pattern("profile", wrong, of_profiles=True)


def test_no_name_fits_a_pattern_by_accident() -> None:
    for hostile in hostile_ids():
        assert re.fullmatch(expression("1ZNDH1D0010098"), hostile) is None
        assert (re.fullmatch(expression("1ZN*098"), hostile) is not None) == (
            hostile.startswith("1ZN") and hostile.endswith("098") and "\0" not in hostile
        )
