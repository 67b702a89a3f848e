"""Sizes of memory as people write them: a whole number with its unit, never a bare number."""

from __future__ import annotations

import re
from typing import Final

ALLOWED: Final = "a whole number and a unit out of MiB and GiB, such as 256MiB or 2GiB"
MIB: Final = 2**20
_SIZE: Final = re.compile(r"([0-9]{1,9})(MiB|GiB)", re.ASCII)
_BYTES: Final = {"MiB": MIB, "GiB": 2**30}


def parse_size(text: str) -> int:
    """Return the bytes that `256MiB` or `2GiB` says; ValueError names what is allowed."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:32]!a} is not a size; allowed: {ALLOWED}")
    return int(found[1]) * _BYTES[found[2]]
