"""The right to send a held command, judged when it is claimed."""

from __future__ import annotations

from app.access.ports import Access
from app.core.access.callers import Caller
from app.core.access.rules import Action
from app.core.commands.command import Command
from app.core.commands.diagnosis import decision_of
from app.core.errors import UnauthenticatedError


def may_send(access: Access, command: Command) -> None:
    """Return where whoever had the command held may send it by the rules of this moment; AccessError otherwise.

    UnavailableError when the rules are too old to act on.
    """
    about = command.device_id, command.profile, command.method
    decision = decision_of(command)
    if decision is None:
        access.check(proposer_of(command), Action.SEND, *about)
    else:
        access.check_approved(proposer_of(command), _caller(decision.who), *about)


def proposer_of(command: Command) -> Caller | None:
    """The caller who had a command held; None where nobody was asked. UnauthenticatedError if they cannot be read."""
    return _caller("" if command.hold is None else command.hold.who)


def _caller(text: str) -> Caller | None:
    try:
        return Caller.of_text(text) if text else None
    except (ValueError, TypeError):
        raise UnauthenticatedError("the caller of the held command cannot be read") from None
