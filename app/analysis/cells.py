"""The one pass over the records: counts per group and bucket, from which every percentile is computed.

A bucket is a power of two cut into 64 equal parts, so that a value in its middle is off by 1/128 at most; whole
numbers under 128 have a bucket each. Finding it takes a few comparisons and a shift: no logarithm, no Python.
A record becomes one row for each of its measures, and all rows are counted by one 64-bit key:

    hash of names (33 bits) | hour since the first, or 1 = this period and 0 = before (14) | measure (4) | bucket (12)
    hash of names (33 bits) | group of devices (13), held out (1)                          | measure (4) | bucket (12)
    hash of home  (21 bits) | 10 s since the first hour                               (26) | measure (4) | 0     (12)
    number of device  (33 bits) | 0                                                   (14) | measure (4) | bucket (12)

The hashes are looked up in the table of names afterwards; names with equal hashes get another salt.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from app.analysis.tables import RELATIVE_ERROR
from app.core.errors import ConfigurationError
from app.latency.schema import Kind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

OUTCOMES: Final = ("succeeded", "failed", "timed_out", "cancelled", "unsent")
UNKNOWN: Final = len(OUTCOMES)
"""Bucket of an outcome that this version does not know."""
WINDOW_US: Final = 10_000_000
HOUR_US: Final = 3_600_000_000
CLOCK_TOLERANCE_US: Final = 10_000
"""Nodes know the store's time to within some milliseconds: differences of instants down to minus this are 0."""
MOST_HOURS: Final = 1 << 14
MOST_GROUPS: Final = 1000
"""Of devices: more could not be read by people, and their histograms would fill the memory."""
_PARTS: Final = 64
_MOST_SHIFT: Final = 31
"""Times from 2^38 us (76 h) on are counted as that."""
assert 2 * MOST_GROUPS <= MOST_HOURS  # noqa: S101 - of constants
assert 1 / (2 * _PARTS) <= RELATIVE_ERROR  # noqa: S101 - of constants


class Measure(IntEnum):
    """What a cell counts."""

    OUTCOME = 0
    """Bucket: position in OUTCOMES. By hour, profile, method and home."""
    TOTAL = 1
    """total_us of answered commands. By hour, profile, method and home."""
    REGISTER = 2
    PUBLISH = 3
    DEVICE = 4
    """By profile and method; the other stages by home and receiving node."""
    RECORD = 5
    WAKE = 6
    DELIVER = 7
    ARRIVED = 8
    """Bucket: none. By home and 10 s."""
    ENDED = 9
    PAIR_TOTAL = 10
    """total_us of answered commands. By home and receiving node."""
    ODD = 11
    """Bucket: position in ODDITIES. By hour, home and receiving node."""
    PASSED = 12
    """Arrived and ended in the same 10 s, as most do: one row instead of two."""
    DEADLINE = 13
    """Store time from registration to record, of answered commands. By profile, method, group of devices, held out."""
    LISTED = 14
    """total_us of answered commands. By device, of those that are listed."""


ODDITIES: Final = ("late", "duplicate", "clock_jump", "unknown_kind")
STAGES: Final = ("register", "publish", "device", "record", "wake", "deliver")
_IN_FLIGHT: Final = f"{Measure.ARRIVED:d}, {Measure.ENDED:d}, {Measure.PASSED:d}"
STAGE_MEASURES: Final = tuple(range(Measure.REGISTER, Measure.DELIVER + 1))


@dataclass(frozen=True, slots=True)
class Span:
    """The hours that are read (`first` to `end`, exclusive), and where the period proper begins."""

    first: datetime
    begin: datetime
    end: datetime

    def __post_init__(self) -> None:
        if hour_number(self.end) - hour_number(self.first) > MOST_HOURS:
            raise ConfigurationError(f"the log spans more than {MOST_HOURS // 24} days: narrow it with --from and --to")


