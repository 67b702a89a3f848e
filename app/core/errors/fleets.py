"""Errors about fleet runs and schedules.

FleetError                 about a fleet run
├── RunNotFoundError
├── NoTargetsError         no device is meant
├── RunStateError          its state does not allow this
├── RunMismatchError       the idempotency key belongs to another run
└── ScheduleNotFoundError
"""

from __future__ import annotations

from app.core.errors.base import HomingError


class FleetError(HomingError):
    """Base of errors about a fleet run; nothing was changed."""


class RunNotFoundError(FleetError):
    """There is no such run that the caller may know of."""


class NoTargetsError(FleetError):
    """No device is meant, so there is nothing to run."""


class RunStateError(FleetError):
    """The state of the run does not allow this; says what would."""


class RunMismatchError(FleetError):
    """The idempotency key was used for another run."""


class ScheduleNotFoundError(FleetError):
    """There is no such schedule that the caller may know of."""
