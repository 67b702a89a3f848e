{#- The tables of a report: DuckDB over the rollups of a period, each of which is a view of its name.

Statements run in this order; a table whose name the contracts have is written, with the columns that they have. -#}

{%- set least_commands = 20 -%}  {#- devices with fewer are not ranked -#}
{%- set least_records = 30 -%}   {#- cells with fewer take part in no test -#}
{%- set share_step = 0.02 -%}    {#- a share stands out when it is that much larger -#}
{%- set spread = 0.03 ** 2 -%}   {#- variance of logarithms from hour to hour and day to day that is only weather -#}
{%- set z95 = "1.959964e0" -%}   {#- half-width of a 95 % interval in standard deviations -#}

{#- Of ranked cells: nearest-rank percentiles, maximum and mean of those that `where` selects. Cells of one bucket may
differ in their longest: it bounds what is taken, and not which cell. -#}
{%- macro times(prefix="", where="true") -%}
{%- for name, quantile in quantiles %}
  least(min(middle(bucket)) FILTER ({{ where }} AND upto >= rank_of({{ quantile }}, total)), max(longest_us) FILTER ({{ where }})) AS {{ prefix }}{{ name }}_us,
{%- endfor %}
  max(longest_us) FILTER ({{ where }}) AS {{ prefix }}max_us,
  round(sum(sum_us) FILTER ({{ where }}) / sum(commands) FILTER ({{ where }})) AS {{ prefix }}mean_us
{%- endmacro -%}

{%- macro ranked(grain) -%}
sum(commands) OVER (PARTITION BY {{ grain }} ORDER BY bucket) AS upto, sum(commands) OVER (PARTITION BY {{ grain }}) AS total
{%- endmacro -%}

{#- Wilson's 95 % interval of those that failed or timed out, in which the share lies though doubles are rounded; and
of how far times are apart, in logarithms, as `error` has it. -#}
{%- macro judged() -%}
flaky / commands AS flaky_share, least(flaky_share, wilson(flaky, commands, -1)) AS flaky_low,
  greatest(flaky_share, wilson(flaky, commands, 1)) AS flaky_high, exp(apart) AS slowness,
  exp(apart - {{ z95 }} * error) AS slowness_low, exp(apart + {{ z95 }} * error) AS slowness_high
{%- endmacro -%}

{#- What is added to the tests of a family: q, their p-value after Benjamini and Hochberg. -#}
{%- macro corrected(tests, family, condition) -%}
SELECT *, min(p_ranked) OVER ({{ family }} ORDER BY p DESC) AS q FROM (
  SELECT *, least(1, p * count(*) OVER ({{ family }}) / count(*) OVER ({{ family }} ORDER BY p)) AS p_ranked
  FROM (SELECT *, if({{ condition }}, p_of(z), 1) AS p FROM {{ tests }} WHERE isfinite(z))
)
{%- endmacro -%}

-- The least number of a bucket, the least above it, and what each of its numbers is taken as.
CREATE MACRO low(bucket) AS if(bucket < 0, 0, ceil(exp(bucket * ln(1.02e0)) - 1e-6))::BIGINT;
CREATE MACRO high(bucket) AS if(bucket < 0, 1, low(bucket + 1));
CREATE MACRO middle(bucket) AS if(bucket < 0, 0, round(exp((bucket + 5e-1) * ln(1.02e0))))::BIGINT;
CREATE MACRO log_of(bucket) AS ln(greatest(1, middle(bucket)));
CREATE MACRO billionths(bucket) AS round(log_of(bucket) * 1e9)::HUGEINT;
-- Nearest rank of a quantile.
CREATE MACRO rank_of(quantile, total) AS ceil(quantile::DOUBLE * total - 1e-6);
CREATE MACRO wilson(x, n, side) AS (x / n + {{ z95 }} * {{ z95 }} / (2 * n)
  + side * {{ z95 }} * sqrt(x / n * (1 - x / n) / n + pow({{ z95 }} / (2e0 * n), 2))) / (1 + {{ z95 }} * {{ z95 }} / n);
-- Two-sided p-value of a standard normal z; Abramowitz and Stegun 26.2.17, off by less than 1.5e-7.
CREATE MACRO upper_tail(z, t) AS exp(-z * z / 2) * 0.3989422804014327e0 * t * (0.319381530e0 + t * (
  -0.356563782e0 + t * (1.781477937e0 + t * (-1.821255978e0 + t * 1.330274429e0))));
CREATE MACRO p_of(z) AS least(1, greatest(0, 2 * upper_tail(z, 1 / (1 + 0.2316419e0 * abs(z)))));
CREATE MACRO name_of(hour) AS strftime(hour, '%Y-%m-%dT%H:00Z');
-- z of the difference of two shares.
CREATE MACRO two_shares(x1, n1, x2, n2) AS
  (x2 / n2 - x1 / n1) / sqrt((x1 + x2) / (n1 + n2) * (1 - (x1 + x2) / (n1 + n2)) * (1 / n1 + 1 / n2));

CREATE VIEW finished AS
SELECT *, outcome IN ('succeeded', 'failed') AS is_answer FROM rollups.latency_hourly WHERE hour >= to_timestamp({{ begin }});

{% for name in ("latency", "latency_by_method", "latency_by_node", "latency_by_hour", "latency_by_hour_method") %}{% set grain = keys[name] %}
CREATE TABLE {{ name }} AS
WITH ranked AS (SELECT *, {{ ranked((grain + ["bucket IS NULL"]) | join(", ")) }} FROM finished)
SELECT {{ (grain + [""]) | join(", ") }}sum(commands) AS commands, sum(if(is_answer, commands, 0)) AS answered,
{%- for outcome in outcomes %}
  sum(if(outcome = '{{ outcome }}', commands, 0)) AS {{ outcome }}, {{ outcome }} / sum(commands) AS {{ outcome }}_share,
{%- endfor %}
{{- times(where="bucket IS NOT NULL") }},
  min(low(bucket)) FILTER (bucket IS NOT NULL AND upto >= greatest(1, floor(rank_of(0.99, total) - {{ z95 }} * sqrt(total * 99e-4)))) AS p99_low_us,
  least(min(high(bucket)) FILTER (bucket IS NOT NULL AND upto >= least(total, rank_of(0.99, total) + {{ z95 }} * sqrt(total * 99e-4) + 1)),
    max_us) AS p99_high_us
FROM ranked GROUP BY ALL HAVING count(*) > 0;
{% endfor %}

CREATE TABLE histogram AS
SELECT profile, method, low(bucket) AS from_us, high(bucket) AS to_us, sum(commands) AS commands,
  sum(sum(commands)) OVER (PARTITION BY profile, method ORDER BY bucket) / sum(sum(commands)) OVER (PARTITION BY profile, method)
    AS up_to_share
FROM finished WHERE is_answer AND bucket IS NOT NULL GROUP BY profile, method, bucket;

{% for name in ("forwarding", "hops") %}{% set grain = keys[name] | join(", ") %}
CREATE TABLE {{ name }} AS
WITH ranked AS (SELECT *, receiving_node != home_node AS forwarded, {{ ranked(grain ~ ", measure") }} FROM rollups.forwarding_daily)
SELECT {{ grain }}, any_value(forwarded) AS forwarded, sum(if(measure = 'total', commands, 0)) AS commands,
  sum(if(measure = 'total', commands, 0)) / sum(sum(if(measure = 'total', commands, 0))) OVER () AS share,
{{- times("hop_", "measure = 'hop'") }},
{{- times("total_", "measure = 'total'") }}
FROM ranked GROUP BY {{ grain }};
{% endfor %}

{% for name in ("stages", "stages_by_method", "stages_by_node") %}{% set grain = keys[name] %}
CREATE TABLE {{ name }} AS
WITH ranked AS (SELECT *, {{ ranked(grain | join(", ")) }} FROM rollups.stages_daily)
SELECT {{ grain | join(", ") }}, list_position({{ stage_names }}, stage) AS position, sum(commands) AS commands,
  sum(sum_us) / nullif(sum(sum(sum_us)) OVER (PARTITION BY {{ (["1"] + grain[:-1]) | join(", ") }}), 0) AS share,
{{- times() }}
FROM ranked GROUP BY {{ grain | join(", ") }};
{% endfor %}

-- The PUBACK tells how long the broker takes; the device answers meanwhile, so that its own time is what remains.
CREATE TABLE verdict AS
WITH stage AS (
  SELECT max(p50_us) FILTER (stage = 'device') AS whole, coalesce(max(p50_us) FILTER (stage = 'publish'), 0) AS puback,
    coalesce(sum(p50_us) FILTER (stage NOT IN ('device', 'publish')), 0) AS homing FROM stages
), part AS (
  SELECT 'homing' AS part, homing AS p50_us FROM stage WHERE whole IS NOT NULL
  UNION ALL SELECT 'broker', least(puback, whole) FROM stage WHERE whole IS NOT NULL
  UNION ALL SELECT 'device', greatest(0, whole - puback) FROM stage WHERE whole IS NOT NULL
)
SELECT *, coalesce(p50_us / nullif(sum(p50_us) OVER (), 0), 0) AS share, row_number() OVER (ORDER BY p50_us DESC, part) AS position
FROM part;

-- `apart`: how far its answers are from what its methods take on all devices, in logarithms; billionths add up the same in any order.
CREATE TABLE devices AS
WITH usual AS (
  SELECT profile, method, round(sum(commands * billionths(bucket)) / sum(commands))::HUGEINT AS l
  FROM rollups.devices_daily WHERE bucket >= 0 GROUP BY ALL
), cell AS (
  SELECT device_id, bucket, max(own.profile) AS profile, max(device_group) AS device_group, sum(commands) AS commands,
    sum(commands) FILTER (outcome IN ('succeeded', 'failed')) AS answered, sum(commands) FILTER (outcome = 'failed') AS failed,
    sum(commands) FILTER (outcome = 'timed_out') AS timed_out, sum(commands) FILTER (bucket >= 0) AS timed,
    sum(commands * (billionths(bucket) - l)) FILTER (bucket >= 0) AS far, max(longest_us) AS longest_us, sum(sum_us) AS sum_us,
    sum(commands * (billionths(bucket) - l) * (billionths(bucket) - l)) FILTER (bucket >= 0) AS squares
  FROM rollups.devices_daily AS own LEFT JOIN usual
    ON usual.profile IS NOT DISTINCT FROM own.profile AND usual.method IS NOT DISTINCT FROM own.method
  GROUP BY device_id, bucket
), sums AS (
  SELECT device_id, max(profile) AS profile, max(device_group) AS device_group, sum(commands) AS commands,
    coalesce(sum(COLUMNS('^(answered|failed|timed_out|timed|far|squares)$')), 0),
{{- times(where="bucket IS NOT NULL") }}
  FROM (SELECT *, {{ ranked("device_id, bucket IS NULL") }} FROM cell) GROUP BY device_id
), summed AS (
  SELECT *, failed + timed_out AS flaky, far / 1e9 / nullif(timed, 0) AS apart,
    if(timed > 1, (squares / 1e18 - timed * apart * apart) / (timed - 1), NULL) AS variance,
    if(timed >= {{ least_commands }}, sqrt(variance / timed), NULL) AS error
  FROM sums
)
SELECT *, {{ judged() }}, commands >= {{ least_commands }} AS enough, if(enough AND slowness_low IS NOT NULL,
    row_number() OVER (PARTITION BY enough ORDER BY slowness_low DESC NULLS LAST, device_id), NULL) AS slow_rank,
  if(enough AND flaky > 0, row_number() OVER (PARTITION BY enough ORDER BY flaky_low DESC, device_id), NULL) AS flaky_rank
FROM summed;

-- Devices of a group are alike, so it is the devices that count in the error, not their records.
CREATE TABLE device_groups AS
WITH summed AS (
  SELECT profile, device_group, count(*) AS devices, sum(COLUMNS('^(commands|answered|failed|timed_out|flaky|timed)$')),
    sum(apart * timed) / nullif(sum(timed), 0) AS apart,
    sqrt(sum(variance * timed) / nullif(sum(timed), 0) / sum(timed) + coalesce(var_samp(apart), 0) / count(*)) AS error
  FROM devices WHERE device_group != '' GROUP BY profile, device_group
)
SELECT *, {{ judged() }} FROM summed;

CREATE TABLE late AS
SELECT *, responses / (SELECT sum(commands) FROM rollups.latency_hourly AS cell WHERE cell.hour = late.hour AND node = home_node) AS share
FROM rollups.late_hourly AS late;

CREATE TABLE nodes AS
WITH summed AS (
  SELECT node, coalesce(sum(COLUMNS(* EXCLUDE node)), 0) FROM (
    SELECT node, commands FROM latency_by_node
    UNION ALL BY NAME SELECT home_node AS node, if(forwarded, commands, 0) AS forwarded_in FROM forwarding
    UNION ALL BY NAME SELECT receiving_node AS node, commands AS received, if(forwarded, commands, 0) AS forwarded_out FROM forwarding
    UNION ALL BY NAME SELECT receiving_node AS node, if(kind = 'late', responses, 0) AS late, if(kind = 'late', 0, responses) AS duplicates
    FROM late WHERE receiving_node IS NOT NULL
  ) GROUP BY node
)
SELECT summed.*, p50_us, p99_us, summed.commands / sum(summed.commands) OVER () AS commands_share,
  commands_share * count(*) OVER () AS commands_skew,
  received / nullif(sum(received) OVER (), 0) AS received_share, received_share * count(*) OVER () AS received_skew
FROM summed LEFT JOIN latency_by_node USING (node);

-- Ten seconds without a row lie between two with one: as many are in flight as at their begin. What was registered
-- before the period that was asked for is in flight when it begins.
CREATE TABLE capacity AS
WITH slot AS (
  SELECT coalesce(node, 'all') AS node, epoch("at") AS begin, sum(arrived) AS arrived, sum(carried_in) AS carried_in,
    sum(carried_out) AS carried_out, sum(busy_us) / 1e6 AS busy
  FROM rollups.load_10s GROUP BY GROUPING SETS ((node, "at"), ("at"))
), level AS (
  SELECT *, coalesce(sum(carried_out - carried_in) OVER (past ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before,
    least(coalesce(begin - lag(begin) OVER past - 10, 0), begin - {{ asked }}) AS gap, busy / 10 + before - carried_in AS level,
    if(gap > 0, before, 0) AS gap_level
  FROM slot WINDOW past AS (PARTITION BY node ORDER BY begin)
), peak AS (
  SELECT node, sum(arrived) AS arrived, max(arrived) / 10 AS arrivals_peak,
    to_timestamp(arg_max(begin, (arrived, -begin))) AS arrivals_peak_at,
    sum(level * 10 + gap_level * gap) AS seconds, greatest(max(level), max(gap_level)) AS in_flight_peak,
    to_timestamp(arg_max(begin - if(gap_level > level, gap, 0), (greatest(level, gap_level), -begin))) AS in_flight_peak_at,
    {{ max_pending }} * if(node = 'all', (SELECT count(DISTINCT node) FROM rollups.load_10s), 1) AS max_pending
  FROM level WHERE begin >= {{ asked }} GROUP BY node
)
SELECT *, arrived / span AS arrivals_mean, seconds / span AS in_flight_mean, in_flight_peak / max_pending AS used_peak,
  max_pending / nullif(in_flight_peak, 0) AS headroom, max_pending / nullif(seconds / nullif(arrived, 0), 0) AS sustainable
FROM peak, (SELECT max(begin) - min(begin - if(before > 0, gap, 0)) + 10 AS span FROM level WHERE begin >= {{ asked }} AND node = 'all');

-- Shares by two proportions, medians by Mann-Whitney on the histograms with ties, tails by the old p99.
CREATE TABLE change AS
WITH cell AS (
  SELECT profile, method, node, bucket, sum(if(later, 0, commands))::DOUBLE AS b, sum(if(later, commands, 0))::DOUBLE AS a,
    sum(if(outcome = 'timed_out' AND NOT later, commands, 0)) AS x1, sum(if(outcome = 'timed_out' AND later, commands, 0)) AS x2
  FROM (SELECT *, hour >= to_timestamp({{ middle }}) AS later FROM rollups.latency_hourly WHERE hour >= to_timestamp({{ since }}))
  GROUP BY GROUPING SETS ((bucket), (profile, method, bucket), (node, bucket))
), upto AS (
  SELECT *, sum(b) OVER (cells ORDER BY bucket) AS bu, sum(a) OVER (cells ORDER BY bucket) AS au,
    sum(if(bucket IS NULL, 0, b)) OVER cells AS m1, sum(if(bucket IS NULL, 0, a)) OVER cells AS m2
  FROM cell WINDOW cells AS (PARTITION BY profile, method, node)
), tailed AS (
  SELECT *, min(bucket) FILTER (bu >= rank_of(0.99, m1)) OVER (PARTITION BY profile, method, node) AS tail FROM upto
), fact AS (
  SELECT if(profile IS NOT NULL, 'method', if(node IS NOT NULL, 'node', 'all')) AS scope, profile, method, node,
    sum(b) AS n1, sum(a) AS n2, sum(x1) AS x1, sum(x2) AS x2, max(m1) AS m1, max(m2) AS m2,
    sum(if(bucket IS NULL, 0, a * (bu - b / 2))) AS u, sum(if(bucket IS NULL, 0, power(a + b, 3) - (a + b))) AS ties,
    middle(min(bucket) FILTER (bu >= rank_of(0.5, m1))) AS p1, middle(min(bucket) FILTER (au >= rank_of(0.5, m2))) AS p2,
    sum(if(bucket > tail, b, 0)) AS t1, sum(if(bucket > tail, a, 0)) AS t2
  FROM tailed GROUP BY ALL
), test AS (
  SELECT scope, profile, method, node, 'unanswered' AS test, n1, n2, x1 / n1 AS before, x2 / n2 AS after,
    after - before AS effect, two_shares(x1, n1, x2, n2) AS z
  FROM fact WHERE x1 + x2 > 0
  UNION ALL SELECT scope, profile, method, node, 'median', m1, m2, p1, p2, 2 * u / (m1 * m2) - 1,
    (u - m1 * m2 / 2) / sqrt(greatest(0, m1 * m2 / 12 * (m1 + m2 + 1 - ties / ((m1 + m2) * (m1 + m2 - 1)))))
  FROM fact
  UNION ALL SELECT scope, profile, method, node, 'tail', m1, m2, t1 / m1, t2 / m2, t2 / m2 - t1 / m1, two_shares(t1, m1, t2, m2)
  FROM fact WHERE t1 + t2 > 0
)
SELECT *, n1 AS before_records, n2 AS after_records, if(before > 0, after / before, NULL) AS ratio,
  q < {{ level }} AS significant, significant AND CASE test WHEN 'median' THEN abs(effect) > 0.1
    WHEN 'unanswered' THEN abs(effect) >= {{ share_step }} ELSE coalesce(ratio >= 2 OR ratio <= 0.5, true) END AS notable
FROM ({{ corrected("(FROM test WHERE least(n1, n2) >= " ~ least_records ~ ")", "", "true") }});

CREATE TABLE anomalies AS
WITH hourly AS (
  SELECT hour, profile, method, sum(commands)::DOUBLE AS commands, sum(if(outcome = 'timed_out', commands, 0)) AS timed_out,
    sum(if(bucket IS NULL, 0, commands))::DOUBLE AS answered, coalesce(sum(commands * log_of(bucket)), 0) AS logs,
    coalesce(sum(commands * log_of(bucket) ** 2), 0) AS squares
  FROM finished GROUP BY ALL
), node_test AS (
  SELECT node, stage, sum(commands) AS n, sum(commands * log_of(bucket)) / n AS mean,
    (sum(commands * log_of(bucket) ** 2) / n - mean * mean) / n AS variance,
    (sum(mean) OVER peers - mean) / nullif(count(*) OVER peers - 1, 0) AS others
  FROM rollups.stages_daily WHERE stage IN ('register', 'record', 'deliver') AND node IS NOT NULL
  GROUP BY node, stage HAVING n >= {{ least_records }} WINDOW peers AS (PARTITION BY stage)
), hour_method AS (
  SELECT hour, answered AS n, logs / answered AS mean, squares / answered - mean * mean AS variance,
    mean - quantile_cont(mean, 0.5) OVER (PARTITION BY profile, method) AS apart
  FROM hourly WHERE answered >= {{ least_records // 3 }}
), hour_shift AS (
  SELECT hour, sum(n) AS n, quantile_cont(apart, 0.5) AS apart, 1.5708e0 * avg(variance / n) / count(*) AS variance
  FROM hour_method GROUP BY hour QUALIFY count(*) OVER () >= 6
), hour_outcome AS (
  SELECT hour, sum(commands) AS n, sum(timed_out) AS x, (sum(x) OVER () - x + 1) / (sum(n) OVER () - n + 2) AS usual
  FROM hourly GROUP BY hour HAVING n >= {{ least_records }} QUALIFY count(*) OVER () >= 6
), method_split AS (
  SELECT date_trunc('day', hour) AS day, profile, method, sum(sum(answered)) OVER since AS n2,
    sum(sum(answered)) OVER whole - n2 AS n1, sum(sum(logs)) OVER since AS l2, sum(sum(logs)) OVER whole - l2 AS l1,
    sum(sum(squares)) OVER whole / (n1 + n2) - power((l1 + l2) / (n1 + n2), 2) AS variance
  FROM hourly WHERE answered > 0 GROUP BY day, profile, method
  WINDOW whole AS (PARTITION BY profile, method),
    since AS (PARTITION BY profile, method ORDER BY day ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)
), method_step AS (
  SELECT *, l2 / n2 - l1 / n1 AS raw, raw - quantile_cont(raw, 0.5) OVER (PARTITION BY day) AS step
  FROM method_split WHERE n1 >= {{ least_records }} AND n2 >= {{ least_records }} QUALIFY count(*) OVER (PARTITION BY day) >= 3
), group_test AS (
  SELECT *, (sum(flaky) OVER peers - flaky + 1) / (sum(commands) OVER peers - commands + 2) AS usual,
    (sum(apart * timed) OVER peers - apart * timed) / nullif(sum(timed) OVER peers - timed, 0) AS others
  FROM device_groups WHERE devices >= 2 AND commands >= {{ least_records }} WINDOW peers AS (PARTITION BY profile)
  QUALIFY count(*) OVER peers > 1
), test AS (
  -- Nodes: their own work (register, record, deliver) against that of the others.
  SELECT 'node' AS kind, node AS subject, 'latency' AS measure, NULL AS profile, NULL::TIMESTAMPTZ AS since, n AS records,
    exp(mean) AS value, exp(others) AS expected, (mean - others) / sqrt(variance + {{ spread }}) AS z
  FROM node_test WHERE others IS NOT NULL
  QUALIFY row_number() OVER (PARTITION BY node ORDER BY mean - others DESC) = 1
  -- Hours: each method against its own median hour, of which the hour has the median; and against all other hours.
  UNION ALL SELECT 'hour', name_of(hour), 'latency', NULL, hour, n, exp(apart), 1,
    apart / sqrt(greatest({{ spread }}, variance, (1.4826e0 * quantile_cont(abs(apart), 0.5) OVER ()) ** 2))
  FROM hour_shift
  UNION ALL SELECT 'hour', name_of(hour), 'unanswered', NULL, hour, n, x / n, usual, (x / n - usual) / sqrt(usual * (1 - usual) / n)
  FROM hour_outcome
  -- Methods: the days from some day on against the days before, less what all methods did.
  UNION ALL SELECT 'method', profile || '/' || method, 'latency', profile, day, n2, exp(l1 / n1 + step), exp(l1 / n1),
    step / sqrt(variance * (1 / n1 + 1 / n2) + {{ spread }})
  FROM method_step QUALIFY row_number() OVER (PARTITION BY profile, method ORDER BY step * sqrt(n1 * n2 / (n1 + n2)) DESC) = 1
  -- Groups of devices: against the other groups of their profile.
  UNION ALL SELECT 'device_group', device_group, 'latency', profile, NULL, timed, exp(apart), exp(others),
    (apart - others) / sqrt(error * error + {{ spread }})
  FROM group_test
  UNION ALL SELECT 'device_group', device_group, 'unanswered', profile, NULL, commands, flaky / commands, usual,
    (flaky / commands - usual) / sqrt(usual * (1 - usual) / commands)
  FROM group_test
)
SELECT *, value / expected AS ratio FROM ({{ corrected("test", "PARTITION BY kind", "z > 0") }})
WHERE q < {{ level }} AND CASE WHEN measure = 'unanswered' THEN value - expected >= {{ share_step }} AND ratio >= 2
  WHEN kind IN ('node', 'hour') THEN ratio >= 1.5 ELSE ratio >= 1.3 END
-- Whatever others do: all commands against the objective, and a method that misses it by as much again.
UNION ALL BY NAME SELECT *, p AS q, value / expected AS ratio FROM (
  SELECT 'success' AS kind, subject, 'unsuccessful' AS measure, profile, NULL::TIMESTAMPTZ AS since, n AS records,
    1 - succeeded / n AS value, 1 - {{ success }} AS expected, p_of((value - expected * times) / sqrt(expected * (1 - expected) / n)) AS p
  FROM (
    SELECT 'All commands' AS subject, NULL AS profile, succeeded, commands - cancelled AS n, 1 AS times FROM latency
    UNION ALL SELECT 'Method ' || profile || '/' || method, profile, succeeded, commands - cancelled, 2 FROM latency_by_method
  ) WHERE n >= {{ least_records }} AND value > expected * times
) WHERE p < {{ level }};

-- By device, with the gaps over the ends of hours. Of fewer than ten events no gap is usual.
CREATE TABLE said AS
SELECT *, epoch_us(max(last_at) OVER here) - epoch_us(last_at) AS silent_us,
  epoch(max(last_at) OVER here - min(first_at) OVER here) AS seconds, device_id IS NOT NULL AND events >= 10
    AND silent_us >= 10 * longest_gap_us AND silent_us >= 60e6 AS fell_silent
FROM (
  SELECT db, kind, device_id, sum(events) AS events, sum(bytes) AS bytes, max(largest) AS largest,
    min(first_at) AS first_at, max(last_at) AS last_at, max(greatest(longest_gap_us, before_us)) AS longest_gap_us
  FROM (SELECT *, epoch_us(first_at) - epoch_us(lag(last_at) OVER (PARTITION BY db, kind, device_id ORDER BY hour)) AS before_us
    FROM rollups.event_hourly)
  GROUP BY db, kind, device_id
) WINDOW here AS (PARTITION BY db);

CREATE TABLE events AS
SELECT db, kind, count(device_id) AS devices, count(*) FILTER (fell_silent) AS silent, sum(events) AS events,
  sum(events) / nullif(any_value(seconds), 0) AS per_second, sum(bytes) AS bytes, sum(bytes) / sum(events) AS mean_bytes,
  max(largest) AS largest, max(longest_gap_us) AS longest_gap_us
FROM said GROUP BY db, kind;

CREATE TABLE silent_devices AS FROM said WHERE fell_silent;

-- A timeout with the margin, rounded up to three digits and whole milliseconds, within the bounds.
CREATE MACRO digits_of(ms) AS power(10, greatest(0, length(ms::BIGINT::VARCHAR) - 3));
CREATE MACRO rounded_up(ms) AS ceil(ms / digits_of(ms)) * digits_of(ms);
CREATE MACRO timeout_of(us) AS
  least(greatest(1000 * rounded_up(ceil(us * (1 + {{ margin }}) / 1000 - 1e-6)), {{ shortest_us }}), {{ longest_us }})::BIGINT;

-- Commands that are alike; groups with too few responses are with the rest of their method.
CREATE TABLE deadline_cell AS
SELECT profile, method, if(responses < {{ least_responses }}, '', device_group) AS device_group, "end" AS ending,
  hour >= to_timestamp({{ cut }}) AS held_out, coalesce(late_hour >= to_timestamp({{ cut }}), false) AS known_late,
  bucket, sum(commands) AS commands, sum(sum_us) AS sum_us, sum(timeout_us) AS timeout_us
FROM (SELECT *, sum(if(bucket IS NULL, 0, commands)) OVER (PARTITION BY profile, method, device_group) AS responses
  FROM rollups.deadlines_hourly)
GROUP BY ALL;

-- Quantiles of the true times, of each group and of the whole method: from all hours, and for the back-test from what
-- was known before the held-out ones. Late responses that came in them were not, and their commands never answered.
CREATE TABLE deadlines_learned AS
WITH known AS (
  SELECT *, false AS earlier FROM deadline_cell
  UNION ALL SELECT * REPLACE (if(known_late, {{ never }}, ending) AS ending), true FROM deadline_cell
  WHERE NOT held_out AND NOT (known_late AND ending = {{ cancelled }})
), sample AS (
  FROM known UNION ALL SELECT * REPLACE ('' AS device_group) FROM known WHERE device_group != ''
), ranked AS (
  SELECT *, ending != {{ never }} AS timed, {{ ranked("earlier, profile, method, device_group, ending != " ~ never) }} FROM sample
), learned AS (
  SELECT earlier, profile, method, device_group, coalesce(sum(commands) FILTER (timed), 0) AS responses,
    sum(if(ending = {{ late }}, commands, 0)) AS late, sum(if(ending = {{ never }}, commands, 0)) AS never_answered,
    coalesce(never_answered / nullif(sum(if(ending = {{ cancelled }}, 0, commands)), 0), 0) AS never_answered_share,
    min(greatest(1, high(bucket) - 1)) FILTER (timed AND upto >= rank_of({{ quantile }}, total)) AS quantile_us,
    round(sum(if(ending = {{ cancelled }}, 0, timeout_us)) / nullif(late + never_answered, 0)) AS logged_timeout_us,
    responses >= {{ least_responses }} AS enough, if(enough AND device_group != '', responses / (responses + {{ half }}), 1) AS weight,
    max(quantile_us) FILTER (device_group = '') OVER (PARTITION BY earlier, profile, method) AS whole_us
  FROM ranked GROUP BY earlier, profile, method, device_group
)
SELECT * REPLACE (nullif(device_group, '') AS device_group),
  if(weight = 1, quantile_us, round(exp(weight * ln(quantile_us) + (1 - weight) * ln(whole_us)))) AS shrunk_us,
  if(enough, timeout_of(shrunk_us), NULL) AS timeout_us,
  if(enough, NULL, responses || ' responses; at least {{ least_responses }} are needed') AS why_not
FROM learned;

CREATE TABLE deadlines AS FROM deadlines_learned WHERE NOT earlier;

-- The held-out commands, had they had the timeouts that were learned before. A response in the bucket that its timeout
-- falls into counts as too late: an upper bound, within 2 % of the timeout.
CREATE TABLE deadlines_test AS
WITH earlier AS (FROM deadlines_learned WHERE earlier), tried AS (
  SELECT cell.*, coalesce(own.timeout_us, whole.timeout_us) AS learned, ending != {{ never }} AS timed
  FROM deadline_cell AS cell
  LEFT JOIN earlier AS own ON (own.profile, own.method, own.device_group) = (cell.profile, cell.method, cell.device_group)
  LEFT JOIN earlier AS whole ON (whole.profile, whole.method) = (cell.profile, cell.method) AND whole.device_group IS NULL
  WHERE held_out AND ending != {{ cancelled }}
)
SELECT profile, method, sum(if(learned IS NULL, commands, 0)) AS without, sum(if(learned IS NULL, 0, commands)) AS commands,
  sum(if(learned IS NOT NULL AND timed, commands, 0)) AS responses,
  sum(if(timed AND learned < high(bucket), commands, 0)) AS wrong, coalesce(wrong / nullif(responses, 0), 0) AS wrong_share,
  sum(if(learned IS NOT NULL AND ending = {{ late }}, commands, 0)) AS wrong_logged,
  coalesce(wrong_logged / nullif(responses, 0), 0) AS wrong_logged_share,
  sum(if(learned IS NULL, 0, if(timed, least(learned * commands, sum_us), learned * commands))) / 1e6 AS waited_s,
  sum(if(learned IS NULL, 0, if(ending = {{ answered }}, sum_us, timeout_us))) / 1e6 AS waited_logged_s,
  waited_logged_s - waited_s AS saved_s, coalesce(saved_s / nullif(waited_logged_s, 0), 0) AS saved_share
FROM tried GROUP BY GROUPING SETS ((profile, method), ()) HAVING count(*) > 0;

CREATE TABLE quarantine AS
SELECT reason, (MAP {{ meanings }})[reason] AS meaning, sum(files) AS files, sum(records) AS records, min(example) AS example
FROM (FROM rollups.quarantine UNION ALL BY NAME FROM rollups.repeated UNION ALL BY NAME FROM rollups.quarantine_events)
GROUP BY ALL;
