"""Queries that test: what changed, and what stands out. All on counts, with Benjamini and Hochberg's correction."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.analysis.intervals import adjusted, two_sided

LEAST_RECORDS: Final = 30
"""Cells with fewer records take part in no test."""
SHARE_STEP: Final = 0.02
SHARE_RATIO: Final = 2.0
"""A share stands out when it is that much larger, in both senses."""
SLOWER: Final = {"node": 1.5, "hour": 1.5, "method": 1.3, "device_group": 1.3}
"""A time stands out when its geometric mean is that many times what is expected."""
NOTABLE_EFFECT: Final = 0.1
"""A median has moved notably when P(longer) − P(shorter) is more than this."""
NOTABLE_TAIL: Final = 2.0
SPREAD: Final = 0.03
"""Least natural spread of logarithms from hour to hour and day to day: differences below it are taken as weather."""

_LOG: Final = "ln(greatest(1, middle))"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two stretches of hours; ends are exclusive."""

    before: tuple[datetime, datetime]
    after: tuple[datetime, datetime]


def change(compared: Comparison | None, level: float) -> str:
    """The query of `change`; without a period before it has no rows."""
    side = "CAST(NULL AS STRING)"
    if compared is not None:
        side = f"CASE WHEN {_within(compared.before)} THEN 'before' WHEN {_within(compared.after)} THEN 'after' END"
    scopes = {"all": (), "method": ("profile", "method"), "node": ("node",)}
    sets = ", ".join(f"({', '.join((*names, 'measure', 'bucket'))})" for names in scopes.values())
    scope = "CASE WHEN profile IS NOT NULL THEN 'method' WHEN node IS NOT NULL THEN 'node' ELSE 'all' END"
    by = "scope, profile, method, node"
    total, outcome = "measure = 'total'", "measure = 'outcome'"
    pooled = "(x1 + x2) / (n1 + n2)"
    two = f"(x2 / n2 - x1 / n1) / sqrt({pooled} * (1 - {pooled}) * (1 / n1 + 1 / n2))"
    return f"""\
WITH sided AS (
  SELECT profile, method, node, 'total' AS measure, bucket, n, middle, {side} AS side
  FROM hourly_cell WHERE bucket IS NOT NULL
  UNION ALL
  SELECT profile, method, node, 'outcome', IF(outcome = 'timed_out', 1, 0), n, 0, {side} FROM hourly_cell
), summed AS (
  SELECT {scope} AS scope, profile, method, node, measure, bucket, sum(IF(side = 'before', n, 0)) AS b,
    sum(IF(side = 'after', n, 0)) AS a, max(middle) AS middle
  FROM sided WHERE side IS NOT NULL GROUP BY GROUPING SETS ({sets})
), upto AS (
  SELECT *, sum(b) OVER (PARTITION BY {by}, measure ORDER BY bucket) AS bu,
    sum(a) OVER (PARTITION BY {by}, measure ORDER BY bucket) AS au,
    sum(b) OVER (PARTITION BY {by}, measure) AS bs, sum(a) OVER (PARTITION BY {by}, measure) AS as
  FROM summed
), tailed AS (
  SELECT *,
    min(IF({total} AND bu >= ceil(0.99D * bs - 1e-6D), bucket, NULL)) OVER (PARTITION BY {by}, measure) AS tail
  FROM upto
), facts AS (
  SELECT {by},
    sum(IF({outcome}, b, 0)) * 1D AS n1, sum(IF({outcome}, a, 0)) * 1D AS n2,
    sum(IF({outcome} AND bucket = 1, b, 0)) * 1D AS x1,
    sum(IF({outcome} AND bucket = 1, a, 0)) * 1D AS x2,
    max(IF({total}, bs, 0)) * 1D AS m1, max(IF({total}, as, 0)) * 1D AS m2,
    sum(IF({total}, a * (bu - b + b / 2D), 0)) AS u,
    sum(IF({total}, power(a + b, 3D) - (a + b), 0)) AS ties,
    min(IF({total} AND bu >= ceil(0.5D * bs - 1e-6D), middle, NULL)) * 1D AS p1,
    min(IF({total} AND au >= ceil(0.5D * as - 1e-6D), middle, NULL)) * 1D AS p2,
    sum(IF({total} AND bucket > tail, b, 0)) * 1D AS t1, sum(IF({total} AND bucket > tail, a, 0)) * 1D AS t2
  FROM tailed GROUP BY {by}
), tests AS (
  SELECT {by}, 'unanswered' AS test, n1, n2, x1 / n1 AS before, x2 / n2 AS after, x2 / n2 - x1 / n1 AS effect,
    {two} AS z
  FROM facts WHERE n1 >= {LEAST_RECORDS} AND n2 >= {LEAST_RECORDS} AND x1 + x2 > 0
  UNION ALL
  SELECT {by}, 'median', m1, m2, p1, p2, 2 * u / (m1 * m2) - 1,
    (u - m1 * m2 / 2) / sqrt(m1 * m2 / 12 * (m1 + m2 + 1 - ties / ((m1 + m2) * (m1 + m2 - 1))))
  FROM facts WHERE m1 >= {LEAST_RECORDS} AND m2 >= {LEAST_RECORDS}
  UNION ALL
  SELECT {by}, 'tail', m1, m2, t1 / m1, t2 / m2, t2 / m2 - t1 / m1,
    {two.replace("x", "t").replace("n1", "m1").replace("n2", "m2")}
  FROM facts WHERE m1 >= {LEAST_RECORDS} AND m2 >= {LEAST_RECORDS} AND t1 + t2 > 0
), valued AS (
  SELECT *, {two_sided("z")} AS p FROM tests WHERE z IS NOT NULL
), judged AS (
{adjusted("valued", "")}
)
SELECT scope, profile, method, node, test, CAST(n1 AS BIGINT) AS before_records, CAST(n2 AS BIGINT) AS after_records,
  before, after, effect, after / before AS ratio, z, p, q, q < {level} AS significant,
  q < {level} AND CASE test WHEN 'median' THEN abs(effect) > {NOTABLE_EFFECT}
    WHEN 'unanswered' THEN abs(effect) >= {SHARE_STEP}
    ELSE coalesce(after / before >= {NOTABLE_TAIL} OR before / after >= {NOTABLE_TAIL}, true) END AS notable
FROM judged ORDER BY scope, profile, method, node, test"""


