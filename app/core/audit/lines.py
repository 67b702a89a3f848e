"""The facts in a line of the audit: one, which is a JSON object, or many in one go.

Many are `{"askers": [{"who": …, "tenant": …, …}], "told": […]}`, in the order of their times. Of what is told a command
is a row: when it was asked for in microseconds, the index of who asked for it, its id, device, profile and method, and
when it has ended its outcome and when that was. This takes less than half of what an object does. Everything else is an
object here, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

AuditFact = dict[str, Any]
"""The parts of something that happened, by name."""
AuditRow = list[Any]

_COMMAND: Final = ("command", "device", "profile", "method", "state", "ended")


class AuditBatch:
    """Facts that are written as one line."""

    __slots__ = ("askers", "told")

    def __init__(self) -> None:
        self.askers: Final[list[AuditFact]] = []
        self.told: Final[list[AuditFact | AuditRow]] = []

    def asker(self, facts: AuditFact) -> int:
        """The index of somebody who asks in this block."""
        self.askers.append(facts)
        return len(self.askers) - 1

    def times(self) -> list[int]:
        """The instants at which things happened, in microseconds."""
        return [_at(one) for one in self.told]

    def things(self) -> list[AuditFact]:
        """Each thing by itself."""
        return _things(self.askers, self.told)


def things_of(told: Mapping[str, Any]) -> list[AuditFact]:
    """The facts that a line tells, by its JSON; LookupError, TypeError or ValueError when no line is like that."""
    if "told" not in told:
        return [dict(told)]
    return _things(told["askers"], told["told"])


def last_at(told: Mapping[str, Any]) -> int:
    """The instant of the last thing that a line of many tells of, by its JSON; errors as of `things_of`."""
    return int(_at(told["told"][-1]))


def _at(one: AuditFact | AuditRow) -> int:
    at: int = one[0] if isinstance(one, list) else one["at"]
    return at


def _things(askers: Sequence[Mapping[str, Any]], told: Sequence[AuditFact | AuditRow]) -> list[AuditFact]:
    return [_command(one, askers) if isinstance(one, list) else dict(one) for one in told]


def _command(row: AuditRow, askers: Sequence[Mapping[str, Any]]) -> AuditFact:
    at, asker, *facts = row
    return {"at": at, "kind": "command", **askers[asker], **dict(zip(_COMMAND, facts, strict=False))}
