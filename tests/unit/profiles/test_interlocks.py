"""Interlocks: what their files may say, and that they let through exactly what they should."""

from __future__ import annotations

import json
import math
import operator
from datetime import timedelta
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.errors import ConfigurationError, InterlockError
from app.core.payload import JsonValue, decode_json
from app.core.profiles.interlocks import (
    Interlock,
    InterlockCondition,
    InterlockInput,
    JudgedAs,
    LastWord,
    judge,
    read_input,
)
from app.core.profiles.profile import DeviceProfile
from app.core.topics import TopicTemplate
from app.profiles.loader import parse_profile

HEAD: Final = """name = "p"
description = ""
[request]
topic = "d/{device_id}/do"
payload = { id = "{id}" }
repeatable = ["again"]
[[response]]
name = "r"
topic = "d/{device_id}/done"
correlation = "id"
sources = [{ path = "id" }]
rules = [{ state = "succeeded" }]
[[event]]
name = "state"
topic = "d/{device_id}/state"
"""
GOOD: Final = """[[interlock]]
name = "closed"
methods = ["close", "put_*"]
inputs.mode = { topic = "d/{device_id}/state", path = "mode", max_age = "5s" }
when = [{ path = "inputs.mode", is_in = [0] }]
say = "only when closed"
"""


def profile(interlock: str) -> DeviceProfile:
    return parse_profile(HEAD + interlock, "p.toml")


def test_methods_are_patterns() -> None:
    one = profile(GOOD)
    assert [bool(one.interlocks_of(method)) for method in ("close", "put_in", "put", "open")] == [
        *(True, True, False, False)
    ]
    assert one.topic_for(one.interlocks[0].inputs[0].topic, "a") == "d/a/state"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("d/{device_id}/state", "x/{device_id}/state", "inputs.mode.topic: is the topic of no [[event]]"),
        ("d/{device_id}/state", "d/{device_id}/{method}", "has {method}, which is not known of a device"),
        ('"5s"', '"1s"', "inputs.mode.max_age: 1s is out of range; allowed: 2s to 24h"),
        ('"5s"', "5", "max_age: is not text: write a number and its unit"),
        ('path = "inputs.mode"', 'path = "inputs.mood"', "leads nowhere; allowed: inputs.mode, params.…"),
        ('path = "inputs.mode"', 'path = "params.x"', "inputs.mode: is in no condition"),
        ("is_in = [0]", "is_in = []", "is empty; allowed: one or more"),
        (", is_in = [0]", "", "needs is_in, is_not, at_least, at_most, above, below or within"),
        (
            "is_in = [0]",
            "within = { metres = 5 }",
            "needs a centre: latitude and longitude, or else the path `of` a place",
        ),
        ("is_in = [0]", "within = { metres = 5, latitude = 1 }", "needs a centre"),
        (
            "is_in = [0]",
            "within = { metres = 5, latitude = 91, longitude = 1 }",
            "within.latitude: is 91; allowed: at most 90",
        ),
        ("is_in = [0]", 'within = { metres = 0, of = "params.to" }', "within.metres: is a number; allowed: "),
        ("is_in = [0]", 'within = { metres = 5, of = "inputs.dock" }', "when.0.within.of: 'inputs.dock' leads nowhere"),
        ("is_in = [0]", 'is_in = [0], within = { metres = 5, of = "params.to" }', "has `within` and a comparison"),
        ("is_in = [0]", "at_least = 5, below = 5", "never holds: no number is between 5.0 and 5.0"),
        ("is_in = [0]", 'at_least = "5"', "when.0.at_least: is text; allowed: a number"),
        ("is_in = [0]", "at_least = nan", "when.0.at_least: is a number; allowed: a finite number"),
        ("is_in = [0]", "at_leest = 5", "when.0.at_leest: is unknown; is at_least meant?"),
        ("max_age", "max_aeg", "inputs.mode.max_aeg: is unknown; is max_age meant?"),
        ('path = "mode"', 'path = "modes[0]"', "is no path of keys"),
        ('"put_*"', '"pu?"', "is not allowed; allowed: A-Z a-z 0-9"),
        ('"put_*"', '"ag*"', "fits again, which is repeatable: a repetition is not judged again"),
        ('say = "only when closed"\n', "", "say: is missing"),
    ],
)
def test_a_file_is_refused_with_line_and_key(old: str, new: str, said: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigurationError, match=r"p\.toml:\d+: interlock\.0") as refused:
        profile(GOOD.replace(old, new))
    assert said in str(refused.value)


def test_a_name_stands_for_one_interlock() -> None:
    with pytest.raises(ConfigurationError, match=r"interlock\.1\.name: closed is there already"):
        profile(GOOD + GOOD)


