from __future__ import annotations

import re

import pytest

from app.core.cluster.wakekey import WakeKey

COMMAND = "042-01JC8ZQ5M7W3T9K2V4X6Y8B0D1"


def test_a_token_is_of_one_command_and_one_key() -> None:
    key = WakeKey(b"shared")
    token = key.token(COMMAND)
    assert re.fullmatch("[A-Za-z0-9_-]{12}", token)
    assert WakeKey(b"shared").made(token, COMMAND)
    assert not key.made(token, COMMAND.replace("042", "043"))
    assert not WakeKey(b"another").made(token, COMMAND)


@pytest.mark.parametrize("token", ["", "x", "é" * 12, "A" * 12])
def test_what_is_no_token_is_not_believed(token: str) -> None:
    assert not WakeKey(b"shared").made(token, COMMAND)


def test_processes_differ_until_they_are_told_the_same_key() -> None:
    one, other = WakeKey(b"one"), WakeKey(b"other")
    assert not other.made(one.token(COMMAND), COMMAND)
    for key in (one, other):
        key.set(b"the cluster's")
    assert other.made(one.token(COMMAND), COMMAND)


@pytest.mark.parametrize("key", [b"", b"x" * 65])
def test_a_key_has_1_to_64_bytes(key: bytes) -> None:
    with pytest.raises(ValueError, match="a key has 1 to 64 bytes"):
        WakeKey(key)
