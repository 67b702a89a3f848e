"""The queries of the tables but those about devices and tests: name -> SQL over the views of app/analysis/cells.py."""

from __future__ import annotations

from typing import Final

from app.analysis.cells import OUTCOMES, STAGES, Measure
from app.analysis.intervals import quantiles, rank_interval, ranked

_NOTHING: Final = "CAST(NULL AS STRING)"
_STAGE: Final = "element_at(array({}), measure - 1)".format(", ".join(f"'{stage}'" for stage in STAGES))
_IS_TOTAL: Final = f"measure = {Measure.TOTAL:d}"
_GRAINS: Final = {
    "all": (),
    "method": ("profile", "method"),
    "node": ("node",),
    "hour": ("hour",),
    "hour_method": ("hour", "profile", "method"),
    "hour_method_node": ("hour", "profile", "method", "node"),
}
_DIMENSIONS: Final = (("hour", "TIMESTAMP"), ("profile", "STRING"), ("method", "STRING"), ("node", "STRING"))


def _latency() -> str:
    def cells(grain: str, source: str) -> str:
        columns = _GRAINS[grain]
        names = ", ".join(
            name if name in columns else f"CAST(NULL AS {type_}) AS {name}" for name, type_ in _DIMENSIONS
        )
        sums = "n, s, m, low, high, middle"
        group = ""
        if grain not in ("hour_method", "hour_method_node"):  # those are grouped like that already
            sums = "sum(n) AS n, sum(s) AS s, max(m) AS m, low, high, max(middle) AS middle"
            group = f" GROUP BY {', '.join((*columns, 'measure', 'bucket', 'low', 'high'))}"
        return (
            f"  SELECT '{grain}' AS grain, {names}, measure, bucket, {sums} FROM {source} "
            f"WHERE now AND ({_IS_TOTAL} OR bucket < {len(OUTCOMES)}){group}"
        )

    every = "\n  UNION ALL\n".join(
        cells(grain, "hourly_cell" if "node" in columns else "method_cell") for grain, columns in _GRAINS.items()
    )
    outcome = {
        name: f"sum(IF(measure = {Measure.OUTCOME:d} AND bucket = {code}, n, 0))" for code, name in enumerate(OUTCOMES)
    }
    commands = f"sum(IF(measure = {Measure.OUTCOME:d}, n, 0))"
    low, high = rank_interval(0.99, _IS_TOTAL)
    return f"""\
WITH ranked AS (
{ranked(every, "grain, hour, profile, method, node, measure")}
)
SELECT grain, hour, profile, method, node, {commands} AS commands,
  {outcome["succeeded"]} + {outcome["failed"]} AS answered,
  {", ".join(f"{sql} AS {name}" for name, sql in outcome.items())},
  {", ".join(f"{outcome[name]} / {commands} AS {name}_share" for name in ("succeeded", "failed", "timed_out"))},
  {quantiles(where=_IS_TOTAL)},
  {low} AS p99_low_us,
  {high} AS p99_high_us
FROM ranked GROUP BY grain, hour, profile, method, node
ORDER BY grain, hour, profile, method, node"""


def _histogram() -> str:
    return f"""\
WITH summed AS (
  SELECT profile, method, low AS from_us, high AS to_us, sum(n) AS commands
  FROM method_cell WHERE now AND {_IS_TOTAL} GROUP BY ALL
)
SELECT *, sum(commands) OVER (PARTITION BY profile, method ORDER BY from_us) /
  sum(commands) OVER (PARTITION BY profile, method) AS up_to_share
FROM summed ORDER BY profile, method, from_us"""


