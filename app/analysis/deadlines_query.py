"""What Spark counts for the learned deadlines: cells of a histogram, never records."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from app.analysis.cells import bucket, shift_of
from app.analysis.deadlines import Cell, DeadlineOptions, End, back_test, recommend, samples, timeouts_of
from app.analysis.deadlines_file import render
from app.core.deadlines import NO_GROUP, group_rule
from app.core.errors import ConfigurationError
from app.latency.schema import Kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_GROUPS: Final = 1000
"""More groups of devices could not be read by people, and their histograms would fill the memory."""

WHO: Final = f"SELECT DISTINCT device_id, profile, method FROM {{log}} WHERE kind = '{Kind.OUTCOME}'"
ANSWERED: Final = f"""
SELECT key, count(*) AS commands, sum(took) AS sum_us FROM (
  SELECT took, names | number | held_out | ({bucket("took", "shift")}) AS key FROM (
    SELECT *, {shift_of("took")} AS shift FROM (
      SELECT shiftleft(xxhash64(profile, method), 30) AS names, xxhash64(device_id) AS device,
        IF(recorded_at >= timestamp_micros({{cut}}), {1 << 12}L, 0L) AS held_out,
        unix_micros(recorded_at) - unix_micros(registered_at) AS took
      FROM {{log}}
      WHERE kind = '{Kind.OUTCOME}' AND outcome IN ('succeeded', 'failed') AND recorded_at >= registered_at
        AND profile IS NOT NULL AND method IS NOT NULL
    )
  ) JOIN {{devices}} USING (device)
) GROUP BY key
"""
"""The pass over all records. Its key is a number: hash of names (34 bits), group (17), held out (1), bucket (12)."""
UNANSWERED: Final = f"""
WITH command AS (
  SELECT command_id, max(IF(kind = '{Kind.LATE}', NULL,
      named_struct('names', shiftleft(xxhash64(profile, method), 30), 'device', xxhash64(device_id), 'outcome', outcome,
        'recorded', recorded_at, 'registered', registered_at, 'deadline', deadline_at))) AS open,
    min(IF(kind = '{Kind.LATE}', recorded_at, NULL)) AS late_at
  FROM {{log}}
  WHERE kind = '{Kind.LATE}' OR kind = '{Kind.OUTCOME}' AND outcome IN ('timed_out', 'cancelled')
    AND profile IS NOT NULL AND method IS NOT NULL
  GROUP BY command_id
), timed AS (
  SELECT open.*, late_at, unix_micros(late_at) - unix_micros(open.registered) AS took,
    unix_micros(open.deadline) - unix_micros(open.registered) AS allowed
  FROM command WHERE open.outcome = 'timed_out' OR late_at IS NOT NULL
)
SELECT names | number | IF(recorded >= timestamp_micros({{cut}}), {1 << 12}L, 0L) |
    coalesce({bucket("took")}, 0) AS key,
  CASE WHEN outcome = 'cancelled' THEN {End.CANCELLED:d} WHEN took IS NULL THEN {End.NEVER:d} ELSE {End.LATE:d} END
    AS end,
  coalesce(late_at >= timestamp_micros({{cut}}), false) AS known_late, count(*) AS commands,
  coalesce(sum(took), 0) AS sum_us, sum(allowed) AS timeout_us
