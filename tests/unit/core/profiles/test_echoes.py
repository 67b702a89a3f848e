from __future__ import annotations

from datetime import timedelta

import pytest

from app.core.payload import JsonValue
from app.core.profiles.echoes import Comparison, Echo, Wish
from app.core.profiles.templates import CommandFacts
from app.profiles.expressions import expression

SECOND = timedelta(seconds=1)


def facts(params: JsonValue) -> CommandFacts:
    return CommandFacts("id", "lamp", "set", params, 0, 10)


@pytest.mark.parametrize(
    ("kind", "tolerance", "told", "wanted", "holds"),
    [
        (Comparison.JSON, 0, "ON", "ON", True),
        (Comparison.JSON, 0, "on", "ON", False),
        (Comparison.JSON, 0, 21, 21.0, True),
        (Comparison.JSON, 0, True, 1, False),
        (Comparison.JSON, 0, 0, False, False),
        (Comparison.JSON, 0, {"x": 1}, {"x": 1}, True),
        (Comparison.JSON, 0, None, "x", False),
        (Comparison.JSON, 2, 101, 100, True),
        (Comparison.JSON, 2, 103, 100, False),
        (Comparison.JSON, 0, "21.5", 21.5, False),
        (Comparison.JSON, 0, 9007199254740993, 9007199254740992, False),
        (Comparison.JSON, 1, 9007199254740993, 9007199254740992, True),
        (Comparison.NUMBER, 0, "9007199254740993", 9007199254740992, False),
        (Comparison.NUMBER, 0, "9007199254740993", 9007199254740993, True),
        (Comparison.NUMBER, 0.5, "-041", -41.5, True),
        (Comparison.CONTAINS, 0, {"n": 9007199254740993}, {"n": 9007199254740992}, False),
        (Comparison.NUMBER, 0, "21.5", 21.5, True),
        (Comparison.NUMBER, 0.5, "21.50", 22, True),
        (Comparison.NUMBER, 0, "nan", 1, False),
        (Comparison.NUMBER, 1000, True, 1, False),
        (Comparison.NUMBER, 0, "warm", "warm", False),
        (Comparison.BOOLEAN, 0, "ON", True, True),
        (Comparison.BOOLEAN, 0, 0, "off", True),
        (Comparison.BOOLEAN, 0, "ON", False, False),
        (Comparison.BOOLEAN, 0, "maybe", "maybe", False),
        (Comparison.TEXT, 0, "Heat", "HEAT", True),
        (Comparison.TEXT, 0, 1, "1", True),
        (Comparison.TEXT, 0, "true", True, True),
        (Comparison.TEXT, 0, "True", True, True),
        (Comparison.TEXT, 0, "FALSE", True, False),
        (Comparison.TEXT, 0, "1", True, False),
        (Comparison.TEXT, 0, 1, True, False),
        (Comparison.TEXT, 0, "40", 40, True),
        (Comparison.TEXT, 0, "40.0", 40, True),
        (Comparison.TEXT, 0, "40", 40.0, True),
        (Comparison.TEXT, 0, 40, 40.0, True),
        (Comparison.TEXT, 0, "4e1", 40, True),
        (Comparison.TEXT, 0, "40.0", "40", False),
        (Comparison.TEXT, 0, "041", 41, True),
        (Comparison.TEXT, 0, "40.01", 40, False),
        (Comparison.TEXT, 0, "4_0", 40, False),
        (Comparison.TEXT, 0, " 40", 40, False),
        (Comparison.TEXT, 0, "nan", 40, False),
        (Comparison.TEXT, 0, "1e999999999", 40, False),
        (Comparison.TEXT, 0, "9007199254740993", 9007199254740992, False),
        (Comparison.TEXT, 0, None, None, True),
        (Comparison.TEXT, 0, "null", None, False),
        (Comparison.TEXT, 0, None, "null", False),
        (Comparison.TEXT, 0, "", None, False),
        (Comparison.TEXT, 0, ["a"], ["a"], False),
        (Comparison.ANY, 0, None, 7, True),
        (Comparison.ANY, 0, {"x": 1}, "blink", True),
        (Comparison.CONTAINS, 0, {"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, True),
        (Comparison.CONTAINS, 0, {"a": {"b": 1}}, {"a": {"b": True}}, False),
        (Comparison.CONTAINS, 0, {"a": 1}, {"a": {"b": 1}}, False),
        (Comparison.CONTAINS, 0.1, [{"n": "x", "v": 1.05}, 3], [{"n": "x", "v": 1}], True),
        (Comparison.CONTAINS, 0, [{"n": "x", "v": 2}, {"n": "y", "v": 1}], [{"n": "x", "v": 1}], False),
    ],
)
def test_a_wish_is_granted_as_its_type_compares(
    kind: Comparison, tolerance: float, told: JsonValue, wanted: JsonValue, *, holds: bool
) -> None:
    wish = Wish(("is",), "{params.wanted}", kind, tolerance)
    assert wish.granted({"is": told}, facts({"wanted": wanted})) is holds


def test_all_that_a_command_wishes_for_must_be_so_and_nothing_else() -> None:
    echo = Echo((Wish(("state",), "{params.state}"), Wish(("level",), "{params.level}", tolerance=1)), SECOND)
    assert echo.answers({"state": "ON", "level": 7}, facts({"state": "ON"}))
    assert echo.answers({"state": "ON", "level": 7}, facts({"state": "ON", "level": 8}))
    assert not echo.answers({"state": "ON", "level": 7}, facts({"state": "ON", "level": 9}))
    assert not echo.answers({"level": 7}, facts({"state": "ON"}))


def test_who_wishes_for_nothing_gets_no_answer() -> None:
    echo = Echo((Wish(("state",), "{params.state}"),), SECOND)
    assert not echo.expected(facts({"other": 1}))
    assert not echo.answers({"state": "ON"}, facts({"other": 1}))


def test_any_state_is_enough_where_only_its_presence_counts() -> None:
    echo = Echo((Wish(("state",)),), SECOND)
    assert echo.expected(facts(None))
    assert echo.answers({"state": None}, facts(None))
    assert not echo.answers({"battery": 3}, facts(None))


def test_a_predicate_sees_the_state_and_the_command_and_must_find_true() -> None:
    echo = Echo((), SECOND, expression("length(message.on) == params.count && device_id == 'lamp'"))
    assert echo.answers({"on": [1, 2]}, facts({"count": 2}))
    assert not echo.answers({"on": [1]}, facts({"count": 2}))
    assert not echo.answers({"on": 7}, facts({"count": 2})), "it cannot be asked that"
    assert not Echo((), SECOND, expression("message.on")).answers({"on": "yes"}, facts(None))