def _forwarding() -> str:
    pairs = f"""\
  SELECT 'pair' AS grain, receiving, home, home != receiving AS forwarded, measure, bucket, n, s, m, middle
  FROM pair_cell WHERE now AND receiving != '' AND measure IN ({Measure.WAKE:d}, {Measure.PAIR_TOTAL:d})
  UNION ALL
  SELECT 'forwarded', {_NOTHING}, {_NOTHING}, home != receiving, measure, bucket, sum(n), sum(s), max(m), max(middle)
  FROM pair_cell WHERE now AND receiving != '' AND measure IN ({Measure.WAKE:d}, {Measure.PAIR_TOTAL:d}) GROUP BY ALL"""
    total = f"measure = {Measure.PAIR_TOTAL:d}"
    return f"""\
WITH ranked AS (
{ranked(pairs, "grain, receiving, home, forwarded, measure")}
)
SELECT grain, receiving AS receiving_node, home AS home_node, forwarded,
  sum(IF({total}, n, 0)) AS commands,
  sum(IF({total}, n, 0)) / sum(sum(IF({total}, n, 0))) OVER (PARTITION BY grain) AS share,
  {quantiles("hop_", f"measure = {Measure.WAKE:d}")},
  {quantiles("total_", total)}
FROM ranked GROUP BY grain, receiving, home, forwarded
ORDER BY grain, receiving_node, home_node, forwarded"""


def _stages() -> str:
    acting = f"IF(measure = {Measure.RECORD:d}, receiving, home)"
    cells = f"""\
  SELECT 'all' AS grain, {_NOTHING} AS profile, {_NOTHING} AS method, {_NOTHING} AS node, measure, bucket,
    sum(n) AS n, sum(s) AS s, max(m) AS m, max(middle) AS middle
  FROM pair_cell WHERE now AND measure != {Measure.PAIR_TOTAL:d} GROUP BY ALL
  UNION ALL
  SELECT 'node', {_NOTHING}, {_NOTHING}, {acting}, measure, bucket, sum(n), sum(s), max(m), max(middle)
  FROM pair_cell WHERE now AND measure != {Measure.PAIR_TOTAL:d} GROUP BY ALL
  UNION ALL
  SELECT 'all', {_NOTHING}, {_NOTHING}, {_NOTHING}, measure, bucket, sum(n), sum(s), max(m), max(middle)
  FROM device_cell WHERE now GROUP BY ALL
  UNION ALL
  SELECT 'method', profile, method, {_NOTHING}, measure, bucket, n, s, m, middle FROM device_cell WHERE now"""
    return f"""\
WITH ranked AS (
{ranked(cells, "grain, profile, method, node, measure")}
)
SELECT grain, profile, method, node, {_STAGE} AS stage, CAST(measure - 1 AS BIGINT) AS position, sum(n) AS commands,
  sum(s) / sum(sum(s)) OVER (PARTITION BY grain, profile, method, node) AS share,
  {quantiles()}
FROM ranked GROUP BY grain, profile, method, node, measure
ORDER BY grain, profile, method, node, position"""


def _late() -> str:
    return f"""\
WITH finished AS (
  SELECT hour, node, sum(n) AS n FROM hourly_cell WHERE measure = {Measure.OUTCOME:d} GROUP BY ALL
), odd AS (
  SELECT hour, IF(bucket = 0, 'late', 'duplicate') AS kind, receiving, home, sum(n) AS n
  FROM odd_cell WHERE now AND bucket <= 1 GROUP BY ALL
)
SELECT odd.hour, kind, receiving AS receiving_node, home AS home_node, odd.n AS responses, odd.n / finished.n AS share
FROM odd LEFT JOIN finished ON odd.hour = finished.hour AND odd.home = finished.node
ORDER BY hour, kind, receiving_node, home_node"""


