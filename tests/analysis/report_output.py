"""The output of a report, made up from the columns of its tables: no Spark, any shape."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from app.analysis.buckets import RELATIVE_ERROR
from app.analysis.contracts import SUMMARY_VERSION, TABLES
from app.analysis.report.page import REPORT_NAME, render
from tests.analysis.report_rows import BEGIN, HOSTILE, Sample, all_rows

Rows = dict[str, list[dict[str, Any]]]


def made(sample: Sample | None) -> tuple[dict[str, Any], Rows]:
    """Summary and tables."""
    tables = all_rows(sample)
    return _summary(sample, tables), tables


def write_report(folder: Path, sample: Sample | None) -> Path:
    (folder / REPORT_NAME).write_text(render(*made(sample)), encoding="utf-8")
    return folder


def _figures(sample: Sample, tables: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    wanted = (
        ("commands", "Commands", "latency", "commands", "records", "grain = 'all'"),
        ("succeeded_share", "Succeeded", "latency", "succeeded_share", "share", "grain = 'all'"),
        ("failed_share", "Failed", "latency", "failed_share", "share", "grain = 'all'"),
        ("timed_out_share", "Timed out", "latency", "timed_out_share", "share", "grain = 'all'"),
        ("p50_us", "Median latency", "latency", "p50_us", "us", "grain = 'all'"),
        ("p99_us", "99th percentile", "latency", "p99_us", "us", "grain = 'all'"),
        ("arrivals_peak", "Busiest 10 s", "capacity", "arrivals_peak", "1/s", "node = 'all'"),
        ("in_flight_peak", "Most in flight", "capacity", "in_flight_peak", "records", "node = 'all'"),
        ("p90_us", "90th percentile", "latency", "p90_us", "us", "grain = 'all'"),
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
        "hours_missing": len(sample.missing) if sample else 0,
        "missing_hours": [(BEGIN + timedelta(hours=hour)).isoformat() for hour in sorted(sample.missing)]
        if sample
        else [],
        "files": hours * 3,
        "records": (sample.commands * hours) if sample else 0,
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
        "options": {"from": begin, "to": end, "max_pending": 10_000, "level": 0.001, "success": 0.95},
        "relative_error": RELATIVE_ERROR,
        "quarantined": tables.get("quarantine", []),
        "figures": _figures(sample, tables) if sample else [],
        "anomalies": anomalies,
        "tables": [
            {
                "name": table.name,
                "title": table.title,
                "key": table.key,
                "query": f"SELECT *\nFROM measured -- {table.name}{HOSTILE if sample and sample.hostile else ''}",
                "columns": [
                    {"name": column.name, "type": column.type, "unit": column.unit, "meaning": column.meaning}
                    for column in table.columns
                ],
            }
            for table in TABLES
        ],
    }
