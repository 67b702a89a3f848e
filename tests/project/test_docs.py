"""Rules for the pages themselves: lines that a person can read, and files that are there."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
LONGEST: Final = 120
"""Characters of a line."""

TABLES_FROM_CODE: Final = {
    "docs/latency-log.md": "| `",  # the columns, in the words of the schema
    "docs/operations/metrics.md": "| `homing_",  # the metrics, in the words in which `/metrics` tells what each is
}
"""Pages with a table that a test compares with the code word for word, and how its rows begin. None can be broken."""

URL: Final = re.compile(r"\S*\w+://\S+")
OF_THE_OPERATOR: Final = "deploy/.env"
PATH: Final = re.compile(r"`((?:app|tests|docs|deploy|scripts)/[\w./-]+)`")
FLOW: Final = re.compile(r"^\| (\d) \| `([\w./]+)` \|", re.MULTILINE)
MOST_FILES: Final = 6


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def too_long(name: str, text: str) -> list[str]:
    """Lines over the limit, but for those that cannot be broken: a URL, and a row that comes from the code."""
    row = TABLES_FROM_CODE.get(name)
    return [
        line
        for line in text.splitlines()
        if len(line) > LONGEST and not URL.fullmatch(line) and not (row and line.startswith(row))
    ]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lines_are_short_enough_to_read(page: Path) -> None:
    assert too_long(name_of(page), page.read_text("utf-8")) == []


def test_a_line_that_is_too_long_is_found() -> None:
    long = "so " * 50
    row = f"| `homing_x` | {long} |"
    assert too_long("docs/operations/metrics.md", f"short\n{long}\n{row}") == [long]
    assert too_long("README.md", row) == [row]


# Decisions and the changelog tell of their day, and may name what is gone.
TODAY: Final = [page for page in PAGES if "adr" not in page.parts and page.name != "CHANGELOG.md"]


@pytest.mark.parametrize("page", TODAY, ids=name_of)
def test_every_file_that_is_named_is_there(page: Path) -> None:
    named = PATH.findall(page.read_text("utf-8"))
    assert [path for path in named if path != OF_THE_OPERATOR and not (ROOT / path).exists()] == []


def anchors(page: Path) -> set[str]:
    """The names by which a link may go to places of a page: its headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = page.parent / path if path else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


def test_every_file_of_the_glossary_is_there() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    named = re.findall(r"^- \*\*.+?\*\* \(`([\w./]+)`\):", text, re.MULTILINE)
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_a_flow_goes_through_few_files_and_does_not_come_back_to_one() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    section = text.partition("## The two flows")[2].partition("\n## ")[0]
    flows = [FLOW.findall(part) for part in section.split("|---|---|---|")[1:]]
    assert len(flows) == 2
    for flow in flows:
        assert [int(number) for number, _ in flow] == list(range(1, len(flow) + 1))
        assert len({file for _, file in flow}) == len(flow) <= MOST_FILES


def calls_of(*names: str) -> Iterator[tuple[str, ast.Call]]:
    """File and call of everything in app, without the analysis, that is called by one of these names."""
    for path in sorted(set((ROOT / "app").rglob("*.py")) - set((ROOT / "app" / "analysis").rglob("*.py"))):
        file, source = name_of(path), path.read_text("utf-8")
        if not any(f"{name}(" in source for name in names):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                yield file, node


def rows_of(title: str) -> list[list[str]]:
    """Cells of the table of the architecture whose first column has this title."""
    table = (ROOT / "docs" / "architecture.md").read_text("utf-8").partition(f"\n| {title} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


def test_the_architecture_has_every_service() -> None:
    there = {ast.literal_eval(call.args[0]) for _, call in calls_of("Service")}
    assert sorted(row[0].strip("`") for row in rows_of("service")) == sorted(there)


def test_the_architecture_has_every_plane() -> None:
    made = {
        (ast.literal_eval(keyword.value), file)
        for file, call in calls_of("Plane")
        for keyword in call.keywords
        if keyword.arg == "name"
    }
    rows = [[cell.strip("`") for cell in row] for row in rows_of("plane")]
    assert sorted((name, file) for name, _, file in rows) == sorted(made)
    main = (ROOT / "app" / "main.py").read_text("utf-8")
    for _, opener, file in rows:
        assert f"\ndef {opener}(" in (ROOT / file).read_text("utf-8"), f"{file} has no {opener}"
        assert f" {opener}(" in main, f"app/main.py does not call {opener}"


def test_the_architecture_has_every_place_that_makes_threads() -> None:
    probes = {"app/store/parquet/place_facts.py"}  # of `homing doctor`
    there = {file for file, _ in calls_of("Thread", "ThreadPoolExecutor", "Worker")} - {"app/runtime/worker.py"}
    named = {path for row in rows_of("thread") for path in PATH.findall(row[1]) if path.endswith(".py")}
    assert named == there - probes


def test_the_page_about_tests_has_the_time_limit_of_a_test() -> None:
    limit = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"]["timeout"]
    assert f"({limit} s) for one test" in (ROOT / "docs" / "testing.md").read_text("utf-8")
