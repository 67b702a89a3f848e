"""The queries of the tables: SQL over views of the rollups of a period.

`hourly_cell` has the period before, too (`now` tells them apart); the other views have the period alone.
"""

from __future__ import annotations

from typing import Final

from app.analysis.buckets import high, low, middle
from app.analysis.contracts import LATENCY_TABLES
from app.analysis.intervals import Z95, quantiles, rank_interval, ranked, wilson
from app.analysis.rollups import ANSWERED, STAGES
from app.analysis.source import OUTCOMES

LEAST_COMMANDS: Final = 20
"""Devices with fewer are not ranked."""
_CELL: Final = (
    "bucket, commands AS n, sum_us AS s, longest_us AS m, "
    f"{low()} AS low, {high()} AS high, CAST({middle()} AS BIGINT) AS middle"
)
_SUMMED: Final = "bucket, sum(n) AS n, sum(s) AS s, max(m) AS m, low, high, max(middle) AS middle"
_STAGES: Final = ", ".join(f"'{name}'" for name in STAGES)
_LOG: Final = "ln(greatest(1, middle))"


def views(begin: int) -> dict[str, str]:
    """SQL of the views on the rollups: name -> text. `begin` is where the period begins, in seconds."""
    spread = f"{Z95} * sqrt(variance / measured)"
    return {
        "hourly_cell": f"SELECT hour >= timestamp_seconds({begin}L) AS now, hour, profile, method, node, outcome, "
        f"{ANSWERED} AS answered, {_CELL} FROM latency_hourly",
        "hourly": f"""\
SELECT now, hour, profile, method, sum(n) AS n, sum(IF(outcome = 'timed_out', n, 0)) AS timed_out,
  sum(IF(bucket IS NULL, 0, n)) AS answered, sum(IF(bucket IS NULL, 0, n * {_LOG})) AS l,
  sum(IF(bucket IS NULL, 0, n * {_LOG} * {_LOG})) AS l2
FROM hourly_cell GROUP BY ALL""",
        "stage_cell": f"SELECT stage, profile, method, node, {_CELL} FROM stages_daily",
        "pair_cell": f"SELECT receiving_node, home_node, measure, {_CELL} FROM forwarding_daily",
        "device_cell": f"SELECT device_id, device_group, profile, method, outcome, {ANSWERED} AS answered, {_CELL} "
        "FROM devices_daily",
        "counted_device": f"""\
SELECT device_id, max(device_group) AS device_group, profile, method, sum(n) AS n,
  sum(IF(outcome = 'failed', n, 0)) AS failed, sum(IF(outcome = 'timed_out', n, 0)) AS timed_out,
  sum(IF(answered, n, 0)) AS answered, sum(IF(bucket >= 0, n, 0)) AS measured,
  sum(IF(bucket >= 0, n * {_LOG}, 0)) AS l, sum(IF(bucket >= 0, n * {_LOG} * {_LOG}, 0)) AS l2
FROM device_cell GROUP BY device_id, profile, method""",
        "expected": "SELECT profile, method, sum(l) / sum(measured) AS mean FROM counted_device "
        "GROUP BY profile, method HAVING sum(measured) > 0",
        "device": """\
SELECT device_id, max(profile) AS profile, max(device_group) AS device_group, sum(n) AS commands,
  sum(answered) AS answered, sum(failed) AS failed, sum(timed_out) AS timed_out, sum(measured) AS measured,
  sum(apart) / sum(measured) AS apart,
  (sum(apart2) - sum(apart) * sum(apart) / sum(measured)) / (sum(measured) - 1) AS variance
FROM (
  SELECT counted_device.*, coalesce(l - measured * mean, 0) AS apart,
    coalesce(l2 - 2 * mean * l + measured * mean * mean, 0) AS apart2
  FROM counted_device LEFT JOIN expected
    ON counted_device.profile <=> expected.profile AND counted_device.method <=> expected.method
) GROUP BY device_id""",
        "judged_device": f"""\
SELECT *, (failed + timed_out) / commands AS flaky_share,
  {wilson("failed + timed_out", "commands", "-")} AS flaky_low,
  {wilson("failed + timed_out", "commands", "+")} AS flaky_high,
  exp(apart) AS slowness, commands >= {LEAST_COMMANDS} AS enough,
  IF(measured >= {LEAST_COMMANDS}, exp(apart - {spread}), NULL) AS slowness_low,
  IF(measured >= {LEAST_COMMANDS}, exp(apart + {spread}), NULL) AS slowness_high
FROM device""",
    }


