"""Queries about devices: the second pass over the records, and the tables `devices` and `device_groups`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from app.analysis.cells import MOST_GROUPS, Span, method_hash, micros
from app.analysis.intervals import Z95, rank_interval, ranked, wilson
from app.core.errors import ConfigurationError
from app.latency.schema import Kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_COMMANDS: Final = 20
"""Devices with fewer are not ranked."""
GROUP_PATTERN: Final = r"^(.*?)[-_.:/]?[0-9]*$"
"""A device's group is its id without the number at its end: dock-fw2-00017 is of dock-fw2."""

_ANSWERED: Final = "outcome IN ('succeeded', 'failed') AND total_us > 0"
_KNOWN: Final = "outcome IN ('succeeded', 'failed', 'timed_out', 'cancelled', 'unsent')"


def counted_devices(span: Span, salt: int) -> str:
    """The pass: one row per device, profile and method, with sums of logarithms."""
    now = f"unix_micros(recorded_at) >= {micros(span.begin)}L"
    return f"""\
SELECT device_id, hash, count(*) AS n, count_if(outcome = 'failed') AS failed,
  count_if(outcome = 'timed_out') AS timed_out, count_if(outcome IN ('succeeded', 'failed')) AS answered,
  count(logarithm) AS measured, sum(logarithm) AS l, sum(logarithm * logarithm) AS l2
FROM (
  SELECT device_id, {method_hash(salt)} AS hash, outcome, IF({_ANSWERED}, ln(total_us), NULL) AS logarithm
  FROM log WHERE kind = '{Kind.OUTCOME}' AND {_KNOWN} AND {now}
) GROUP BY device_id, hash"""


NAMED_DEVICES: Final = """\
SELECT device_id, profile, method, n, failed, timed_out, answered, measured, l, l2
FROM hashed_device
JOIN (SELECT DISTINCT by_method, nullif(profile, '') AS profile, nullif(method, '') AS method FROM names) AS named
  ON hash = by_method"""
"""The view `counted_device`: with names for the hashes of the pass."""


def device_views(pattern: str) -> dict[str, str]:
    """Views on the counted devices: name -> SQL."""
    group = f"regexp_extract(device_id, {quoted(pattern)}, 1)"
    return {
        "expected": "SELECT profile, method, sum(l) / sum(measured) AS mean FROM counted_device "
        "GROUP BY profile, method HAVING sum(measured) > 0",
        "device": f"""\
SELECT device_id, max(profile) AS profile, IF({group} = '', device_id, {group}) AS device_group, sum(n) AS commands,
  sum(answered) AS answered, sum(failed) AS failed, sum(timed_out) AS timed_out, sum(measured) AS measured,
  sum(apart) / sum(measured) AS apart,
  (sum(apart2) - sum(apart) * sum(apart) / sum(measured)) / (sum(measured) - 1) AS variance
FROM (
  SELECT counted_device.*, coalesce(l - measured * mean, 0) AS apart,
    coalesce(l2 - 2 * mean * l + measured * mean * mean, 0) AS apart2
  FROM counted_device LEFT JOIN expected
    ON counted_device.profile <=> expected.profile AND counted_device.method <=> expected.method
) GROUP BY device_id""",
        "ranked_device": f"""\
SELECT *, row_number() OVER (ORDER BY slowness_low DESC NULLS LAST, device_id) AS slow_rank,
  row_number() OVER (ORDER BY flaky_low DESC, device_id) AS flaky_rank
FROM (
  SELECT *, (failed + timed_out) / commands AS flaky_share,
    {wilson("failed + timed_out", "commands", "-")} AS flaky_low,
    {wilson("failed + timed_out", "commands", "+")} AS flaky_high,
    exp(apart) AS slowness,
    IF(measured >= {LEAST_COMMANDS}, exp(apart - {Z95} * sqrt(variance / measured)), NULL) AS slowness_low,
    IF(measured >= {LEAST_COMMANDS}, exp(apart + {Z95} * sqrt(variance / measured)), NULL) AS slowness_high
  FROM device WHERE commands >= {LEAST_COMMANDS}
)""",
    }


