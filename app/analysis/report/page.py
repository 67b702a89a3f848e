"""The page: one HTML file without scripts and without network, made of the rows of the tables and the summary alone.

Here are the numbers of its plots; all words and markup are in page.html.j2, which escapes what it shows. A plot is
strips of marks on one axis. Marks are drawn in a square of 1000 × 1000 that the page stretches to the room there is;
text is not in it, so that it keeps its size. Positions are from 0 to 1; those of ticks and tips in percent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import median_low
from typing import Final, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from app.analysis.contracts import TABLES
from app.analysis.lake import Row, Rows
from app.analysis.report.scales import HOUR, Axis, Scale, Ticks, linear_scale, log_scale
from app.analysis.report.text import clean, count, day, duration, known, minute, ratio, share, span, with_unit

REPORT_NAME: Final = "report.html"
MOST_ROWS: Final = 24
"""The rows of a table, and the strips of a plot, at most."""
TOP: Final = 20
"""Devices that are shown as slowest and as flakiest."""
MOST_STEPS: Final = 372
"""The steps of a plot over time; a month has 744 hours."""
FEW: Final = 100
"""A share of fewer commands than this says little."""
UNITS: Final = {table.name: {column.name: column.unit for column in table.columns} for table in TABLES}
FIGURES: Final = (
    *("commands", "succeeded_share", "failed_share", "timed_out_share"),
    *("p50_us", "p90_us", "p99_us", "arrivals_peak", "in_flight_peak"),
)
"""The figures of the summary that the first screen has; the others stand in the tables below."""
_PARTS: Final = {
    "homing": ("Homing", "Homing"),
    "broker": ("the broker", "the broker (until its PUBACK)"),
    "device": ("the device", "the device and its way to the broker"),
}
"""The names that the verdict has for them."""
_PERCENTILES: Final = {"p50_us": "p50", "p90_us": "p90", "p99_us": "p99", "p999_us": "p999"}


class SvgMark(NamedTuple):
    """A path with a class of the style sheet; `weight` (%) is of its colour."""

    css: str
    path: str
    title: str = ""
    weight: int = 0


class Strip(NamedTuple):
    """A row of marks, with its subject and its value in words."""

    label: str
    marks: Sequence[SvgMark]
    value: str = ""
    detail: str = ""
    note: str = ""


class Plot(NamedTuple):
    """Strips on one axis; `tips` (left, width, head, lines) are what is shown of a column that is pointed at."""

    strips: Sequence[Strip]
    x_ticks: Ticks
    caption: str = ""
    y_ticks: Ticks = ()
    tips: Sequence[tuple[float, float, str, Sequence[tuple[str, str]]]] = ()
    note: str = ""
    """A sentence about values that are not drawn."""


def _at(place: float) -> str:
    return f"{place * 1000:.1f}".removesuffix(".0")


def box(left: float, top: float, right: float, bottom: float) -> str:
    """The path of a rectangle."""
    return f"M{_at(left)} {_at(top)}H{_at(right)}V{_at(bottom)}H{_at(left)}Z"


def _line(columns: Iterable[tuple[float, float, float]]) -> str:
    """The path of steps, each from left to right at a height; gaps stay gaps."""
    path, end = "", None
    for left, right, height in columns:
        path += f"{'V' if left == end else f'M{_at(left)} '}{_at(1 - height)}H{_at(right)}"
        end = right
    return path


def _over_time(
    axis: Axis, scale: Scale, show: Callable[..., str], levels: dict[datetime, list[float]], tips: list[list[str]]
) -> Plot:
    """Bands between each level of a bin and the next, from below, and a line on each; `tips` begin with their names."""
    columns = [(axis.place(at), axis.place(at, 1), [scale(value) for value in row]) for at, row in levels.items()]
    numbers = range(len(next(iter(levels.values()))))
    bands = [
        SvgMark(f"band-{low}", "".join(box(left, 1 - row[high], right, 1 - row[low]) for left, right, row in columns))
        for low, high in pairwise(numbers)
    ]
    lines = [
        SvgMark(f"line-{number}", _line((left, right, row[number]) for left, right, row in columns))
        for number in numbers
    ]
    shown = []
    for at, (left, right, _), tip in zip(levels, columns, tips[1:], strict=True):
        place = round(100 * left, 2), round(100 * (right - left), 2)
        shown.append((*place, f"{day(at)} {at:%H:%M}", [*zip(tips[0], tip, strict=True)]))
    return Plot([Strip("", [*bands, *lines])], axis.ticks(), f"in steps of {axis.hours} h", scale.ticks(show), shown)


def latency(rows: Rows) -> Plot | None:
    """Percentiles by hour; of longer steps the middle one of the percentiles of their hours."""
    axis = Axis.of(rows["latency_by_hour"], MOST_STEPS)
    bins = axis.bins(row for row in rows["latency_by_hour"] if all(known(row[name]) for name in _PERCENTILES))
    if not bins:
        return None
    times = {at: [median_low(row[name] for row in found) for name in _PERCENTILES] for at, found in bins.items()}
    scale = log_scale(_usual(times.values()))
    tips = [[*_PERCENTILES.values()], *([*map(duration, row)] for row in times.values())]
    plot = _over_time(axis, scale, duration, times, tips)
    since = [row["since"] for row in rows["anomalies"] if row["kind"] == "hour"]
    since = [at for at in since if axis.begin <= at < axis.end]
    flagged = [SvgMark("flagged", box(axis.place(at), 0, axis.place(at + HOUR), 1), "flagged") for at in since]
    several = ", each with the middle one of those of its hours" if axis.hours > 1 else ""
    beyond = sum(max(row) > scale.high for row in times.values())
    note = f"Steps that reach beyond the edge: {count(beyond)}. " if beyond else ""
    strips = [Strip("", [*flagged, *plot.strips[0].marks])]
    return plot._replace(strips=strips, caption=f"{plot.caption}{several}", note=f"{note}{axis.note}")


def _usual(times: Iterable[Sequence[float]]) -> list[float]:
    """The values that an axis is made for: a few commands that took days are not to press all others together."""
    found = list(times)
    highest = [sorted(row[-1] for row in found), sorted(row[-2] for row in found)]
    most = max(5 * median_low(highest[0]), highest[1][round(0.95 * (len(found) - 1))])
    return [value for row in found for value in row if value <= most]


def endings(rows: Rows) -> Plot | None:
    """Shares of what did not succeed, one on the other."""
    axis = Axis.of(rows["latency_by_hour"], MOST_STEPS)
    counts = {}
    for at, found in axis.bins(rows["latency_by_hour"]).items():
        names = ("commands", "failed", "timed_out", "cancelled", "unsent")
        commands, failed, timed_out, cancelled, unsent = (sum(row[name] for row in found) for name in names)
        counts[at] = (commands, (failed, timed_out, cancelled + unsent))
    # The share of a few timeouts after the last command would dwarf all others.
    enough = min(FEW, 0.05 * median_low(n for n, _ in counts.values())) if counts else 0
    counts = {at: (n, parts) for at, (n, parts) in counts.items() if n >= enough}
    levels = {at: [*accumulate((part / n for part in parts), initial=0.0)] for at, (n, parts) in counts.items()}
    highest = max((row[-1] for row in levels.values()), default=0)
    if not highest:
        return None
    tips = [[*(share(part / n) for part in parts), count(n)] for n, parts in counts.values()]
    plot = _over_time(axis, linear_scale([highest]), share, levels, [["failed", "timed out", "other", "of"], *tips])
    return plot._replace(caption=f"{plot.caption}, stacked; together at most {share(highest)}", note=axis.note)


def heat_map(rows: Rows) -> Plot | None:
    """One strip per method; each cell is as dark as the hour was slow or fast for the method."""
    found = [row for row in rows["latency_by_hour_method"] if known(row["p50_us"])]
    if not found:
        return None
    axis = Axis.of(rows["latency_by_hour"] or found, most=56)
    methods: dict[tuple[str, str], list[Row]] = {}
    for row in found:
        methods.setdefault((clean(row["method"]), clean(row["profile"])), []).append(row)
    busiest = sorted(methods, key=lambda name: -sum(row["answered"] for row in methods[name]))[:MOST_ROWS]
    strips = []
    for name in sorted(busiest):
        hours = {at: max(hours, key=lambda row: row["p50_us"]) for at, hours in axis.bins(methods[name]).items()}
        if not hours:
            continue
        usual = median_low(row["p50_us"] for row in hours.values()) or 1
        marks = [_cell(axis, at, row["p50_us"], row["p50_us"] / usual, row["answered"]) for at, row in hours.items()]
        strips.append(Strip(name[0], marks, duration(usual), note=name[1]))
    left_out = f"; the {MOST_ROWS} busiest of {len(methods)} methods" if len(methods) > MOST_ROWS else ""
    return Plot(strips, axis.ticks(), f"The median{left_out}", note=axis.note) if strips else None


def _cell(axis: Axis, at: datetime, took: float, times: float, answered: int) -> SvgMark:
    weight = round(100 * min(1.0, abs(math.log(max(times, 1e-9), 4))))  # 4 × the usual has the full colour
    css = "even" if weight < 8 else "hot" if times > 1 else "cool"  # noqa: PLR2004 - not to be seen
    title = f"{day(at)} {at:%H:%M}: {duration(took)}, {ratio(times)} the usual, {count(answered)}"
    return SvgMark(f"cell {css}", box(axis.place(at), 0.04, axis.place(at, 1), 0.96), title, weight)


def stages(rows: Rows) -> Plot | None:
    """Stacks of median times: all commands, and each method. The device answers while the PUBACK is under way."""
    groups: dict[str, list[Row]] = {"all commands": rows["stages"]} if rows["stages"] else {}
    for row in rows["stages_by_method"]:
        groups.setdefault(f"{clean(row['method'])} ({clean(row['profile'])})", []).append(row)
    times = {label: _medians(found) for label, found in groups.items()}
    sums = {label: sum(found.values()) for label, found in times.items()}
    scale, strips = linear_scale(sums.values()), []
    for label in sorted(groups, key=lambda label: -sums[label])[:MOST_ROWS]:
        ends = pairwise(accumulate((scale(us) for us in times[label].values()), initial=0.0))
        marks = [
            SvgMark(f"stage {stage}", box(left, 0.15, right, 0.85), f"{stage}: {duration(us)}")
            for (stage, us), (left, right) in zip(times[label].items(), ends, strict=True)
        ]
        strips.append(Strip(label, marks, duration(sums[label])))
    return Plot(strips, scale.ticks(duration)) if strips else None


def _medians(found: Iterable[Row]) -> dict[str, float]:
    """Stage -> its median, of the device without the time until the PUBACK."""
    times: dict[str, float] = {}
    for row in sorted(found, key=lambda row: row["position"]):
        if known(row["p50_us"]):
            times[row["stage"]] = row["p50_us"] - (times.get("publish", 0) if row["stage"] == "device" else 0)
    return {stage: max(0, us) for stage, us in times.items()}


def verdict(rows: Rows, success: float) -> list[str]:
    """Sentences that judge whether it is Homing, the broker or the device, and whether enough commands succeed."""
    said = []
    parts = sorted((row for row in rows["verdict"] if known(row["p50_us"])), key=lambda row: row["position"])
    if parts:
        took = [(f"{duration(row['p50_us'])} ({share(row['share'])})", *_PARTS[row["part"]]) for row in parts]
        lead = "It is" if parts[0]["share"] >= 0.5 else "Most of the time is for"  # noqa: PLR2004 - a half
        whole = f"of the {duration(sum(row['p50_us'] for row in parts))} that a command typically takes"
        (most, who, which), *others = took
        rest = "".join(f", {time} {what}" for time, _, what in others)
        said.append(f"{lead} {who}: {whole}, {most} are {which}{rest}.")
    for row in rows["latency"]:
        of = row["commands"] - row["cancelled"]
        if of:
            missed, allowed = 1 - row["succeeded"] / of, 1 - success
            kinds = {"refused by the device": "failed", "not answered in time": "timed_out", "never sent": "unsent"}
            why = ", ".join(f"{share(row[name] / of)} {kind}" for kind, name in kinds.items())
            line = f"{'more than' if missed > allowed else 'within'} the {share(allowed, trim=True)}"
            said.append(f"{share(missed)} of the commands did not succeed ({why}), {line} that the objective allows.")
    return said


def _intervals(rank: str, columns: tuple[str, ...], show: Callable[..., str], rows: Rows) -> Plot | None:
    """A line from low to high with a dot: one without length, whose round caps stay round however it is stretched."""
    ranked = [row for row in rows["devices"] if all(known(row[column]) for column in (rank, *columns))]
    ranked = sorted((row for row in ranked if row[rank] <= TOP), key=lambda row: row[rank])
    ends = [row[column] for row in ranked for column in columns]
    scale, strips = log_scale([1.0, *ends]) if show is ratio else linear_scale(ends), []
    for row in ranked:
        value, low, high = (row[column] for column in columns)
        line = SvgMark("interval", f"M{_at(scale(low))} 500H{_at(scale(high))}")
        detail = f"{show(low)} to {show(high)}, n\u00a0=\u00a0{count(row['commands'])}"
        note = f"{clean(row['profile'])}; p50 {duration(row['p50_us'])}"
        marks = [line, SvgMark("dot", f"M{_at(scale(value))} 500h0")]
        strips.append(Strip(clean(row["device_id"]), marks, show(value), detail, note))
    return Plot(strips, scale.ticks(show)) if strips else None


_PLOTS: Final[dict[str, Callable[[Rows], Plot | None]]] = {
    "latency": latency,
    "endings": endings,
    "heat_map": heat_map,
    "stages": stages,
    "slowest": partial(_intervals, "slow_rank", ("slowness", "slowness_low", "slowness_high"), ratio),
    "flakiest": partial(_intervals, "flaky_rank", ("flaky_share", "flaky_low", "flaky_high"), share),
}


def render(summary: Row, rows: Rows) -> str:
    """The page as text: the same rows give the same page."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown = (clean, count, duration, minute, share, with_unit, soft)
    environment.filters |= {show.__name__: show for show in shown}
    return environment.get_template("page.html.j2").render(
        summary,
        period=span(summary["period"]["from"], summary["period"]["to"]),
        plots={name: make(rows) for name, make in _PLOTS.items()},
        rows=rows
        | {"change": [_told(row) for row in sorted(rows["change"], key=lambda row: row["q"]) if row["notable"]]},
        verdict=verdict(rows, summary["options"]["success"]),
        shown=FIGURES,
        most=MOST_ROWS,
        units=UNITS,
    )


def _told(change: Row) -> Row:
    """The change with its subject, and its values as the test has them."""
    show = duration if change["test"] == "median" else share
    sides = {name: show(change[name]) for name in ("before", "after")}
    return {**change, **sides, "subject": change["method"] or change["node"] or "all commands"}


def soft(name: str) -> Markup:
    """A name that may break after its underscores."""
    return Markup("_<wbr>").join(name.split("_"))  # join escapes the parts
