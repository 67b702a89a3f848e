"""Errors about one command.

CommandError                  about one command; carries command_id
├── CommandNotFoundError
├── UnreadableRecordError     its record is of a later version, or damaged
├── CommandFinishedError      it has an outcome already
├── IdempotencyMismatchError  the key was used with another body
├── ApprovalOverError         no second person is asked, or none any more
└── IllegalTransitionError    a state change that the table does not have
"""

from __future__ import annotations

from app.core.errors.base import HomingError


class CommandError(HomingError):
    """Base of errors about one command."""

    def __init__(self, command_id: str, message: str) -> None:
        super().__init__(message)
        self.command_id = command_id


class CommandNotFoundError(CommandError):
    """No record under this id: never registered, or past its retention."""

    def __init__(self, command_id: str) -> None:
        super().__init__(command_id, f"no command {command_id}")


class UnreadableRecordError(CommandError):
    """The record of the command is of a later version than this node reads, or damaged; `reason` says which."""

    def __init__(self, command_id: str, reason: str) -> None:
        super().__init__(command_id, f"the record of command {command_id} cannot be read here: {reason}")
        self.reason = reason


class CommandFinishedError(CommandError):
    """The command has an outcome already, so it can no longer be cancelled."""

    def __init__(self, command_id: str, state: str) -> None:
        super().__init__(command_id, f"command {command_id} is {state} already")
        self.state = state


class IdempotencyMismatchError(CommandError):
    """The idempotency key was used for this device with another command; `differs` names by what, where it is known."""

    def __init__(self, command_id: str, differs: str = "") -> None:
        said = f"the idempotency key belongs to {command_id}, which is a different command"
        super().__init__(command_id, f"{said}: another {differs}" if differs else said)


class ApprovalOverError(CommandError):
    """No second person is asked about the command, or none any more."""


class IllegalTransitionError(CommandError):
    """An event that the transition table does not allow in this state."""
