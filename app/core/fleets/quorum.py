"""The goal of a run: how many of its targets have to succeed, and the labels of which few may be in flight at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from app.core.errors import InvalidInputError
from app.core.fleets.fields import check_length, in_short, list_of, members_of, number_of, percent_of
from app.core.payload import kind_in_words

MOST_BUDGETS: Final = 4
_GOALS: Final = 'a number of devices, or a share such as "80%"'


@dataclass(frozen=True, slots=True)
class RunGoal:
    """A number of targets, or a share of all of them (in percent), that have to succeed."""

    count: int | None
    share: float | None
    finishes: bool
    """True if nothing more is handed out when it is reached."""

    def wanted(self, total: int) -> int:
        """Return how many of so many targets have to succeed."""
        return min(self.count, total) if self.count is not None else ceil(total * (self.share or 0) / 100 - 1e-9)

    def to_json(self) -> dict[str, Any]:
        """Return the goal as it is kept and shown."""
        succeeded = self.count if self.count is not None else f"{self.share:g}%"
        return {"succeeded": succeeded, "then": "finish" if self.finishes else "go_on"}


@dataclass(frozen=True, slots=True)
class LabelBudget:
    """At most so many targets with the same value of a label are in flight at once. Those without it share one."""

    label: str
    most: int

    def to_json(self) -> dict[str, Any]:
        """Return the budget as it is kept and shown."""
        return {"label": self.label, "most": self.most}


class LabelKinds:
    """The labels that budgets go by: the kind of each target, and the values of each kind."""

    def __init__(self, values: Iterable[Sequence[str]]) -> None:
        known: dict[tuple[str, ...], int] = {}
        self.of: Final = [known.setdefault(tuple(one), len(known)) for one in values]
        self.values: Final = tuple(known)


class LabelRoom:
    """The room that budgets leave besides the targets in flight."""

    def __init__(self, budgets: Sequence[LabelBudget], kinds: LabelKinds, flying: Iterable[int] = ()) -> None:
        self.kinds: Final = kinds
        self.full: Final[set[int]] = set()
        """Kinds of which it is known that they have no room: it never grows, and thousands may be of one kind."""
        self._budgets = budgets
        self._taken: tuple[dict[str, int], ...] = tuple({} for _ in budgets)
        for index in flying:
            self._take(index)

    def has(self, index: int) -> bool:
        """Return whether there is room for a target."""
        kind = self.kinds.of[index]
        if kind in self.full:
            return False
        of = zip(self._budgets, self._taken, self.kinds.values[kind], strict=True)
        if all(used.get(value, 0) < budget.most for budget, used, value in of):
            return True
        self.full.add(kind)
        return False

    def takes(self, index: int) -> bool:
        """Take the room for a target, if there is some; whether there was."""
        if not self.has(index):
            return False
        self._take(index)
        return True

    def copy(self) -> LabelRoom:
        """Return the same room, to try out what might take it."""
        found = LabelRoom(self._budgets, self.kinds)
        found._taken = tuple(dict(used) for used in self._taken)
        return found

    def _take(self, index: int) -> None:
        for used, value in zip(self._taken, self.kinds.values[self.kinds.of[index]], strict=True):
            used[value] = used.get(value, 0) + 1


def read_goal(value: object) -> RunGoal:
    """Return the goal that a caller asks for; InvalidInputError."""
    members = members_of("done", value, ("succeeded", "then"))
    then = members.get("then", "finish")
    if then not in ("finish", "go_on"):
        raise InvalidInputError("done.then", f"{in_short(then)} is none; allowed: finish, go_on")
    if "succeeded" not in members:
        raise InvalidInputError("done.succeeded", f"is missing; allowed: {_GOALS}")
    wanted = members["succeeded"]
    if isinstance(wanted, int) and not isinstance(wanted, bool):
        return RunGoal(number_of("done.succeeded", wanted, 1, 1_000_000), None, then == "finish")
    return RunGoal(None, percent_of("done.succeeded", wanted, _GOALS), then == "finish")


def read_budgets(value: object) -> tuple[LabelBudget, ...]:
    """Return the budgets that a caller asks for; InvalidInputError."""
    return tuple(_budget(f"per.{index}", one) for index, one in enumerate(list_of("per", value, MOST_BUDGETS)))


def read_label(field: str, value: object) -> str:
    """Return the name of a label; InvalidInputError."""
    if not isinstance(value, str) or not value:
        said = "is empty" if value == "" else f"is {kind_in_words(value)}"
        raise InvalidInputError(field, f"{said}; the name of a label is needed")
    check_length(field, value)
    return value


def in_turn(values: Mapping[str, str]) -> list[str]:
    """Return the devices so that the values of a label take turns; those of one value stay in their order."""
    groups: dict[str, list[str]] = {}
    for device, value in values.items():
        groups.setdefault(value, []).append(device)
    turns = sorted(
        (turn, place, device) for place, devices in enumerate(groups.values()) for turn, device in enumerate(devices)
    )
    return [device for _, _, device in turns]


def _budget(field: str, value: object) -> LabelBudget:
    members = members_of(field, value, ("label", "most"))
    for name in ("label", "most"):
        if name not in members:
            raise InvalidInputError(f"{field}.{name}", "is missing")
    return LabelBudget(
        read_label(f"{field}.label", members["label"]), number_of(f"{field}.most", members["most"], 1, 5_000)
    )
