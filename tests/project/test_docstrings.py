"""Docstrings begin with a subject or a verb, as CONTRIBUTING.md says of all descriptions: no bare clauses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from app.cli.verbs import HELP

ROOT = Path(__file__).parent.parent.parent

_BARE = re.compile(
    r"(What|Whatever|Whether|Who|Whoever|Whom|Whose|Which|Those|How|Why|Where|So many|So much|Of|With|That)\b"
)
"""The words with which a docstring must not begin. A boolean is described by "True if …"."""
_DESCRIPTIONS = ("description", "summary", "response_description", "help", "short_help")
"""The arguments that are shown to users: in OpenAPI, and on the command line."""
_OF_ATTRIBUTE = re.compile(
    rf"({_BARE.pattern}|(By|When|As what|In how|To whom|(For|After|About) how|For so long)\b"
    r"|(Up to where|(Since|Between) which)\b)"
)
"""The words with which the docstring of an attribute or a constant must not begin."""
_MAYBE = re.compile(r'"""\s*' + _OF_ATTRIBUTE.pattern)


def bare_clauses(source: str) -> Iterator[tuple[int, str]]:
    """The lines of docstrings that begin with a bare clause, each with how it begins."""
    if not _MAYBE.search(source):  # parsing all files takes a minute
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text is not None and _BARE.match(text):
                yield node.body[0].lineno, text.partition("\n")[0]
        for statement in _about_attributes(node):
            text = _begin_of(statement.value).strip()
            if _OF_ATTRIBUTE.match(text):
                yield statement.lineno, text.partition("\n")[0]


def _about_attributes(node: ast.AST) -> Iterator[ast.Expr]:
    """The texts that stand under an attribute or a constant of this node's body."""
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.If):
        return
    for before, statement in pairwise(node.body):
        if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(statement, ast.Expr):
            yield statement


def bare_descriptions(source: str) -> Iterator[tuple[int, str]]:
    """The lines of descriptions for users that begin with a bare clause, each with how it begins."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg in _DESCRIPTIONS:
            text = _begin_of(node.value)
            if _BARE.match(text):
                yield node.value.lineno, text


def _begin_of(value: ast.expr) -> str:
    """The text with which a literal begins; nothing of any other expression."""
    if isinstance(value, ast.JoinedStr):
        return _begin_of(value.values[0])
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def described() -> Iterator[tuple[str, str]]:
    """The files with descriptions for users, each with its source."""
    for top in ("app/api", "app/cli", "tools"):
        for path in sorted((ROOT / top).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def sources() -> Iterator[tuple[str, str]]:
    """All files of Python, each with its source."""
    for top in ("app", "client", "tools", "tests", "scripts"):
        for path in sorted((ROOT / top).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def offenders() -> Iterator[str]:
    """The docstrings that begin with a bare clause, each with its place."""
    for path, source in sources():
        yield from (f"{path}:{line}: {begin}" for line, begin in bare_clauses(source))


def test_docstrings_begin_with_a_subject_or_a_verb() -> None:
    assert list(offenders()) == [], "begin with a noun phrase or a verb (CONTRIBUTING.md, Style)"


def test_descriptions_begin_with_a_subject_or_a_verb() -> None:
    found = [f"{path}:{line}: {begin}" for path, source in described() for line, begin in bare_descriptions(source)]
    found += [f"HELP[{name!r}]: {text}" for name, text in HELP.items() if _BARE.match(text)]
    assert found == [], "begin with a noun phrase or a verb (CONTRIBUTING.md, Style)"


def test_a_bare_description_is_found_in_each_of_its_forms() -> None:
    source = 'Field(description="What it is.")\nOption(help=f"How {many}.")\nget(summary=("Of " "all"))\nx(title="Who")'
    assert list(bare_descriptions(source)) == [(1, "What it is."), (2, "How "), (3, "Of all")]


def test_a_bare_clause_is_found_wherever_a_docstring_stands() -> None:
    source = '"""What it is."""\nclass Node:\n    """Whether it is."""\n    def read(self):\n        """So many."""\n'

    assert list(bare_clauses(source)) == [(1, "What it is."), (3, "Whether it is."), (5, "So many.")]


def test_a_bare_clause_about_an_attribute_is_found() -> None:
    source = 'MOST = 1\n"""How many."""\nLEAST = 1\n"""However many."""\nclass Node:\n    id: str\n    """By name."""\n'

    assert list(bare_clauses(source)) == [(2, "How many."), (7, "By name.")]


def test_a_bare_clause_about_what_a_constructor_sets_is_found() -> None:
    source = 'class Node:\n    def __init__(self):\n        self.id = 1\n        """When it came."""\n'

    assert list(bare_clauses(source)) == [(4, "When it came.")]


def test_words_that_only_begin_alike_are_no_bare_clause() -> None:
    source = '"""Offers rooms."""\ndef read():\n    """Without a key, return None."""\nMOST = 1\n"""Bytes of it."""\n'

    assert list(bare_clauses(source)) == []
