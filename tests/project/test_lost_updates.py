"""No count that several tasks may share is added to across an `await`, by which counts of others are lost."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SOURCES = [path for folder in ("app", "client", "tools") for path in sorted((ROOT / folder).rglob("*.py"))]


def lost_updates(source: str) -> list[int]:
    """The lines where `a.b += await c`, which reads `a.b` before it waits, and writes over what came meanwhile.

    A name of the function itself is nobody else's, and `|=` changes a set or dictionary where it is.
    """
    tree = ast.parse(source)
    shared = {name for node in ast.walk(tree) if isinstance(node, ast.Nonlocal | ast.Global) for name in node.names}
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.AugAssign)
        and not isinstance(node.op, ast.BitOr)
        and not (isinstance(node.target, ast.Name) and node.target.id not in shared)
        and any(isinstance(one, ast.Await) for one in ast.walk(node.value))
    ]


def test_nothing_that_is_shared_is_added_to_across_an_await() -> None:
    found = {path: lines for path in SOURCES if (lines := lost_updates(path.read_text("utf-8")))}
    assert {str(path.relative_to(ROOT)): lines for path, lines in found.items()} == {}, "await first, and then add"


@pytest.mark.parametrize(
    ("line", "lost"),
    [
        ("seen.count += await one()", True),
        ("seen['count'] += len(await one())", True),
        ("total += await one()", True),
        ("own += await one()", False),
        ("seen.count += 1", False),
        ("seen.names |= await one()", False),
    ],
)
def test_a_name_of_the_function_alone_is_nobody_elses(line: str, *, lost: bool) -> None:
    source = f"async def f(seen, own):\n    nonlocal total\n    {line}\n"
    assert lost_updates(source) == ([3] if lost else [])
