"""Output of `homing analyze` made up from the schema of its tables, for the report's tests: no Spark, any shape."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from app.analysis.tables import RELATIVE_ERROR, SUMMARY_NAME, SUMMARY_VERSION, TABLES, Table
from tests.analysis.report_rows import BEGIN, HOSTILE, Sample, all_rows

ARROW = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def write_output(folder: Path, sample: Sample | None = None) -> Path:
    """All tables and the summary; without a sample, those of an empty log."""
    tables = all_rows(sample) if sample else {}
    for table in TABLES:
        _write(folder, table, tables.get(table.name, ()))
    summary = _summary(sample, tables)
    (folder / SUMMARY_NAME).write_text(json.dumps(summary, indent=1), encoding="utf-8")
    return folder


def _write(folder: Path, table: Table, rows: Iterable[dict[str, Any]]) -> None:
    schema = pa.schema([(column.name, ARROW[str(column.type)]) for column in table.columns])
    known = set(schema.names)
    rows = list(rows)
    for row in rows:
        assert set(row) <= known, f"{table.name} has no {set(row) - known}"
    target = folder / table.name
    target.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), target / "part-00000.parquet")


def _figures(sample: Sample, tables: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    wanted = (
        ("commands", "Commands", "latency", "commands", "records", "grain = 'all'"),
        ("succeeded", "Succeeded", "latency", "succeeded_share", "share", "grain = 'all'"),
        ("failed", "Failed", "latency", "failed_share", "share", "grain = 'all'"),
        ("timed_out", "Timed out", "latency", "timed_out_share", "share", "grain = 'all'"),
        ("p50", "Median latency", "latency", "p50_us", "us", "grain = 'all'"),
        ("p99", "99th percentile", "latency", "p99_us", "us", "grain = 'all'"),
        ("arrivals_peak", "Busiest 10 s", "capacity", "arrivals_peak", "1/s", "node = 'all'"),
        ("in_flight_peak", "Most in flight", "capacity", "in_flight_peak", "records", "node = 'all'"),
        ("headroom", "Headroom", "capacity", "headroom", "ratio", "node = 'all'"),
    )
    return [
        {"name": name, "title": title, "value": tables[table][0][column], "unit": unit}
        | {"table": table, "column": column, "where": where}
        for name, title, table, column, unit, where in wanted
    ]


def _summary(sample: Sample | None, tables: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    hours = sample.hours if sample else 0
    begin = BEGIN.isoformat() if sample else None
    end = (BEGIN + timedelta(hours=hours)).isoformat() if sample else None
    log = {
        "location": sample.name("/var/lib/homing/latency") if sample else "/var/lib/homing/latency",
        "from": begin,
        "to": end,
        "hours": hours,
        "missing_hours": [(BEGIN + timedelta(hours=hour)).isoformat() for hour in sorted(sample.missing)]
        if sample
        else [],
        "files": hours * 3,
        "records": (sample.commands * hours) if sample else 0,
        "schema_versions": {"1": hours * 3} if sample else {},
    }
    earlier = None
    if sample and sample.before:
        before = {"from": (BEGIN - timedelta(hours=hours)).isoformat(), "to": begin}
        earlier = {"before": before, "after": {"from": begin, "to": end}}
    period = {
        "from": begin,
        "to": end,
        "compared": earlier,
        "why_not": None if earlier else "the log begins with this period",
    }
    anomalies = [
        {**row, "since": row["since"].isoformat() if row.get("since") else None}
        | {"sentence": f"{row['subject']} has {row['ratio']} times the {row['measure']} of its peers."}
        for row in tables.get("anomalies", ())
    ]
    return {
        "version": SUMMARY_VERSION,
        "log": log,
        "period": period,
        "options": {"from": begin, "to": end, "max_pending": 10_000, "top": 20, "level": 0.001} if sample else {},
        "relative_error": RELATIVE_ERROR,
        "quarantined": tables.get("quarantine", []),
        "figures": _figures(sample, tables) if sample else [],
        "anomalies": anomalies,
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "grain": table.grain,
                "rows": len(tables.get(table.name, ())),
                "query": f"SELECT *\nFROM measured -- {table.name}{HOSTILE if sample and sample.hostile else ''}",
                "columns": [
                    {"name": column.name, "type": column.type, "unit": column.unit, "meaning": column.meaning}
                    for column in table.columns
                ],
            }
            for table in TABLES
        ],
        "views": {"measured": "SELECT *\nFROM records\nWHERE kind = 'outcome'"},
    }
