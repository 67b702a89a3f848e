"""The contract of the pipeline's output: the columns of every rollup and table, with units.

Rollups are by day and can be added up; tables are what a period looked like, made of rollups. Both are folders of
Parquet files, `<out>/rollups/<name>/date=…/` and `<out>/tables/<name>/`. Shares are between 0 and 1; instants are UTC.
Percentiles are nearest-rank: the smallest value that at least that share of the records does not exceed, within 1 %.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

SUMMARY_VERSION: Final = 2
SUMMARY_NAME: Final = "summary.json"


@dataclass(frozen=True, slots=True)
class ColumnContract:
    """One column, with its type in Spark SQL, and what its number counts."""

    name: str
    type: str
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class TableContract:
    """A table or rollup; `key` are the columns that tell rows apart (null counts as a value)."""

    name: str
    title: str
    key: tuple[str, ...]
    columns: tuple[ColumnContract, ...]

    @property
    def arrow(self) -> pa.Schema:
        """Its columns in files that Arrow reads and writes."""
        return pa.schema([pa.field(column.name, _TYPES[column.type][0]) for column in self.columns])


_TYPES: Final = {
    "string": (pa.string(), "text"),
    "boolean": (pa.bool_(), "flag"),
    "timestamp": (pa.timestamp("us", "UTC"), "instant"),
    "int": (pa.int32(), "bucket"),
    "bigint": (pa.int64(), "number records us"),
    "double": (pa.float64(), "value share ratio 1/s s"),
}
"""Type in Spark SQL -> Arrow's, and the kinds of columns that have it: units, and what has none."""
_KINDS: Final = {kind: name for name, (_, kinds) in _TYPES.items() for kind in kinds.split()}
_UNITS: Final = ("records", "us", "share", "ratio", "1/s", "s")
_COMMON: Final = """
    hour | instant | begin of the hour in which it was recorded
    profile method | text | of the command
    node | text | home node
    device_id | text | device
    device_group | text | group of the device, from its id; empty: none
    outcome | text | succeeded, failed, timed_out, cancelled or unsent
    bucket | bucket | of 2 % that the time is in: from 1.02^bucket µs; -1 is 0 µs; null: there is no time
    sum_us longest_us | us | sum and longest of the times of these commands
    commands | records | finished callbacks, of tables about times those that have one
    answered | records | that the device answered: succeeded or failed
    succeeded failed timed_out cancelled unsent | records | with this outcome
    succeeded_share failed_share timed_out_share | share | of the commands
    p50_us p90_us p99_us p999_us max_us mean_us | us | percentiles, longest and mean
    p99_low_us p99_high_us | us | ends of the 95 % confidence interval of the 99th percentile
    hop_p50_us hop_p90_us hop_p99_us hop_p999_us hop_max_us hop_mean_us | us | from the outcome on record to home
    total_p50_us total_p90_us total_p99_us total_p999_us total_max_us total_mean_us | us | of total_us
    flaky_share | share | failed or timed out, of all commands
    flaky_low flaky_high | share | ends of its Wilson interval, 95 %
    slowness | ratio | geometric mean of total_us over what its methods take on all devices
    slowness_low slowness_high | ratio | ends of its interval, 95 %
    receiving_node | text | node that the broker gave the response to
    home_node | text | node that registered the callback
    forwarded | flag | whether the response came in on another node than home
    stage | text | register, publish, device, record, wake or deliver
    kind | text | late or duplicate
    responses | records | late or duplicate responses
    late | records | late responses
    share | share | of all answered commands
    devices | number | that had commands, or events of this kind
    db | text | database of the event log
    events | records | what devices said unasked
    bytes largest | number | bytes of all of them, and of the largest
    event.kind | text | what their profile calls them, profile:name; null where none does
    first_at | instant | when the first one was logged
    last_at | instant | when the last one was logged
    longest_gap_us | us | longest time between two of one device
    p | value | two-sided p-value
    q | value | p after Benjamini–Hochberg, over all tests of this table or of this kind of anomaly
    reason meaning | text | short stable word; a sentence
    files | number | files left out whole
    records | records | left out, or odd
    example | text | a file, or the id of a command
"""


def _columns(lines: str, known: Mapping[str, ColumnContract]) -> dict[str, ColumnContract]:
    """A line is `names | kind | meaning`, or names of columns that are known; before a dot is what tells two apart."""
    found = {}
    for line in filter(None, map(str.strip, lines.splitlines())):
        names, *said = (part.strip() for part in line.split("|"))
        for name in names.split():
            if said:
                unit = said[0] if said[0] in _UNITS else ""
                found[name] = ColumnContract(name.rpartition(".")[2], _KINDS[said[0]], unit, said[1])
            else:
                found[name] = known[name]
    return found


