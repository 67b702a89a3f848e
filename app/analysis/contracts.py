"""What the pipeline writes: the columns of every rollup and table, with units.

Rollups are by day and can be added up; tables are what a period looked like, made of rollups. Both are folders of
Parquet files, `<out>/rollups/<name>/date=…/` and `<out>/tables/<name>/`. Shares are between 0 and 1; instants are UTC.
Percentiles are nearest-rank: the smallest value that at least that share of the records does not exceed, within 1 %.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import pyarrow as pa

SUMMARY_VERSION: Final = 2
SUMMARY_NAME: Final = "summary.json"


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
    """One column, with its type in Spark SQL."""

    name: str
    type: str
    meaning: str
    unit: Unit = Unit.NONE


@dataclass(frozen=True, slots=True)
class Table:
    """A table or rollup; `key` are the columns that tell rows apart (null counts as a value)."""

    name: str
    title: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of its columns."""
        return tuple(column.name for column in self.columns)

    @property
    def units(self) -> dict[str, Unit]:
        """Column -> what it counts."""
        return {column.name: column.unit for column in self.columns}

    @property
    def arrow(self) -> pa.Schema:
        """Its columns in files that Arrow reads and writes."""
        return pa.schema([pa.field(column.name, _ARROW[column.type]) for column in self.columns])


Rollup = Table
_ARROW: Final = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
}
_WORDS: Final = {
    "text": ("string", Unit.NONE),
    "flag": ("boolean", Unit.NONE),
    "instant": ("timestamp", Unit.NONE),
    "bucket": ("int", Unit.NONE),
    "number": ("bigint", Unit.NONE),
    "records": ("bigint", Unit.RECORDS),
    "us": ("bigint", Unit.MICROSECONDS),
    "value": ("double", Unit.NONE),
    "share": ("double", Unit.SHARE),
    "ratio": ("double", Unit.RATIO),
    "rate": ("double", Unit.PER_SECOND),
    "seconds": ("double", Unit.SECONDS),
}
_COMMON: Final = {
    "hour": "instant begin of the hour in which it was recorded",
    "profile": "text device profile",
    "method": "text method of the command",
    "node": "text home node",
    "device_id": "text device",
    "device_group": "text group of the device, from its id; empty: none",
    "outcome": "text succeeded, failed, timed_out, cancelled or unsent",
    "bucket": "bucket of 2 % that the time is in: from 1.02^bucket µs; -1 is 0 µs; null: there is no time",
    "commands": "records finished callbacks",
    "answered": "records that the device answered: succeeded or failed",
    "succeeded": "records with this outcome",
    "failed": "records with this outcome",
    "timed_out": "records with this outcome",
    "cancelled": "records with this outcome",
    "unsent": "records with this outcome",
    "succeeded_share": "share of the commands",
    "failed_share": "share of the commands",
    "timed_out_share": "share of the commands",
    "p50_us": "us median",
    "p90_us": "us 90th percentile",
    "p99_us": "us 99th percentile",
    "p999_us": "us 99.9th percentile",
    "max_us": "us longest",
    "mean_us": "us mean",
    "p99_low_us": "us 95 % confidence: the 99th percentile is not under this",
    "p99_high_us": "us 95 % confidence: the 99th percentile is not over this",
    "flaky_share": "share failed or timed out, of all commands",
    "flaky_low": "share lower end of its Wilson interval, 95 %",
    "flaky_high": "share upper end of its Wilson interval, 95 %",
    "slowness": "ratio geometric mean of total_us over what its methods take on all devices",
    "slowness_low": "ratio lower end of its interval, 95 %",
    "slowness_high": "ratio upper end of its interval, 95 %",
    "receiving_node": "text node that the broker gave the response to",
    "home_node": "text node that registered the callback",
    "stage": "text register, publish, device, record, wake or deliver",
    "kind": "text late or duplicate",
    "responses": "records responses",
    "late": "records late responses",
}


def _table(name: str, title: str, key: str, text: str) -> Table:
    """A line is a column, `name type meaning`, or names of columns that mean the same everywhere."""
    columns = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.split()[0] in _COMMON and all(word in _COMMON for word in line.split()):
            lines = [f"{word} {_COMMON[word]}" for word in line.split()]
        else:
            lines = [line]
        for one in lines:
            column, word, meaning = one.split(maxsplit=2)
            columns.append(Column(column, _WORDS[word][0], meaning, _WORDS[word][1]))
    return Table(name, title, tuple(key.split()), tuple(columns))