def hour_number(hour: datetime) -> int:
    """Hours since 1970."""
    return int(hour.astimezone(UTC).timestamp()) // 3600


def micros(instant: datetime) -> int:
    """Microseconds since 1970."""
    return round(instant.timestamp() * 1_000_000)


NAMES: Final = """\
SELECT DISTINCT coalesce(profile, '') AS profile, coalesce(method, '') AS method, home_node AS home,
  coalesce(receiving_node, '') AS receiving
FROM log"""


def names_view(spark: SparkSession, log: str) -> int:
    """Make the view `names` out of a view of the log: combinations of names, and their hashes. Returns the salt."""
    names = spark.sql(NAMES.replace("FROM log", f"FROM {log}")).coalesce(1).localCheckpoint()
    names.createOrReplaceTempView("plain_names")
    for salt in range(8):
        hashed = spark.sql(
            f"SELECT profile, method, home, receiving, {_HASHES} "
            f"FROM (SELECT *, {_hashed('profile', 'method', 'home', 'receiving', salt)} FROM plain_names)"
        )
        hashed.createOrReplaceTempView("names")
        if not clash(hashed.collect()):
            return salt
    raise ConfigurationError("the log names too many profiles, methods and nodes to tell them apart: narrow it")


def clash(rows: list[Row]) -> bool:
    """Whether two names of a kind have the same hash."""
    kinds: list[set[tuple[object, int]]] = [
        {((row.profile, row.method, row.home), row.by_home) for row in rows},
        {((row.home, row.receiving), row.by_pair) for row in rows},
        {((row.profile, row.method), row.by_method) for row in rows},
        {(row.home, row.by_node) for row in rows},
    ]
    return any(len(kind) > len({hashed for _, hashed in kind}) for kind in kinds)


_LOW: Final = f"{(1 << 33) - 1}L"
_HASHES: Final = (
    f"xxhash64(pm, h) & {_LOW} AS by_home, xxhash64(h, r) & {_LOW} AS by_pair, pm & {_LOW} AS by_method, "
    f"h & {(1 << 21) - 1}L AS by_node"
)
"""Out of those of `_hashed`: texts take long to hash, so each is hashed once."""


def _hashed(profile: str, method: str, home: str, receiving: str, salt: int) -> str:
    return (
        f"xxhash64({profile}, {method}, {salt}) AS pm, xxhash64({home}, {salt}) AS h, "
        f"xxhash64({receiving}, {salt}) AS r"
    )


def method_hash(salt: int) -> str:
    """What the view `names` has as by_method, in SQL over records."""
    return f"(xxhash64(coalesce(profile, ''), coalesce(method, ''), {salt}) & {_LOW})"