def _latency(by: tuple[str, ...]) -> str:
    names = "".join(f"{name}, " for name in by)
    cells = (
        f"SELECT {names}outcome, answered, {_SUMMED} FROM hourly_cell WHERE now "
        f"GROUP BY {names}outcome, answered, bucket, low, high"
    )
    outcome = {name: f"sum(IF(outcome = '{name}', n, 0))" for name in OUTCOMES}
    timed = "bucket IS NOT NULL"  # home may have died with the time of an answer
    low_end, high_end = rank_interval(0.99, timed)
    return f"""\
WITH ranked AS (
{ranked(cells, f"{names}bucket IS NULL")}
)
SELECT {names}sum(n) AS commands, sum(IF(answered, n, 0)) AS answered,
  {", ".join(f"{sql} AS {name}" for name, sql in outcome.items())},
  {", ".join(f"{outcome[name]} / sum(n) AS {name}_share" for name in ("succeeded", "failed", "timed_out"))},
  {quantiles(where=timed)},
  {low_end} AS p99_low_us,
  {high_end} AS p99_high_us
FROM ranked {f"GROUP BY {', '.join(by)}" if by else "HAVING sum(n) > 0"}"""


_HISTOGRAM: Final = """\
WITH summed AS (
  SELECT profile, method, low AS from_us, high AS to_us, sum(n) AS commands
  FROM hourly_cell WHERE now AND answered AND bucket IS NOT NULL GROUP BY ALL
)
SELECT *, sum(commands) OVER (PARTITION BY profile, method ORDER BY from_us) /
  sum(commands) OVER (PARTITION BY profile, method) AS up_to_share
FROM summed"""


def _forwarding(by: str) -> str:
    cells = (
        f"SELECT {by}, measure, {_SUMMED} FROM "
        "(SELECT *, receiving_node != home_node AS forwarded FROM pair_cell) GROUP BY ALL"
    )
    total = "measure = 'total'"
    names = "receiving_node, home_node, receiving_node != home_node AS forwarded" if "," in by else "forwarded"
    return f"""\
WITH ranked AS (
{ranked(cells, f"{by}, measure")}
)
SELECT {names}, sum(IF({total}, n, 0)) AS commands,
  sum(IF({total}, n, 0)) / sum(sum(IF({total}, n, 0))) OVER () AS share,
  {quantiles("hop_", "measure = 'hop'")},
  {quantiles("total_", total)}
FROM ranked GROUP BY {by}"""


def _stages(*by: str) -> str:
    names = "".join(f"{name}, " for name in by)
    cells = f"SELECT {names}stage, {_SUMMED} FROM stage_cell GROUP BY ALL"
    part = f"PARTITION BY {', '.join(by)}" if by else ""
    return f"""\
WITH ranked AS (
{ranked(cells, f"{names}stage")}
)
SELECT {names}stage, array_position(array({_STAGES}), stage) AS position, sum(n) AS commands,
  sum(s) / sum(sum(s)) OVER ({part}) AS share,
  {quantiles()}
FROM ranked GROUP BY {names}stage"""


_DEVICES: Final = f"""\
WITH ranked AS (
{ranked(f"SELECT device_id, {_SUMMED} FROM device_cell WHERE bucket IS NOT NULL GROUP BY ALL", "device_id")}
), times AS (
  SELECT device_id, {quantiles()} FROM ranked GROUP BY device_id
)
SELECT judged_device.*, p50_us, p99_us, max_us,
  IF(enough AND slowness_low IS NOT NULL,
    row_number() OVER (PARTITION BY enough ORDER BY slowness_low DESC NULLS LAST, device_id), NULL) AS slow_rank,
  IF(enough AND failed + timed_out > 0,
    row_number() OVER (PARTITION BY enough ORDER BY flaky_low DESC, device_id), NULL) AS flaky_rank
FROM judged_device LEFT JOIN times USING (device_id)"""

_DEVICE_GROUPS: Final = f"""\
WITH grouped AS (
  SELECT profile, device_group, count(*) AS devices, sum(commands) AS commands, sum(answered) AS answered,
    sum(failed) AS failed, sum(timed_out) AS timed_out, sum(measured) AS measured,
    sum(apart * measured) / sum(measured) AS apart,
    -- Devices of a group are alike, so it is the devices that count, not their records.
    sqrt(sum(variance * measured) / sum(measured) / sum(measured) + coalesce(var_samp(apart), 0) / count(*)) AS error
  FROM device WHERE device_group != '' GROUP BY profile, device_group
)
SELECT profile, device_group, devices, commands, answered, failed, timed_out,
  (failed + timed_out) / commands AS flaky_share,
  {wilson("failed + timed_out", "commands", "-")} AS flaky_low,
  {wilson("failed + timed_out", "commands", "+")} AS flaky_high,
  exp(apart) AS slowness, exp(apart - {Z95} * error) AS slowness_low, exp(apart + {Z95} * error) AS slowness_high
FROM grouped"""

_LATE: Final = """\
WITH finished AS (
  SELECT hour, node AS home_node, sum(n) AS n FROM hourly_cell GROUP BY ALL
)
SELECT late_hourly.*, responses / finished.n AS share
FROM late_hourly LEFT JOIN finished USING (hour, home_node)"""