def _tables(text: str) -> tuple[TableContract, ...]:
    """Parse the contracts of tables, a paragraph each: `name: title (key)`, and its columns."""
    known, found = _columns(_COMMON, {}), []
    for head, lines in re.findall(r"^(\S.*)\n((?: .*\n)+)", text, re.MULTILINE):
        name, title, key = re.split(r": | \(", head.removesuffix(")"))
        found.append(TableContract(name, title, tuple(key.split()), tuple(_columns(lines, known).values())))
    return tuple(found)


_CELL: Final = "bucket commands sum_us longest_us"
_TIMES: Final = "p50_us p90_us p99_us p999_us max_us mean_us"
_LATENCY: Final = f"""commands answered succeeded failed timed_out cancelled unsent
  succeeded_share failed_share timed_out_share {_TIMES} p99_low_us p99_high_us"""
_JUDGED: Final = "flaky_share flaky_low flaky_high slowness slowness_low slowness_high"
_STAGE: Final = f"""stage
  position | number | 1 for register to 6 for deliver
  commands
  share | share | of the sum of all stages
  {_TIMES}"""
_HOPS: Final = f"""forwarded commands share
  {" ".join(f"hop_{name}" for name in _TIMES.split())} {" ".join(f"total_{name}" for name in _TIMES.split())}"""
_LATE: Final = "hour kind profile method receiving_node home_node"

