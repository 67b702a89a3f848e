"""Scripts have the parts that they say they use, and no others: a function that nobody calls costs each call."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.core.cluster import wakeup
from app.core.commands import history
from app.core.commands import stream as changes
from app.core.versions import RECORD
from app.store.redis.driver.lane import Script
from app.store.redis.driver.scripts import (
    EVENT_SCRIPTS,
    FINISH,
    MARK,
    QUEUE_SCRIPTS,
    REGISTER,
    ROLE,
    SCRIPTS,
    SESSION_SCRIPTS,
    composed,
    parts_of,
)

LUA = Path(__file__).parents[5] / "app" / "store" / "redis" / "lua"
ALL = sorted(one.relative_to(LUA).with_suffix("").as_posix() for one in LUA.rglob("*.lua"))
PARTS = [one for one in ALL if one.startswith("parts/")]
LOADED = {*SCRIPTS, *EVENT_SCRIPTS, *QUEUE_SCRIPTS, ROLE, *SESSION_SCRIPTS}
GIVEN = {
    *("redis", "KEYS", "ARGV", "string", "table", "math", "tonumber", "tostring", "type", "ipairs", "pairs", "unpack"),
    *("error", "cmsgpack", "struct"),
}
"""Names that Redis gives to scripts."""
WORDS = {
    *("and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil", "not"),
    *("or", "repeat", "return", "then", "true", "until", "while"),
}
NAME = r"[A-Za-z_]\w*"


def read(name: str) -> str:
    return (LUA / f"{name}.lua").read_text()


def code_of(text: str) -> str:
    """The text without its comments and strings."""
    return re.sub(r"'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"|--[^\n]*", " ", text)


def made_in(text: str) -> set[str]:
    """The names of locals, functions, parameters and variables of loops."""
    code = code_of(text)
    lists = re.findall(rf"\blocal\s+(?!function\b)({NAME}(?:\s*,\s*{NAME})*)", code)
    lists += re.findall(rf"\bfor\s+({NAME}(?:\s*,\s*{NAME})*)", code)
    lists += re.findall(rf"\bfunction\b(\s*(?:{NAME})?\s*\([^)]*\))", code)
    return {name for one in lists for name in re.findall(NAME, one)}


def taken_from_elsewhere(text: str) -> set[str]:
    """The names that a text uses and does not make; fields of tables are none."""
    used = set(re.findall(rf"(?<![\w.:])({NAME})\b(?!\s*=(?!=))", code_of(text)))
    return used - made_in(text) - WORDS - GIVEN


def given_by(part: str) -> set[str]:
    """The names that a part makes for those behind it."""
    lists = re.findall(rf"^local\s+(?:function\s+)?({NAME}(?:\s*,\s*{NAME})*)", code_of(read(part)), re.MULTILINE)
    return {name for one in lists for name in re.findall(NAME, one)}


def undeclared(text: str) -> set[str]:
    """The names that a text takes from parts which it does not name."""
    return taken_from_elsewhere(text).difference(*map(given_by, parts_of(text)))


@pytest.mark.parametrize("name", ALL)
def test_each_says_which_parts_it_uses_and_uses_each_of_them(name: str) -> None:
    text = read(name)
    assert undeclared(text) == set()
    assert [one for one in parts_of(text) if not given_by(one) & taken_from_elsewhere(text)] == []
    assert parts_of(text) == sorted(parts_of(text))


def test_who_uses_a_part_and_does_not_say_so_is_found_out() -> None:
    assert undeclared("-- Uses clock.\nlocal now = now_us()\nreturn {micros(now), key('due', 1), at = now}") == {"key"}
    finish = read("commands/finish")
    assert undeclared(finish.replace("outcome, ", "")) == {"settle", "waiting_nodes", "words"}
    assert undeclared(finish.replace("-- Uses", "-- Needs")) >= {"read", "parse", "now_us"}


def test_no_two_parts_give_the_same_name() -> None:
    names = [name for part in PARTS if part != "parts/window" for name in given_by(part)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", [one for one in ALL if one not in PARTS])
def test_each_part_stands_once_behind_those_that_it_uses(name: str) -> None:
    text, before = composed(name), ""
    assert Script.of(text).sha in {one.sha for one in LOADED}
    while text != read(name):
        part = next(one for one in PARTS if text.startswith(read(one)))
        assert all(read(one) in before for one in parts_of(read(part)))
        assert read(part) not in before
        before += read(part)
        text = text.removeprefix(read(part))
    assert all(read(one) in before for one in parts_of(text))


def test_a_script_has_no_functions_but_those_that_it_needs() -> None:
    assert re.findall(r"^local function (\w+)", MARK.text, re.MULTILINE) == ["key", "read"]
    assert "function closed_until" not in FINISH.text
    assert "function closed_until" in REGISTER.text


def test_the_scripts_keep_their_rules() -> None:
    assert len(ALL) - len(PARTS) == len(LOADED)
    for script in LOADED:
        assert "#!" not in script.text  # it would forbid Redis 6, and the rest of a script at maxmemory
        assert "while " not in script.text
        assert "KEYS *" not in script.text
    for name in ALL:
        if name not in PARTS:
            header = read(name).partition("\n\n")[0]
            for word in ("-- KEYS", "-- ARGV", "-- Reply", "-- Writes"):
                assert word in header, name


def test_the_scripts_have_the_bounds_that_the_program_has() -> None:
    assert f"local RECORD = {RECORD} " in read("parts/record")
    assert f"local INLINE_MAX = {wakeup.INLINE_MAX} " in read("parts/outcome")
    limits = f"{history.MOST_REPORTS}, {history.EDGE}, {history.MOST_REPORT_BYTES}"
    assert f"local MOST_REPORTS, EDGE, MOST_REPORT = {limits} " in read("commands/respond")
    limits = f"{changes.MOST_HAPPENINGS}, {changes.MOST_TEXT}"
    assert f"local MOST_HAPPENINGS, MOST_TEXT = {limits} " in read("parts/news")
