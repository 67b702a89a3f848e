"""The page: one HTML file without scripts and without network, made of the rows of the tables and the summary alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from app.analysis.contracts import TABLES
from app.analysis.lake import Row, Rows
from app.analysis.report import plots, text

REPORT_NAME: Final = "report.html"
MOST_ROWS: Final = 24


def render(summary: Row, rows: Rows) -> str:
    """The page as text: the same rows give the same page. All markup is in the template, which escapes all text."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown = (text.clean, text.code, text.count, text.duration, text.minute, text.share, text.with_unit, soft)
    environment.filters |= {show.__name__: show for show in shown}
    return environment.get_template("page.html.j2").render(
        summary,
        period=text.span(summary["period"]["from"], summary["period"]["to"]),
        plots={make.__name__: make(summary, rows) for make in plots.PLOTS},
        rows=rows | {"change": sorted(_changes(rows), key=lambda row: row["q"])},
        most=MOST_ROWS,
        units={table.name: table.units for table in TABLES},
    )


def _changes(rows: Rows) -> Iterator[Row]:
    """Those to be told, with their subjects, and their values as the test has them."""
    for row in rows["change"]:
        show = text.duration if row["test"] == "median" else text.share
        sides = {"before": show(row["before"]), "after": show(row["after"])}
        if row["notable"]:
            yield {**row, **sides, "subject": row["method"] or row["node"] or "all commands"}


def soft(name: str) -> Markup:
    """A name that may break after its underscores."""
    return Markup("_<wbr>").join(name.split("_"))  # join escapes the parts