FROM timed JOIN {{devices}} USING (device)
WHERE allowed > 0 AND (took IS NULL OR took >= 0)
GROUP BY ALL
"""
"""Few records; only ids of the unanswered and of late responses are shuffled."""

_LOG: Final = "log_of_deadlines"
_WHO: Final = "who_of_deadlines"
_DEVICES: Final = "devices_of_deadlines"


def cells(log: DataFrame, rule: str | None, cut: datetime, who: DataFrame | None = None) -> list[Cell]:
    """Count them. `rule` tells the group of a device; at `cut` the held-out hours begin.

    `who` has the combinations of device_id, profile and method, where they are known already.
    ConfigurationError when the rule makes too many groups.
    """
    spark = log.sparkSession
    log.createOrReplaceTempView(_LOG)
    if who is None:
        who = spark.sql(WHO.format(log=_LOG)).localCheckpoint()
    who.createOrReplaceTempView(_WHO)
    names = _names(spark)
    groups = _groups(spark, rule)
    places = {"log": _LOG, "devices": _DEVICES, "cut": _micros(cut)}

    def cell(key: int, end: int, known_late: bool, commands: int, sum_us: int, timeout_us: int) -> Cell:  # noqa: FBT001
        profile, method = names[key >> 30]
        number = None if end == End.NEVER else key & 4095
        group = groups[key >> 13 & 0x1FFFF]
        return Cell(profile, method, group, end, bool(key >> 12 & 1), known_late, number, commands, sum_us, timeout_us)

    answered = spark.sql(ANSWERED.format(**places)).collect()
    unanswered = spark.sql(UNANSWERED.format(**places)).collect()
    return [cell(key, End.ANSWERED, False, commands, sum_us, 0) for key, commands, sum_us in answered] + [
        cell(*row) for row in unanswered
    ]


def _names(spark: SparkSession) -> dict[int, tuple[str, str]]:
    """Profile and method by the upper bits of the key."""
    names_of = "shiftright(shiftleft(xxhash64(profile, method), 30), 30) AS names"
    who = f"{_WHO} WHERE profile IS NOT NULL AND method IS NOT NULL"
    rows = spark.sql(f"SELECT DISTINCT profile, method, {names_of} FROM {who}").collect()
    names = {row.names: (row.profile, row.method) for row in rows}
    if len(names) < len(rows):  # one chance in 2^34 for each pair of methods
        raise ConfigurationError("two methods of this log cannot be told apart by their hashes; analyze it in parts")
    return names


def _groups(spark: SparkSession, rule: str | None) -> list[str]:
    """Make the view of devices, by hash, with the number of their group in place; the groups by number."""
    group = f"'{NO_GROUP}'" if rule is None else f"regexp_extract(device_id, {_literal(rule)}, 1)"
    # Once per device: once per record it would cost more than all the rest.
    of = f"SELECT DISTINCT xxhash64(device_id) AS device, {group} AS device_group FROM {_WHO}"
    devices = spark.sql(of).localCheckpoint()
    found = devices.select("device_group").distinct().limit(MOST_GROUPS + 1).collect()
    if len(found) > MOST_GROUPS:
        raise ConfigurationError(
            f"--device-group {rule!a} makes more than {MOST_GROUPS:,} groups of devices; let it tell fewer apart"
        )
    groups = sorted(row.device_group for row in found)
    numbers = spark.createDataFrame(
        [(group, number << 13) for number, group in enumerate(groups)], "device_group string, number bigint"
    )
    devices.join(numbers, "device_group").select("device", "number").localCheckpoint().hint(
        "broadcast"
    ).createOrReplaceTempView(_DEVICES)
    return groups


def deadline_queries(cut: datetime, rule: str) -> dict[str, str]:
    """What the tables `deadlines` and `deadlines_test` were counted with, to read."""
    places = {"log": "log", "devices": "devices", "cut": _micros(cut)}
    text = f"""\
-- The arithmetic of app/analysis/deadlines.py over the counts of these queries. `devices` has the number of each
-- device's group, regexp_extract(device_id, {_literal(rule)}, 1).
{ANSWERED.format(**places).strip()};
{UNANSWERED.format(**places).strip()}"""
    return {"deadlines": text, "deadlines_test": text}


def cut_of(first: datetime, last: datetime, held_out: float) -> datetime:
    """Where the held-out hours begin: `first` and `last` are the begins of the first and last hour of the log."""
    hours = round((last - first) / timedelta(hours=1)) + 1
    kept_back = min(hours - 1, max(1, round(hours * held_out))) if held_out else 0
    return first + timedelta(hours=hours - kept_back)


@dataclass(frozen=True, slots=True)
class Learned:
    """What was learned."""

    deadlines: list[dict[str, Any]]
    """Rows of the table of this name, from all hours."""
    deadlines_test: list[dict[str, Any]]
    """Rows of the table of this name; none with too few hours."""
    cut: datetime
    """Where the held-out hours begin."""
    file: str
    """The text of timeouts.toml."""


def learn(
    log: DataFrame,
    first: datetime,
    last: datetime,
    rule: str | None,
    options: DeadlineOptions | None = None,
    who: DataFrame | None = None,
) -> Learned:
    """Learn timeouts from a log whose first and last hour begin at `first` and `last`; `rule` and `who` as in cells."""
    chosen = options or DeadlineOptions()
    chosen.check()
    if rule is not None:
        check_rule(rule)
    cut = cut_of(first, last, chosen.held_out)
    counted = cells(log, rule, cut, who)
    rows = recommend(samples(counted, training=False), chosen)
    earlier = timeouts_of(recommend(samples(counted, training=True), chosen))
    text = render(rows, chosen, rule, first, last + timedelta(hours=1))
    return Learned(rows, back_test(counted, earlier), cut, text)


def check_rule(rule: str) -> None:
    """ConfigurationError when it is no rule."""
    try:
        group_rule(rule)
    except ValueError as error:
        raise ConfigurationError(f"--device-group: {error}") from None


def _micros(instant: datetime) -> int:
    return round(instant.timestamp() * 1_000_000)


def _literal(text: str) -> str:
    """A string of Spark SQL; in a raw one, backslashes are ordinary, and quotes cannot be in it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