def _nodes() -> str:
    own = (
        "SELECT node, bucket, sum(n) AS n, sum(s) AS s, max(m) AS m, max(middle) AS middle "
        f"FROM hourly_cell WHERE now AND {_IS_TOTAL} GROUP BY node, bucket"
    )
    pairs = f"pair_cell WHERE now AND receiving != '' AND measure = {Measure.PAIR_TOTAL:d}"
    return f"""\
WITH facts AS (
  SELECT node, n AS commands, 0L AS received, 0L AS inwards, 0L AS outwards, 0L AS late, 0L AS duplicates
  FROM hourly_cell WHERE now AND measure = {Measure.OUTCOME:d} AND bucket < {len(OUTCOMES)}
  UNION ALL SELECT home, 0, 0, IF(home != receiving, n, 0), 0, 0, 0 FROM {pairs}
  UNION ALL SELECT receiving, 0, n, 0, IF(home != receiving, n, 0), 0, 0 FROM {pairs}
  UNION ALL SELECT receiving, 0, 0, 0, 0, IF(bucket = 0, n, 0), IF(bucket = 1, n, 0)
  FROM odd_cell WHERE now AND bucket <= 1 AND receiving != ''
), summed AS (
  SELECT node, sum(commands) AS commands, sum(received) AS received, sum(inwards) AS forwarded_in,
    sum(outwards) AS forwarded_out, sum(late) AS late, sum(duplicates) AS duplicates FROM facts GROUP BY node
), ranked AS (
{ranked(own, "node")}
), times AS (
  SELECT node, {quantiles()} FROM ranked GROUP BY node
)
SELECT summed.node, commands, received, forwarded_in, forwarded_out,
  commands / sum(commands) OVER () AS commands_share, received / sum(received) OVER () AS received_share,
  commands * count(*) OVER () / sum(commands) OVER () AS commands_skew,
  received * count(*) OVER () / sum(received) OVER () AS received_skew,
  late, duplicates, p50_us, p99_us
FROM summed LEFT JOIN times ON summed.node = times.node ORDER BY node"""


def _capacity(max_pending: int, first_hour: int) -> str:
    return f"""\
WITH windows AS (
  SELECT coalesce(node, 'all') AS node, window, sum(arrived) AS arrived, sum(ended) AS ended
  FROM window_cell GROUP BY GROUPING SETS ((node, window), (window))
), levels AS (
  SELECT *, sum(arrived - ended) OVER (PARTITION BY node ORDER BY window) AS level FROM windows
), spent AS (
  SELECT coalesce(node, 'all') AS node, sum((s - n * bucket) / 8) / 1e6 AS seconds, sum(n) AS n
  FROM hourly_cell WHERE now AND measure = {Measure.OUTCOME:d} GROUP BY GROUPING SETS ((node), ())
), peaks AS (
  SELECT node, sum(arrived) AS arrived, max(arrived) / 10D AS arrivals_peak,
    max_by(window, (arrived, -window)) AS arrivals_window, max(level) AS peak,
    max(level + ended) AS most, max_by(window, (level, -window)) AS peak_window
  FROM levels GROUP BY node
), measured AS (
  SELECT peaks.*, spent.seconds, spent.n,
    (SELECT (max(window) - min(window) + 1) * 10D FROM window_cell WHERE arrived > 0) AS span,
    {max_pending}L * IF(peaks.node = 'all', (SELECT count(DISTINCT node) FROM window_cell), 1) AS max_pending
  FROM peaks JOIN spent ON peaks.node = spent.node
)
SELECT node, arrived / span AS arrivals_mean, arrivals_peak,
  timestamp_seconds({first_hour * 3600}L + arrivals_window * 10) AS arrivals_peak_at,
  seconds / span AS in_flight_mean, CAST(peak AS BIGINT) AS in_flight_peak, CAST(most AS BIGINT) AS in_flight_peak_most,
  timestamp_seconds({first_hour * 3600}L + peak_window * 10 + 10) AS in_flight_peak_at, max_pending,
  peak / max_pending AS used_peak, max_pending / peak AS headroom, max_pending / (seconds / n) AS sustainable
FROM measured ORDER BY node"""


def table_queries(max_pending: int, first_hour: int) -> dict[str, str]:
    """Name of the table -> its query."""
    return {
        "latency": _latency(),
        "histogram": _histogram(),
        "forwarding": _forwarding(),
        "stages": _stages(),
        "late": _late(),
        "nodes": _nodes(),
        "capacity": _capacity(max_pending, first_hour),
    }
