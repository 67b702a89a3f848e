"""The note about a target whose command has ended: when, its code and words, and what its device has answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from app.core.commands.routing import Outcome
from app.core.fleets.marks import TargetMark, mark_of

MOST_SAID: Final = 200
"""Characters of a message, and of a code, that a note keeps: there may be 100,000 of them."""
MOST_ANSWERED: Final = 256
"""Bytes of an answer that a note keeps; of a longer one it keeps nothing."""
_UNKNOWN: Final = "its command is not on record any more, and nobody has noted how it ended"


def mark_of_outcome(outcome: Outcome) -> TargetMark:
    """The mark of a target whose command has ended so."""
    return mark_of(outcome.state, _code(outcome))


def note_of(outcome: Outcome) -> list[Any]:
    """The instant (µs), code and message, and behind them the answer as JSON text, where it is short."""
    error = {} if outcome.error is None else orjson.loads(outcome.error)
    said = str(error.get("message") or "") if mark_of_outcome(outcome) is not TargetMark.UNKNOWN else _UNKNOWN
    return [outcome.finished_at, _in_short(_code(outcome)), said[:MOST_SAID], *_short_answer(outcome)]


def _code(outcome: Outcome) -> object:
    error = None if outcome.error is None else orjson.loads(outcome.error)
    return error.get("code") if isinstance(error, dict) else None


def _in_short(code: object) -> object:
    """Return the code itself, or the beginning of its text where a device has made a long one."""
    text = code if isinstance(code, str) else orjson.dumps(code).decode()
    return code if len(text) <= MOST_SAID else text[:MOST_SAID]


def _short_answer(outcome: Outcome) -> Sequence[str]:
    result = outcome.result or b"null"
    return () if result == b"null" or len(result) > MOST_ANSWERED else (result.decode(),)
