from __future__ import annotations

from datetime import timedelta

import pytest

from app.core.payload import JsonValue
from app.core.profiles.echoes import Echo, Kind, Wish
from app.core.profiles.templating import CommandFacts
from app.profiles.expressions import expression

SECOND = timedelta(seconds=1)


def facts(params: JsonValue) -> CommandFacts:
    return CommandFacts("id", "lamp", "set", params, 0, 10)


@pytest.mark.parametrize(
    ("kind", "tolerance", "told", "wanted", "holds"),
    [
        (Kind.JSON, 0, "ON", "ON", True),
        (Kind.JSON, 0, "on", "ON", False),
        (Kind.JSON, 0, 21, 21.0, True),
        (Kind.JSON, 0, True, 1, False),
        (Kind.JSON, 0, 0, False, False),
        (Kind.JSON, 0, {"x": 1}, {"x": 1}, True),
        (Kind.JSON, 0, None, "x", False),
        (Kind.JSON, 2, 101, 100, True),
        (Kind.JSON, 2, 103, 100, False),
        (Kind.JSON, 0, "21.5", 21.5, False),
        (Kind.NUMBER, 0, "21.5", 21.5, True),
        (Kind.NUMBER, 0.5, "21.50", 22, True),
        (Kind.NUMBER, 0, "nan", 1, False),
        (Kind.NUMBER, 1000, True, 1, False),
        (Kind.NUMBER, 0, "warm", "warm", False),
        (Kind.BOOLEAN, 0, "ON", True, True),
        (Kind.BOOLEAN, 0, 0, "off", True),
        (Kind.BOOLEAN, 0, "ON", False, False),
        (Kind.BOOLEAN, 0, "maybe", "maybe", False),
        (Kind.TEXT, 0, "Heat", "HEAT", True),
        (Kind.TEXT, 0, 1, "1", True),
        (Kind.TEXT, 0, "true", True, True),
        (Kind.TEXT, 0, "True", True, True),
        (Kind.TEXT, 0, "FALSE", True, False),
        (Kind.TEXT, 0, "1", True, False),
        (Kind.TEXT, 0, 1, True, False),
        (Kind.TEXT, 0, "40", 40, True),
        (Kind.TEXT, 0, "40.0", 40, True),
        (Kind.TEXT, 0, "40", 40.0, True),
        (Kind.TEXT, 0, 40, 40.0, True),
        (Kind.TEXT, 0, "4e1", 40, True),
        (Kind.TEXT, 0, "40.0", "40", False),
        (Kind.TEXT, 0, "041", 41, True),
        (Kind.TEXT, 0, "40.01", 40, False),
        (Kind.TEXT, 0, "4_0", 40, False),
        (Kind.TEXT, 0, " 40", 40, False),
        (Kind.TEXT, 0, "nan", 40, False),
        (Kind.TEXT, 0, "1e999999999", 40, False),
        (Kind.TEXT, 0, "9007199254740993", 9007199254740992, False),
        (Kind.TEXT, 0, None, None, True),
        (Kind.TEXT, 0, "null", None, False),
        (Kind.TEXT, 0, None, "null", False),
        (Kind.TEXT, 0, "", None, False),
        (Kind.TEXT, 0, ["a"], ["a"], False),
        (Kind.ANY, 0, None, 7, True),
        (Kind.ANY, 0, {"x": 1}, "blink", True),
        (Kind.CONTAINS, 0, {"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, True),
        (Kind.CONTAINS, 0, {"a": {"b": 1}}, {"a": {"b": True}}, False),
        (Kind.CONTAINS, 0, {"a": 1}, {"a": {"b": 1}}, False),
        (Kind.CONTAINS, 0.1, [{"n": "x", "v": 1.05}, 3], [{"n": "x", "v": 1}], True),
        (Kind.CONTAINS, 0, [{"n": "x", "v": 2}, {"n": "y", "v": 1}], [{"n": "x", "v": 1}], False),
    ],
)
def test_a_wish_is_granted_as_its_type_compares(
    kind: Kind, tolerance: float, told: JsonValue, wanted: JsonValue, *, holds: bool
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