_CELL: Final = """
    bucket
    commands records that are in this bucket
    sum_us us sum of their times
    longest_us us longest of their times
"""
_ANY_CELL: Final = f"""
    outcome
    {_CELL}
"""

LATENCY_HOURLY: Final = _table(
    "latency_hourly", "Latency and outcomes by hour", "hour profile method node outcome bucket",
    f"hour profile method node {_ANY_CELL}",
)  # fmt: skip
DEVICES_DAILY: Final = _table(
    "devices_daily", "Latency and outcomes by device", "device_id profile method outcome bucket",
    f"device_id device_group profile method {_ANY_CELL}",
)  # fmt: skip
STAGES_DAILY: Final = _table(
    "stages_daily", "Where the time of answered commands goes", "stage profile method node bucket",
    f"""stage profile method
    node text node whose work it is: the receiving node for record, the home node else
    {_CELL}""",
)  # fmt: skip
FORWARDING_DAILY: Final = _table(
    "forwarding_daily", "What it takes to bring an answer home", "receiving_node home_node measure bucket",
    f"""receiving_node home_node
    measure text hop (from the outcome on record to home knowing it, store time) or total (total_us)
    {_CELL}""",
)  # fmt: skip
DEADLINES_HOURLY: Final = _table(
    "deadlines_hourly", "True times of commands, late answers included",
    "hour profile method device_group end late_hour bucket",
    """hour profile method device_group
    end number 0 answered, 1 timed out and answered late, 2 never answered, 3 cancelled and answered late
    late_hour instant begin of the hour in which the late answer came; null without one
    bucket bucket of the time from registration to the response on record (store time); null: never answered
    commands
    sum_us us sum of these times
    timeout_us us sum of the timeouts that they had; 0 for answered ones""",
)  # fmt: skip
LOAD_10S: Final = _table(
    "load_10s", "Commands in flight", "at node",
    """at instant begin of the ten seconds
    node
    arrived records registered in them
    ended records that came to an end in them
    carried_in records ended in them, registered before
    carried_out records registered in them, ended later
    busy_us us time in flight within them, of all but those that neither began nor ended in them""",
)  # fmt: skip
LATE_HOURLY: Final = _table(
    "late_hourly", "Late and duplicate responses", "hour kind profile method receiving_node home_node",
    "hour kind profile method receiving_node home_node responses",
)  # fmt: skip
EVENT_HOURLY: Final = _table(
    "event_hourly", "Events by hour", "hour db kind device_id",
    """hour instant begin of the hour in which they were logged
    db text database of the event log
    kind text what their profile calls them, profile:name; null where none does
    device_id
    events records what the device said
    bytes number bytes of it
    largest number bytes of the largest
    first_at instant when the first one was logged
    last_at instant and the last one
    longest_gap_us us longest time between two of them in this hour; null with one""",
)  # fmt: skip
QUARANTINE_DAILY: Final = _table(
    "quarantine", "What was left out", "reason",
    """reason text short stable word
    files number files left out whole
    records records left out, or odd
    example text a file, or the id of a command""",
)  # fmt: skip

ROLLUPS: Final = (
    LATENCY_HOURLY,
    DEVICES_DAILY,
    STAGES_DAILY,
    FORWARDING_DAILY,
    DEADLINES_HOURLY,
    LOAD_10S,
    LATE_HOURLY,
    QUARANTINE_DAILY,
)
QUARANTINE_EVENTS: Final = replace(QUARANTINE_DAILY, name="quarantine_events")
EVENT_ROLLUPS: Final = (EVENT_HOURLY, QUARANTINE_EVENTS)
"""Those of the event log."""

_COUNTS: Final = """
    commands answered succeeded failed timed_out cancelled unsent succeeded_share failed_share timed_out_share
"""
_TIMES: Final = "p50_us p90_us p99_us p999_us max_us mean_us"
_LATENCY: Final = f"{_COUNTS}\n{_TIMES} p99_low_us p99_high_us"
_FLAKY: Final = (
    "commands answered failed timed_out flaky_share flaky_low flaky_high slowness slowness_low slowness_high"
)
_STAGE: Final = f"""
    stage
    position number 1 for register to 6 for deliver
    commands records answered commands for which it was measured
    share share of the sum of all stages
    {_TIMES}
"""
_HOP: Final = "\n".join(
    f"{prefix}_{name} us {what}: {_COMMON[name].split(maxsplit=1)[1]}"
    for prefix, what in (("hop", "from the outcome on record to home knowing it"), ("total", "total_us"))
    for name in _TIMES.split()
)


