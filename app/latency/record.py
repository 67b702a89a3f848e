"""The records of the log, before they are Arrow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Protocol

from app.core.commands.command import CommandState
from app.core.commands.reception import Reception

MAX_CODE: Final = 128
"""Characters of an error code that are kept; devices make them up."""

Row = Mapping[str, Any]
"""A record by column; instants and durations in microseconds. What is missing is null."""


class Closed(Protocol):
    """A command of this node with its outcome: `app/callbacks/pending.py` says what is what."""

    command_id: str
    device_id: str
    profile: str
    method: str
    state: CommandState
    error: bytes | None
    received_by: str | None
    reception: Reception | None
    attempt: int
    request_bytes: int | None
    created_us: int
    deadline_us: int
    finished_us: int
    opened_at: float
    registered_at: float | None
    published_at: float | None
    acknowledged_at: float | None
    progressed_at: float | None
    closed_at: float | None
    delivered_at: float | None
    record_seconds: float | None


class WriteError(Exception):
    """The open files could not be written; `records` of them are lost."""

    def __init__(self, reason: str, records: int) -> None:
        super().__init__(reason)
        self.records = records


def error_code(error: bytes | None) -> str | None:
    """The code in the JSON text of an error; None where there is none."""
    return None if error is None else _code(error[:4096])


@lru_cache(maxsize=1024)
def _code(error: bytes) -> str | None:
    try:
        code = json.loads(error)["code"]
    except (ValueError, KeyError, TypeError):
        return None
    if code is None:
        return None
    # A lone surrogate is valid JSON and no valid UTF-8.
    return str(code)[:MAX_CODE].encode("utf-8", "replace").decode()