def counted(spark: SparkSession, span: Span, salt: int, cut: datetime) -> DataFrame:
    """The cells of the view `log`: key, n (records), s (sum of the values) and m (their maximum).

    The view `device_number` (app/analysis/devices.py) tells the numbers of devices and their groups; at `cut` the hours
    begin that are held out from learning deadlines.
    """
    ended = "(registered + coalesce(total_us, 0))"
    passed = f"({ended} DIV {WINDOW_US} = registered DIV {WINDOW_US})"
    values = {
        Measure.OUTCOME: "IF(is_outcome, coalesce(total_us, 0) * 8 + outcome_code, NULL)",
        Measure.TOTAL: "IF(answered, total_us, NULL)",
        Measure.PAIR_TOTAL: "IF(answered, total_us, NULL)",
        Measure.REGISTER: "IF(answered, register_us, NULL)",
        Measure.PUBLISH: "IF(answered, publish_us, NULL)",
        Measure.DEVICE: "IF(answered, device_us, NULL)",
        Measure.RECORD: "IF(answered, record_us, NULL)",
        Measure.WAKE: "IF(answered, wake_us, NULL)",
        Measure.DELIVER: "IF(answered, deliver_us, NULL)",
        Measure.ARRIVED: f"IF(is_outcome AND now = 1 AND NOT {passed}, registered, NULL)",
        Measure.ENDED: f"IF(is_outcome AND now = 1, IF({passed}, registered, {ended}), NULL)",
        Measure.ODD: "odd",
        Measure.DEADLINE: "IF(answered AND now = 1 AND named AND cohort IS NOT NULL, took, NULL)",
        Measure.LISTED: "IF(answered AND now = 1 AND listed IS NOT NULL AND total_us > 0, total_us, NULL)",
    }
    numbers = {Measure.ENDED: f"IF({passed}, {Measure.PASSED:d}, {Measure.ENDED:d})"}
    ids: list[Column | str] = ["by_home", "by_pair", "by_method", "by_node", "hour_number", "now", "cohort", "listed"]
    records = spark.sql(_records(span, salt, cut)).selectExpr(
        *map(str, ids),
        *(f"({sql}) * 16 + {numbers.get(measure, int(measure))} AS v{int(measure)}" for measure, sql in values.items()),
    )
    measures: list[Column | str] = [f"v{int(one)}" for one in values]
    rows = records.unpivot(ids, measures, "which", "v").where("v >= 0")
    rows = rows.selectExpr(*map(str, ids), "CAST(v & 15 AS INT) AS measure", "shiftright(v, 4) AS v")
    window = f"greatest(0, v - {hour_number(span.first) * HOUR_US}L) DIV {WINDOW_US}"
    rows = rows.selectExpr(
        "measure",
        "v",
        f"CASE WHEN measure <= {Measure.TOTAL:d} THEN shiftleft(by_home, 30) | shiftleft(hour_number, 16) "
        f"WHEN measure = {Measure.DEVICE:d} THEN shiftleft(by_method, 30) | shiftleft(now, 16) "
        f"WHEN measure IN ({_IN_FLIGHT}) "
        f"THEN shiftleft(by_node, 42) | shiftleft(least({(1 << 26) - 1}, {window}), 16) "
        f"WHEN measure = {Measure.ODD:d} THEN shiftleft(by_pair, 30) | shiftleft(hour_number, 16) "
        f"WHEN measure = {Measure.DEADLINE:d} THEN shiftleft(by_method, 30) | shiftleft(cohort, 16) "
        f"WHEN measure = {Measure.LISTED:d} THEN shiftleft(listed, 30) "
        "ELSE shiftleft(by_pair, 30) | shiftleft(now, 16) END AS names",
        f"{shift_of('v')} AS shift",
    )
    rows = rows.selectExpr(
        "v",
        "names | shiftleft(measure, 12) | CASE "
        f"WHEN measure = {Measure.OUTCOME:d} THEN v & 7 WHEN measure = {Measure.ODD:d} THEN v "
        f"WHEN measure IN ({_IN_FLIGHT}) THEN 0 "
        f"ELSE {bucket('v', 'shift')} END AS key",
    )
    rows.createOrReplaceTempView("measured")
    return spark.sql("SELECT key, count(*) AS n, sum(v) AS s, max(v) AS m FROM measured GROUP BY key")


