from __future__ import annotations

import pytest

from app.core.cluster.wakeup import decode_wake_up
from app.core.commands.callback import Answer
from app.core.commands.command import CommandState
from app.core.commands.reception import Reception, decode_receiver, encode_reception, reception_of
from app.core.profiles.correlation import Correlation


@pytest.mark.parametrize("correlation", list(Correlation))
def test_what_is_encoded_is_decoded(correlation: Correlation) -> None:
    finding = b'{"kind":"goal"}' if correlation is Correlation.PROBE else None
    reception = Reception(1_763_689_751_123_456, correlation, 0, finding)
    assert decode_receiver(b"node-1.a_b" + encode_reception(reception).encode()) == ("node-1.a_b", reception)


def test_how_it_was_matched_follows_the_name_also_where_nobody_notes_when_it_came() -> None:
    answer = Answer("t", "d", Correlation.VALUE, "x", CommandState.SUCCEEDED, size=7)
    encoded = encode_reception(reception_of(answer))
    assert encoded == " 0 v 7"
    assert decode_receiver(b"n1" + encoded.encode()) == ("n1", Reception(None, Correlation.VALUE, 7))


def test_an_echo_is_written_so_that_0_1_0_can_read_it() -> None:
    assert encode_reception(Reception(5, Correlation.ECHO, 7)) == " 5 v +7"


def test_nothing_follows_the_name_where_no_response_came() -> None:
    assert encode_reception(None) == ""
    assert decode_receiver(b"n1") == ("n1", None)
    assert decode_receiver(b"") == (None, None)


@pytest.mark.parametrize("field", [b"n1 5", b"n1 5 i", b"n1 x i 7", b"n1 5 z 7"])
def test_a_reception_that_cannot_be_read_takes_nothing_else_with_it(field: bytes) -> None:
    assert decode_receiver(field) == ("n1", None)


def test_what_a_later_version_adds_is_not_looked_at() -> None:
    assert decode_receiver(b"n1 5 i 7 8 more") == ("n1", Reception(5, Correlation.ID, 7))


def test_a_name_that_is_none_is_a_value_error() -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of any sort: the listener counts them
        decode_receiver(b"\xff")


def test_a_wake_up_carries_it() -> None:
    command_id, outcome = decode_wake_up(b"042-A\0failed\x0017\0n2 16 v 300\0\0{}")
    assert command_id == "042-A"
    assert outcome is not None
    assert (outcome.received_by, outcome.reception) == ("n2", Reception(16, Correlation.VALUE, 300))
