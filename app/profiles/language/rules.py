"""Contradictions of a profile whose parts are each well formed: what can never hold, or never be reached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from app.core.paths import is_plain
from app.core.payload import JsonValue
from app.core.profiles.conditions import PathCondition
from app.core.topics import TopicTemplate


def impossible(condition: PathCondition) -> str | None:
    """Return why no payload satisfies the condition; None when some do."""
    if condition.is_in == () or condition.is_not == ():
        return "has an empty list; allowed: one or more values, or present = true or false"
    if condition.present is False and (condition.is_in is not None or condition.is_not is not None):
        return "never holds: what is not present is neither is_in nor is_not; allowed: present = false alone"
    if condition.is_in is not None and condition.is_not is not None and _covers(condition.is_not, condition.is_in):
        return "never holds: all of is_in stand in is_not as well"
    return None


def contradicting(conditions: Sequence[PathCondition], besides: Sequence[PathCondition] = ()) -> int | None:
    """The first that never holds together with one before it, or with one of those `besides`; None when all can."""
    for index, one in enumerate(conditions):
        if any(_exclude(one, other) for other in (*besides, *conditions[:index])):
            return index
    return None


def unreachable(rows: Sequence[Sequence[PathCondition]]) -> Iterator[tuple[int, int]]:
    """Yield rows of conditions that never decide, as an earlier one holds whenever they do: (index, that one's)."""
    for index, row in enumerate(rows):
        for earlier in range(index):
            if all(any(_implies(mine, theirs) for mine in row) for theirs in rows[earlier]):
                yield index, earlier
                break


def hears(response: TopicTemplate, request: TopicTemplate) -> bool:
    """True if every publication of the request comes in as a response, too."""
    return response.parse(request.filled(dict.fromkeys(request.names, "x"))) is not None


def _exclude(one: PathCondition, other: PathCondition) -> bool:
    if one.path != other.path or not is_plain(one.path):
        return False
    return any(
        (first.present is False and (second.present or second.is_in is not None or second.is_not is not None))
        or (first.is_in is not None and second.is_not is not None and _covers(second.is_not, first.is_in))
        or (
            first.is_in is not None
            and second.is_in is not None
            and not any(_covers(second.is_in, (value,)) for value in first.is_in)
        )
        for first, second in ((one, other), (other, one))
    )


def _implies(mine: PathCondition, theirs: PathCondition) -> bool:
    if mine.path != theirs.path:
        return False
    present = mine.present if mine.is_in is None and mine.is_not is None else True
    if theirs.present is not None and theirs.present != present:
        return False
    if theirs.is_in is not None and (mine.is_in is None or not _covers(theirs.is_in, mine.is_in)):
        return False
    if theirs.is_not is None:
        return True
    if mine.is_in is not None:
        return not any(_covers(theirs.is_not, (one,)) for one in mine.is_in)
    return mine.is_not is not None and _covers(mine.is_not, theirs.is_not)


def _covers(many: Iterable[JsonValue], some: Iterable[JsonValue]) -> bool:
    """True if `many` has all of `some`, with equality as in JSON, where `true` is not `1`."""
    found = [(isinstance(one, bool), one) for one in many]
    return all((isinstance(one, bool), one) in found for one in some)
