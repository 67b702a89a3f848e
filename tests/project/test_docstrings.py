"""Docstrings begin with a subject or a verb, as CONTRIBUTING.md says of all descriptions: no bare clauses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

_BARE = re.compile(
    r"(What|Whatever|Whether|Who|Whoever|Whom|Whose|Which|Those|How|Why|Where|So many|So much|Of|With|That)\b"
)
"""The words with which a docstring must not begin. A boolean is described by "True if …"."""

NOT_YET = frozenset(
    {
        "app",
        "app/api/v1",
        "app/callbacks",
        "app/cli",
        "app/commands/explain",
        "app/commands/follow",
        "app/commands/send",
        "app/core",
        "app/core/broker",
        "app/core/commands",
        "app/core/profiles",
        "app/core/queues",
        "app/profiles",
        "app/profiles/language",
        "app/profiles/tools",
        "app/queues",
        "app/store",
        "app/store/memory",
        "app/store/redis",
        "app/store/rocks",
        "app/webhooks",
        "tests/api",
        "tests/cluster",
        "tests/console",
        "tests/containers",
        "tests/contract",
        "tests/counterparts",
        "tests/deploy",
        "tests/rig/chaos",
        "tests/rig/simulation",
        "tests/rig/unit",
        "tests/unit",
        "tests/unit/commands",
        "tests/unit/core",
        "tests/unit/profiles",
        "tests/unit/queues",
        "tests/unit/store",
        "tools/rig/homing_rig",
    }
)
"""Rooms whose docstrings are still to be rewritten. Take a room out with its last one; put none in."""


def bare_clauses(source: str) -> Iterator[tuple[int, str]]:
    """The lines of docstrings that begin with a bare clause, each with how it begins."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None and _BARE.match(text):
                yield node.body[0].lineno, text.partition("\n")[0]


@cache
def offenders() -> dict[str, list[str]]:
    """The docstrings of each room that begin with a bare clause."""
    found: dict[str, list[str]] = {}
    for top in ("app", "client", "tools", "tests", "scripts"):
        for path in sorted((ROOT / top).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            for line, begin in bare_clauses(path.read_text(encoding="utf-8")):
                found.setdefault(room_of(name), []).append(f"{name}:{line}: {begin}")
    return found


def room_of(name: str) -> str:
    """The folder of a file, cut off at the third level."""
    return "/".join(name.split("/")[:-1][:3])


def test_docstrings_begin_with_a_subject_or_a_verb() -> None:
    found = offenders()
    assert [line for room in sorted(found.keys() - NOT_YET) for line in found[room]] == [], (
        "begin with a noun phrase or a verb (CONTRIBUTING.md, Style)"
    )


def test_rooms_that_are_done_leave_the_list() -> None:
    assert sorted(NOT_YET - offenders().keys()) == []


def test_a_bare_clause_is_found_wherever_a_docstring_stands() -> None:
    source = '"""What it is."""\nclass Node:\n    """Whether it is."""\n    def read(self):\n        """So many."""\n'

    assert list(bare_clauses(source)) == [(1, "What it is."), (3, "Whether it is."), (5, "So many.")]


def test_words_that_only_begin_alike_are_no_bare_clause() -> None:
    source = '"""Offers rooms."""\ndef read():\n    """Without a key, return None."""\n'

    assert list(bare_clauses(source)) == []
