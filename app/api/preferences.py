"""The `Prefer` header (RFC 7240): how long a caller wants to wait."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

_PREFERENCE: Final = re.compile(
    r'\s*([!#$%&\'*+.^_`|~0-9A-Za-z-]+)\s*(?:=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,;"]*)))?[^,]*', re.ASCII
)
_SECONDS: Final = re.compile("[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Preference:
    """A caller's preference; the first of several values counts, and what cannot be read is ignored (RFC 7240, 2)."""

    respond_async: bool = False
    wait: timedelta | None = None

    @property
    def limit(self) -> timedelta | None:
        """The longest time to wait; None for as long as it takes."""
        return timedelta() if self.respond_async and self.wait is None else self.wait

    @property
    def applied(self) -> bytes:
        """The value of `Preference-Applied` where the preference decided the answer."""
        wait = b"" if self.wait is None else b"wait=%d" % self.wait.total_seconds()
        return b", ".join(part for part in (b"respond-async" if self.respond_async else b"", wait) if part)


NONE: Final = Preference()


def read_preference(header: bytes | None) -> Preference:
    """The preferences in a `Prefer` header that concern waiting."""
    if header is None:
        return NONE
    found: dict[str, str] = {}
    for match in _PREFERENCE.finditer(header.decode("latin-1")):
        found.setdefault(match[1].lower(), match[2] if match[2] is not None else match[3] or "")
    seconds = found.get("wait", "")
    wait = timedelta(seconds=int(seconds)) if _SECONDS.fullmatch(seconds) else None
    return Preference("respond-async" in found, wait)
