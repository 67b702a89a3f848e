"""The page: one HTML file without scripts and without network, made of the rows of the tables and the summary alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from app.analysis.lake import Row, Rows
from app.analysis.report.sections import (
    change,
    deadlines,
    devices,
    events,
    heat_map,
    methods,
    nodes,
    over_time,
    quality,
    stages,
)
from app.analysis.report.text import clean, code, count, span, with_unit

REPORT_NAME: Final = "report.html"
_SECTIONS: Final = (over_time, methods, heat_map, stages, nodes, devices, events, deadlines, change, quality)
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
    environment.filters |= {"soft": soft, "clean": clean, "code": code}
    log = summary["log"]
    return environment.get_template("page.html.j2").render(
        period=span(summary["period"]["from"], summary["period"]["to"]),
        facts=(f"{count(log['records'])} records", f"{count(log['files'])} files", clean(log["location"], 200)),
        flags=[(clean(one["sentence"], 400), count(one["records"])) for one in summary["anomalies"][:MOST_FLAGS]],
        figures=[(one["title"], with_unit(one["value"], one["unit"]), one["table"]) for one in summary["figures"]],
        sections=[make(summary, rows) for make in _SECTIONS],
        tables=summary["tables"],
        options=json.dumps(summary["options"], indent=2),
    )


def soft(text: str) -> Markup:
    """A name that may break after its underscores."""
    return Markup("_<wbr>").join(text.split("_"))  # join escapes the parts
