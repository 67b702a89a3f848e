"""The page: one HTML file without scripts and without network, made of the rows of the tables and the summary alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from app.analysis.contracts import TABLES
from app.analysis.lake import Row, Rows
from app.analysis.report import sections
from app.analysis.report.text import clean, code, count, duration, share, span, with_unit

REPORT_NAME: Final = "report.html"
_PLOTS: Final = (
    sections.latency,
    sections.endings,
    sections.heat_map,
    sections.stages,
    sections.slowest,
    sections.flakiest,
)
_UNITS: Final = {table.name: table.units for table in TABLES}
MOST_FLAGS: Final = 30


def render(summary: Row, rows: Rows) -> str:
    """The page as text: the same rows give the same page. All markup is in the template, which escapes all text."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"soft": soft, "clean": clean, "code": code, "with_unit": with_unit}
    log = summary["log"]
    return environment.get_template("page.html.j2").render(
        period=span(summary["period"]["from"], summary["period"]["to"]),
        facts=(f"{count(log['records'])} records", f"{count(log['files'])} files", clean(log["location"], 200)),
        flags=[(clean(one["sentence"], 400), count(one["records"])) for one in summary["anomalies"][:MOST_FLAGS]],
        figures=[(one["title"], with_unit(one["value"], one["unit"]), one["table"]) for one in summary["figures"]],
        plots={make.__name__: make(summary, rows) for make in _PLOTS},
        leads=sections.leads(summary, rows),
        rows=_readable(rows),
        most=sections.MOST_ROWS,
        units=_UNITS,
        tables=summary["tables"],
        options=json.dumps(summary["options"], indent=2),
    )


def _readable(rows: Rows) -> Rows:
    """With names where a column alone says too little."""
    named = {"hops": [{**row, "way": "forwarded" if row["forwarded"] else "local"} for row in rows["hops"]]}
    for name in ("events", "silent_devices"):
        named[name] = [{**row, "kind": row["kind"] or "of no profile"} for row in rows[name]]
    named["change"] = [
        {
            **row,
            **{side: (duration if row["test"] == "median" else share)(row[side]) for side in ("before", "after")},
            "subject": row["method"] or row["node"] or "all commands",
        }
        for row in rows["change"]
    ]
    return rows | named


def soft(text: str) -> Markup:
    """A name that may break after its underscores."""
    return Markup("_<wbr>").join(text.split("_"))  # join escapes the parts
