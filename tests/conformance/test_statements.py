"""The tables of statements: each that binds a server names tests that are there, or a sentence of the docs."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
TESTS = HERE.parent
DOCS = TESTS.parent / "docs" / "mqtt-conformance.md"
COUNTS = {"mqtt_5": (251, 226), "mqtt_3_1_1": (141, 132)}
"""Statements of each standard, and those of them that bind a server."""
tables = pytest.mark.parametrize("table", COUNTS)


@cache
def statements(table: str) -> dict[str, dict[str, Any]]:
    """By number; the key of a section is its number and its name."""
    sections = tomllib.loads((HERE / f"{table}.toml").read_text("utf-8"))
    found: dict[str, dict[str, Any]] = {}
    for section, rows in sections.items():
        number = section.split(" ")[0]
        for name, row in rows.items():
            assert name.startswith(f"MQTT-{number}."), f"{name} stands in {section}"
            assert name not in found
            found[name] = row
    return found


@cache
def functions_of(path: str) -> set[str]:
    tree = ast.parse((TESTS / path).read_text("utf-8"))
    return {one.name for one in tree.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}


@cache
def sentences() -> str:
    return " ".join(DOCS.read_text("utf-8").split())


def binds_a_server(row: dict[str, Any]) -> bool:
    return row["who"] in ("server", "both")


@tables
def test_every_statement_is_there_once(table: str) -> None:
    rows = statements(table)
    assert (len(rows), sum(map(binds_a_server, rows.values()))) == COUNTS[table]
    for name, row in rows.items():
        assert re.fullmatch(r"MQTT-\d+(\.\d+){2}-\d+", name)
        assert row["who"] in ("server", "client", "both"), name
        assert row["text"], name
        assert row.keys() <= {"who", "text", "tests", "docs"}, name


@tables
def test_what_binds_a_server_has_a_test_or_a_sentence(table: str) -> None:
    for name, row in statements(table).items():
        if binds_a_server(row):
            assert row.get("tests") or row.get("docs"), f"{name} has neither"


@tables
def test_the_tests_are_there(table: str) -> None:
    for name, row in statements(table).items():
        for one in row.get("tests", ()):
            path, _, function = one.partition("::")
            assert function in functions_of(path), f"{name}: {one}"


@tables
def test_the_sentences_are_in_the_docs(table: str) -> None:
    for name, row in statements(table).items():
        if "docs" in row:
            assert row["docs"] in sentences(), f"{name}: {row['docs']}"


def test_the_docs_tell_the_numbers() -> None:
    for table, (all_of_them, of_servers) in COUNTS.items():
        said = [row for row in statements(table).values() if binds_a_server(row) and row.get("tests")]
        assert f"| {all_of_them} | {of_servers} | {len(said)} | {of_servers - len(said)} |" in sentences()