def _records(span: Span, salt: int, cut: datetime) -> str:
    """The columns that measures are made of, with the hashes of the names."""
    codes = " ".join(f"WHEN '{outcome}' THEN {code}" for code, outcome in enumerate(OUTCOMES))
    device = "unix_micros(received_at) - unix_micros(published_at)"
    wake = "unix_micros(woken_at) - unix_micros(recorded_at)"
    record = "unix_micros(recorded_at) - unix_micros(received_at)"  # where home writes of another node's work
    jumped = f"coalesce({device} < -{CLOCK_TOLERANCE_US}, false) OR coalesce({wake} < -{CLOCK_TOLERANCE_US}, false)"
    begin = hour_number(span.begin)
    first = hour_number(span.first)
    hashed = _hashed("coalesce(profile, '')", "coalesce(method, '')", "home_node", "coalesce(receiving_node, '')", salt)
    return f"""\
SELECT {_HASHES},
  CAST(unix_micros(recorded_at) DIV {HOUR_US} - {first} AS BIGINT) AS hour_number,
  CAST(unix_micros(recorded_at) DIV {HOUR_US} >= {begin} AS BIGINT) AS now,
  kind = '{Kind.OUTCOME}' AS is_outcome, kind = '{Kind.OUTCOME}' AND outcome IN ('succeeded', 'failed') AS answered,
  CASE outcome {codes} ELSE {UNKNOWN} END AS outcome_code,
  CASE kind WHEN '{Kind.LATE}' THEN 0 WHEN '{Kind.DUPLICATE}' THEN 1
    WHEN '{Kind.OUTCOME}' THEN IF({jumped}, 2, NULL) ELSE 3 END AS odd,
  profile IS NOT NULL AND method IS NOT NULL AS named,
  group_number * 2 + CAST(recorded_at >= timestamp_micros({micros(cut)}) AS BIGINT) AS cohort, listed,
  unix_micros(registered_at) AS registered, unix_micros(recorded_at) - unix_micros(registered_at) AS took,
  total_us, register_us, publish_us, deliver_us,
  IF({device} < -{CLOCK_TOLERANCE_US}, NULL, IF({device} < 0, 0, {device})) AS device_us,
  IF({wake} < -{CLOCK_TOLERANCE_US}, NULL, IF({wake} < 0, 0, {wake})) AS wake_us,
  coalesce(record_us, IF({record} < -{CLOCK_TOLERANCE_US}, NULL, IF({record} < 0, 0, {record}))) AS record_us
FROM (SELECT *, {hashed} FROM log LEFT JOIN device_number USING (device_id))"""


def shift_of(value: str, low: int = 0, high: int = _MOST_SHIFT) -> str:
    """By how many bits to shift a whole number so that less than 128 is left, in SQL. Long: give it its own column."""
    if low == high:
        return str(low)
    middle = (low + high) // 2
    below = shift_of(value, low, middle)
    return f"IF({value} < {1 << (7 + middle)}L, {below}, {shift_of(value, middle + 1, high)})"


