"""Approvals that a profile asks for: methods whose commands a second person has to approve."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from app.core.access.patterns import fits_any


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """A rule of a profile: commands of these methods wait for a second person, who has the time `within`."""

    methods: tuple[str, ...]
    """Patterns, in which `*` is any text."""
    within: timedelta

    def binds(self, method: str) -> bool:
        """True if commands of this method need a second person."""
        return fits_any(self.methods, method)
