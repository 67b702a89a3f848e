"""The targets of a run: who is meant by ids, patterns, labels and profiles, and in which order their turn comes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import reduce
from hashlib import blake2b
from operator import or_
from typing import Any, Final

from app.core.access.patterns import expression, validate_pattern
from app.core.errors import InvalidInputError
from app.core.fleets.fields import check_length, members_of
from app.core.fleets.states import read_state
from app.core.identifiers import validate_device_id
from app.core.payload import kind_in_words
from app.core.profiles.interlocks import LastWord
from app.core.topics import TopicTemplate

MOST_TARGETS: Final = 100_000
SHOWN: Final = 100
"""The ids and patterns of a list that are shown of the request."""
DEEPEST: Final = 4
MOST_LEAVES: Final = 32
LONGEST_COMPARED: Final = 64
"""The letters of a label that are compared with others: to compare a megabyte takes a second."""
LEAVES: Final = ("devices", "labels", "profile", "online", "state")
BRANCHES: Final = ("all", "any", "not")


@dataclass(frozen=True, slots=True)
class TargetCandidate:
    """A device that may be meant: one on record, or one that is named by its id alone."""

    device_id: str
    profile: str
    labels: Mapping[str, str]
    online: bool | None = None
    """True if it is there; None where nobody has asked, or nobody knows."""
    words: Mapping[str, LastWord | None] = field(default_factory=dict)
    """The last words of it, by the text of the template of the topic."""


@dataclass(frozen=True, slots=True)
class TargetQuestions:
    """The questions about a device that have to be answered before it is known whether a selector means it."""

    online: bool = False
    topics: frozenset[TopicTemplate] = frozenset()

    def __bool__(self) -> bool:
        return self.online or bool(self.topics)

    def __or__(self, other: TargetQuestions) -> TargetQuestions:
        return TargetQuestions(self.online or other.online, self.topics | other.topics)


@dataclass(frozen=True, slots=True)
class TargetSelector:
    """Says which devices are meant; None while that is unknown. `named` are ids that the caller lists.

    `from_record` tells whether it can only be judged by the record of devices: it has a pattern, labels or a profile.
    """

    means: Callable[[TargetCandidate], bool | None]
    named: tuple[str, ...]
    from_record: bool
    asks: TargetQuestions = field(default_factory=TargetQuestions)


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
        return TargetSelector(
            lambda device: None if (meant := one.means(device)) is None else not meant, (), one.from_record, one.asks
        )
    if not isinstance(value, list) or not value:
        raise InvalidInputError(field, "needs a list of conditions that is not empty")
    parts = [_selector(f"{field}.{index}", one, depth + 1, left) for index, one in enumerate(value)]
    decided_by = name == "any"
    return TargetSelector(
        lambda device: _joined((one.means(device) for one in parts), decided_by=decided_by),
        tuple(dict.fromkeys(device for one in parts for device in one.named)),
        any(one.from_record for one in parts),
        reduce(or_, (one.asks for one in parts)),
    )


def _joined(parts: Iterable[bool | None], *, decided_by: bool) -> bool | None:
    """Return what several together mean: one that is so decides, and one that is unknown leaves it unknown."""
    unknown = False
    for one in parts:
        if one is decided_by:
            return decided_by
        unknown = unknown or one is None
    return None if unknown else not decided_by


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
    if len(value) > MOST_LEAVES:
        raise InvalidInputError(field, f"has {len(value)} labels; allowed are {MOST_LEAVES}")
    for name, wanted in value.items():
        if not isinstance(wanted, str):
            raise InvalidInputError(f"{field}.{name[:64]}", f"is {kind_in_words(wanted)}; a string is needed")
        check_length(f"{field}.{name[:64]}", max(name, wanted, key=len))
    labels: dict[str, Any] = dict(value)
    return TargetSelector(
        lambda device: all(device.labels.get(name) == wanted for name, wanted in labels.items()), (), from_record=True
    )


def _profile(field: str, value: object) -> TargetSelector:
    if not isinstance(value, str):
        raise InvalidInputError(field, f"is {kind_in_words(value)}; the name of a profile is needed, or a pattern")
    pattern = re.compile(expression(validate_pattern("profile", value, of_profiles=True)))
    return TargetSelector(lambda device: pattern.fullmatch(device.profile) is not None, (), from_record=True)


def _online(field: str, value: object) -> TargetSelector:
    if not isinstance(value, bool):
        raise InvalidInputError(field, f"is {kind_in_words(value)}; true or false is needed")
    wanted = value
    return TargetSelector(
        lambda device: None if device.online is None else device.online is wanted,
        (),
        from_record=False,
        asks=TargetQuestions(online=True),
    )


def _state(field: str, value: object) -> TargetSelector:
    state = read_state(field, value)
    return TargetSelector(
        lambda device: state.judge(device.words.get(state.topic.text)),
        (),
        from_record=False,
        asks=TargetQuestions(topics=frozenset((state.topic,))),
    )


_LEAF: Final[Mapping[str, Callable[[str, object], TargetSelector]]] = {
    "devices": _devices,
    "labels": _labels,
    "profile": _profile,
    "online": _online,
    "state": _state,
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
        near = [] if label in known else get_close_matches(label[:LONGEST_COMPARED], known, n=1)
        if near:
            said = f"{label[:LONGEST_COMPARED]!a} is a label that no target has; is {near[0]} meant?"
            raise InvalidInputError(member, said)
