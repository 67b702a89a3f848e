"""What `homing analyze` writes: every table with its grain and columns, and the form of summary.json.

Each table is a folder of Parquet files, `<out>/<name>/`. Its query is `app/analysis/queries/<name>.sql`, and stands in
summary.json as well. Microseconds are whole numbers; shares are between 0 and 1; instants are UTC.

Percentiles are nearest-rank: the smallest value that at least that share of the records does not exceed. They come
from counts per logarithmic bucket, so each is within RELATIVE_ERROR of the exact one; max and mean are exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SUMMARY_VERSION: Final = 1
SUMMARY_NAME: Final = "summary.json"
RELATIVE_ERROR: Final = 0.01
"""Of every percentile, at most; buckets are 2 % wide."""


class Type(StrEnum):
    """What a column of a table holds, by its name in Spark SQL."""

    TEXT = "string"
    FLAG = "boolean"
    COUNT = "bigint"
    INSTANT = "timestamp"
    MICROSECONDS = "bigint"
    SHARE = "double"
    RATIO = "double"


class Unit(StrEnum):
    """What a number counts."""

    NONE = ""
    RECORDS = "records"
    MICROSECONDS = "us"
    SHARE = "share"
    RATIO = "ratio"
    PER_SECOND = "1/s"
    SECONDS = "s"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    type: str
    meaning: str
    unit: Unit = Unit.NONE


@dataclass(frozen=True, slots=True)
class Table:
    """One table; `grain` says what one row is, `key` which columns tell rows apart (null counts as a value)."""

    name: str
    title: str
    grain: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]


def _text(name: str, meaning: str) -> Column:
    return Column(name, Type.TEXT, meaning)


def _instant(name: str, meaning: str) -> Column:
    return Column(name, Type.INSTANT, meaning)


def _count(name: str, meaning: str) -> Column:
    return Column(name, "bigint", meaning, Unit.RECORDS)


def _us(name: str, meaning: str) -> Column:
    return Column(name, "bigint", meaning, Unit.MICROSECONDS)


def _share(name: str, meaning: str) -> Column:
    return Column(name, "double", meaning, Unit.SHARE)


def _ratio(name: str, meaning: str) -> Column:
    return Column(name, "double", meaning, Unit.RATIO)


def _per_second(name: str, meaning: str) -> Column:
    return Column(name, "double", meaning, Unit.PER_SECOND)


def _quantiles(of: str, prefix: str = "") -> tuple[Column, ...]:
    return (
        _us(f"{prefix}p50_us", f"median of {of}"),
        _us(f"{prefix}p90_us", f"90th percentile of {of}"),
        _us(f"{prefix}p99_us", f"99th percentile of {of}"),
        _us(f"{prefix}p999_us", f"99.9th percentile of {of}"),
        _us(f"{prefix}max_us", f"longest {of}"),
        _us(f"{prefix}mean_us", f"mean of {of}"),
    )


_OUTCOMES: Final = (
    _count("commands", "finished callbacks"),
    _count("answered", "that the device answered: succeeded or failed"),
    _count("succeeded", "with this outcome"),
    _count("failed", "with this outcome"),
    _count("timed_out", "with this outcome"),
    _count("cancelled", "with this outcome"),
    _count("unsent", "with this outcome"),
    _share("succeeded_share", "of the commands"),
    _share("failed_share", "of the commands"),
    _share("timed_out_share", "of the commands"),
)

LATENCY: Final = Table(
    "latency",
    "Latency and outcomes",
    "what `grain` says: all; method (profile × method); node (home node); hour; hour_method (hour × profile × method); "
    "hour_method_node (hour × profile × method × home node). Columns outside the grain are null",
    ("grain", "hour", "profile", "method", "node"),
    (
        _text("grain", "all, method, node, hour, hour_method or hour_method_node"),
        _instant("hour", "begin of the hour in which the outcome was recorded"),
        _text("profile", "device profile"),
        _text("method", "method of the command"),
        _text("node", "home node"),
        *_OUTCOMES,
        *_quantiles("total_us of answered commands"),
        _us("p99_low_us", "95 % confidence: the 99th percentile is not under this"),
        _us("p99_high_us", "95 % confidence: the 99th percentile is not over this"),
    ),
)

HISTOGRAM: Final = Table(
    "histogram",
    "Distribution of the latency",
    "profile × method × bucket, of answered commands",
    ("profile", "method", "from_us"),
    (
        _text("profile", "device profile"),
        _text("method", "method of the command"),
        _us("from_us", "the bucket begins here (inclusive)"),
        _us("to_us", "and ends here (exclusive)"),
        _count("commands", "answered commands whose total_us falls into it"),
        _share("up_to_share", "of the method's answered commands, with this bucket and all before it"),
    ),
)

FORWARDING: Final = Table(
    "forwarding",
    "The cost of forwarding",
    "what `grain` says: pair (receiving × home node) or forwarded (forwarded or local). Answered commands only",
    ("grain", "receiving_node", "home_node", "forwarded"),
    (
        _text("grain", "pair or forwarded"),
        _text("receiving_node", "node that the broker gave the response to"),
        _text("home_node", "node that registered the callback"),
        Column("forwarded", Type.FLAG, "whether the two differ"),
        _count("commands", "answered commands"),
        _share("share", "of all answered commands"),
        *_quantiles("the hop: from the outcome on record to home knowing it (store time)", "hop_"),
        *_quantiles("total_us", "total_"),
    ),
)

STAGES: Final = Table(
    "stages",
    "Where the time goes",
    "what `grain` says × stage: all; method (profile × method); node (the node whose work it is: receiving node for "
    "record, home node else)",
    ("grain", "profile", "method", "node", "stage"),
    (
        _text("grain", "all, method or node"),
        _text("profile", "device profile"),
        _text("method", "method of the command"),
        _text("node", "node whose work it is"),
        _text("stage", "register, publish, device, record, wake or deliver"),
        Column("position", "bigint", "1 for register to 6 for deliver"),
        _count("commands", "answered commands for which it was measured"),
        _share("share", "of the sum of all stages in this grain"),
        *_quantiles("the stage"),
    ),
)

DEVICES: Final = Table(
    "devices",
    "Slowest and flakiest devices",
    "list × device: the first N of each list by the bound that is sure (95 %), not by the value",
    ("list", "device_id"),
    (
        _text("list", "slowest or flakiest"),
        Column("rank", "bigint", "1 is the worst"),
        _text("device_id", "device"),
        _text("device_group", "group of the device, from its id"),
        _text("profile", "device profile"),
        _count("commands", "finished callbacks of the device"),
        _count("answered", "of them answered"),
        _count("failed", "of them failed"),
        _count("timed_out", "of them timed out"),
        _share("flaky_share", "failed or timed out, of all commands"),
        _share("flaky_low", "lower end of its Wilson interval, 95 %"),
        _share("flaky_high", "upper end of its Wilson interval, 95 %"),
        _ratio("slowness", "geometric mean of total_us over what its methods take on all devices"),
        _ratio("slowness_low", "lower end of its interval, 95 %"),
        _ratio("slowness_high", "upper end of its interval, 95 %"),
        _us("p50_us", "median of total_us of answered commands"),
        _us("p50_low_us", "lower end of its order-statistic interval, 95 %"),
        _us("p50_high_us", "upper end of its order-statistic interval, 95 %"),
        _us("p99_us", "99th percentile of total_us of answered commands"),
    ),
)

DEVICE_GROUPS: Final = Table(
    "device_groups",
    "Groups of devices",
    "profile × device group",
    ("profile", "device_group"),
    (
        _text("profile", "device profile"),
        _text("device_group", "group of the devices, from their ids"),
        Column("devices", "bigint", "devices that had commands"),
        _count("commands", "finished callbacks"),
        _count("answered", "of them answered"),
        _count("failed", "of them failed"),
        _count("timed_out", "of them timed out"),
        _share("flaky_share", "failed or timed out, of all commands"),
        _share("flaky_low", "lower end of its Wilson interval, 95 %"),
        _share("flaky_high", "upper end of its Wilson interval, 95 %"),
        _ratio("slowness", "geometric mean of total_us over what its methods take on all devices"),
        _ratio("slowness_low", "lower end of its interval, 95 %"),
        _ratio("slowness_high", "upper end of its interval, 95 %"),
    ),
)

LATE: Final = Table(
    "late",
    "Late and duplicate responses",
    "hour × kind × receiving node × home node",
    ("hour", "kind", "receiving_node", "home_node"),
    (
        _instant("hour", "begin of the hour in which it was recorded"),
        _text("kind", "late or duplicate"),
        _text("receiving_node", "node that received it"),
        _text("home_node", "node that registered the callback"),
        _count("responses", "late or duplicate responses"),
        _share("share", "of the callbacks of the same home node that finished in the same hour"),
    ),
)

NODES: Final = Table(
    "nodes",
    "Load and skew",
    "node",
    ("node",),
    (
        _text("node", "node"),
        _count("commands", "callbacks that it registered (home)"),
        _count("received", "responses that the broker gave to it"),
        _count("forwarded_in", "its callbacks whose response came in elsewhere"),
        _count("forwarded_out", "responses that it received for others"),
        _share("commands_share", "of all commands"),
        _share("received_share", "of all responses"),
        _ratio("commands_skew", "its share over an equal share: 1 is fair"),
        _ratio("received_skew", "its share over an equal share: 1 is fair"),
        _count("late", "late responses that it received"),
        _count("duplicates", "duplicate responses that it received"),
        _us("p50_us", "median of total_us of its answered commands"),
        _us("p99_us", "99th percentile of total_us of its answered commands"),
    ),
)

CAPACITY: Final = Table(
    "capacity",
    "Capacity",
    "node, and `all` nodes together",
    ("node",),
    (
        _text("node", "home node; `all` for all together"),
        _per_second("arrivals_mean", "commands registered per second, over the whole period"),
        _per_second("arrivals_peak", "commands registered per second, in the busiest 10 s"),
        _instant("arrivals_peak_at", "begin of those 10 s"),
        Column("in_flight_mean", "double", "commands in flight on average: Little's law, arrivals × mean time"),
        Column("in_flight_peak", "bigint", "most commands in flight at the end of any 10 s"),
        Column("in_flight_peak_most", "bigint", "no more than this at any instant: level before 10 s + their arrivals"),
        _instant("in_flight_peak_at", "end of the 10 s of the peak"),
        Column("max_pending", "bigint", "the limit it is measured against (per node; × nodes for `all`)"),
        _share("used_peak", "in_flight_peak of max_pending"),
        _ratio("headroom", "max_pending over in_flight_peak"),
        _per_second("sustainable", "arrivals per second at which max_pending would be reached at the mean time"),
    ),
)

CHANGE: Final = Table(
    "change",
    "Change against the period before",
    "scope × profile × method × node × test. Empty when there is no period before",
    ("scope", "profile", "method", "node", "test"),
    (
        _text("scope", "all, method (profile × method) or node (home node)"),
        _text("profile", "device profile"),
        _text("method", "method of the command"),
        _text("node", "home node"),
        _text("test", "unanswered (share timed out), median (rank test of total_us) or tail (share over the old p99)"),
        _count("before_records", "sample size of the period before"),
        _count("after_records", "sample size of this period"),
        Column("before", "double", "value before: a share, or p50_us, or a share"),
        Column("after", "double", "value now"),
        _share("effect", "difference of the shares; for median: P(a record now takes longer) − P(shorter)"),
        _ratio("ratio", "after / before"),
        Column("z", "double", "test statistic: of two proportions, or Mann–Whitney on the histograms with ties"),
        Column("p", "double", "two-sided p-value"),
        Column("q", "double", "p after Benjamini–Hochberg over all tests of this table"),
        Column("significant", Type.FLAG, "q is under the level"),
        Column("notable", Type.FLAG, "significant, and the change is large enough to matter"),
    ),
)

ANOMALIES: Final = Table(
    "anomalies",
    "Anomalies",
    "kind × subject × measure: what is flagged at the level, the most certain first",
    ("kind", "subject", "measure"),
    (
        _text("kind", "node, device_group, hour or method"),
        _text("subject", "node id, group, begin of the hour (2026-11-21T07:00Z) or profile/method"),
        _text("measure", "latency or unanswered"),
        _text("profile", "device profile, for kinds device_group and method"),
        _instant("since", "begin of what is flagged (hour, or first day of the change); else null"),
        _count("records", "records it rests on"),
        Column("value", "double", "what was seen: microseconds or share"),
        Column("expected", "double", "what its peers or its own past have"),
        _ratio("ratio", "value / expected"),
        Column("p", "double", "p-value"),
        Column("q", "double", "p after Benjamini–Hochberg over all tests of this kind"),
    ),
)

QUARANTINE: Final = Table(
    "quarantine",
    "What was not used",
    "reason",
    ("reason",),
    (
        _text("reason", "short stable word"),
        _text("meaning", "a sentence"),
        Column("files", "bigint", "files left out whole"),
        _count("records", "records left out"),
        _text("example", "a file or a command id"),
    ),
)

DEADLINES: Final = Table(
    "deadlines",
    "Learned deadlines",
    "profile × method (device_group null), and profile × method × device group. The same as in `<out>/timeouts.toml`",
    ("profile", "method", "device_group"),
    (
        _text("profile", "device profile"),
        _text("method", "method of the command"),
        _text("device_group", "group of the devices, from their ids; null for all devices"),
        _count("responses", "commands whose true time is known: answered in time, or late"),
        _count("late", "of them timed out, and answered later; they count with their true time"),
        _count("never_answered", "timed out without any response on record; not part of the quantile"),
        _share("never_answered_share", "of the commands that were not cancelled or unsent"),
        _us("quantile_us", "the quantile of the true times, from registration to the response on record (store time)"),
        Column(
            "weight", "double", "of quantile_us against its method's: n / (n + 10 / (1 - quantile)); 1 for a method"
        ),
        _us("shrunk_us", "the quantile after it was drawn towards its method's"),
        _us("timeout_us", "shrunk_us with the margin, within the bounds; null when nothing is recommended"),
        _us("logged_timeout_us", "mean of the timeouts of those that timed out; null when none did"),
        _text("why_not", "why nothing is recommended; null else"),
    ),
)

DEADLINES_TEST: Final = Table(
    "deadlines_test",
    "Back-test of the learned deadlines",
    "grain: all, and method (profile × method). Learned from the earlier hours, judged on the held-out ones",
    ("grain", "profile", "method"),
    (
        _text("grain", "all or method"),
        _text("profile", "device profile"),
        _text("method", "method of the command"),
        _count("commands", "held-out commands with a learned timeout, but for cancelled and unsent ones"),
        _count("without", "held-out commands for which nothing was learned"),
        _count("responses", "of the commands, those whose true time is known"),
        _count("wrong", "of the responses, those that the learned timeout would have been too short for"),
        _share("wrong_share", "of the responses; an upper bound, within 1/64 of the timeout"),
        _count("wrong_logged", "of the responses, those that came after the timeout that the command had"),
        _share("wrong_logged_share", "of the responses"),
        Column("waited_s", "double", "time that callers would have waited", Unit.SECONDS),
        Column("waited_logged_s", "double", "time that callers waited with the timeouts that they had", Unit.SECONDS),
        Column("saved_s", "double", "the difference; negative when the learned timeouts are longer", Unit.SECONDS),
        _share("saved_share", "of waited_logged_s"),
    ),
)

TABLES: Final = (
    LATENCY,
    HISTOGRAM,
    FORWARDING,
    STAGES,
    DEVICES,
    DEVICE_GROUPS,
    LATE,
    NODES,
    CAPACITY,
    CHANGE,
    ANOMALIES,
    DEADLINES,
    DEADLINES_TEST,
    QUARANTINE,
)

WINDOWS: Final = Table(
    "windows",
    "Minutes of a log that is followed",
    "minute × profile × method, and minute of all methods (profile and method null). By `--follow`, in `<out>/stream/`",
    ("start", "profile", "method"),
    (
        _instant("start", "begin of the minute in which the outcome was recorded"),
        _instant("end", "its end"),
        _text("profile", "device profile"),
        _text("method", "method of the command"),
        *_OUTCOMES[:2],
        *_OUTCOMES[3:7],
        _share("timed_out_share", "of the commands"),
        _us("p50_us", "median of total_us of answered commands"),
        _us("p90_us", "90th percentile of total_us of answered commands"),
        _us("p99_us", "99th percentile of total_us of answered commands"),
        _us("p999_us", "99.9th percentile of total_us of answered commands"),
        _us("max_us", "longest total_us of answered commands"),
        _ratio("burn_5m", "timed out or unsent, of all but cancelled, in the last 5 minutes, over what the SLO allows"),
        _ratio("burn_1h", "the same in the last hour"),
        _us("p99_limit_us", "an alert is raised when p99_us is over this; null without history or threshold"),
        _share("timed_out_limit", "an alert is raised when timed_out_share is over this; null likewise"),
    ),
)
"""Not part of summary.json."""

SUMMARY: Final = {
    "version": "SUMMARY_VERSION",
    "log": "location, from, to (instants of the first and last hour that were read), hours, missing_hours (list of "
    "begins of hours without a record between the two), files, records, schema_versions (version -> files)",
    "period": "from, to, as analysed; before: {from, to} of the period of `change`, or null with `why_not`",
    "options": "everything that the result depends on: from, to, compare_to, max_pending, top, level, device_group",
    "relative_error": "RELATIVE_ERROR",
    "quarantined": "list of {reason, meaning, files, records, example}; empty when all was used",
    "figures": "list of {name, title, value, unit, table, where}: the headline numbers; `where` is the SQL condition "
    "that picks the row of `table`, `column` its column",
    "anomalies": "rows of the table of this name, each with a `sentence`",
    "tables": "list of {name, title, grain, rows, query, columns: [{name, type, unit, meaning}]}; query is SQL text",
    "views": "name -> SQL text of the views that the queries read, down to the raw records",
}
"""The keys of summary.json. Nothing in it depends on when or how fast it ran: twice gives the same bytes."""
