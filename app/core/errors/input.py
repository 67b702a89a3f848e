"""Errors about what a caller sends: it is outside what is allowed, or MQTT cannot carry it.

InvalidInputError            a caller's value is outside what is allowed
├── PayloadTooLargeError     a body or payload is over its limit
└── UnpublishableError       MQTT cannot carry the command; it is on record as unsent
    └── PacketTooLargeError  the broker takes no packet of this size
PreconditionRequiredError    the caller has to name the state that they know
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.core.errors.base import HomingError

if TYPE_CHECKING:
    from app.core.commands.command import Command


class InvalidInputError(HomingError):
    """A caller's value is outside what is allowed."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class PayloadTooLargeError(InvalidInputError):
    """A body or payload is over its size limit."""


class UnpublishableError(InvalidInputError):
    """MQTT cannot carry this publication, now or later: trying again does not mend it."""

    code = "unpublishable"
    """The code of the error on the record of the command."""
    command_id: str | None = None
    """The command that it befell, which is on record as unsent."""
    command: Command | None = None
    """The same, as it is known here."""


class PacketTooLargeError(UnpublishableError):
    """The publication is larger than the packets that the broker takes."""

    code = "packet_too_large"


class PreconditionRequiredError(HomingError):
    """The caller has to say what they take for granted; says in which header."""
