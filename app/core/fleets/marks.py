"""The mark of a target: one byte that says how far a run has come with one device. It moves forward only."""

from __future__ import annotations

from enum import IntEnum
from types import MappingProxyType
from typing import Final

from app.core.commands.command import CommandState


class TargetMark(IntEnum):
    """A byte of a run."""

    WAITING = ord(".")
    """Nothing was done about it yet."""
    HANDED = ord("h")
    """Its command is on record, or is just being registered."""
    SUCCEEDED = ord("s")
    FAILED = ord("f")
    TIMED_OUT = ord("t")
    UNSENT = ord("u")
    UNREACHABLE = ord("r")
    """It was away until its hold was over."""
    CANCELLED = ord("c")
    SKIPPED = ord("k")
    """The run ended before its turn came."""
    UNKNOWN = ord("?")
    """Its command is not on record any more, and nobody has noted how it ended."""

    @property
    def word(self) -> str:
        """The name by which it is counted and shown."""
        return self.name.lower()

    @property
    def ended(self) -> bool:
        """True if nothing follows."""
        return self not in (TargetMark.WAITING, TargetMark.HANDED)


MARK_OF_WORD: Final = MappingProxyType({one.word: one for one in TargetMark})
ENDED_WORDS: Final = tuple((one, one.word) for one in TargetMark if one.ended and one is not TargetMark.SKIPPED)
"""The marks of targets that had their turn and have ended, with their words."""
_OF_STATE: Final = MappingProxyType(
    {
        CommandState.SUCCEEDED: TargetMark.SUCCEEDED,
        CommandState.FAILED: TargetMark.FAILED,
        CommandState.TIMED_OUT: TargetMark.TIMED_OUT,
        CommandState.CANCELLED: TargetMark.CANCELLED,
        CommandState.UNSENT: TargetMark.UNSENT,
    }
)
_OF_CODE: Final = MappingProxyType(
    {
        (CommandState.UNSENT, "hold_expired"): TargetMark.UNREACHABLE,
        (CommandState.TIMED_OUT, "gone"): TargetMark.UNKNOWN,
    }
)


def mark_of(state: CommandState, code: object) -> TargetMark:
    """The mark of a target whose command has ended so, with this error code."""
    if isinstance(code, str) and (found := _OF_CODE.get((state, code))) is not None:
        return found
    return _OF_STATE[state]
