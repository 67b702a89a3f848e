"""Errors about who may do what.

AccessError                     about who may do what
├── UnauthenticatedError        nobody knows who asks
├── ForbiddenError              known, and not allowed
│   └── NeedsSecondPersonError  one more must want it
└── DeviceNotFoundError         not allowed to know of it
"""

from __future__ import annotations

from datetime import timedelta

from app.core.errors.base import HomingError


class AccessError(HomingError):
    """Base of errors about who may do what; nothing was done."""


class UnauthenticatedError(AccessError):
    """Nobody knows who asks: there is no credential, or it counts for nothing."""


class ForbiddenError(AccessError):
    """The caller is known, and may not do this."""


class NeedsSecondPersonError(ForbiddenError):
    """A second person has to approve, `within` this time; None where nobody can."""

    def __init__(self, reason: str, within: timedelta | None = None) -> None:
        super().__init__(reason)
        self.within = within


class DeviceNotFoundError(AccessError):
    """The caller may not know of this device, whether or not it is there."""
