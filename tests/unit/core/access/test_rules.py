from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.access.rules import BUILT_IN, Action, Concurrency, Effect, Limit, Per, parse_rule, parse_rules
from app.core.errors import InvalidInputError

ALLOW = "allow ACTION PROFILE:METHOD on DEVICE"
WORDS = ["allow", "deny", "require", "limit", "2", "send", "*", "*:*", "on", "a", "1/s", "burst", "3"]
ACTIONS = ", ".join([*(action.value for action in Action), "*"])


def test_the_parts_of_a_rule() -> None:
    rule = parse_rule("  allow\tsend  dji:cover_*   on dock-* ", "pilot", 3)
    assert (rule.effect, rule.action, rule.profile, rule.method, rule.device) == (
        Effect.ALLOW,
        Action.SEND,
        "dji",
        "cover_*",
        "dock-*",
    )
    assert (rule.name, rule.people, rule.limit) == ("pilot.3", 1, None)


def test_the_first_colon_divides_profile_and_method() -> None:
    rule = parse_rule("deny send dji:a:b:* on x:y", "r", 1)
    assert (rule.profile, rule.method, rule.device) == ("dji", "a:b:*", "x:y")


def test_a_star_stands_for_all_actions() -> None:
    rule = parse_rule("deny * *:* on *", "r", 1)
    assert all(rule.concerns(action) for action in Action)
    assert [action for action in Action if parse_rule("deny read *:* on *", "r", 1).concerns(action)] == [Action.READ]


def test_a_second_person() -> None:
    rule = parse_rule("require 2 send dji:return_home on *", "r", 1)
    assert (rule.effect, rule.people, rule.within) == (Effect.REQUIRE, 2, timedelta(minutes=15))
    assert parse_rule("require 2 send dji:return_home on * within 90s", "r", 1).within == timedelta(seconds=90)
    assert parse_rule("allow send *:* on *", "r", 1).within is None


