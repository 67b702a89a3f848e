from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.representation import command_json, instant
from app.core.commands.command import Command, CommandState
from app.store.rules import late_annex

COMMAND = Command(
    id="042-01JC8ZQ5M7W3T9K2V4X6Y8B0D1",
    device_id="d",
    method="m",
    params=b'{"b":1.50,"a":12345678901234567890}',
    profile="homing",
    state=CommandState.SUCCEEDED,
    home_node="node-a",
    created_at=0,
    deadline=1_999_999,
    received_by="node-b",
    result=b"[1.0E+2]",
)


def test_instants_are_rfc_3339_to_the_millisecond() -> None:
    assert instant(0) == "1970-01-01T00:00:00.000Z"
    assert instant(1_772_352_000_120_999) == "2026-03-01T08:00:00.120Z"


@given(st.integers(0, 4_000_000_000_000_000))
def test_instants_are_never_later_and_less_than_a_millisecond_earlier(microseconds: int) -> None:
    shown = datetime.fromisoformat(instant(microseconds))
    exact = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    assert timedelta() <= exact - shown < timedelta(milliseconds=1)


def test_json_texts_are_copied_to_the_byte() -> None:
    text = command_json(COMMAND)
    assert b'"params":{"b":1.50,"a":12345678901234567890}' in text
    assert b'"result":[1.0E+2]' in text
    assert json.loads(text)["forwarded"] is True


@pytest.mark.parametrize("result", [None, b"7", b'{"received_at":1}', b'"\\"received_at\\":1}"'])
def test_only_our_own_instant_of_a_late_response_is_rewritten(result: bytes | None) -> None:
    late = late_annex(CommandState.SUCCEEDED, result, None, 1_772_352_000_120_999)
    shown = json.loads(command_json(replace(COMMAND, late=late)))["late"]
    assert shown["received_at"] == "2026-03-01T08:00:00.120Z"
    assert shown["result"] == json.loads(result or b"null")
