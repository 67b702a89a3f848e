"""docs/latency-log.md says of the columns what the schema says."""

from __future__ import annotations

from pathlib import Path

from app.latency.schema import COLUMNS

DOCUMENT = Path(__file__).parents[3] / "docs" / "latency-log.md"


def table() -> str:
    """The columns as the document has them; on a mismatch the test shows what to put there."""
    lines = ["| column | type | null | since | meaning |", "|---|---|---|---|---|"]
    lines += [
        f"| `{one.name}` | {one.type} | {'no' if one.required else 'yes'} | {one.since} | {one.meaning} |"
        for one in COLUMNS
    ]
    return "\n".join(lines)


def test_the_table_of_columns_is_the_schema() -> None:
    assert table() in DOCUMENT.read_text(encoding="utf-8")
