"""The checker's memory of each command: a few facts, and the lines that prove them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from app.core.commands.command import FINAL_STATES, CommandState

ANSWERED_STATES = frozenset({CommandState.SUCCEEDED, CommandState.FAILED})
"""Outcomes that a device's answer makes; after the others an answer is annexed."""


class Seen(NamedTuple):
    """An outcome as somebody was shown it."""

    state: str
    nonce: str | None
    line: int

    def agrees(self, other: Seen) -> bool:
        """True if both say the same."""
        return (self.state, self.nonce) == (other.state, other.nonce)

    def __str__(self) -> str:
        return self.state if self.nonce is None else f"{self.state} with nonce {self.nonce}"


@dataclass(slots=True)
class Wish:
    """The wish of one caller to have something done once, in one attempt or several: one nonce."""

    device: str | None
    key: str | None
    line: int
    last_invoked: float
    lasts: float
    """The seconds after that within which it may reach its device: it may be held, and then it has its timeout."""
    lane: str | None = None
    open_attempts: int = 0
    """Attempts that did not certainly do nothing."""
    answered: bool = False
    """True if the answer was 200 or 202."""
    executed_as: str | None = None
    """The command id that a device executed first."""
    executed: int = 0
    """The line of that."""


@dataclass(slots=True)
class Evidence:
    """The evidence about one command id. A line number of 0 means: not seen."""

    nonce: str | None = None
    nonce_line: int = 0
    accepted: int = 0
    """Line of the first 200, 202 or 504."""
    since: float = 0.0
    """An instant at or before its registration, at which it was not on record yet."""
    due: float = float("inf")
    """An instant at or after its deadline."""
    told: Seen | None = None
    """The first outcome that a caller was told."""
    stored: Seen | None = None
    """The first outcome that a reader saw."""
    final_at: float = float("inf")
    """The instant at which an outcome was first seen."""
    late: bool = False
    late_final: bool = False
    open_line: int = 0
    """The line of the last reading without an outcome; `open_at` is its instant."""
    open_at: float = 0.0
    gone_line: int = 0
    gone_at: float = 0.0
    """The instant of the last reading that found no record; `gone_line` is its line."""
    final_line: int = 0
    """The line of the last final read."""
    claims: int | None = None
    """The number of times that it was claimed, as the last final read says; None of what could not be held."""
    executed: int = 0
    answers: int = 0
    """Bits: 1 an answer that it succeeded was published, 2 that it failed."""
    answered: int = 0
    """Line of the first of them."""
    acked: int = 0
    """Line of the first final answer that the broker acknowledged."""
    acked_count: int = 0

    @property
    def outcome(self) -> Seen | None:
        """As it is stored, or else as a caller was told."""
        return self.stored or self.told


def answer_bit(state: str) -> int:
    """For `Evidence.answers`; 0 for progress."""
    return {CommandState.SUCCEEDED.value: 1, CommandState.FAILED.value: 2}.get(state, 0)


def is_final(state: str) -> bool:
    """True if this is an outcome; a command that is gone has none."""
    return state in FINAL_STATES
