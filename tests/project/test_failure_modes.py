"""docs/failure-modes.md is the key to the numbers in names of tests: it knows them all, and the tests that it names."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from homing_rig.chaos.report import INVARIANTS
from homing_rig.chaos.scenarios import SCENARIOS
from homing_rig.figures.__main__ import MEASUREMENTS

ROOT: Final = Path(__file__).parents[2]
TESTS: Final = ROOT / "tests"
PAGE: Final = (ROOT / "docs" / "failure-modes.md").read_text(encoding="utf-8")

EXPLAINED: Final = set(re.findall(r"^- \*\*([EFRSHI]\d+|[A-Z]+)\*\* ", PAGE, re.MULTILINE))
HELD: Final = (ROOT / "docs" / "held-figures.md").read_text(encoding="utf-8")
NAMED: Final = sorted(set(re.findall(r"`(\w+/[\w/]+\.py)(?:::([\w…]+))?`", PAGE)))


@cache
def names_in(path: Path) -> tuple[str, ...]:
    """The functions and classes of a file."""
    return tuple(re.findall(r"(?:def|class) (\w+)", path.read_text(encoding="utf-8")))


def test_every_number_in_the_name_of_a_test_is_explained() -> None:
    carried = {
        number
        for path in TESTS.rglob("test_*.py")
        for name in names_in(path)
        if (found := re.match(r"test_((?:[FRSH]\d+_)+)", name))
        for number in found[1].strip("_").split("_")
    }
    assert "F20" in carried
    assert carried <= EXPLAINED


def test_every_figure_of_held_commands_has_its_tests_scenarios_and_measurements() -> None:
    named = {name for path in TESTS.rglob("test_*.py") for name in names_in(path)}
    carried = {found[1] for name in named if (found := re.match(r"test_c(\d+)_", name))}
    assert carried == set(re.findall(r"`test_c(\d+)_…`", HELD))
    assert carried <= set(re.findall(r"\*\*C(\d+)\*\*", HELD))
    assert set(re.findall(r"--scenario (\w+)", HELD)) <= {*SCENARIOS}
    assert set(re.findall(r"homing_rig\.figures ([\w-]+)", HELD)) <= {*MEASUREMENTS}


def test_every_failure_mode_says_what_homing_does_and_which_test_shows_it() -> None:
    rows = re.findall(r"^- \*\*(F\d+)\*\* .*\n((?:  .*\n)*)", PAGE, re.MULTILINE)
    assert len(rows) > 70
    assert not [number for number, row in rows if "- Homing: " not in row or "- Test: " not in row]


def test_every_test_that_is_named_exists() -> None:
    assert NAMED
    missing = [f"{file}::{name}" for file, name in NAMED if not exists(file, name)]
    assert not missing, "\n".join(missing)


def exists(file: str, name: str) -> bool:
    """True if there is such a file and, where one is named, such a test; `…` stands for the rest of its name."""
    path = next((one for one in (TESTS / file, ROOT / file) if one.is_file()), None)
    if path is None or not name:
        return path is not None
    beginning = name.removesuffix("…")
    return any(one.startswith(beginning) if name.endswith("…") else one == name for one in names_in(path))


def remarks(source: str) -> Iterator[str]:
    """Comments and docstrings, where the code says why."""
    yield from (
        token.string.partition("noqa:")[0]
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    )
    yield from (
        node.value.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )


def numbers_in(remark: str) -> list[str]:
    return re.findall(r"(?<![\w-])[FRSHI]\d+(?!\w)|§ ?\d*", remark)


def test_code_says_why_in_words_and_not_by_number() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {number} in {remark[:60]!r}"
        for path in sorted((ROOT / "app").rglob("*.py"))
        if numbers_in(source := path.read_text(encoding="utf-8"))  # parsing all of them takes long
        for remark in remarks(source)
        for number in numbers_in(remark)
    ]
    assert not found, "\n".join(found)


def test_a_number_in_a_remark_is_found_and_a_rule_of_the_linter_is_not() -> None:
    source = '''"""As F15 has it."""\nx = 1  # see §5\ny = 2  # noqa: S105 - no secret\n'''
    assert [number for remark in remarks(source) for number in numbers_in(remark)] == ["§5", "F15"]


def test_every_number_that_the_rig_shows_is_explained() -> None:
    assert {*INVARIANTS, *(name.partition("-")[0] for name in SCENARIOS)} <= EXPLAINED
