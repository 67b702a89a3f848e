from __future__ import annotations

import hashlib
import re
import string
from random import Random
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.access.keys import PATTERN, Key, KeyFault, make_key, parse_key
from tests.unit.core.hostile_ids import hostile_ids

BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
KEY = make_key(Random(1).randbytes)


def test_a_key_comes_back_as_it_was_made() -> None:
    assert re.fullmatch(PATTERN, KEY.text)
    assert parse_key(KEY.text) == KEY


def test_a_key_is_made_of_the_bytes_given() -> None:
    assert make_key(bytes) == Key("0" * 8, "0" * 43)
    most = make_key(lambda size: b"\xff" * size)
    assert most.id == "Z" * 8
    assert sum(BASE62.index(digit) * 62**place for place, digit in enumerate(reversed(most.secret))) == 2**256 - 1
    assert parse_key(most.text) == most


def test_what_is_kept_is_the_digest_of_the_secret() -> None:
    assert KEY.digest == hashlib.sha256(KEY.secret.encode()).digest()


def test_the_secret_is_not_shown() -> None:
    assert KEY.secret not in repr(KEY)
    assert KEY.id in repr(KEY)


@pytest.mark.parametrize(
    "text",
    ["", "homing", "homing___", KEY.text + "\n", " " + KEY.text, KEY.text.upper(), KEY.text[:-1], "x" + KEY.text],
)
def test_what_has_not_the_form_of_a_key_is_malformed(text: str) -> None:
    assert parse_key(text) is KeyFault.MALFORMED


def test_hostile_texts_are_malformed() -> None:
    for text in hostile_ids():
        assert parse_key(text) is KeyFault.MALFORMED
        if text:
            assert parse_key(f"{KEY.text[:20]}{text}{KEY.text[20:]}") is KeyFault.MALFORMED


def test_every_typo_of_one_character_is_told() -> None:
    """Others than digits and letters break the form; within it, a CRC finds every error shorter than itself."""
    typos = {
        KEY.text[:place] + letter + KEY.text[place + 1 :]
        for place in range(len(KEY.text))
        for letter in BASE62 + "_- é"
        if letter != KEY.text[place]
    }
    found = {typo: parse_key(typo) for typo in typos}
    assert set(found.values()) == {KeyFault.MALFORMED, KeyFault.TYPO}
    in_secret_or_checksum = [
        KEY.text[:place] + letter + KEY.text[place + 1 :]
        for place in (*range(16, 59), *range(60, 66))
        for letter in BASE62
        if letter != KEY.text[place]
    ]
    assert {found[typo] for typo in in_secret_or_checksum} == {KeyFault.TYPO}


def test_two_neighbours_in_each_others_place_are_told() -> None:
    for place in range(len(KEY.text) - 1):
        one, other = KEY.text[place], KEY.text[place + 1]
        if one != other:
            assert parse_key(f"{KEY.text[:place]}{other}{one}{KEY.text[place + 2 :]}") in set(KeyFault)


@settings(deadline=None)
@given(st.text(BASE62, min_size=43, max_size=43))
def test_who_knows_the_checksum_makes_a_key_that_nobody_has(secret: str) -> None:
    body = f"homing_{KEY.id}_{secret}"
    number, checksum = crc32(body.encode()), ""
    for _ in range(6):
        number, digit = divmod(number, 62)
        checksum = BASE62[digit] + checksum
    parsed = parse_key(f"{body}_{checksum}")
    assert isinstance(parsed, Key)
    assert (parsed.digest == KEY.digest) == (secret == KEY.secret)
