"""Approvals: what a second person has said, or is to say, before a command is sent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

APPROVE: Final = "approve"
REFUSE: Final = "refuse"
TIME_TO_SEND: Final = timedelta(seconds=30)
"""A command without a hold of its own waits for so long to be sent after the last moment for its approval."""


@dataclass(frozen=True, slots=True)
class ApprovalDecision:
    """The decision of a second person. `who` is the caller as `app/core/access/callers.py` writes them."""

    approves: bool
    who: str
    name: str
    """The principal."""
    note: str = ""

    def to_text(self) -> str:
        """The text that a record has."""
        return json.dumps([self.approves, self.who, self.name, self.note], separators=(",", ":"))

    @classmethod
    def of_text(cls, text: str) -> ApprovalDecision:
        """Return the decision that `to_text` wrote; ValueError."""
        match json.loads(text):
            case [bool(approves), str(who), str(name), str(note)]:
                return cls(approves, who, name, note)
            case _:
                raise ValueError("it is no decision of a second person")


@dataclass(frozen=True, slots=True)
class Approval:
    """The approval that a command needs until an instant, and the decision about it once there is one.

    Instants are microseconds on the store's clock.
    """

    until: int
    decision: ApprovalDecision | None = None
    decided_at: int | None = None

    @property
    def waits(self) -> bool:
        """True if nobody has decided."""
        return self.decision is None

    def to_text(self) -> str:
        """The text that a record has."""
        return str(self.until) if self.decision is None else f"{self.until} {self.decided_at} {self.decision.to_text()}"

    @classmethod
    def of_text(cls, text: str) -> Approval:
        """Return the approval that `to_text` wrote; ValueError."""
        until, *decided = text.split(" ", 2)
        if not decided:
            return cls(int(until))
        at, decision = decided
        return cls(int(until), ApprovalDecision.of_text(decision), int(at))
