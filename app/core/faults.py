"""Why a command did not succeed, as its record has it."""

from __future__ import annotations

from app.core.payload import JsonValue
from app.core.profile import to_json


def fault(code: JsonValue, message: str, **more: object) -> bytes:
    """The JSON of an error: the code of Homing or of the device as it is, and as text; and a sentence."""
    return to_json({"code": code, "message": message, **more, "code_text": _text(code)})


def _text(code: JsonValue) -> str:
    """A text as it is, nothing for null, else JSON."""
    if isinstance(code, str):
        return code
    return "" if code is None else to_json(code).decode()
