"""Commands that a second person has to approve: what a caller asks for becomes a proposal that waits."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from app.access.ports import Access
from app.commands.send.registrar import CommandRequest
from app.core.access.callers import Caller
from app.core.errors import NeedsSecondPersonError


def as_proposal(
    asked: CommandRequest,
    caller: Caller | None,
    rule: NeedsSecondPersonError | None,
    profile: timedelta | None,
    access: Access,
) -> CommandRequest:
    """Return the request as it waits for a second person, if a rule of its caller or its profile wants one.

    NeedsSecondPersonError where nobody can be one.
    """
    if rule is not None and rule.within is None:
        raise rule
    times = [one for one in (None if rule is None else rule.within, profile) if one is not None]
    if not times:
        return asked
    access.check_proposer(caller)
    return replace(asked, approval=min(times))