def anomalies(level: float) -> str:
    """The query of `anomalies`."""
    sums = "sum(answered) AS n, sum(l) / sum(answered) AS mean, sum(l2) / sum(answered) AS square"
    moments = f"sum(n) AS n, sum(n * {_LOG}) / sum(n) AS mean, sum(n * {_LOG} * {_LOG}) / sum(n) AS square"
    hour_text = "date_format(hour, \"yyyy-MM-dd'T'HH:00'Z'\")"
    method_text = "concat(profile, '/', method)"
    empty = "CAST(NULL AS STRING)"
    never = "CAST(NULL AS TIMESTAMP)"
    limits = " ".join(f"WHEN '{kind}' THEN {limit}" for kind, limit in SLOWER.items())
    return f"""\
WITH
-- Nodes: their own work (register, record, deliver) against that of the others.
node_work AS (
  SELECT node, stage AS measure, {moments} FROM stage_cell
  WHERE stage IN ('register', 'record', 'deliver') AND node IS NOT NULL
  GROUP BY 1, 2 HAVING sum(n) >= {LEAST_RECORDS}
), node_test AS (
  SELECT node, measure, n, mean, (square - mean * mean) / n AS variance,
    (sum(mean) OVER (PARTITION BY measure) - mean) / (count(*) OVER (PARTITION BY measure) - 1) AS others,
    count(*) OVER (PARTITION BY measure) AS nodes
  FROM node_work
), node_latency AS (
  SELECT 'node' AS kind, node AS subject, 'latency' AS measure, {empty} AS profile, {never} AS since, n AS records,
    exp(mean) AS value, exp(others) AS expected,
    (mean - others) / sqrt(variance + {SPREAD * SPREAD}) AS z
  FROM node_test WHERE nodes > 1
  QUALIFY row_number() OVER (PARTITION BY node ORDER BY mean - others DESC) = 1
),
-- Hours: each method against its own median hour; the hour has the median of its methods.
hour_method AS (
  SELECT hour, profile, method, {sums} FROM hourly WHERE now
  GROUP BY hour, profile, method HAVING sum(answered) >= {LEAST_RECORDS // 3}
), hour_apart AS (
  SELECT *, mean - percentile(mean, 0.5) OVER (PARTITION BY profile, method) AS apart FROM hour_method
), hour_shift AS (
  SELECT hour, sum(n) AS n, count(*) AS methods, percentile(apart, 0.5) AS apart,
    1.5708 * avg((square - mean * mean) / n) / count(*) AS variance
  FROM hour_apart GROUP BY hour
), hour_spread AS (
  SELECT 1.4826 * percentile(abs(apart), 0.5) AS spread, count(*) AS hours FROM hour_shift
), hour_latency AS (
  SELECT 'hour' AS kind, {hour_text} AS subject, 'latency' AS measure, {empty} AS profile, hour AS since, n AS records,
    exp(apart) AS value, 1D AS expected,
    apart / sqrt(greatest({SPREAD * SPREAD}, variance, (SELECT spread * spread FROM hour_spread))) AS z
  FROM hour_shift WHERE (SELECT hours FROM hour_spread) >= 6
),
hour_outcome AS (
  SELECT hour, sum(n) AS n, sum(timed_out) AS x FROM hourly WHERE now GROUP BY hour
  HAVING sum(n) >= {LEAST_RECORDS}
), hour_share AS (
  SELECT *, (sum(x) OVER () - x + 1) / (sum(n) OVER () - n + 2) AS usual, count(*) OVER () AS hours FROM hour_outcome
), hour_unanswered AS (
  SELECT 'hour', {hour_text}, 'unanswered', {empty}, hour, n, x / n, usual,
    (x / n - usual) / sqrt(usual * (1 - usual) / n)
  FROM hour_share WHERE hours >= 6
),
-- Methods: the days from some day on against the days before, less what all methods did.
method_day AS (
  SELECT date_trunc('day', hour) AS day, profile, method, sum(answered) AS n, sum(l) AS l, sum(l2) AS l2
  FROM hourly WHERE now AND answered > 0 GROUP BY ALL
), method_split AS (
  SELECT day, profile, method,
    sum(n) OVER (whole) - sum(n) OVER (since) AS n1, sum(n) OVER (since) AS n2,
    sum(l) OVER (whole) - sum(l) OVER (since) AS l1, sum(l) OVER (since) AS l2,
    sum(l2) OVER (whole) / sum(n) OVER (whole) - power(sum(l) OVER (whole) / sum(n) OVER (whole), 2) AS variance
  FROM method_day
  WINDOW whole AS (PARTITION BY profile, method),
    since AS (PARTITION BY profile, method ORDER BY day ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)
), method_step AS (
  SELECT *, l2 / n2 - l1 / n1 AS raw FROM method_split WHERE n1 >= {LEAST_RECORDS} AND n2 >= {LEAST_RECORDS}
), method_apart AS (
  SELECT *, raw - percentile(raw, 0.5) OVER (PARTITION BY day) AS step, count(*) OVER (PARTITION BY day) AS methods
  FROM method_step
), method_latency AS (
  SELECT 'method', {method_text}, 'latency', profile, day, n2, exp(l1 / n1 + step), exp(l1 / n1),
    step / sqrt(variance * (1 / n1 + 1 / n2) + {SPREAD * SPREAD}) AS z
  FROM method_apart WHERE methods >= 3
  QUALIFY row_number() OVER (PARTITION BY profile, method ORDER BY step * sqrt(n1 * 1D * n2 / (n1 + n2)) DESC) = 1
),
-- Groups of devices: against the other groups of their profile.
grouped AS (
  SELECT profile, device_group, count(*) AS devices, sum(commands) AS n, sum(failed + timed_out) AS x,
    sum(measured) AS measured, sum(apart * measured) / sum(measured) AS apart,
    sum(variance * measured) / sum(measured) / sum(measured) + coalesce(var_samp(apart), 0) / count(*) AS variance
  FROM device WHERE device_group != '' GROUP BY profile, device_group
  HAVING count(*) >= 2 AND sum(commands) >= {LEAST_RECORDS}
), group_test AS (
  SELECT *, count(*) OVER (peers) AS groups, (sum(x) OVER (peers) - x + 1) / (sum(n) OVER (peers) - n + 2) AS usual,
    (sum(apart * measured) OVER (peers) - apart * measured) / (sum(measured) OVER (peers) - measured) AS others
  FROM grouped WINDOW peers AS (PARTITION BY profile)
), group_latency AS (
  SELECT 'device_group', device_group, 'latency', profile, {never}, measured, exp(apart), exp(others),
    (apart - others) / sqrt(variance + {SPREAD * SPREAD}) FROM group_test WHERE groups > 1
), group_flaky AS (
  SELECT 'device_group', device_group, 'unanswered', profile, {never}, n, x / n, usual,
    (x / n - usual) / sqrt(usual * (1 - usual) / n) FROM group_test WHERE groups > 1
),
tests AS (
  SELECT * FROM node_latency UNION ALL SELECT * FROM hour_latency UNION ALL SELECT * FROM hour_unanswered
  UNION ALL SELECT * FROM method_latency UNION ALL SELECT * FROM group_latency UNION ALL SELECT * FROM group_flaky
), valued AS (
  SELECT *, IF(z > 0, {two_sided("z")}, 1D) AS p FROM tests WHERE z IS NOT NULL
), judged AS (
{adjusted("valued", "kind")}
)
SELECT kind, subject, measure, profile, since, CAST(records AS BIGINT) AS records, value, expected,
  value / expected AS ratio, p, q
FROM judged
WHERE q < {level} AND IF(measure = 'latency', value / expected >= CASE kind {limits} END,
  value - expected >= {SHARE_STEP} AND value / expected >= {SHARE_RATIO})
ORDER BY p, kind, subject, measure"""


def _within(stretch: tuple[datetime, datetime]) -> str:
    begin, end = (f"timestamp_seconds({round(one.timestamp())}L)" for one in stretch)
    return f"hour >= {begin} AND hour < {end}"
