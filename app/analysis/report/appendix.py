"""How good the data is, and the queries behind every number."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from app.analysis.report.data import Output
from app.analysis.report.plots import Cell, DataTable, Head, Section, Sentence
from app.analysis.report.text import clean, code, count, minute, share, with_unit

MOST_HOURS: Final = 12


def quality(output: Output) -> Section:
    """What was left out, which hours are missing, how exact the numbers are."""
    log = output.section("log")
    listed = log.get("missing_hours")
    missing = listed if isinstance(listed, list) else []
    lead: list[Sentence] = []
    if missing:
        hours = ", ".join(minute(hour) for hour in missing[:MOST_HOURS])
        more = f" and {len(missing) - MOST_HOURS} more" if len(missing) > MOST_HOURS else ""
        lead.append(
            (f"Hours without any record between the first and the last ({count(len(missing))}): {hours}{more} UTC.",)
        )
    elif log.get("records"):
        lead.append(("There is no hour without a record between the first and the last.",))
    error = output.value("relative_error")
    if isinstance(error, int | float):
        lead.append((f"Percentiles are within {share(error, trim=True)} of the exact ones; all else is exact.",))
    versions = log.get("schema_versions")
    if isinstance(versions, dict) and versions:
        text = ", ".join(
            f"version {clean(version)}: {with_unit(files, '')} files" for version, files in versions.items()
        )
        lead.append((f"Schema of the files: {text}.",))
    entries = output.listed("quarantined")
    rows = [
        [
            Cell(clean(entry.get("reason")), clean(entry.get("meaning") or "", 300)),
            Cell(count(entry.get("files"))),
            Cell(count(entry.get("records"))),
            Cell(clean(entry.get("example") or "–", 200)),
        ]
        for entry in entries
    ]
    block = DataTable(
        "quarantine-table",
        "What was not used",
        "quarantine",
        heads=[Head("Reason", numeric=False), Head("files"), Head("records"), Head("for example", numeric=False)],
        rows=rows,
        empty="" if rows else "Every file and every record was used.",
    )
    return Section("quality", "Quality of the data", lead, (block,))


@dataclass(frozen=True, slots=True)
class ColumnText:
    """A column of a table, for the reader of a query."""

    name: str
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Query:
    """What made a table."""

    name: str
    title: str
    grain: str
    rows: str
    sql: str
    columns: tuple[ColumnText, ...]


def queries(output: Output) -> list[Query]:
    """Those of all tables, in the order of the summary."""
    return [
        Query(
            clean(table.get("name") or ""),
            clean(table.get("title") or ""),
            clean(table.get("grain") or "", 600),
            count(table.get("rows")),
            code(table.get("query")),
            tuple(_column(column) for column in table.get("columns") or () if isinstance(column, dict)),
        )
        for table in output.listed("tables")
    ]


def _column(column: dict[str, Any]) -> ColumnText:
    name, unit, meaning = (clean(column.get(key) or "", 300) for key in ("name", "unit", "meaning"))
    return ColumnText(name, unit, meaning)


def views(output: Output) -> list[tuple[str, str]]:
    """Name and SQL of what the queries read."""
    return [(clean(name), code(sql)) for name, sql in output.section("views").items()]


def options(output: Output) -> str:
    """What the result depends on."""
    return json.dumps(output.section("options"), indent=2, ensure_ascii=True)
