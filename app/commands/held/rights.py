"""The right to send a held command, judged when it is claimed."""

from __future__ import annotations

from app.access.ports import Access
from app.core.access.callers import Caller
from app.core.access.rules import Action
from app.core.commands.command import Command
from app.core.errors import UnauthenticatedError


def may_send(access: Access, command: Command) -> None:
    """Return where whoever had the command held may send it by the rules of this moment; AccessError otherwise.

    UnavailableError when the rules are too old to act on.
    """
    who = "" if command.hold is None else command.hold.who
    try:
        caller = Caller.of_text(who) if who else None
    except (ValueError, TypeError):
        raise UnauthenticatedError("the caller of the held command cannot be read") from None
    access.check(caller, Action.SEND, command.device_id, command.profile, command.method)