def _latency(suffix: str, title: str, *key: str) -> Table:
    return _table(f"latency{suffix}", title, " ".join(key), f"{' '.join(key)}\n{_LATENCY}")


LATENCY_TABLES: Final = (
    _latency("", "Latency and outcomes"),
    _latency("_by_method", "Latency and outcomes by method", "profile", "method"),
    _latency("_by_node", "Latency and outcomes by home node", "node"),
    _latency("_by_hour", "Latency and outcomes by hour", "hour"),
    _latency("_by_hour_method", "Latency and outcomes by hour and method", "hour", "profile", "method"),
)
_REST: Final = (
    _table(
        "histogram", "Distribution of the latency", "profile method from_us",
        """profile method
        from_us us the bucket begins here (inclusive)
        to_us us and ends here (exclusive)
        commands records answered commands whose total_us falls into it
        up_to_share share of the method's answered commands, with this bucket and all before it""",
    ),
    _table(
        "forwarding", "The cost of forwarding", "receiving_node home_node",
        f"""receiving_node home_node
        forwarded flag whether the two differ
        commands records answered commands
        share share of all answered commands
        {_HOP}""",
    ),
    _table(
        "hops", "Forwarded and local answers", "forwarded",
        f"""forwarded flag whether the response came in on another node than home
        commands records answered commands
        share share of all answered commands
        {_HOP}""",
    ),
    _table("stages", "Where the time goes", "stage", _STAGE),
    _table("stages_by_method", "Where the time goes, by method", "profile method stage", f"profile method\n{_STAGE}"),
    _table(
        "stages_by_node", "Where the time goes, by node", "node stage",
        f"node text node whose work it is\n{_STAGE}",
    ),
    _table(
        "devices", "Devices", "device_id",
        f"""device_id device_group profile
        {_FLAKY} p50_us p99_us max_us
        slow_rank number place among the slowest by slowness_low, 1 is the worst; null with fewer than 20 commands
        flaky_rank number place among the flakiest by flaky_low; null with fewer than 20 commands""",
    ),
    _table(
        "device_groups", "Groups of devices", "profile device_group",
        f"""profile device_group
        devices number devices that had commands
        {_FLAKY}""",
    ),
    _table(
        "late", "Late and duplicate responses", "hour kind profile method receiving_node home_node",
        """hour kind profile method receiving_node home_node responses
        share share of the callbacks of the same home node that finished in the same hour""",
    ),
    _table(
        "nodes", "Load and skew", "node",
        """node
        commands records callbacks that it registered and that finished
        received records responses that the broker gave it
        forwarded_in records responses to its callbacks that others received
        forwarded_out records responses that it received for others
        commands_share share of all
        received_share share of all
        commands_skew ratio over an equal share
        received_skew ratio over an equal share
        late
        duplicates records further responses that it received
        p50_us p99_us""",
    ),
    _table(
        "capacity", "Load and capacity", "node",
        """node text home node; `all` is the cluster
        arrivals_mean rate registrations
        arrivals_peak rate registrations in the busiest 10 s
        arrivals_peak_at instant begin of these 10 s
        in_flight_mean value open callbacks on average
        in_flight_peak value open callbacks on average of the 10 s in which they were most
        in_flight_peak_at instant begin of these 10 s
        max_pending number the limit it is measured against (per node; × nodes for `all`)
        used_peak share in_flight_peak of max_pending
        headroom ratio max_pending over in_flight_peak
        sustainable rate arrivals per second at which max_pending would be reached at the mean time""",
    ),
    _table(
        "change", "Change against the period before", "scope profile method node test",
        """scope text all, method (profile × method) or node (home node)
        profile method node
        test text unanswered (share timed out), median (rank test of total_us) or tail (share over the old p99)
        before_records records sample size of the period before
        after_records records sample size of this period
        before value a share, or p50_us, or a share
        after value now
        effect share difference of the shares; for median: P(a record now takes longer) − P(shorter)
        ratio ratio after / before
        z value test statistic: of two proportions, or Mann–Whitney on the histograms with ties
        p value two-sided p-value
        q value p after Benjamini–Hochberg over all tests of this table
        significant flag q is under the level
        notable flag significant, and the change is large enough to matter""",
    ),
    _table(
        "anomalies", "Anomalies", "kind subject measure",
        """kind text node, device_group, hour or method
        subject text node id, group, begin of the hour (2026-11-21T07:00Z) or profile/method
        measure text latency or unanswered
        profile text device profile, for kinds device_group and method
        since instant begin of what is flagged (hour, or first day of the change); else null
        records records it rests on
        value value what was seen: microseconds or share
        expected value what its peers or its own past have
        ratio ratio value / expected
        p value p-value
        q value p after Benjamini–Hochberg over all tests of this kind""",
    ),
)  # fmt: skip
DEADLINES: Final = _table(
    "deadlines", "Learned deadlines", "profile method device_group",
    """profile method
    device_group text group of the devices, from their ids; null for all devices
    responses records commands whose true time is known: answered in time, or late
    late records of them timed out, and answered later; they count with their true time
    never_answered records timed out without any response on record; not part of the quantile
    never_answered_share share of the commands that were not cancelled or unsent
    quantile_us us the quantile of the true times, from registration to the response on record (store time)
    weight value of quantile_us against its method's: n / (n + 10 / (1 - quantile)); 1 for a method
    shrunk_us us the quantile after it was drawn towards its method's
    timeout_us us shrunk_us with the margin, within the bounds; null when nothing is recommended
    logged_timeout_us us mean of the timeouts of those that timed out; null when none did
    why_not text why nothing is recommended; null else""",
)  # fmt: skip
DEADLINES_TEST: Final = _table(
    "deadlines_test", "Back-test of the learned deadlines", "profile method",
    """profile text device profile; null for all commands
    method text method of the command; null for all commands
    commands records held-out commands with a learned timeout, but for cancelled and unsent ones
    without records held-out commands for which nothing was learned
    responses records of the commands, those whose true time is known
    wrong records of the responses, those that the learned timeout would have been too short for
    wrong_share share of the responses; an upper bound, within a bucket of the timeout
    wrong_logged records of the responses, those that came after the timeout that the command had
    wrong_logged_share share of the responses
    waited_s seconds time that callers would have waited
    waited_logged_s seconds time that callers waited with the timeouts that they had
    saved_s seconds the difference; negative when the learned timeouts are longer
    saved_share share of waited_logged_s""",
)  # fmt: skip
_EVENTS: Final = (
    _table(
        "events", "What devices said unasked", "db kind",
        """db text database of the event log
        kind text what their profile calls them, profile:name; null where none does
        devices number devices that said it
        silent number of these, those in the table silent_devices
        events records how many
        per_second rate over the time from the first to the last event of the database
        bytes number bytes of all of them
        mean_bytes value mean size
        largest number bytes of the largest
        longest_gap_us us longest time between two of one device""",
    ),
    _table(
        "silent_devices", "Devices that fell silent", "db kind device_id",
        """db text database of the event log
        kind text what their profile calls it, profile:name
        device_id
        events records what it said before
        last_at instant when it said that last
        silent_us us from then to the last event of the database
        longest_gap_us us longest time between two before: a tenth of silent_us, or less""",
    ),
)  # fmt: skip
QUARANTINE: Final = _table(
    "quarantine", "What was not used", "reason",
    """reason text short stable word
    meaning text a sentence
    files number files left out whole
    records records left out, or odd
    example text a file, or the id of a command""",
)  # fmt: skip
TABLES: Final = (*LATENCY_TABLES, *_REST, *_EVENTS, DEADLINES, DEADLINES_TEST, QUARANTINE)

WINDOWS: Final = _table(
    "windows", "Minutes of a log that is followed", "start profile method",
    """start instant begin of the minute in which the outcome was recorded
    end instant its end
    profile text device profile; null for all methods
    method text method of the command; null for all methods
    commands answered failed timed_out cancelled unsent timed_out_share
    p50_us p90_us p99_us p999_us max_us
    burn_5m ratio timed out or unsent, of all but cancelled, in the last 5 minutes, over what the SLO allows
    burn_1h ratio the same in the last hour
    p99_limit_us us an alert is raised when p99_us is over this; null without history or threshold
    timed_out_limit share an alert is raised when timed_out_share is over this; null likewise""",
)  # fmt: skip
"""By `--follow`, in `<out>/stream/`."""
