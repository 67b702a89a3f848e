"""Durations as people write them: a number with its unit, never a bare number."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import lru_cache
from typing import Final

ALLOWED: Final = "a number and a unit out of ms, s, m, h, such as 500ms, 10s or 1.5m"

DURATION: Final = r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h)"
_DURATION: Final = re.compile(DURATION, re.ASCII)
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@lru_cache(maxsize=256)  # callers give the same few over and over
def parse_duration(text: str) -> timedelta:
    """The duration that `500ms`, `10s`, `1.5m` or `2h` says; ValueError names what is allowed."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:32]!a} is not a duration; allowed: {ALLOWED}")
    return timedelta(seconds=float(found[1]) * _SECONDS[found[2]])


def format_duration(duration: timedelta) -> str:
    """The shortest exact text that parse_duration reads back, to the millisecond."""
    milliseconds = round(duration / timedelta(milliseconds=1))
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"
