"""Targets by what devices have said last: what is unknown of is no target, whatever stands around the condition."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.core.errors import InvalidInputError
from app.core.fleets.states import read_state
from app.core.fleets.targets import TargetCandidate, TargetSelector, read_selector
from app.core.profiles.interlocks import LastWord

TOPIC = "d/{device_id}/osd"
NEW = LastWord(b'{"fw":{"version":"4.2"},"volts":12.5}', timedelta(seconds=1))
OLD = LastWord(b'{"fw":{"version":"4.1"},"volts":11}', timedelta(hours=1))
UNKNOWN: list[LastWord | None] = [
    None,
    LastWord(b"{}", timedelta()),
    LastWord(b'{"fw":{"version":4.2}}', timedelta()),
    LastWord(b'{"fw":{"version":NaN}}', timedelta()),
    LastWord(b"\xff", timedelta()),
    LastWord(b'{"fw":{"version":"4.1"}}', timedelta(seconds=-60)),
    LastWord(b'{"fw":{"version":"4.1"}}', timedelta(days=31)),
]


def state(*when: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"state": {"topic": TOPIC, "when": list(when), **more}}


def version(**compared: Any) -> dict[str, Any]:
    return state({"path": "fw.version", **compared})


def device(word: LastWord | None = None, *, online: bool | None = None, name: str = "dock-1") -> TargetCandidate:
    return TargetCandidate(name, "dji", {}, online, {TOPIC: word})


def selector(asked: object) -> TargetSelector:
    found = read_selector(asked)
    assert not found.from_record
    return found


@pytest.mark.parametrize(
    ("asked", "of_new", "of_old"),
    [
        (version(is_in=["4.2"]), True, False),
        (version(is_not=["4.2"]), False, True),
        ({"not": version(is_in=["4.2"])}, False, True),
        (state({"path": "volts", "at_least": 12, "below": 13}), True, False),
        (state({"path": "volts", "above": 1}, {"path": "fw.version", "is_in": ["4.1"]}), False, True),
        (state({"path": "volts", "above": 1}, max_age="1m"), True, None),
    ],
)
def test_conditions_hold_are_violated_or_unknown(asked: object, *, of_new: bool, of_old: bool | None) -> None:
    means = selector(asked).means
    assert (means(device(NEW)), means(device(OLD))) == (of_new, of_old)


@pytest.mark.parametrize("word", UNKNOWN)
def test_what_is_unknown_is_meant_by_nothing_but_by_another_reason(word: LastWord | None) -> None:
    asked = version(is_in=["4.2"])
    here, there = {"devices": ["dock-1"]}, {"devices": ["dock-2"]}
    joined = {"all": [here, asked]}
    for one in (asked, {"not": asked}, joined, {"any": [there, asked]}, {"not": joined}):
        assert selector(one).means(device(word)) is None
    assert selector({"any": [here, asked]}).means(device(word)) is True
    assert selector({"all": [there, asked]}).means(device(word)) is False


@pytest.mark.parametrize(
    ("online", "meant", "not_meant"), [(True, True, False), (False, False, True), (None, None, None)]
)
def test_a_device_is_there_or_not_or_nobody_knows(
    *, online: bool | None, meant: bool | None, not_meant: bool | None
) -> None:
    one = device(online=online)
    assert selector({"online": True}).means(one) is meant
    assert selector({"online": False}).means(one) is not_meant
    assert selector({"not": {"online": True}}).means(one) is not_meant


def test_it_says_what_has_to_be_asked() -> None:
    asked = read_selector({"any": [{"profile": "dji"}, {"not": {"online": True}}, version(is_in=["4.2"])]}).asks
    assert (asked.online, [one.text for one in asked.topics]) == (True, [TOPIC])
    assert not read_selector({"all": [{"profile": "dji"}, {"devices": ["a"]}]}).asks


@pytest.mark.parametrize(
    ("value", "field", "says"),
    [
        ([], "s", "an object is needed"),
        ({"when": []}, "s.topic", "is missing"),
        ({"topic": TOPIC}, "s.when", "is missing"),
        ({"topic": TOPIC, "when": []}, "s.when", "is empty"),
        ({"topic": 7, "when": [{}]}, "s.topic", "a topic with {device_id} in it is needed"),
        ({"topic": "d/osd", "when": [{"path": "a", "above": 1}]}, "s.topic", "names no device"),
        ({"topic": "d/{device_id}/{id}", "when": [{"path": "a", "above": 1}]}, "s.topic", "{id}"),
        ({"topic": "d/{device_id}/#", "when": [{"path": "a", "above": 1}]}, "s.topic", "wildcard"),
        ({"topic": TOPIC, "when": [{"above": 1}]}, "s.when.0.path", "is no path"),
        ({"topic": TOPIC, "when": [{"path": "a[0]", "above": 1}]}, "s.when.0.path", "'a[0]' is no path"),
        ({"topic": TOPIC, "when": [{"path": "a"}]}, "s.when.0", "compares with nothing; allowed: is_in"),
        ({"topic": TOPIC, "when": [{"path": "a", "equals": 1}]}, "s.when.0.equals", "is unknown; allowed: path"),
        ({"topic": TOPIC, "when": [{"path": "a", "is_in": []}]}, "s.when.0.is_in", "is empty"),
        ({"topic": TOPIC, "when": [{"path": "a", "is_in": [{}]}]}, "s.when.0.is_in", "allowed: text, numbers"),
        ({"topic": TOPIC, "when": [{"path": "a", "above": "1"}]}, "s.when.0.above", "a finite number is needed"),
        ({"topic": TOPIC, "when": [{"path": "a", "above": True}]}, "s.when.0.above", "a finite number is needed"),
        ({"topic": TOPIC, "when": [{"path": "a", "above": 10**400}]}, "s.when.0.above", "a finite number is needed"),
        ({"topic": TOPIC, "when": [{"path": "a", "above": 1}] * 9}, "s.when", "has 9 entries; allowed are 8"),
        ({"topic": TOPIC, "when": [{"path": "a", "above": 1}], "max_age": "1s"}, "s.max_age", "allowed: 2s to 720h"),
    ],
)
def test_what_cannot_be_meant_is_refused(value: object, field: str, says: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        read_state("s", value)
    assert refused.value.field == field
    assert says in refused.value.reason
