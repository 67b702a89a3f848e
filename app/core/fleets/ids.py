"""Ids of runs and of their commands. Those of commands follow from the run, so that nobody makes a second one."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

from app.core.characters import CROCKFORD, digits
from app.core.errors import InvalidInputError
from app.core.identifiers import command_id

RUN_ID: Final = "run-[0-7][0-9A-HJKMNP-TV-Z]{25}"
_RUN_ID: Final = re.compile(RUN_ID)
_TIME_LENGTH: Final = 10
_RANDOM_LENGTH: Final = 16
_ALLOWED: Final = "allowed: 'run-' and a ULID of 26 characters in upper case"


def validate_run_id(text: str) -> str:
    """The run id itself; InvalidInputError when it is none."""
    if _RUN_ID.fullmatch(text) is None:
        raise InvalidInputError("run_id", f"{text[:40]!a} is none; {_ALLOWED}")
    return text


def new_run_id(ulid: str) -> str:
    """The id of a run that has no idempotency key."""
    return f"run-{ulid}"


def run_id_of_key(owner: str, key: str) -> str:
    """The id of the run that an idempotency key of this owner stands for, whenever and wherever it is asked for."""
    return f"run-0{_letters(_TIME_LENGTH - 1 + _RANDOM_LENGTH, 'run', owner, key)}"


def child_id(run_id: str, index: int, attempt: int, device_id: str, created_at: int) -> str:
    """The id of the command for a target; `created_at` is that of the run, in microseconds.

    It has the form of all command ids, so that it is in the order of the others.
    """
    random = _letters(_RANDOM_LENGTH, "child", run_id, str(index), str(attempt))
    return command_id(device_id, digits(created_at // 1000, CROCKFORD, _TIME_LENGTH) + random)


def _letters(length: int, *parts: str) -> str:
    digest = blake2b("\0".join(parts).encode(), digest_size=20).digest()
    return digits(int.from_bytes(digest, "big"), CROCKFORD, length)
