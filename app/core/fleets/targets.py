"""The targets of a run: who is meant by ids, patterns, labels and profiles, and in which order their turn comes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import blake2b
from typing import Any, Final

from app.core.access.patterns import expression, validate_pattern
from app.core.errors import InvalidInputError
from app.core.fleets.fields import members_of
from app.core.identifiers import validate_device_id
from app.core.payload import kind_in_words

MOST_TARGETS: Final = 100_000
SHOWN: Final = 100
"""So many ids and patterns of a list are shown of what was asked for."""
DEEPEST: Final = 4
MOST_LEAVES: Final = 32
LEAVES: Final = ("devices", "labels", "profile")
BRANCHES: Final = ("all", "any", "not")


@dataclass(frozen=True, slots=True)
class TargetCandidate:
    """A device that may be meant: one on record, or one that is named by its id alone."""

    device_id: str
    profile: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TargetSelector:
    """Says which devices are meant. `named` are ids that it names outright, as the caller lists them.

    `from_record` tells whether it can only be judged by the record of devices: it has a pattern, labels or a profile.
    """

    means: Callable[[TargetCandidate], bool]
    named: tuple[str, ...]
    from_record: bool


def read_selector(value: object) -> TargetSelector:
    """The selector that a caller asks for; InvalidInputError."""
    left = [MOST_LEAVES]
    return _selector("targets", value, 1, left)


def shuffled(run_id: str, devices: Iterable[str]) -> list[str]:
    """The devices in an order that follows from the run alone, so that no wave is a neighbourhood."""
    return sorted(devices, key=lambda one: blake2b(f"{run_id} {one}".encode(), digest_size=8).digest())


def _selector(field: str, value: object, depth: int, left: list[int]) -> TargetSelector:
    members = members_of(field, value, (*LEAVES, *BRANCHES))
    if len(members) != 1:
        raise InvalidInputError(
            field, f"has {len(members)} members; one of {', '.join((*LEAVES, *BRANCHES))} is needed, and all takes many"
        )
    ((name, inner),) = members.items()
    if name in BRANCHES:
        if depth >= DEEPEST:
            raise InvalidInputError(f"{field}.{name}", f"is nested too deep; allowed are {DEEPEST} levels")
        return _branch(f"{field}.{name}", name, inner, depth, left)
    left[0] -= 1
    if left[0] < 0:
        raise InvalidInputError("targets", f"has too many conditions; allowed are {MOST_LEAVES}")
    return _LEAF[name](f"{field}.{name}", inner)


def _branch(field: str, name: str, value: object, depth: int, left: list[int]) -> TargetSelector:
    if name == "not":
        one = _selector(field, value, depth + 1, left)
        return TargetSelector(lambda device: not one.means(device), (), one.from_record)
    if not isinstance(value, list) or not value:
        raise InvalidInputError(field, "needs a list of conditions that is not empty")
    parts = [_selector(f"{field}.{index}", one, depth + 1, left) for index, one in enumerate(value)]
    join = all if name == "all" else any
    return TargetSelector(
        lambda device: join(one.means(device) for one in parts),
        tuple(dict.fromkeys(device for one in parts for device in one.named)),
        any(one.from_record for one in parts),
    )


def _devices(field: str, value: object) -> TargetSelector:
    if not isinstance(value, list) or not value:
        raise InvalidInputError(field, "needs a list of device ids and patterns that is not empty")
    if len(value) > MOST_TARGETS:
        raise InvalidInputError(field, f"has {len(value)} entries; allowed are {MOST_TARGETS}")
    ids: dict[str, None] = {}
    patterns = []
    for one in value:
        if not isinstance(one, str):
            raise InvalidInputError(field, f"has {kind_in_words(one)} in it; allowed: device ids and patterns with *")
        if "*" in one:
            patterns.append(re.compile(expression(validate_pattern("devices", one))))
        else:
            ids[validate_device_id(one)] = None
    if len(patterns) > MOST_LEAVES:
        raise InvalidInputError(field, f"has {len(patterns)} patterns; allowed are {MOST_LEAVES}")

    def means(device: TargetCandidate) -> bool:
        return device.device_id in ids or any(one.fullmatch(device.device_id) for one in patterns)

    return TargetSelector(means, tuple(ids), bool(patterns))


def _labels(field: str, value: object) -> TargetSelector:
    if not isinstance(value, dict) or not value:
        raise InvalidInputError(field, 'needs an object of labels that is not empty, such as {"site": "north"}')
    for name, wanted in value.items():
        if not isinstance(wanted, str):
            raise InvalidInputError(f"{field}.{name[:64]}", f"is {kind_in_words(wanted)}; a string is needed")
    labels: dict[str, Any] = dict(value)
    return TargetSelector(
        lambda device: all(device.labels.get(name) == wanted for name, wanted in labels.items()), (), from_record=True
    )


def _profile(field: str, value: object) -> TargetSelector:
    if not isinstance(value, str):
        raise InvalidInputError(field, f"is {kind_in_words(value)}; the name of a profile is needed, or a pattern")
    pattern = re.compile(expression(validate_pattern("profile", value, of_profiles=True)))
    return TargetSelector(lambda device: pattern.fullmatch(device.profile) is not None, (), from_record=True)


_LEAF: Final[Mapping[str, Callable[[str, object], TargetSelector]]] = {
    "devices": _devices,
    "labels": _labels,
    "profile": _profile,
}


def as_shown(value: object) -> Any:  # noqa: ANN401 - any JSON
    """Return a selector without the tail of long lists: who reads a run reads this each time."""
    if isinstance(value, dict):
        found = {name: as_shown(one) for name, one in value.items()}
        listed = value.get("devices")
        if isinstance(listed, list) and len(listed) > SHOWN:
            found |= {"devices": listed[:SHOWN], "more": len(listed) - SHOWN}
        return found
    return [as_shown(one) for one in value] if isinstance(value, list) else value


def check_size(count: int) -> None:
    """InvalidInputError when so many targets are too many for one run."""
    if count > MOST_TARGETS:
        raise InvalidInputError("targets", f"are {count} devices; allowed are {MOST_TARGETS} in one run")


def check_labels_of(targets: Iterable[TargetCandidate], labels: Mapping[str, str]) -> None:
    """InvalidInputError when no target has one of these labels, and they have one of nearly that name.

    `labels` says which member names each. A label that nobody has any more is no mistake of whoever repeats a run.
    """
    known = {name for one in targets for name in one.labels} if labels else set()
    for label, member in labels.items():
        near = [] if label in known else get_close_matches(label, known, n=1)
        if near:
            raise InvalidInputError(member, f"{label[:64]!a} is a label that no target has; is {near[0]} meant?")
