"""The page: sections put into the template. All markup is in the templates, which escape all text."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from app.analysis.report import appendix, overview
from app.analysis.report.changes import change
from app.analysis.report.data import Output
from app.analysis.report.devices import worst_devices
from app.analysis.report.heat import heat_map
from app.analysis.report.learned import learned_deadlines
from app.analysis.report.nodes import late_responses, load_and_capacity
from app.analysis.report.plots import Section
from app.analysis.report.stages import forwarding, where_time_goes
from app.analysis.report.times import over_time

REPORT_NAME: Final = "report.html"
_HERE: Final = Path(__file__).parent
_SECTIONS: Final = (
    over_time,
    overview.methods,
    heat_map,
    where_time_goes,
    forwarding,
    load_and_capacity,
    worst_devices,
    late_responses,
    change,
    learned_deadlines,
    appendix.quality,
)


def write_report(out: str | Path) -> str:
    """Write report.html from the tables and summary.json in the folder `out`, a path or a URL, and say where it is.

    The page depends on nothing else: the same folder gives the same bytes. ConfigurationError when there is no summary.
    """
    output = Output(str(out))
    output.write(REPORT_NAME, render(output))
    return f"{str(out).rstrip('/')}/{REPORT_NAME}"


def soft(text: str) -> Markup:
    """A name that may break after its underscores."""
    return Markup("_<wbr>").join(text.split("_"))  # join escapes the parts


def render(output: Output) -> str:
    """The page as text."""
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["soft"] = soft
    sections: list[Section] = [make(output) for make in _SECTIONS]
    known = appendix.queries(output)
    return environment.get_template("page.html.j2").render(
        title=overview.title(output),
        figures=overview.figures(output),
        flags=overview.flags(output),
        sections=[section for section in sections if section.blocks or section.lead],
        queries=known,
        query_names={query.name for query in known},
        views=appendix.views(output),
        options=appendix.options(output),
    )
