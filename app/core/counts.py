"""Counts as people write them: 10M, 500k, 1_000."""

from __future__ import annotations

import re
from typing import Final

ALLOWED: Final = "a whole number, or one with k, M or G behind it, such as 500k, 2.5M or 1_000"

_COUNT: Final = re.compile(r"([0-9][0-9_]{0,18}(?:\.[0-9]{1,9})?)([kKmMgG]?)", re.ASCII)
_FACTOR: Final = {"": 1, "k": 1000, "m": 1_000_000, "g": 1_000_000_000}


def parse_count(text: str) -> int:
    """The number that `10M`, `500k` or `1_000` says; ValueError names what is allowed."""
    found = _COUNT.fullmatch(text.strip())
    if found is not None:
        whole, _, part = found[1].replace("_", "").partition(".")
        scaled = int(whole + part) * _FACTOR[found[2].lower()]
        number, rest = divmod(scaled, int("1" + "0" * len(part)))
        if rest == 0:
            return number
    raise ValueError(f"{text[:32]!a} is not a count; allowed: {ALLOWED}")
