"""The reasons why a command did not succeed, as its record has them, and as callers are told."""

from __future__ import annotations

from app.core.errors import UndecodableMessageError
from app.core.payload import JsonValue, decode_json
from app.core.profiles.profile import to_json


def fault(code: JsonValue, message: str, **more: object) -> bytes:
    """The JSON of an error: the code of Homing or of the device as it is, and a sentence."""
    return to_json({"code": code, "message": message, **more})


def with_code_text(error: bytes) -> bytes:
    """The same JSON with `code_text`: the code as text, whatever a device makes of it; empty for null.

    An error that is too deep or too large to be read again stays as it is: a command can always be shown.
    """
    try:
        found = decode_json(error)
    except UndecodableMessageError:
        return error
    if not isinstance(found, dict) or not found or "code_text" in found:
        return error
    code = found.get("code")
    text = code if isinstance(code, str) else "" if code is None else to_json(code).decode()
    return b'%b,"code_text":%b}' % (error.rstrip()[:-1], to_json(text))
