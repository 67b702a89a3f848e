"""The tables of a profile file for commands that a second person has to approve."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, Field

from app.core.access.patterns import fits
from app.core.access.rules import LONGEST_APPROVAL, SHORTEST_APPROVAL, USUAL_APPROVAL
from app.core.profiles.approvals import ApprovalRule
from app.profiles.language.faults import ProfileFault
from app.profiles.language.fields import DURATION_SCHEMA, MethodPattern, StrictTable, duration_between


class ApprovalTable(StrictTable):
    """`[[approval]]`."""

    methods: Annotated[list[MethodPattern], Field(min_length=1)]
    within: Annotated[
        timedelta, BeforeValidator(duration_between(SHORTEST_APPROVAL, LONGEST_APPROVAL)), DURATION_SCHEMA
    ] = USUAL_APPROVAL

    def build(self) -> ApprovalRule:
        """The rule that the table describes."""
        return ApprovalRule(tuple(self.methods), self.within)


def approval_faults(tables: Sequence[ApprovalTable], known: Collection[str] | None) -> Iterator[ProfileFault]:
    """The faults of the approvals of a file. `known` are its methods; None where it takes any."""
    for index, table in enumerate(tables):
        for at, pattern in enumerate(table.methods):
            if known is not None and not any(fits(pattern, one) for one in known):
                sentence = f"{pattern!a} fits no method of the profile: {', '.join(sorted(known))}"
                yield ProfileFault(("approval", index, "methods", at), sentence)