def listed(top: int) -> str:
    """The devices of both lists."""
    return f"""\
SELECT * FROM (
  SELECT 'slowest' AS list, slow_rank AS rank, * EXCEPT (slow_rank, flaky_rank) FROM ranked_device
  WHERE slow_rank <= {top} AND slowness_low IS NOT NULL
  UNION ALL
  SELECT 'flakiest', flaky_rank, * EXCEPT (slow_rank, flaky_rank) FROM ranked_device
  WHERE flaky_rank <= {top} AND failed + timed_out > 0
)"""


def device_numbers(pattern: str) -> str:
    """The view `device_number`: the group of each device and its number, and the device's own if it is listed."""
    return f"""\
SELECT grouped.device_id, device_group, CAST(dense_rank() OVER (ORDER BY device_group) - 1 AS BIGINT) AS group_number,
  IF(chosen.device_id IS NULL, NULL, CAST(row_number() OVER (ORDER BY grouped.device_id) AS BIGINT)) AS listed
FROM (
  SELECT DISTINCT device_id, regexp_extract(device_id, {quoted(pattern)}, 1) AS device_group FROM counted_device
) AS grouped LEFT JOIN (SELECT DISTINCT device_id FROM listed_device) AS chosen
  ON grouped.device_id = chosen.device_id"""


def check_groups(spark: SparkSession, pattern: str) -> None:
    """ConfigurationError when the rule makes too many groups of the devices of `device_number`."""
    most = spark.sql("SELECT max(group_number) FROM device_number").first()
    if most is not None and (most[0] or 0) >= MOST_GROUPS:
        raise ConfigurationError(
            f"--device-group {pattern!a} makes more than {MOST_GROUPS:,} groups of devices; let it tell fewer apart"
        )


def device_queries() -> dict[str, str]:
    """Name of the table -> its query."""
    low, high = rank_interval(0.5)
    return {
        "devices": f"""\
WITH ranked AS (
{ranked("SELECT * FROM listed_cell", "device_id")}
), times AS (
  SELECT device_id, min(IF(upto >= ceil(0.5D * of - 1e-6D), middle, NULL)) AS p50_us, {low} AS p50_low_us,
    {high} AS p50_high_us, min(IF(upto >= ceil(0.99D * of - 1e-6D), middle, NULL)) AS p99_us
  FROM ranked GROUP BY device_id
)
SELECT list, CAST(rank AS BIGINT) AS rank, listed_device.device_id, device_group, profile, commands, answered, failed,
  timed_out, flaky_share, flaky_low, flaky_high, slowness, slowness_low, slowness_high, p50_us, p50_low_us, p50_high_us,
  p99_us
FROM listed_device LEFT JOIN times ON listed_device.device_id = times.device_id ORDER BY list, rank""",
        "device_groups": f"""\
WITH grouped AS (
  SELECT profile, device_group, count(*) AS devices, sum(commands) AS commands, sum(answered) AS answered,
    sum(failed) AS failed, sum(timed_out) AS timed_out, sum(measured) AS measured,
    sum(apart * measured) / sum(measured) AS apart,
    -- Devices of a group are alike, so it is the devices that count, not their records.
    sqrt(sum(variance * measured) / sum(measured) / sum(measured) + coalesce(var_samp(apart), 0) / count(*)) AS error
  FROM device GROUP BY profile, device_group
)
SELECT profile, device_group, devices, commands, answered, failed, timed_out,
  (failed + timed_out) / commands AS flaky_share,
  {wilson("failed + timed_out", "commands", "-")} AS flaky_low,
  {wilson("failed + timed_out", "commands", "+")} AS flaky_high,
  exp(apart) AS slowness, exp(apart - {Z95} * error) AS slowness_low, exp(apart + {Z95} * error) AS slowness_high
FROM grouped ORDER BY profile, device_group""",
    }


def quoted(text: str) -> str:
    """A string of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