@pytest.mark.parametrize(
    ("rate", "limit"),
    [
        ("100/s burst 200", Limit(100, 1_000_000, 200)),
        ("5/min", Limit(5, 60_000_000, 5)),
        ("999999/h burst 1", Limit(999_999, 3_600_000_000, 1)),
        ("concurrent 20", Concurrency(20)),
        ("concurrent 1 per device", Concurrency(1, Per.DEVICE)),
    ],
)
def test_limits(rate: str, limit: Limit | Concurrency) -> None:
    assert parse_rule(f"limit send *:* on * {rate}", "r", 1).limit == limit


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", f"is empty; allowed: {ALLOW} | deny"),
        ("alow read *:* on *", "'alow' is unknown; did you mean allow? allowed: allow, deny, require, limit"),
        ("Allow read *:* on *", "'Allow' is unknown; did you mean allow? allowed: allow, deny, require, limit"),
        ("allow", f"ends too early; allowed: {ALLOW}"),
        ("allow sned *:* on *", f"action 'sned' is unknown; did you mean send? allowed: {ACTIONS}"),
        ("allow se* *:* on *", f"action 'se*' is unknown; allowed: {ACTIONS}"),
        ("allow send", f"ends too early; allowed: {ALLOW}"),
        ("allow send cover_open on *", "'cover_open' has no colon; allowed: PROFILE:METHOD, *:* for all"),
        ("allow send :cover_open on *", "profile is empty; * stands for all"),
        ("allow send dji: on *", "method is empty; * stands for all"),
        ("allow send DJI:x on *", "profile 'D' at index 0 is not allowed; allowed: a-z 0-9 _ -, * for any text"),
        ("allow send dji:x", f"ends too early; allowed: {ALLOW}"),
        (
            "allow send dji:x dock-1",
            f"'dock-1' stands where on belongs: the device comes after the word on; allowed: {ALLOW}",
        ),
        ("allow send dji:x on", f"ends too early; allowed: {ALLOW}"),
        (
            "allow send dji:x on dock-?",
            "device '?' at index 5 is not allowed; allowed: A-Z a-z 0-9 _ . : -, * for any text",
        ),
        ("allow send dji:x on a b", f"'b' is too much; allowed: {ALLOW}"),
        ("allow send dji:x on a 5/s", f"'5/s' is too much; allowed: {ALLOW}"),
        ("require 3 send *:* on *", "'3' stands where 2 belongs: the number of people is 2: the caller and one more;"),
        ("require send *:* on *", "'send' stands where 2 belongs"),
        ("require", "ends too early; allowed: require 2 send PROFILE:METHOD on DEVICE"),
        ("require 2 read *:* on *", "only send can need a second person; allowed: require 2 send"),
        ("require 2 * *:* on *", "only send can need a second person"),
        ("require 2 send *:* on * for 5m", "'for' stands where within belongs"),
        ("require 2 send *:* on * within", "ends too early; allowed: require 2 send"),
        ("require 2 send *:* on * within 10", "within '10':"),
        ("require 2 send *:* on * within 500ms", "within '500ms' is out of range; allowed: 1s to 168h"),
        ("require 2 send *:* on * within 169h", "within '169h' is out of range"),
        ("require 2 send *:* on * within 5m 3", "'3' is too much"),
        ("allow send *:* on * within 5m", "'within' is too much"),
        ("limit send *:* on *", "has no rate at its end; allowed: 1 to 999999 and /s, /min or /h, as in 100/s"),
        ("limit send *:* on * 0/s", "has no rate at its end"),
        ("limit send *:* on * 1/d", "has no rate at its end"),
        ("limit send *:* on * 1000000/s", "has no rate at its end"),
        (
            "limit send *:* on * 1/s bust 3",
            "'bust' stands where burst belongs: after the rate comes nothing, a burst, or per",
        ),
        ("limit send *:* on * 1/s burst", "burst '' is not a number; allowed: 1 to 999999"),
        ("limit send *:* on * 1/s burst -1", "burst '-1' is not a number"),
        ("limit send *:* on * 1/s burst 2 3", "'3' stands where per belongs"),
        ("limit send *:* on * 1/s per", "per '' is unknown; allowed: principal, tenant, device"),
        ("limit send *:* on * 1/s per devise", "per 'devise' is unknown; did you mean device?"),
        ("limit send *:* on * 1/s per device 3", "'3' is too much"),
        ("limit send *:* on * concurrent", "concurrent '' is not a number; allowed: 1 to 999999"),
        ("limit send *:* on * concurrent 0", "concurrent '0' is not a number"),
        ("limit send *:* on * concurrent 20/s", "concurrent '20/s' is not a number"),
        (
            "limit send *:* on * concurrent 20 burst 3",
            "'burst' stands where per belongs: after the number comes nothing",
        ),
        ("limit send *:* on * concurrent 20 per", "per '' is unknown; allowed: principal, tenant, device"),
        ("limit send *:* on * concurrrent 20", "has no rate at its end"),
        ("limit read *:* on * concurrent 20", "only send leaves something open to be counted; allowed: limit"),
        ("limit * *:* on * concurrent 20", "only send leaves something open"),
        ("allow send *:*\non *", "U+000A at index 14 is not allowed; a rule is one line of ASCII"),
        ("allow send *:* on *\u2028deny * *:* on *", "U+2028 at index 19 is not allowed"),
        ("allow\u00a0send *:* on *", "U+00A0 at index 5 is not allowed"),
        ("allow send *:* on " + "x" * 500, "has 518 characters; allowed are 512"),
    ],
)
def test_a_wrong_rule_is_told(text: str, fault: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        parse_rules(["allow read *:* on *", text], "pilot")
    assert str(error.value).startswith(f"rules: role 'pilot', line 2: {fault}")


@settings(deadline=None)
@given(st.text() | st.lists(st.sampled_from(WORDS)).map(" ".join))
def test_any_text_is_a_rule_or_a_fault(text: str) -> None:
    with suppress(InvalidInputError):
        assert parse_rule(text, "r", 1).text == text


def test_built_in_roles() -> None:
    rules = {name: parse_rules(lines, name) for name, lines in BUILT_IN.items()}
    may = {name: {action for action in Action for rule in of if rule.concerns(action)} for name, of in rules.items()}
    look = {Action.READ, Action.STREAM, Action.NODES, Action.METRICS}
    assert may == {
        "viewer": look,
        "operator": look | {Action.SEND, Action.CANCEL, Action.FLEET, Action.PUBLISH, Action.CONSUME},
        "approver": look | {Action.APPROVE},
        "admin": set(Action),
    }
