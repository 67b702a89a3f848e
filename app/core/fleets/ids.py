"""Ids of runs and of their commands. Those of commands follow from the run, so that nobody makes a second one."""

from __future__ import annotations

import re
from base64 import b32encode
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from app.core.characters import CROCKFORD, digits
from app.core.errors import InvalidInputError
from app.core.identifiers import command_id

RUN_ID: Final = "run-[0-7][0-9A-HJKMNP-TV-Z]{25}"
_RUN_ID: Final = re.compile(RUN_ID)
_TIME_LENGTH: Final = 10
_RANDOM_LENGTH: Final = 16
_RANDOM_BYTES: Final = _RANDOM_LENGTH * 5 // 8
_TO_CROCKFORD: Final = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", CROCKFORD.encode())
"""The table from the digits of `b32encode`, which is quicker than `digits`: a run has a great many ids."""
_ALLOWED: Final = "allowed: 'run-' and a ULID of 26 characters in upper case"


def validate_run_id(text: str) -> str:
    """The run id itself; InvalidInputError when it is none."""
    if _RUN_ID.fullmatch(text) is None:
        raise InvalidInputError("run_id", f"{text[:40]!a} is none; {_ALLOWED}")
    return text


def is_run_id(text: str) -> bool:
    """Return whether it is the id of a run, and not that of a command."""
    return _RUN_ID.fullmatch(text) is not None


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
    random = b32encode(_digest("child", run_id, str(index), str(attempt))[-_RANDOM_BYTES:])
    return command_id(device_id, _time_letters(created_at) + random.translate(_TO_CROCKFORD).decode())


@lru_cache(maxsize=64)
def _time_letters(created_at: int) -> str:
    return digits(created_at // 1000, CROCKFORD, _TIME_LENGTH)


def _letters(length: int, *parts: str) -> str:
    return digits(int.from_bytes(_digest(*parts), "big"), CROCKFORD, length)


def _digest(*parts: str) -> bytes:
    return blake2b("\0".join(parts).encode(), digest_size=20).digest()
