"""Decides when a delivery is tried again, and when nobody tries any more."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

SECOND: Final = 1_000_000
_HOUR: Final = 3600 * SECOND
DELAYS: Final = (
    5 * SECOND,
    300 * SECOND,
    1800 * SECOND,
    2 * _HOUR,
    5 * _HOUR,
    10 * _HOUR,
    14 * _HOUR,
    20 * _HOUR,
    24 * _HOUR,
)
"""The times between an attempt and the next one, in µs: some 75 hours in all. Each is up to a fifth shorter or
longer."""
ATTEMPTS: Final = len(DELAYS) + 1
JITTER: Final = 0.2
MOST_RETRY_AFTER: Final = _HOUR
"""The longest time that a receiver may ask for by `Retry-After`."""
GIVEN_UP_AFTER: Final = 72 * _HOUR
"""An endpoint that did nothing but fail for this long is disabled."""
KEPT: Final = 24 * _HOUR
"""The time for which what waits for a disabled endpoint is kept, so that it can be enabled again."""

_GONE: Final = 410


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply to an attempt: an HTTP status, or None and the reason why there is none."""

    status: int | None
    reason: str = ""
    retry_after: str | None = None

    @property
    def delivered(self) -> bool:
        """Only 2xx is success: a redirection is not followed."""
        return self.status is not None and 200 <= self.status < 300  # noqa: PLR2004 - RFC 9110, section 15.3

    @property
    def gone(self) -> bool:
        """True if the receiver wants nothing any more (410)."""
        return self.status == _GONE


def next_attempt(attempts: int, now: int, random: float, retry_after: str | None = None) -> int | None:
    """The instant (µs) of the next try after `attempts` attempts that failed; None when that was the last one.

    `random` is from 0 to 1. A receiver may put it off by `Retry-After` (RFC 9110, section 10.2.3), but no longer than
    an hour.
    """
    if attempts >= ATTEMPTS:
        return None
    jitter = 1 + JITTER * (2 * random - 1)
    planned = now + round(DELAYS[attempts - 1] * jitter)
    asked = _asked_for(retry_after, now)
    return planned if asked is None else max(planned, min(asked, now + MOST_RETRY_AFTER))


def _asked_for(retry_after: str | None, now: int) -> int | None:
    if retry_after is None:
        return None
    text = retry_after.strip()
    if text.isascii() and text.isdigit() and len(text) <= 9:  # noqa: PLR2004 - 30 years
        return now + int(text) * SECOND
    try:
        return round(parsedate_to_datetime(text).timestamp() * SECOND)
    except (ValueError, OverflowError):
        return None
