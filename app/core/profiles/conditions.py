"""The conditions of a profile hold for a message or do not; rules are made of them."""

from __future__ import annotations

from dataclasses import dataclass

from app.core.commands.command import CommandState
from app.core.paths import Path, found, is_plain
from app.core.payload import MISSING, JsonValue, Missing, lookup


@dataclass(frozen=True, slots=True)
class PathCondition:
    """Something that a message must satisfy at `path`; an absent path is neither `is_in` nor `is_not` anything.

    Where the path leads to several places, one of them is enough, and `present = false` means that there is none.
    """

    path: Path
    is_in: tuple[JsonValue, ...] | None = None
    is_not: tuple[JsonValue, ...] | None = None
    present: bool | None = None

    def holds(self, document: JsonValue) -> bool:
        """True if the message satisfies every part that is set."""
        return self._satisfied(lookup(document, self.path))

    def _satisfied(self, value: JsonValue | Missing) -> bool:
        if self.present is not None and (value is not MISSING) != self.present:
            return False
        if self.is_in is not None and not _among(value, self.is_in):
            return False
        if self.is_not is None:
            return True
        return value is not MISSING and not _among(value, self.is_not)


class ConditionSomewhere(PathCondition):
    """One whose path has more than keys of objects; apart from it, so that plain ones cost no question."""

    __slots__ = ()

    def holds(self, document: JsonValue) -> bool:
        """True if one of the places satisfies every part that is set."""
        values = list(found(document, self.path))
        return any(self._satisfied(value) for value in values) if values else self._satisfied(MISSING)


def condition(
    path: Path,
    is_in: tuple[JsonValue, ...] | None = None,
    is_not: tuple[JsonValue, ...] | None = None,
    *,
    present: bool | None = None,
) -> PathCondition:
    """The condition of this kind of path."""
    return (PathCondition if is_plain(path) else ConditionSomewhere)(path, is_in, is_not, present)


def all_hold(conditions: tuple[PathCondition, ...], document: JsonValue) -> bool:
    """True if the message satisfies every condition."""
    for one in conditions:  # noqa: SIM110 - it runs for each rule of each response, and a generator takes twice as long
        if not one.holds(document):
            return False
    return True


def _among(value: object, wanted: tuple[JsonValue, ...]) -> bool:
    """Equality with one of them as in JSON, where `true` is not `1`."""
    for one in wanted:  # noqa: SIM110 - likewise
        if value == one and isinstance(value, bool) == isinstance(one, bool):
            return True
    return False


@dataclass(frozen=True, slots=True)
class StateRule:
    """The state that a response stands for when all conditions hold."""

    state: CommandState
    when: tuple[PathCondition, ...] = ()
