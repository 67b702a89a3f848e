from __future__ import annotations

import pytest

from app.core.commands.faults import fault, with_code_text
from app.core.payload import MAX_DEPTH, JsonValue, decode_json


@pytest.mark.parametrize(
    ("code", "text"),
    [("no_gps", "no_gps"), (42, "42"), (None, ""), ([7], "[7]"), (2**63, str(2**63)), ('"', '"'), ("é", "é")],
)
def test_a_code_is_told_as_text_besides(code: JsonValue, text: str) -> None:
    told = decode_json(with_code_text(fault(code, "no GPS", known=None)))
    assert told == {"code": code, "message": "no GPS", "known": None, "code_text": text}
    assert "code_text" not in fault(code, "no GPS").decode()


@pytest.mark.parametrize("text", [b"[]", b"null", b"{}", b'{"code_text":"1"}'])
def test_what_has_no_code_to_tell_stays_as_it_is(text: bytes) -> None:
    assert with_code_text(text) == text


def test_an_error_that_is_too_deep_to_be_read_again_is_told_as_it_is() -> None:
    """A device may nest its code as deep as a payload may be; the error around it is one level more."""
    code: JsonValue = decode_json(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    deep = fault(code, "no GPS")
    assert with_code_text(deep) == deep
