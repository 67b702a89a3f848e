{#- The tables of a report: DuckDB over the rollups of a period, each of which is a view of its name.

A statement begins with `-- view`, `-- held` (a view that is computed once) or `-- table`, and its name. Cells are rows
of a bucket: n commands whose times add up to s, the longest of which is m. -#}

{#- Of cells with `upto` and `total`: nearest-rank percentiles, maximum and mean of those that `where` selects. Cells of
one bucket may differ in their longest: it bounds what is taken, and not which cell. -#}
{%- macro times(prefix="", where="true") -%}
{%- for name, quantile in quantiles %}
  least(min(middle) FILTER ({{ where }} AND upto >= rank_of({{ quantile }}, total)), max(m) FILTER ({{ where }})) AS {{ prefix }}{{ name }}_us,
{%- endfor %}
  max(m) FILTER ({{ where }}) AS {{ prefix }}max_us,
  round(sum(s) FILTER ({{ where }}) / sum(n) FILTER ({{ where }})) AS {{ prefix }}mean_us
{%- endmacro -%}

{%- macro ranked(grain) -%}
sum(n) OVER (PARTITION BY {{ grain }} ORDER BY bucket) AS upto, sum(n) OVER (PARTITION BY {{ grain }}) AS total
{%- endmacro -%}

{#- What is added to the tests of a family: q, their p-value after Benjamini and Hochberg. -#}
{%- macro corrected(tests, family) -%}
SELECT *, min(p_ranked) OVER ({{ family }} ORDER BY p DESC) AS q FROM (
  SELECT *, least(1, p * count(*) OVER ({{ family }}) / count(*) OVER ({{ family }} ORDER BY p)) AS p_ranked
  FROM (SELECT *, if({{ caller() }}, p_of(z), 1) AS p FROM {{ tests }} WHERE z IS NOT NULL)
)
{%- endmacro -%}

-- macro low: the least number of a bucket
CREATE MACRO low(bucket) AS if(bucket < 0, 0, ceil(exp(bucket * ln(1.02::DOUBLE)) - 1e-6))::BIGINT
-- macro high: the least number above it
CREATE MACRO high(bucket) AS if(bucket < 0, 1, ceil(exp((bucket + 1) * ln(1.02::DOUBLE)) - 1e-6))::BIGINT
-- macro middle: what each of its numbers is taken as
CREATE MACRO middle(bucket) AS if(bucket < 0, 0, round(exp((bucket + 5e-1) * ln(1.02::DOUBLE))))::BIGINT
-- macro rank_of: nearest rank of a quantile
CREATE MACRO rank_of(quantile, total) AS ceil(quantile::DOUBLE * total - 1e-6)
-- macro z95: half-width of a 95 % interval in standard deviations
CREATE MACRO z95() AS 1.959964::DOUBLE
-- macro half_wilson
CREATE MACRO half_wilson(x, n) AS z95() * sqrt((x / n) * (1 - x / n) / n + z95() * z95() / (4 * n::DOUBLE * n))
-- macro wilson_low: ends of Wilson's 95 % interval of a share, which lies in it though doubles are rounded
CREATE MACRO wilson_low(x, n) AS
  least(x / n, (x / n + z95() * z95() / (2 * n) - half_wilson(x, n)) / (1 + z95() * z95() / n))
-- macro wilson_high
CREATE MACRO wilson_high(x, n) AS
  greatest(x / n, (x / n + z95() * z95() / (2 * n) + half_wilson(x, n)) / (1 + z95() * z95() / n))
-- macro p_of: the two-sided p-value of a standard normal z; Abramowitz and Stegun 26.2.17, off by less than 1.5e-7
CREATE MACRO upper_tail(z, t) AS exp(-z * z / 2) * 0.3989422804014327::DOUBLE * t * (0.319381530::DOUBLE + t * (
  -0.356563782::DOUBLE + t * (1.781477937::DOUBLE + t * (-1.821255978::DOUBLE + t * 1.330274429::DOUBLE))))
-- macro p_of
CREATE MACRO p_of(z) AS least(1, greatest(0, 2 * upper_tail(z, 1 / (1 + 0.2316419::DOUBLE * abs(z)))))
-- macro readable: a timeout with the margin, rounded up to three digits and whole milliseconds, within the bounds
CREATE MACRO digits_of(ms) AS power(10, greatest(0, length(ms::BIGINT::VARCHAR) - 3))
-- macro timeout_of
CREATE MACRO timeout_of(us, margin, shortest, longest) AS least(greatest(1000 * digits_of(ceil(us * (1 + margin) / 1000 - 1e-6))
  * ceil(ceil(us * (1 + margin) / 1000 - 1e-6) / digits_of(ceil(us * (1 + margin) / 1000 - 1e-6))), shortest), longest)::BIGINT
-- macro two_shares: z of the difference of two shares
CREATE MACRO two_shares(x1, n1, x2, n2) AS
  (x2 / n2 - x1 / n1) / sqrt((x1 + x2) / (n1 + n2) * (1 - (x1 + x2) / (n1 + n2)) * (1 / n1 + 1 / n2))

-- view cell: this period (now) and the one before
SELECT hour >= to_timestamp({{ begin }}) AS now, hour, profile, method, node, outcome,
  outcome IN ('succeeded', 'failed') AS answered, bucket, commands AS n, sum_us AS s, longest_us AS m,
  middle(bucket) AS middle, ln(greatest(1, middle(bucket))) AS l
FROM latency_hourly

-- held hourly
SELECT now, hour, profile, method, sum(n) AS n, sum(if(outcome = 'timed_out', n, 0)) AS timed_out,
  sum(if(bucket IS NULL, 0, n)) AS answered, coalesce(sum(n * l), 0) AS l, coalesce(sum(n * l * l), 0) AS l2
FROM cell GROUP BY ALL

-- view stage_cell
SELECT stage, profile, method, node, bucket, commands AS n, sum_us AS s, longest_us AS m, middle(bucket) AS middle,
  ln(greatest(1, middle(bucket))) AS l
FROM stages_daily

-- view pair_cell
SELECT receiving_node, home_node, receiving_node != home_node AS forwarded, measure, bucket, commands AS n,
  sum_us AS s, longest_us AS m, middle(bucket) AS middle
FROM forwarding_daily

-- view device_cell
SELECT device_id, device_group, profile, method, outcome, bucket, commands AS n, sum_us AS s, longest_us AS m,
  middle(bucket) AS middle, if(bucket >= 0, n, 0) AS measured, if(bucket >= 0, ln(greatest(1, middle(bucket))), 0) AS l
FROM devices_daily

-- held device: how far its answers are apart from what the same methods take on all devices, in logarithms
WITH expected AS (
  SELECT profile, method, sum(measured * l) / sum(measured) AS mean FROM device_cell GROUP BY ALL
  HAVING sum(measured) > 0
), placed AS (
  SELECT device_cell.*, coalesce(l - mean, 0) AS away FROM device_cell LEFT JOIN expected
    ON device_cell.profile IS NOT DISTINCT FROM expected.profile AND device_cell.method IS NOT DISTINCT FROM expected.method
)
SELECT device_id, max(profile) AS profile, max(device_group) AS device_group, sum(n) AS commands,
  sum(if(outcome IN ('succeeded', 'failed'), n, 0)) AS answered, sum(if(outcome = 'failed', n, 0)) AS failed,
  sum(if(outcome = 'timed_out', n, 0)) AS timed_out, failed + timed_out AS flaky, sum(measured) AS timed,
  if(timed > 0, sum(measured * away) / timed, NULL) AS apart,
  if(timed > 1, (sum(measured * away * away) - timed * apart * apart) / (timed - 1), NULL) AS variance
FROM placed GROUP BY device_id

-- held grouped: devices of a group are alike, so it is the devices that count in the error, not their records
SELECT profile, device_group, count(*) AS devices, sum(commands) AS commands, sum(answered) AS answered,
  sum(failed) AS failed, sum(timed_out) AS timed_out, sum(flaky) AS flaky, sum(timed) AS timed,
  sum(apart * timed) / nullif(sum(timed), 0) AS apart,
  sum(variance * timed) / nullif(sum(timed), 0) / sum(timed) + coalesce(var_samp(apart), 0) / count(*) AS variance
FROM device WHERE device_group != '' GROUP BY profile, device_group

-- held deadline_cell: commands that are alike; groups with too few responses are with the rest of their method
WITH counted AS (
  SELECT *, sum(if(bucket IS NULL, 0, commands)) OVER (PARTITION BY profile, method, device_group) AS responses
  FROM deadlines_hourly
)
SELECT profile, method, if(responses < {{ least_responses }}, '', device_group) AS device_group, "end" AS ending,
  hour >= to_timestamp({{ cut }}) AS held_out, coalesce(late_hour >= to_timestamp({{ cut }}), false) AS known_late,
  bucket, sum(commands) AS n, sum(sum_us) AS s, sum(timeout_us) AS timeout_us
FROM counted GROUP BY ALL

{#- What was known before the held-out hours: late responses that came in them were not, and their commands never
answered. -#}
{% for kind, name, cells in (("table", "deadlines", "SELECT * FROM deadline_cell"), ("held", "deadlines_before",
"SELECT * REPLACE (if(known_late, " ~ never ~ ", ending) AS ending) FROM deadline_cell WHERE NOT held_out AND NOT (known_late AND ending = " ~ cancelled ~ ")")) %}
-- {{ kind }} {{ name }}: quantiles of the true times, of each group and of the whole method
WITH known AS ({{ cells }}), sample AS (
  FROM known UNION ALL SELECT * REPLACE ('' AS device_group) FROM known WHERE device_group != ''
), ranked AS (
  SELECT *, ending != {{ never }} AS timed, {{ ranked("profile, method, device_group, ending != " ~ never) }} FROM sample
), learned AS (
  SELECT profile, method, device_group, coalesce(sum(n) FILTER (timed), 0) AS responses,
    sum(if(ending = {{ late }}, n, 0)) AS late, sum(if(ending = {{ never }}, n, 0)) AS never_answered,
    coalesce(never_answered / nullif(sum(if(ending = {{ cancelled }}, 0, n)), 0), 0) AS never_answered_share,
    min(greatest(1, high(bucket) - 1)) FILTER (timed AND upto >= rank_of({{ quantile }}, total)) AS quantile_us,
    round(sum(if(ending = {{ cancelled }}, 0, timeout_us)) / nullif(late + never_answered, 0)) AS logged_timeout_us,
    responses >= {{ least_responses }} AS enough
  FROM ranked GROUP BY ALL
), weighed AS (
  SELECT *, if(enough AND device_group != '', responses / (responses + {{ half }}), 1) AS weight,
    max(quantile_us) FILTER (device_group = '') OVER (PARTITION BY profile, method) AS whole_us
  FROM learned
)
SELECT * REPLACE (nullif(device_group, '') AS device_group),
  if(weight = 1, quantile_us, round(exp(weight * ln(quantile_us) + (1 - weight) * ln(whole_us)))) AS shrunk_us,
  if(enough, timeout_of(shrunk_us, {{ margin }}, {{ shortest_us }}, {{ longest_us }}), NULL) AS timeout_us,
  if(enough, NULL, responses || ' responses; at least {{ least_responses }} are needed') AS why_not
FROM weighed
{% endfor %}

-- table deadlines_test: the held-out commands, had they had the timeouts that were learned before. A response in the
-- bucket that its timeout falls into counts as too late: an upper bound, within 2 % of the timeout.
WITH tried AS (
  SELECT cell.*, coalesce(own.timeout_us, whole.timeout_us) AS learned, ending != {{ never }} AS timed
  FROM deadline_cell AS cell
  LEFT JOIN deadlines_before AS own ON (own.profile, own.method, own.device_group) = (cell.profile, cell.method, cell.device_group)
  LEFT JOIN deadlines_before AS whole ON (whole.profile, whole.method) = (cell.profile, cell.method) AND whole.device_group IS NULL
  WHERE held_out AND ending != {{ cancelled }}
), counted AS (
  SELECT profile, method, sum(if(learned IS NULL, n, 0)) AS without, sum(if(learned IS NULL, 0, n)) AS commands,
    sum(if(learned IS NOT NULL AND timed, n, 0)) AS responses,
    sum(if(timed AND learned < high(bucket), n, 0)) AS wrong,
    sum(if(learned IS NOT NULL AND ending = {{ late }}, n, 0)) AS wrong_logged,
    sum(if(learned IS NULL, 0, if(timed, least(learned * n, s), learned * n))) / 1e6 AS waited_s,
    sum(if(learned IS NULL, 0, if(ending = {{ answered }}, s, timeout_us))) / 1e6 AS waited_logged_s
  FROM tried GROUP BY GROUPING SETS ((profile, method), ())  HAVING count(*) > 0
)
SELECT *, coalesce(wrong / nullif(responses, 0), 0) AS wrong_share, coalesce(wrong_logged / nullif(responses, 0), 0) AS wrong_logged_share,
  waited_logged_s - waited_s AS saved_s, coalesce(saved_s / nullif(waited_logged_s, 0), 0) AS saved_share
FROM counted

{% for name, grain in latency %}
-- table {{ name }}
WITH ranked AS (
  SELECT *, {{ ranked((grain + ["bucket IS NULL"]) | join(", ")) }} FROM cell WHERE now
)
SELECT {{ (grain + [""]) | join(", ") }}sum(n) AS commands, sum(if(answered, n, 0)) AS answered,
{%- for outcome in outcomes %}
  sum(if(outcome = '{{ outcome }}', n, 0)) AS {{ outcome }}, {{ outcome }} / sum(n) AS {{ outcome }}_share,
{%- endfor %}
{{- times(where="bucket IS NOT NULL") }},
  min(low(bucket)) FILTER (upto >= greatest(1, floor(rank_of(0.99, total) - z95() * sqrt(total * 99e-4))) AND bucket IS NOT NULL) AS p99_low_us,
  least(min(high(bucket)) FILTER (upto >= least(total, rank_of(0.99, total) + z95() * sqrt(total * 99e-4) + 1) AND bucket IS NOT NULL),
    max(m) FILTER (bucket IS NOT NULL)) AS p99_high_us
FROM ranked {% if grain %}GROUP BY {{ grain | join(", ") }}{% else %}HAVING sum(n) > 0{% endif %}
{% endfor %}

-- table histogram
WITH summed AS (
  SELECT profile, method, low(bucket) AS from_us, high(bucket) AS to_us, sum(n) AS commands
  FROM cell WHERE now AND answered AND bucket IS NOT NULL GROUP BY ALL
)
SELECT *, sum(commands) OVER (PARTITION BY profile, method ORDER BY from_us)
  / sum(commands) OVER (PARTITION BY profile, method) AS up_to_share
FROM summed

{% for name, grain in forwarding %}
-- table {{ name }}
WITH ranked AS (SELECT *, {{ ranked((grain + ["measure"]) | join(", ")) }} FROM pair_cell)
SELECT {{ grain | join(", ") }}, any_value(forwarded) AS forwarded, sum(if(measure = 'total', n, 0)) AS commands,
  sum(if(measure = 'total', n, 0)) / sum(sum(if(measure = 'total', n, 0))) OVER () AS share,
{{- times("hop_", "measure = 'hop'") }},
{{- times("total_", "measure = 'total'") }}
FROM ranked GROUP BY {{ grain | join(", ") }}
{% endfor %}

{% for name, grain in stages %}
-- table {{ name }}
WITH ranked AS (SELECT *, {{ ranked((grain + ["stage"]) | join(", ")) }} FROM stage_cell)
SELECT {{ (grain + [""]) | join(", ") }}stage, list_position({{ stage_names }}, stage) AS position, sum(n) AS commands,
  sum(s) / nullif(sum(sum(s)) OVER ({% if grain %}PARTITION BY {{ grain | join(", ") }}{% endif %}), 0) AS share,
{{- times() }}
FROM ranked GROUP BY {{ (grain + ["stage"]) | join(", ") }}
{% endfor %}

-- table devices
WITH timed AS (
  SELECT device_id, {{ times() }}
  FROM (SELECT *, {{ ranked("device_id") }} FROM device_cell WHERE bucket IS NOT NULL) GROUP BY device_id
), judged AS (
  SELECT *, flaky / commands AS flaky_share, wilson_low(flaky, commands) AS flaky_low,
    wilson_high(flaky, commands) AS flaky_high, commands >= {{ least_commands }} AS enough, exp(apart) AS slowness,
    if(timed >= {{ least_commands }}, exp(apart - z95() * sqrt(variance / timed)), NULL) AS slowness_low,
    if(timed >= {{ least_commands }}, exp(apart + z95() * sqrt(variance / timed)), NULL) AS slowness_high
  FROM device
)
SELECT *, if(enough AND slowness_low IS NOT NULL,
    row_number() OVER (PARTITION BY enough ORDER BY slowness_low DESC NULLS LAST, device_id), NULL) AS slow_rank,
  if(enough AND flaky > 0, row_number() OVER (PARTITION BY enough ORDER BY flaky_low DESC, device_id), NULL) AS flaky_rank
FROM judged LEFT JOIN timed USING (device_id)

-- table device_groups
SELECT *, flaky / commands AS flaky_share, wilson_low(flaky, commands) AS flaky_low,
  wilson_high(flaky, commands) AS flaky_high, exp(apart) AS slowness,
  exp(apart - z95() * sqrt(variance)) AS slowness_low, exp(apart + z95() * sqrt(variance)) AS slowness_high
FROM grouped

-- table late
WITH finished AS (SELECT hour, node AS home_node, sum(n) AS n FROM cell GROUP BY ALL)
SELECT late_hourly.*, responses / finished.n AS share FROM late_hourly LEFT JOIN finished USING (hour, home_node)

-- table nodes
WITH fact AS (
  SELECT node, n AS commands, 0 AS received, 0 AS inwards, 0 AS outwards, 0 AS late, 0 AS duplicates FROM cell WHERE now
  UNION ALL SELECT home_node, 0, 0, if(forwarded, n, 0), 0, 0, 0 FROM pair_cell WHERE measure = 'total'
  UNION ALL SELECT receiving_node, 0, n, 0, if(forwarded, n, 0), 0, 0 FROM pair_cell WHERE measure = 'total'
  UNION ALL SELECT receiving_node, 0, 0, 0, 0, if(kind = 'late', responses, 0), if(kind = 'late', 0, responses)
  FROM late_hourly WHERE receiving_node IS NOT NULL
), summed AS (
  SELECT node, sum(commands) AS commands, sum(received) AS received, sum(inwards) AS forwarded_in,
    sum(outwards) AS forwarded_out, sum(late) AS late, sum(duplicates) AS duplicates FROM fact GROUP BY node
), timed AS (
  SELECT node, {{ times() }}
  FROM (SELECT *, {{ ranked("node") }} FROM cell WHERE now AND bucket IS NOT NULL) GROUP BY node
)
SELECT *, commands / sum(commands) OVER () AS commands_share, received / nullif(sum(received) OVER (), 0) AS received_share,
  commands * count(*) OVER () / sum(commands) OVER () AS commands_skew,
  received * count(*) OVER () / nullif(sum(received) OVER (), 0) AS received_skew
FROM summed LEFT JOIN timed USING (node)

-- table capacity: ten seconds without a row lie between two with one: as many are in flight as at their begin
WITH slot AS (
  SELECT coalesce(node, 'all') AS node, epoch("at") AS begin, sum(arrived) AS arrived, sum(carried_in) AS carried_in,
    sum(carried_out) AS carried_out, sum(busy_us) / 1e6 AS busy
  FROM load_10s GROUP BY GROUPING SETS ((node, "at"), ("at"))
), level AS (
  SELECT *, coalesce(sum(carried_out - carried_in) OVER (past ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before,
    coalesce(begin - lag(begin) OVER past - 10, 0) AS gap, busy / 10 + before - carried_in AS level,
    if(gap > 0, before, 0) AS gap_level
  FROM slot WINDOW past AS (PARTITION BY node ORDER BY begin)
), peak AS (
  SELECT node, sum(arrived) AS arrived, max(arrived) / 10 AS arrivals_peak,
    to_timestamp(arg_max(begin, (arrived, -begin))) AS arrivals_peak_at,
    sum(level * 10 + gap_level * gap) AS seconds, greatest(max(level), max(gap_level)) AS in_flight_peak,
    to_timestamp(arg_max(begin - if(gap_level > level, gap, 0), (greatest(level, gap_level), -begin))) AS in_flight_peak_at
  FROM level GROUP BY node
), measured AS (
  SELECT *, (SELECT max(begin) - min(begin) + 10 FROM slot) AS span,
    {{ max_pending }} * if(node = 'all', (SELECT count(DISTINCT node) FROM load_10s), 1) AS max_pending
  FROM peak
)
SELECT *, arrived / span AS arrivals_mean, seconds / span AS in_flight_mean, in_flight_peak / max_pending AS used_peak,
  max_pending / nullif(in_flight_peak, 0) AS headroom, max_pending / nullif(seconds / arrived, 0) AS sustainable
FROM measured

-- table change: shares by two proportions, medians by Mann-Whitney on the histograms with ties, tails by the old p99
WITH sided AS (
  SELECT profile, method, node, 'total' AS measure, bucket, n, middle, {{ side }} AS side FROM cell WHERE bucket IS NOT NULL
  UNION ALL
  SELECT profile, method, node, 'outcome', if(outcome = 'timed_out', 1, 0), n, 0, {{ side }} FROM cell
), summed AS (
  SELECT if(profile IS NOT NULL, 'method', if(node IS NOT NULL, 'node', 'all')) AS scope, profile, method, node, measure,
    bucket, sum(if(side = 'before', n, 0))::DOUBLE AS b, sum(if(side = 'after', n, 0))::DOUBLE AS a, max(middle) AS middle
  FROM sided WHERE side IS NOT NULL
  GROUP BY GROUPING SETS ((measure, bucket), (profile, method, measure, bucket), (node, measure, bucket))
), upto AS (
  SELECT *, sum(b) OVER (cells ORDER BY bucket) AS bu, sum(a) OVER (cells ORDER BY bucket) AS au,
    sum(b) OVER cells AS bs, sum(a) OVER cells AS as_
  FROM summed WINDOW cells AS (PARTITION BY scope, profile, method, node, measure)
), tailed AS (
  SELECT *, min(bucket) FILTER (measure = 'total' AND bu >= rank_of(0.99, bs)) OVER cells AS tail
  FROM upto WINDOW cells AS (PARTITION BY scope, profile, method, node, measure)
), fact AS (
  SELECT scope, profile, method, node,
    sum(if(measure = 'outcome', b, 0)) AS n1, sum(if(measure = 'outcome', a, 0)) AS n2,
    sum(if(measure = 'outcome', b * bucket, 0)) AS x1, sum(if(measure = 'outcome', a * bucket, 0)) AS x2,
    max(if(measure = 'total', bs, 0)) AS m1, max(if(measure = 'total', as_, 0)) AS m2,
    sum(if(measure = 'total', a * (bu - b + b / 2), 0)) AS u,
    sum(if(measure = 'total', power(a + b, 3) - (a + b), 0)) AS ties,
    min(middle) FILTER (measure = 'total' AND bu >= rank_of(0.5, bs)) AS p1,
    min(middle) FILTER (measure = 'total' AND au >= rank_of(0.5, as_)) AS p2,
    sum(if(measure = 'total' AND bucket > tail, b, 0)) AS t1, sum(if(measure = 'total' AND bucket > tail, a, 0)) AS t2
  FROM tailed GROUP BY scope, profile, method, node
), test AS (
  SELECT scope, profile, method, node, 'unanswered' AS test, n1, n2, x1 / n1 AS before, x2 / n2 AS after,
    after - before AS effect, two_shares(x1, n1, x2, n2) AS z
  FROM fact WHERE n1 >= {{ least_records }} AND n2 >= {{ least_records }} AND x1 + x2 > 0
  UNION ALL
  SELECT scope, profile, method, node, 'median', m1, m2, p1, p2, 2 * u / (m1 * m2) - 1,
    (u - m1 * m2 / 2) / sqrt(m1 * m2 / 12 * (m1 + m2 + 1 - ties / ((m1 + m2) * (m1 + m2 - 1))))
  FROM fact WHERE m1 >= {{ least_records }} AND m2 >= {{ least_records }}
  UNION ALL
  SELECT scope, profile, method, node, 'tail', m1, m2, t1 / m1, t2 / m2, t2 / m2 - t1 / m1, two_shares(t1, m1, t2, m2)
  FROM fact WHERE m1 >= {{ least_records }} AND m2 >= {{ least_records }} AND t1 + t2 > 0
), judged AS (
{% call corrected("(SELECT * FROM test WHERE isfinite(z))", "") %}true{% endcall %}
)
SELECT *, n1 AS before_records, n2 AS after_records, if(before > 0, after / before, NULL) AS ratio,
  q < {{ level }} AS significant,
  significant AND CASE test WHEN 'median' THEN abs(effect) > {{ notable_effect }}
    WHEN 'unanswered' THEN abs(effect) >= {{ share_step }}
    ELSE coalesce(ratio >= {{ notable_tail }} OR ratio <= 1 / {{ notable_tail }}, true) END AS notable
FROM judged

-- table anomalies
WITH
-- Nodes: their own work (register, record, deliver) against that of the others.
node_work AS (
  SELECT node, stage, sum(n) AS n, sum(n * l) / sum(n) AS mean, (sum(n * l * l) / sum(n) - mean * mean) / sum(n) AS variance
  FROM stage_cell WHERE stage IN ('register', 'record', 'deliver') AND node IS NOT NULL
  GROUP BY ALL HAVING sum(n) >= {{ least_records }}
), node_test AS (
  SELECT *, (sum(mean) OVER peers - mean) / nullif(count(*) OVER peers - 1, 0) AS others
  FROM node_work WINDOW peers AS (PARTITION BY stage)
), node_latency AS (
  SELECT 'node' AS kind, node AS subject, 'latency' AS measure, NULL AS profile, NULL::TIMESTAMPTZ AS since, n AS records,
    exp(mean) AS value, exp(others) AS expected, (mean - others) / sqrt(variance + {{ spread }}) AS z
  FROM node_test WHERE others IS NOT NULL
  QUALIFY row_number() OVER (PARTITION BY node ORDER BY mean - others DESC) = 1
),
-- Hours: each method against its own median hour; the hour has the median of its methods.
hour_method AS (
  SELECT hour, profile, method, answered AS n, l / answered AS mean, l2 / answered - mean * mean AS variance,
    mean - quantile_cont(mean, 0.5) OVER (PARTITION BY profile, method) AS apart
  FROM hourly WHERE now AND answered >= {{ least_records // 3 }}
), hour_shift AS (
  SELECT hour, sum(n) AS n, quantile_cont(apart, 0.5) AS apart, 1.5708::DOUBLE * avg(variance / n) / count(*) AS variance
  FROM hour_method GROUP BY hour
), hour_spread AS (
  SELECT 1.4826::DOUBLE * quantile_cont(abs(apart), 0.5) AS wide, count(*) AS hours FROM hour_shift
), hour_latency AS (
  SELECT 'hour', {{ hour_name }}, 'latency', NULL, hour, n, exp(apart), 1,
    apart / sqrt(greatest({{ spread }}, variance, wide * wide))
  FROM hour_shift, hour_spread WHERE hours >= 6
), hour_outcome AS (
  SELECT hour, sum(n)::DOUBLE AS n, sum(timed_out) AS x FROM hourly WHERE now GROUP BY hour
  HAVING sum(n) >= {{ least_records }}
), hour_unanswered AS (
  SELECT 'hour', {{ hour_name }}, 'unanswered', NULL, hour, n, x / n, usual,
    (x / n - usual) / sqrt(usual * (1 - usual) / n)
  FROM (SELECT *, (sum(x) OVER () - x + 1) / (sum(n) OVER () - n + 2) AS usual, count(*) OVER () AS hours FROM hour_outcome)
  WHERE hours >= 6
),
-- Methods: the days from some day on against the days before, less what all methods did.
method_day AS (
  SELECT date_trunc('day', hour) AS day, profile, method, sum(answered)::DOUBLE AS n, sum(l) AS l, sum(l2) AS square
  FROM hourly WHERE now AND answered > 0 GROUP BY ALL
), method_split AS (
  SELECT day, profile, method, sum(n) OVER since AS n2, sum(n) OVER whole - n2 AS n1, sum(l) OVER since AS l2,
    sum(l) OVER whole - l2 AS l1, sum(square) OVER whole / (n1 + n2) - power((l1 + l2) / (n1 + n2), 2) AS variance
  FROM method_day
  WINDOW whole AS (PARTITION BY profile, method),
    since AS (PARTITION BY profile, method ORDER BY day ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)
), method_step AS (
  SELECT *, l2 / n2 - l1 / n1 AS raw, raw - quantile_cont(raw, 0.5) OVER (PARTITION BY day) AS step,
    count(*) OVER (PARTITION BY day) AS methods
  FROM method_split WHERE n1 >= {{ least_records }} AND n2 >= {{ least_records }}
), method_latency AS (
  SELECT 'method', profile || '/' || method, 'latency', profile, day, n2, exp(l1 / n1 + step), exp(l1 / n1),
    step / sqrt(variance * (1 / n1 + 1 / n2) + {{ spread }})
  FROM method_step WHERE methods >= 3
  QUALIFY row_number() OVER (PARTITION BY profile, method ORDER BY step * sqrt(n1 * n2 / (n1 + n2)) DESC) = 1
),
-- Groups of devices: against the other groups of their profile.
group_test AS (
  SELECT *, count(*) OVER peers AS groups,
    (sum(flaky) OVER peers - flaky + 1) / (sum(commands) OVER peers - commands + 2) AS usual,
    (sum(apart * timed) OVER peers - apart * timed) / nullif(sum(timed) OVER peers - timed, 0) AS others
  FROM grouped WHERE devices >= 2 AND commands >= {{ least_records }} WINDOW peers AS (PARTITION BY profile)
), group_latency AS (
  SELECT 'device_group', device_group, 'latency', profile, NULL, timed, exp(apart), exp(others),
    (apart - others) / sqrt(variance + {{ spread }})
  FROM group_test WHERE groups > 1
), group_flaky AS (
  SELECT 'device_group', device_group, 'unanswered', profile, NULL, commands, flaky / commands, usual,
    (flaky / commands - usual) / sqrt(usual * (1 - usual) / commands)
  FROM group_test WHERE groups > 1
), test AS (
  FROM node_latency UNION ALL FROM hour_latency UNION ALL FROM hour_unanswered
  UNION ALL FROM method_latency UNION ALL FROM group_latency UNION ALL FROM group_flaky
), judged AS (
{% call corrected("test", "PARTITION BY kind") %}z > 0{% endcall %}
)
SELECT *, value / expected AS ratio FROM judged
WHERE q < {{ level }} AND CASE WHEN measure = 'unanswered'
    THEN value - expected >= {{ share_step }} AND value / expected >= {{ share_ratio }}
  WHEN kind IN ('node', 'hour') THEN value / expected >= 1.5 ELSE value / expected >= 1.3 END
ORDER BY p, kind, subject, measure

-- table quarantine
SELECT reason, meaning, sum(files) AS files, sum(records) AS records, min(example) AS example
FROM (FROM quarantine UNION ALL FROM quarantine_events) JOIN (VALUES
{%- for reason, meaning in meanings %}
  ('{{ reason }}', '{{ meaning }}'){{ "," if not loop.last }}
{%- endfor %}
) AS meanings(reason, meaning) USING (reason) GROUP BY ALL

-- held event_cell: by device, with the gaps over the ends of hours
SELECT db, kind, device_id, sum(events) AS events, sum(bytes) AS bytes, max(largest) AS largest,
  min(first_at) AS first_at, max(last_at) AS last_at, max(greatest(longest_gap_us, before_us)) AS longest_gap_us
FROM (
  SELECT *, epoch_us(first_at) - epoch_us(lag(last_at) OVER (PARTITION BY db, kind, device_id ORDER BY hour)) AS before_us
  FROM event_hourly
) GROUP BY ALL

-- held silent_device
SELECT db, kind, device_id, events, last_at, epoch_us(ended) - epoch_us(last_at) AS silent_us, longest_gap_us
FROM (SELECT *, max(last_at) OVER (PARTITION BY db) AS ended FROM event_cell)
WHERE device_id IS NOT NULL AND events >= {{ least_events }} AND silent_us >= 10 * longest_gap_us
  AND silent_us >= {{ least_silence_us }}

-- table silent_devices
FROM silent_device

-- table events
SELECT cell.db, cell.kind, count(cell.device_id) AS devices, count(silent.device_id) AS silent,
  sum(cell.events) AS events, sum(cell.events) / nullif(any_value(span_us) / 1e6, 0) AS per_second,
  sum(bytes) AS bytes, sum(bytes) / sum(cell.events) AS mean_bytes, max(largest) AS largest,
  max(cell.longest_gap_us) AS longest_gap_us
FROM event_cell AS cell
JOIN (SELECT db, epoch_us(max(last_at)) - epoch_us(min(first_at)) AS span_us FROM event_cell GROUP BY db) USING (db)
LEFT JOIN silent_device AS silent
  ON silent.db = cell.db AND silent.kind IS NOT DISTINCT FROM cell.kind AND silent.device_id = cell.device_id
GROUP BY cell.db, cell.kind