def ends_of(bucket: int) -> tuple[int, int]:
    """The least number of a bucket, and the least over it; LOW and WIDTH say the same in SQL."""
    shift = max(0, bucket // _PARTS - 1)
    low = (bucket - _PARTS * shift) << shift
    return low, low + (1 << shift)


def bucket(value: str, shift: str = "") -> str:
    """The number of the bucket of a value of 0 or more, in SQL; `shift` is a column of its shift, if there is one."""
    shift = shift or shift_of(value)
    return f"{shift} * {_PARTS} + least({2 * _PARTS - 1}, shiftright({value}, {shift}))"


_BUCKET: Final = "greatest(0, bucket DIV 64 - 1)"
LOW: Final = f"shiftleft(bucket - 64 * {_BUCKET}, CAST({_BUCKET} AS INT))"
WIDTH: Final = f"shiftleft(1L, CAST({_BUCKET} AS INT))"


CELLS: Final = f"""\
WITH named AS (
  SELECT DISTINCT 'home' AS domain, by_home AS hash, profile, method, home, NULL AS receiving, NULL AS device_id
  FROM names
  UNION ALL SELECT DISTINCT 'pair', by_pair, NULL, NULL, home, receiving, NULL FROM names
  UNION ALL SELECT DISTINCT 'method', by_method, profile, method, NULL, NULL, NULL FROM names
  UNION ALL SELECT DISTINCT 'node', by_node, NULL, NULL, home, NULL, NULL FROM names
  UNION ALL SELECT 'device', listed, NULL, NULL, NULL, NULL, device_id FROM device_number WHERE listed IS NOT NULL
), cells AS (
  SELECT CAST(shiftright(key, 12) & 15 AS INT) AS measure, key & 4095 AS bucket, * FROM counted
), keyed AS (
  SELECT *, CASE WHEN measure <= {Measure.TOTAL:d} THEN 'home'
    WHEN measure IN ({Measure.DEVICE:d}, {Measure.DEADLINE:d}) THEN 'method'
    WHEN measure IN ({_IN_FLIGHT}) THEN 'node' WHEN measure = {Measure.LISTED:d} THEN 'device'
    ELSE 'pair' END AS domain
  FROM cells
)
SELECT measure, bucket, profile, method, home, receiving, device_id, n, s, m, {LOW} AS low, {LOW} + {WIDTH} AS high,
  least(m, {LOW} + ({WIDTH} - 1) DIV 2) AS middle,
  IF(keyed.domain = 'node', shiftright(key, 16) & {(1 << 26) - 1}L, shiftright(key, 16) & {MOST_HOURS - 1}L) AS time
FROM keyed JOIN named ON keyed.domain = named.domain
  AND IF(keyed.domain = 'node', shiftright(key, 42), shiftright(key, 30)) = named.hash"""
"""The view `cell`: the counts with their names. It has as many rows as `counted`, or a name is missing."""


def views(span: Span) -> dict[str, str]:
    """SQL of the views on `cell`, by what its cells count: name -> text."""
    first = hour_number(span.first)
    hour = f"timestamp_seconds((time + {first}L) * 3600) AS hour"
    current = f"time >= {hour_number(span.begin) - first} AS now"
    value = "bucket, n, s, m, low, high, middle"
    pairs = ", ".join(str(one) for one in STAGE_MEASURES if one != Measure.DEVICE)
    return {
        "hourly_cell": f"SELECT {current}, {hour}, profile, method, home AS node, measure, {value} FROM cell "
        f"WHERE measure IN ({Measure.OUTCOME:d}, {Measure.TOTAL:d})",
        "pair_cell": f"SELECT time = 1 AS now, home, receiving, measure, {value} FROM cell "
        f"WHERE measure IN ({pairs}, {Measure.PAIR_TOTAL:d})",
        "device_cell": f"SELECT time = 1 AS now, profile, method, measure, {value} FROM cell "
        f"WHERE measure = {Measure.DEVICE:d}",
        "odd_cell": f"SELECT {current}, {hour}, home, receiving, bucket, n FROM cell WHERE measure = {Measure.ODD:d}",
        "listed_cell": f"SELECT device_id, {value} FROM cell WHERE measure = {Measure.LISTED:d}",
        "deadline_cell": "SELECT profile, method, time DIV 2 AS group_number, time % 2 = 1 AS held_out, bucket, n, s "
        f"FROM cell WHERE measure = {Measure.DEADLINE:d}",
        "window_cell": f"SELECT home AS node, time AS window, IF(measure != {Measure.ENDED:d}, n, 0) AS arrived, "
        f"IF(measure != {Measure.ARRIVED:d}, n, 0) AS ended FROM cell WHERE measure IN ({_IN_FLIGHT})",
    }


METHOD_CELLS: Final = f"""\
SELECT now, hour, profile, method, measure, bucket, sum(n) AS n, sum(s) AS s, max(m) AS m, low, high,
  max(middle) AS middle
FROM hourly_cell WHERE measure = {Measure.TOTAL:d} OR bucket < {len(OUTCOMES)} GROUP BY ALL"""
"""The view `method_cell`: hourly_cell without the node."""
HOURLY: Final = f"""\
SELECT now, hour, profile, method, measure, sum(n) AS n,
  sum(IF(bucket = {OUTCOMES.index("timed_out")}, n, 0)) AS timed_out,
  sum(n * ln(greatest(1, middle))) AS l, sum(n * ln(greatest(1, middle)) * ln(greatest(1, middle))) AS l2
FROM method_cell GROUP BY ALL"""
"""The view `hourly`: sums over the buckets. Of outcomes only n and timed_out mean anything, of times all but that."""
