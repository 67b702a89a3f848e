"""Commands that did not leave: the errors that their records have, and what they say about trying again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from app.core.commands.command import Command, CommandState
from app.core.commands.faults import fault
from app.core.commands.routing import Outcome
from app.core.errors import HomingError, StoreUnavailableError, UnavailableError, UnpublishableError

NOT_SENT: Final = "not_sent"
"""Error code of a command that did not leave, and may when it is tried again."""


NO_SUBSCRIBER: Final = "no_subscriber"
"""Error code of a command that the broker took when nobody was subscribed to its topic."""


def no_subscriber(topic: str, profile: str) -> bytes:
    """The error of such a command, as its record has it."""
    reason = f"nobody is subscribed to {topic}: the device is not connected, or does not speak profile {profile}"
    return fault(NO_SUBSCRIBER, reason)


DEVICE_OFFLINE: Final = "device_offline"
"""Error code of a command to a device that has said that it goes, and has not come back."""


def device_offline(device_id: str, since: int) -> bytes:
    """The error of such a command, as its record has it; `since` is in microseconds since 1970."""
    return fault(DEVICE_OFFLINE, f"{said_offline(device_id, since)}; it was not sent")


def said_offline(device_id: str, since: int) -> str:
    """Return the sentence that a device is away; `since` is in microseconds since 1970."""
    at = datetime.fromtimestamp(since / 1_000_000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return f"{device_id} has been offline since {at}, as it said or its will did"


def not_sent(error: BaseException) -> bytes:
    """The error of a command that could not be sent, as its record has it."""
    reason = str(error) if isinstance(error, HomingError) else "the node failed before it was sent"
    code = error.code if isinstance(error, UnpublishableError) else NOT_SENT
    return fault(code, reason)


def may_be_on_record(error: BaseException) -> bool:
    """True if a registration that ended so was perhaps carried out."""
    if isinstance(error, StoreUnavailableError):
        return error.asked
    return not isinstance(error, HomingError)


def name_command(identity: str, error: BaseException, command: Command | None = None) -> None:
    """Tell the caller which command to look for."""
    if isinstance(error, UnavailableError | UnpublishableError):
        error.command_id = identity
        error.command = command


def unsent_code(command: Command) -> str | None:
    """Return why the command is unsent: NOT_SENT, NO_SUBSCRIBER, DEVICE_OFFLINE or the code of an UnpublishableError.

    None when it is not.
    """
    if command.state is not CommandState.UNSENT:
        return None
    return str(error_of(command).get("code", NOT_SENT))


def error_of(command: Command) -> Mapping[str, Any]:
    """The error of a command that Homing itself has ended: an object with `code` and `message`; else an empty one."""
    found = json.loads(command.error or b"{}")
    return found if isinstance(found, dict) else {}


def may_be_sent_again(command: Command) -> bool:
    """True if the command did not leave, for a reason that passes."""
    return unsent_code(command) == NOT_SENT


def with_outcome(command: Command, outcome: Outcome) -> Command:
    """The command as it stands after its outcome."""
    return replace(
        command,
        state=outcome.state,
        finished_at=outcome.finished_at,
        received_by=outcome.received_by,
        result=outcome.result,
        error=outcome.error,
        matched_by=None if outcome.reception is None else outcome.reception.correlation,
        confirmed_by=None if outcome.reception is None else outcome.reception.finding,
    )