def test_a_pattern_must_fit_a_method_of_a_closed_profile() -> None:
    closed = HEAD.replace("[request]", 'methods = "closed"\n[request]', 1).replace('["again"]', "[]")
    method = '[[method]]\nname = "close"\ntitle = "Close"\n'
    with pytest.raises(ConfigurationError, match=r"'put_\*' fits no method of the profile: close"):
        parse_profile(closed + method + GOOD, "p.toml")


INPUT: Final = InterlockInput("x", TopicTemplate("t"), (), timedelta(seconds=5), decode_json)


@pytest.mark.parametrize(
    ("age", "because"),
    [(-2.0, "it comes from the future: clocks differ"), (-0.5, None), (5.0, None), (5.000001, "it is older than 5s")],
)
def test_a_value_counts_while_it_is_young(age: float, because: str | None) -> None:
    assert read_input(INPUT, LastWord(b"1", timedelta(seconds=age))).because == because


SCALARS: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.0, 0.5, 2.5, 1e308]),
    st.sampled_from(["", "0", "a"]),
)
VALUES: Final = SCALARS | st.sampled_from([[0], {"a": 1}])
RAW: Final = VALUES.map(lambda one: json.dumps(one).encode()) | st.sampled_from(
    [b"NaN", b"1" + b"0" * 400, b"1e400", b"", b"{", b"\xff", b"-Infinity"]
)
NUMBERS: Final = st.none() | st.sampled_from([-1.0, 0.0, 0.5, 2.0])
LISTS: Final = st.none() | st.lists(SCALARS, min_size=1, max_size=3).map(tuple)
CONDITIONS: Final = st.builds(
    InterlockCondition,
    st.sampled_from([("inputs", "x"), ("params", "p"), ("params", "q")]),
    LISTS,
    LISTS,
    *([NUMBERS] * 4),
).filter(lambda one: bool(one.wanted()))
COMPARED: Final = {"at_least": operator.ge, "at_most": operator.le, "above": operator.gt, "below": operator.lt}


def expected(condition: InterlockCondition, raw: bytes | None, age: float, params: dict[str, Any]) -> bool:
    """True if it holds, told another way: by texts of JSON, which differ where values do."""
    if condition.path[0] == "inputs":
        try:
            value = json.loads(raw or b"", parse_constant=lambda _: 1 / 0)
        except (ValueError, ZeroDivisionError):
            return False
        if not -1 <= age <= 5:
            return False
    elif condition.path[1] in params:
        value = params[condition.path[1]]
    else:
        return False
    is_number = type(value) in (int, float)
    if is_number and (math.isinf(value) if isinstance(value, float) else abs(value) >= 2**63):
        return False
    wanted: dict[str, Any] = dict(condition.wanted())

    def text(one: JsonValue) -> str:
        return (
            f"number {float(one)!r}" if isinstance(one, int | float) and not isinstance(one, bool) else json.dumps(one)
        )

    def kind(one: object) -> type:
        return float if type(one) is int else type(one)

    listed = [*(wanted.get("is_in") or []), *(wanted.get("is_not") or [])]
    return (
        (not listed or kind(value) in map(kind, listed))
        and ("is_in" not in wanted or text(value) in map(text, wanted["is_in"]))
        and ("is_not" not in wanted or text(value) not in map(text, wanted["is_not"]))
        and all(is_number and compare(value, wanted[name]) for name, compare in COMPARED.items() if name in wanted)
    )


@given(
    when=st.lists(CONDITIONS, min_size=1, max_size=3).map(tuple),
    raw=st.none() | RAW,
    age=st.sampled_from([-30.0, -0.5, 0.0, 4.9, 5.1, 900.0]),
    params=st.dictionaries(st.sampled_from(["p"]), VALUES),
)
def test_c114_a_second_evaluator_lets_the_same_commands_through(
    when: tuple[InterlockCondition, ...], raw: bytes | None, age: float, params: dict[str, Any]
) -> None:
    lock = Interlock("lock", ("*",), (INPUT,), when, "why")
    word = None if raw is None else LastWord(raw, timedelta(seconds=age))
    verdict = judge(lock, {"x": word}, params)
    each = [row["result"] is JudgedAs.HOLDS for row in verdict.evidence]
    assert each == [expected(one, raw, age, params) for one in when]
    assert (verdict.result is JudgedAs.HOLDS) == all(each)
    shown = {"interlock": "lock", "say": "why", "conditions": verdict.evidence}
    refused = InterlockError("close", "d", [shown])
    assert json.loads(json.dumps(refused.interlocks))
    hidden = refused.without_values().interlocks[0]["conditions"]
    assert all(row.keys() == {"path", "wanted", "result"} for row in hidden)
