"""The slowest and the flakiest devices, with what is sure of them; and their groups."""

from __future__ import annotations

from typing import Final

from app.analysis.report.data import Output, Row
from app.analysis.report.plots import (
    Cell,
    DataTable,
    Head,
    Key,
    Mark,
    PlotRow,
    RowPlot,
    Scale,
    Section,
    Tick,
    dot,
    linear_scale,
    log_scale,
    log_values,
    rule,
    upright,
)
from app.analysis.report.text import clean, count, digits, duration, known, ratio, sample, share

MOST_DEVICES: Final = 15
MOST_GROUPS: Final = 40


def worst_devices(output: Output) -> Section:
    """Both lists as intervals, and the groups as a table."""
    rows = sorted(output.rows("devices"), key=lambda row: (str(row.get("list")), row.get("rank") or 0))
    slowest = [row for row in rows if row.get("list") == "slowest"][:MOST_DEVICES]
    flakiest = [row for row in rows if row.get("list") == "flakiest"][:MOST_DEVICES]
    lead = (
        ("Ranked by the sure end of the 95 % interval: a device with few commands must be much worse to be listed.",),
    )
    return Section("devices", "Devices", lead, (_slowest(slowest), _flakiest(flakiest), _groups(output)))


def _slowest(rows: list[Row]) -> RowPlot:
    rows = [row for row in rows if _has(row, "slowness") and row["slowness_low"] > 0]
    if not rows:
        return RowPlot("slowest-devices", "Slowest devices", "devices", empty="No device had enough answered commands.")
    scale = log_scale([1.0, *(row[f"slowness{end}"] for row in rows for end in ("", "_low", "_high"))])
    plotted = [
        PlotRow(
            clean(row["device_id"]),
            [Mark("reference", upright(scale(1))), *_interval(scale, row, "slowness")],
            ratio(row["slowness"]),
            f"{digits(row['slowness_low'])}–{digits(row['slowness_high'])}, {sample(row.get('answered'))}",
            note=f"{clean(row.get('profile'))}; p50 {duration(row.get('p50_us'))}, p99 {duration(row.get('p99_us'))}",
        )
        for row in rows
    ]
    return RowPlot(
        "slowest-devices",
        "Slowest devices",
        "devices",
        caption="How many times longer its answers take than those of all devices to the same methods (geometric "
        "mean), with its 95 % interval and the number of answered commands; logarithmic. The dashed line is 1, the "
        "usual.",
        alt=f"Slowness of the {len(rows)} slowest devices with 95 % intervals; the worst is "
        f"{clean(rows[0]['device_id'])} with {ratio(rows[0]['slowness'])}.",
        rows=plotted,
        heads=("Device", "Slowness", "95 %, sample"),
        ticks=[Tick(scale.percent(value), f"{digits(value, trim=True)} ×") for value in log_values(scale)],
        keys=[Key("interval", "95 % interval"), Key("reference", "usual")],
    )


def _flakiest(rows: list[Row]) -> RowPlot:
    rows = [row for row in rows if _has(row, "flaky") and row.get("flaky_share")]
    if not rows:
        empty = "Every device answered every command with success."
        return RowPlot("flakiest-devices", "Flakiest devices", "devices", empty=empty)
    scale = linear_scale([row["flaky_high"] for row in rows])
    plotted = [
        PlotRow(
            clean(row["device_id"]),
            _interval(scale, {**row, "flaky": row["flaky_share"]}, "flaky"),
            share(row["flaky_share"]),
            f"{share(row['flaky_low'])} to {share(row['flaky_high'])}, {sample(row.get('commands'))}",
            note=f"{clean(row.get('profile'))}; {count(row.get('timed_out'))} timed out, "
            f"{count(row.get('failed'))} failed",
        )
        for row in rows
    ]
    return RowPlot(
        "flakiest-devices",
        "Flakiest devices",
        "devices",
        caption="Share of its commands that failed or timed out, with its 95 % Wilson interval and the number of "
        "commands.",
        alt=f"Share of failed and timed-out commands of the {len(rows)} flakiest devices with 95 % intervals; the "
        f"worst is {clean(rows[0]['device_id'])} with {share(rows[0]['flaky_share'])}.",
        rows=plotted,
        heads=("Device", "Failed or timed out", "95 %, sample"),
        ticks=[Tick(50 * part, share(scale.high * part / 2, trim=True)) for part in range(3)],
        keys=[Key("interval", "95 % interval")],
    )


def _has(row: Row, name: str) -> bool:
    value = "flaky_share" if name == "flaky" else name
    return all(known(row.get(column)) for column in (value, f"{name}_low", f"{name}_high"))


def _interval(scale: Scale, row: Row, name: str) -> list[Mark]:
    low, value, high = (scale(row[column]) for column in (f"{name}_low", name, f"{name}_high"))
    return [Mark("interval", rule(low, high)), Mark("dot", dot(value))]


def _groups(output: Output) -> DataTable:
    rows = sorted(output.rows("device_groups"), key=lambda row: -(row.get("flaky_low") or 0))
    heads = [Head("Group", numeric=False), Head("devices"), Head("commands"), Head("failed or timed out")]
    heads += [Head("95 %"), Head("slowness"), Head("95 %")]
    cells = [
        [
            Cell(clean(row.get("device_group")), clean(row.get("profile"))),
            Cell(count(row.get("devices"))),
            Cell(count(row.get("commands"))),
            Cell(share(row.get("flaky_share"))),
            Cell(f"{share(row.get('flaky_low'))} to {share(row.get('flaky_high'))}"),
            Cell(ratio(row.get("slowness"))),
            Cell(f"{ratio(row.get('slowness_low'))} to {ratio(row.get('slowness_high'))}"),
        ]
        for row in rows[:MOST_GROUPS]
    ]
    return DataTable(
        "device-groups",
        "Groups of devices",
        "device_groups",
        caption="The flakiest first." + (f" {MOST_GROUPS} of {len(rows)} groups." if len(rows) > MOST_GROUPS else ""),
        heads=heads,
        rows=cells,
        empty="" if cells else "There are no commands in this period.",
    )