_OF_DAYS: Final = _tables(f"""
devices_daily: Latency and outcomes by device (device_id profile method outcome bucket)
  device_id device_group profile method outcome {_CELL}
deadlines_hourly: True times of commands, late answers included (hour profile method device_group end late_hour bucket)
  hour profile method device_group
  end | number | 0 answered, 1 timed out and answered late, 2 never answered, 3 cancelled and answered late
  late_hour | instant | begin of the hour in which the late answer came; null without one
  bucket | bucket | of the time from registration to the response on record (store time); null: never answered
  commands sum_us
  timeout_us | us | sum of the timeouts that they had; 0 for answered ones
stages_daily: Where the time of answered commands goes (stage profile method node bucket)
  stage profile method
  node | text | node whose work it is: the receiving node for record, the home node else
  {_CELL}
latency_hourly: Latency and outcomes by hour (hour profile method node outcome bucket)
  hour profile method node outcome {_CELL}
forwarding_daily: What it takes to bring an answer home (receiving_node home_node measure bucket)
  receiving_node home_node
  measure | text | hop (from the outcome on record to home knowing it, store time) or total (total_us)
  {_CELL}
load_10s: Commands in flight (at node)
  at | instant | begin of the ten seconds
  node
  arrived ended | records | registered in them; that came to an end in them
  carried_in carried_out | records | ended in them, registered before; registered in them, ended later
  busy_us | us | time in flight within them, of all but those that neither began nor ended in them
late_hourly: Late and duplicate responses ({_LATE})
  {_LATE} responses
repeated: Outcomes that were written more than once, and count once (reason)
  reason files records example
quarantine: What was left out (reason)
  reason files records example
event_hourly: Events by hour (hour db kind device_id)
  hour db event.kind device_id events bytes largest first_at last_at longest_gap_us
quarantine_events: What was left out (reason)
  reason files records example
""")
ROLLUPS, EVENT_ROLLUPS = _OF_DAYS[:9], _OF_DAYS[9:]
"""The rollups of the latency log and of the event log: the slowest first, the quarantine last."""
TABLES: Final = _tables(f"""
latency: Latency and outcomes ()
  {_LATENCY}
latency_by_method: Latency and outcomes by method (profile method)
  profile method {_LATENCY}
latency_by_node: Latency and outcomes by home node (node)
  node {_LATENCY}
latency_by_hour: Latency and outcomes by hour (hour)
  hour {_LATENCY}
latency_by_hour_method: Latency and outcomes by hour and method (hour profile method)
  hour profile method {_LATENCY}
histogram: Distribution of the latency (profile method from_us)
  profile method
  from_us to_us | us | where the bucket begins (inclusive) and ends (exclusive)
  commands
  up_to_share | share | of the method's answered commands, with this bucket and all before it
forwarding: The cost of forwarding (receiving_node home_node)
  receiving_node home_node {_HOPS}
hops: Forwarded and local answers (forwarded)
  {_HOPS}
stages: Where the time goes (stage)
  {_STAGE}
stages_by_method: Where the time goes, by method (profile method stage)
  profile method {_STAGE}
stages_by_node: Where the time goes, by node (node stage)
  node {_STAGE}
verdict: Homing, the broker or the device (part)
  part | text | homing (register, record, wake, deliver), broker (publish: until its PUBACK) or device (the rest)
  position | number | 1 for the one that takes most
  p50_us | us | sum of the medians of its stages; the device with its way to the broker
  share | share | of the sum of all three
devices: Devices (device_id)
  device_id device_group profile commands answered failed timed_out {_JUDGED} p50_us p99_us max_us
  slow_rank flaky_rank | number | place by slowness_low, flaky_low; 1 is worst; null under 20 commands
device_groups: Groups of devices (profile device_group)
  profile device_group devices commands answered failed timed_out {_JUDGED}
late: Late and duplicate responses ({_LATE})
  {_LATE} responses
  share | share | of the callbacks of the same home node that finished in the same hour
nodes: Load and skew (node)
  node commands
  received | records | responses that the broker gave it
  forwarded_in forwarded_out | records | responses to its callbacks that others received, and it for others
  commands_share received_share | share | of all
  commands_skew received_skew | ratio | over an equal share
  late
  duplicates | records | further responses that it received
  p50_us p99_us
capacity: Load and capacity (node)
  node | text | home node; `all` is the cluster
  arrivals_mean arrivals_peak | 1/s | registrations, and those in the busiest 10 s
  arrivals_peak_at | instant | begin of these 10 s
  in_flight_mean in_flight_peak | value | open callbacks on average, and in the 10 s in which they were most
  in_flight_peak_at | instant | begin of these 10 s
  max_pending | number | the limit it is measured against (per node; × nodes for `all`)
  used_peak | share | in_flight_peak of max_pending
  headroom | ratio | max_pending over in_flight_peak
  sustainable | 1/s | arrivals per second at which max_pending would be reached at the mean time
change: Change against the period before (scope profile method node test)
  scope | text | all, method (profile × method) or node (home node)
  profile method node
  test | text | unanswered (share timed out), median (rank test of total_us) or tail (share over the old p99)
  before_records after_records | records | sample sizes of the period before, and of this one
  before after | value | a share, or p50_us
  effect | share | difference of the shares; for median: P(a record now takes longer) − P(shorter)
  ratio | ratio | after / before
  z | value | test statistic: of two proportions, or Mann–Whitney on the histograms with ties
  p q
  significant notable | flag | q is under the level; and the change is large enough to matter
anomalies: Anomalies (kind subject measure)
  kind | text | node, device_group, hour, method or success
  subject | text | node id, group, begin of the hour (2026-11-21T07:00Z), profile/method or all commands
  measure | text | latency, unanswered or unsuccessful
  profile | text | device profile, for kinds device_group and method
  since | instant | begin of what is flagged (hour, or first day of the change); else null
  records | records | it rests on
  value expected | value | what was seen, and what peers or the past have, or --success allows: microseconds or share
  ratio | ratio | value / expected
  p q
events: What devices said unasked (db kind)
  db event.kind devices
  silent | number | of these, those in the table silent_devices
  events
  per_second | 1/s | over the time from the first to the last event of the database
  bytes
  mean_bytes | value | mean size
  largest longest_gap_us
silent_devices: Devices that fell silent (db kind device_id)
  db event.kind device_id events last_at
  silent_us | us | from then to the last event of the database
  longest_gap_us
deadlines: Learned deadlines (profile method device_group)
  profile method
  device_group | text | group of the devices, from their ids; null for all devices
  responses | records | commands whose true time is known: answered in time, or late
  late | records | of them timed out, and answered later; they count with their true time
  never_answered | records | timed out without any response on record; not part of the quantile
  never_answered_share | share | of the commands that were not cancelled or unsent
  quantile_us | us | the quantile of the true times, from registration to the response on record (store time)
  weight | value | of quantile_us against its method's: n / (n + 10 / (1 - quantile)); 1 for a method
  shrunk_us | us | the quantile after it was drawn towards its method's
  timeout_us | us | shrunk_us with the margin, within the bounds; null when nothing is recommended
  logged_timeout_us | us | mean of the timeouts of those that timed out; null when none did
  why_not | text | why nothing is recommended; null else
deadlines_test: Back-test of the learned deadlines (profile method)
  profile method | text | of the command; null for all commands
  commands without | records | held-out commands with, and without a learned timeout; not those cancelled or unsent
  responses | records | of the commands, those whose true time is known
  wrong | records | of the responses, those that the learned timeout would have been too short for
  wrong_share | share | of the responses; an upper bound, within a bucket of the timeout
  wrong_logged | records | of the responses, those that came after the timeout that the command had
  wrong_logged_share | share | of the responses
  waited_s waited_logged_s | s | time that callers would have waited, and did with the timeouts that they had
  saved_s | s | the difference; negative when the learned timeouts are longer
  saved_share | share | of waited_logged_s
quarantine: What was not used (reason)
  reason meaning files records example
""")

(WINDOWS,) = _tables("""
windows: Minutes of a log that is followed (start profile method)
  start end | instant | of the minute in which the outcome was recorded
  profile method | text | of the command; null for all methods
  commands answered failed timed_out cancelled unsent timed_out_share p50_us p90_us p99_us p999_us max_us
  burn_5m burn_1h | ratio | timed out or unsent in this time, of all but cancelled, over what the SLO allows
  p99_limit_us | us | an alert is raised when p99_us is over this; null without history or threshold
  timed_out_limit | share | an alert is raised when timed_out_share is over this; null likewise
  raised | text | what is out of its band: some of p99, timeout_share and burn_rate, with blanks between
""")
"""The table that `--follow` writes, in `<out>/stream/`."""