_NODES: Final = f"""\
WITH facts AS (
  SELECT node, n AS commands, 0L AS received, 0L AS inwards, 0L AS outwards, 0L AS late, 0L AS duplicates
  FROM hourly_cell WHERE now
  UNION ALL SELECT home_node, 0, 0, IF(home_node != receiving_node, n, 0), 0, 0, 0
  FROM pair_cell WHERE measure = 'total'
  UNION ALL SELECT receiving_node, 0, n, 0, IF(home_node != receiving_node, n, 0), 0, 0
  FROM pair_cell WHERE measure = 'total'
  UNION ALL SELECT receiving_node, 0, 0, 0, 0, IF(kind = 'late', responses, 0), IF(kind = 'late', 0, responses)
  FROM late_hourly WHERE receiving_node IS NOT NULL
), summed AS (
  SELECT node, sum(commands) AS commands, sum(received) AS received, sum(inwards) AS forwarded_in,
    sum(outwards) AS forwarded_out, sum(late) AS late, sum(duplicates) AS duplicates FROM facts GROUP BY node
), ranked AS (
{ranked(f"SELECT node, {_SUMMED} FROM hourly_cell WHERE now AND bucket >= -1 GROUP BY node, bucket, low, high", "node")}
), times AS (
  SELECT node, {quantiles()} FROM ranked GROUP BY node
)
SELECT summed.*,
  commands / sum(commands) OVER () AS commands_share, received / sum(received) OVER () AS received_share,
  commands * count(*) OVER () / sum(commands) OVER () AS commands_skew,
  received * count(*) OVER () / sum(received) OVER () AS received_skew, p50_us, p99_us
FROM summed LEFT JOIN times USING (node)"""


def _capacity(max_pending: int) -> str:
    """Ten seconds without a row of their own are those between two rows: as many are in flight as at their begin."""
    step = 10
    return f"""\
WITH windows AS (
  SELECT coalesce(node, 'all') AS node, unix_seconds(at) AS window, sum(arrived) AS arrived,
    sum(carried_in) AS carried_in, sum(carried_out) AS carried_out, sum(busy_us) / 1e6 AS busy
  FROM load_10s GROUP BY GROUPING SETS ((node, at), (at))
), levels AS (
  SELECT *, coalesce(sum(carried_out - carried_in) OVER (PARTITION BY node ORDER BY window
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before,
    coalesce(window - lag(window) OVER (PARTITION BY node ORDER BY window) - {step}, 0) AS gap
  FROM windows
), flights AS (
  SELECT *, busy / {step} + before - carried_in AS level, IF(gap > 0, before, 0) AS gap_level FROM levels
), peaks AS (
  SELECT node, sum(arrived) AS arrived, max(arrived) / {step}D AS arrivals_peak,
    max_by(window, (arrived, -window)) AS arrivals_window,
    sum(level * {step} + gap_level * gap) AS seconds, greatest(max(level), max(gap_level)) AS peak,
    max_by(window - IF(gap_level > level, gap, 0), (greatest(level, gap_level), -window)) AS peak_window
  FROM flights GROUP BY node
), measured AS (
  SELECT *, (SELECT max(window) - min(window) + {step}D FROM windows) AS span,
    {max_pending}L * IF(node = 'all', (SELECT count(DISTINCT node) FROM load_10s), 1) AS max_pending
  FROM peaks
)
SELECT node, arrived / span AS arrivals_mean, arrivals_peak, timestamp_seconds(arrivals_window) AS arrivals_peak_at,
  seconds / span AS in_flight_mean, peak AS in_flight_peak, timestamp_seconds(peak_window) AS in_flight_peak_at,
  max_pending, peak / max_pending AS used_peak, max_pending / peak AS headroom,
  max_pending / (seconds / arrived) AS sustainable
FROM measured"""


def table_queries(max_pending: int) -> dict[str, str]:
    """Name of the table -> its query."""
    return {
        **{table.name: _latency(table.key) for table in LATENCY_TABLES},
        "histogram": _HISTOGRAM,
        "forwarding": _forwarding("receiving_node, home_node"),
        "hops": _forwarding("forwarded"),
        "stages": _stages(),
        "stages_by_method": _stages("profile", "method"),
        "stages_by_node": _stages("node"),
        "devices": _DEVICES,
        "device_groups": _DEVICE_GROUPS,
        "late": _LATE,
        "nodes": _NODES,
        "capacity": _capacity(max_pending),
    }


def deadline_cells(cut: int, least: int) -> str:
    """What deadlines are learned from; groups with too few responses are with the rest of their method."""
    return f"""\
WITH cell AS (
  SELECT *, sum(IF(bucket IS NULL, 0, commands)) OVER (PARTITION BY profile, method, device_group) AS responses
  FROM deadlines_hourly
)
SELECT profile, method, IF(responses < {least}, '', device_group) AS device_group, end,
  hour >= timestamp_seconds({cut}L) AS held_out, coalesce(late_hour >= timestamp_seconds({cut}L), false) AS known_late,
  bucket, sum(commands) AS commands, sum(sum_us) AS sum_us, sum(timeout_us) AS timeout_us
FROM cell GROUP BY ALL"""
