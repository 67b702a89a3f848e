"""Errors of a bound that was reached; nothing was registered or sent.

CapacityError         a bound was reached; try again later
├── RateLimitError    the access rules limit how often
├── TooManyOpenError  the access rules limit how many commands are open
├── TooManyHeldError  a device has as many held commands as it may have
└── DeviceBusyError   a device without correlation ids takes one command at a time
"""

from __future__ import annotations

from app.core.errors.base import HomingError


class CapacityError(HomingError):
    """A bound was reached; nothing was registered or sent."""


class RateLimitError(CapacityError):
    """Somebody has done this as often as the access rules allow; after `retry_after` seconds they may again."""

    def __init__(
        self, reason: str, retry_after: float, name: str = "", policies: tuple[tuple[int, int], ...] = ()
    ) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.name = name
        """The name of the limit."""
        self.policies = policies
        """Each limit of that name: a number of times, and the seconds within which it is allowed."""


class TooManyOpenError(CapacityError):
    """Somebody has as many commands open as the access rules allow; who knows when the first of them ends."""


class TooManyHeldError(CapacityError):
    """A device has as many held commands as it may have."""


class DeviceBusyError(CapacityError):
    """A device that is matched by order alone has a command in flight (or in quarantine) already."""
