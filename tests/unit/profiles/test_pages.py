"""The pages of profiles are whole: each key of the language has its place, each shipped family a page."""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any, Final

import pytest

from app.profiles.tools.editors import schema_of_files

DOCS: Final = Path(__file__).parents[3] / "docs"
KEYS: Final = (DOCS / "profiles" / "keys.md").read_text("utf-8")
FAMILIES: Final = DOCS / "profiles" / "families"
SHIPPED: Final = sorted(
    one.name for one in resources.files("app.profiles.shipped").iterdir() if one.name.endswith(".toml")
)
SCHEMA: Final[dict[str, Any]] = schema_of_files()
TABLES: Final = {
    "": "The file",
    "ApprovalTable": "Approvals",
    "CircleTable": "Interlocks",
    "ComparisonTable": "Interlocks",
    "ConditionTable": "Conditions",
    "DeviceTable": "Device",
    "EventTable": "Events and presence",
    "ExpressionTable": "Expressions",
    "InterlockInputTable": "Interlocks",
    "InterlockTable": "Interlocks",
    "LaneTable": "Lanes",
    "LastTable": "The last command",
    "MethodTable": "The catalogue",
    "NeedTable": "Interlocks",
    "PartTable": "Sources",
    "PresenceTable": "Events and presence",
    "ProtobufTable": "Codecs",
    "QuestionTable": "Probes",
    "ReplyTable": "Replies",
    "RequestTable": "Request",
    "ProbeTable": "Probes",
    "ResponseTable": "Responses",
    "RuleTable": "Rules",
    "SourceTable": "Sources",
    "StateTable": "The last known state",
    "WishTable": "Echoes",
}
"""Each table of the schema, and the heading under which its keys are told."""
EACH: Final = ["What works", "What does not", "Tried with", "Topics and rights"]
"""The headings that each page of a family has."""


def properties_of(table: str) -> dict[str, Any]:
    found: dict[str, Any] = (SCHEMA["$defs"][table] if table else SCHEMA)["properties"]
    return found


def section(heading: str) -> str:
    """Return what stands under a heading, with the headings below it."""
    found = re.search(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^\1 |\Z)", KEYS, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[2]


def test_every_table_of_the_schema_has_its_heading() -> None:
    tables = {name for name, one in SCHEMA["$defs"].items() if "properties" in one}
    assert {"", *tables} == set(TABLES)


@pytest.mark.parametrize(("table", "heading"), TABLES.items())
def test_every_key_of_the_schema_is_on_the_page(table: str, heading: str) -> None:
    code = "\n".join(re.findall(r"```toml\n.*?```|`[^`\n]+`", section(heading), re.DOTALL))
    assert [key for key in properties_of(table) if not re.search(rf"(?<![\w.]){key}(?!\w)", code)] == []


def topics_of(file: str) -> set[str]:
    raw = tomllib.loads(resources.files("app.profiles.shipped").joinpath(file).read_text("utf-8"))
    requests = raw["request"] if isinstance(raw["request"], list) else [raw["request"]]
    heard = [one for kind in ("response", "event", "presence", "reply") for one in raw.get(kind, [])]
    return {one["topic"] for one in [*requests, *heard]} | {one["to"] for one in raw.get("reply", [])}


@pytest.mark.parametrize("file", SHIPPED)
def test_every_shipped_family_has_its_page(file: str) -> None:
    name = file.removesuffix(".toml")
    page = (FAMILIES / f"{name}.md").read_text("utf-8")
    assert page.startswith(f"# `{name}`")
    assert [one for one in EACH if f"\n## {one}\n" not in page] == []
    assert [one for one in sorted(topics_of(file)) if f"`{one}`" not in page] == []
    assert f"](profiles/families/{name}.md)" in (DOCS / "profiles.md").read_text("utf-8")


def test_no_page_is_of_a_family_that_is_gone() -> None:
    assert sorted(one.stem + ".toml" for one in FAMILIES.glob("*.md")) == SHIPPED
