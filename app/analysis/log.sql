{#- The records of `homing generate-log`, in DuckDB. Every value is a function of the seed, the number of the command and
a word, so that a log is the same however many threads made it. -#}
{%- macro u(word, key="id") -%}((hash(xor({{ key }}::UBIGINT, {{ word | salt }}::UBIGINT)) >> 11) * {{ 2 ** -53 }}){%- endmacro -%}
{%- macro gauss(word, key="id") -%}
(sqrt(-2 * ln(1 - {{ u(word, key) }})) * cos(2 * pi() * {{ u(word ~ " angle", key) }}))
{%- endmacro -%}
{#- Log-normal: median in microseconds, and sigma. -#}
{%- macro time(word, shape, factor="1") -%}
({{ shape[0] }} * {{ factor }} * exp({{ shape[1] }} * {{ gauss(word) }}))::BIGINT
{%- endmacro -%}
{%- macro by_plant(plant, column, value, otherwise) -%}
CASE {{ column }} WHEN '' THEN {{ otherwise }}{% for one in anomalies if one.plant == plant %} WHEN '{{ one.subject }}' THEN {{ one[value] }}{% endfor %} ELSE {{ otherwise }} END
{%- endmacro -%}

CREATE OR REPLACE TEMP TABLE command AS
WITH known(place, profile, method, share, median_us, sigma, timeout_us, failed_share) AS (VALUES
{%- for one in methods %}
  ({{ loop.index }}, '{{ one[:2] | join("', '") }}', {{ one[2:] | join(", ") }}){{ "," if not loop.last }}
{%- endfor %}
), method AS (
  SELECT *, round(sum(share) OVER (PARTITION BY profile ORDER BY place), 6) AS below, round(below - share, 6) AS above FROM known
), placed AS (
  SELECT id, (id + {{ u("moment") }}) / {{ callbacks }} * {{ days }} AS turn,
    -- The density of the time is 1 / (1 - 0.55 * cos): quiet at midnight, busiest at noon (UTC).
    turn + 0.55 * sin(2 * pi() * turn) / (2 * pi()) AS day,
    {{ start_us }} + floor(day * {{ 24 * hour_us }})::BIGINT AS registered,
    -- Squaring makes some devices busier than others: the first tenth has a third of the load.
    floor({{ devices }} * power({{ u("device") }}, 2))::BIGINT AS device,
    if({{ u("profile", "device") }} < 0.6, 'dji', 'homing') AS profile,
    if(profile = 'dji', 'dock', 'sensor') || '-' || {{ firmwares | list }}[1 + floor({{ u("firmware", "device") }} * {{ firmwares | length }})::INT] AS device_group,
    device_group || '-' || printf('%05d', device) AS device_id, {{ u("method") }} AS pick,
    {{ u("home") }} AS at_home,
    CASE {% for node, below in homes %} WHEN at_home < {{ below }} THEN '{{ node }}'{% endfor %} END AS home_node,
    {{ nodes }}[1 + floor({{ u("receiving") }} * {{ nodes | length }})::INT] AS receiving,
    home_node != receiving AS apart,
    {{ by_plant("slow_node", "home_node", "factor", "1.0") }} AS home_slow,
    {{ by_plant("slow_node", "receiving", "factor", "1.0") }} AS receiving_slow
  FROM range({{ first }}, {{ last }}) AS numbers(id)
), timed AS (
  SELECT placed.*, method.*,
    -- Devices differ among themselves, 0.8 % of the times are drawn out by a Pareto factor, and noon takes 4 % longer.
    (median_us * exp(sigma * {{ gauss("device time") }}) * exp(0.12 * {{ gauss("device itself", "device") }})
      * if({{ u("tail") }} < 0.008, least(60, power(1 - {{ u("tail factor") }}, -1 / 1.5::DOUBLE)), 1)
      * (1 - 0.04 * cos(2 * pi() * day))
{%- for one in anomalies if one.hour is not none %}
      * if(registered // {{ hour_us }} = {{ start_us // hour_us + one.hour }}, {{ one.factor }}, 1)
{%- endfor %}
{%- for one in anomalies if one.since_day is not none %}
      * if(placed.profile || '/' || method = '{{ one.subject }}' AND registered >= {{ start_us + one.since_day * 24 * hour_us }}, {{ one.factor }}, 1)
{%- endfor %})::BIGINT AS device_us,
    {{ time("register", (420, 0.35), "home_slow") }} AS register_us,
    {{ time("publish", (650, 0.4)) }} AS puback_us,
    {{ time("record", (450, 0.35), "receiving_slow") }} AS recording_us,
    if(apart, {{ time("wake", (780, 0.4)) }}, {{ time("wake", (60, 0.3)) }}) AS wake_us,
    {{ time("deliver", (160, 0.35), "home_slow") }} AS hand_us,
    {{ u("parked") }} < 0.85 AS parked, {{ u("stopped") }} AS stopped,
    registered + {{ time("hand over", (45, 0.3)) }} AS published, published + device_us AS received,
    registered + timeout_us AS deadline,
    {{ u("answer") }} < {{ by_plant("flaky_firmware", "device_group", "share", 0.003) }} AS no_answer
  FROM placed JOIN method ON method.profile = placed.profile AND pick >= above AND pick < below
)
SELECT *, CASE WHEN stopped < 0.0005 THEN 'unsent' WHEN stopped < 0.0015 THEN 'cancelled'
    WHEN no_answer OR received + recording_us >= deadline THEN 'timed_out'
    WHEN {{ u("failed") }} < failed_share THEN 'failed' ELSE 'succeeded' END AS outcome,
  outcome IN ('succeeded', 'failed') AS answered, outcome != 'unsent' AS sent,
  CASE WHEN answered THEN received + recording_us
    WHEN outcome = 'timed_out' THEN deadline + {{ time("expire", (1500, 0.5)) }}
    WHEN outcome = 'cancelled' THEN published + ({{ u("cancel") }} * least(device_us, timeout_us))::BIGINT
    ELSE published END AS recorded,
  recorded + if(answered, wake_us, 0) AS woken,
  if({{ u("attempt") }} < 0.004, 2, 1) AS attempt, 90 + (power({{ u("response") }}, 4) * 6000)::INT AS bytes_back,
  120 + ({{ u("request") }} * 480)::INT AS request_bytes,
  printf('%03X-%014X%016X', device % 256, registered, (hash(xor(id::UBIGINT, {{ 'command' | salt }}::UBIGINT)) >> 1)::BIGINT) AS command_id,
  CASE WHEN outcome = 'timed_out' AND {{ u("late") }} < 0.5 THEN 'late'
    WHEN answered AND {{ u("duplicate") }} < 0.002 THEN 'duplicate' END AS further,
  recorded + 1000 + ({{ u("again") }} * 2000000)::BIGINT AS again,
  if(further = 'late', receiving, {{ nodes }}[1 + floor({{ u("again at") }} * {{ nodes | length }})::INT]) AS again_at
FROM timed;

SELECT 'outcome' AS kind, command_id, device_id, profile, method, outcome, attempt, request_bytes, register_us, home_node,
  CASE outcome WHEN 'failed' THEN printf('3%02d', device_us % 7) WHEN 'timed_out' THEN 'timeout' END AS error_code,
  if(answered, receiving, NULL) AS receiving_node, home_node AS writing_node, answered AND apart AS forwarded,
  if(answered, 'id', NULL) AS correlation, if(answered, bytes_back, NULL) AS response_bytes,
  make_timestamp(registered) AS registered_at, make_timestamp(if(sent, published, NULL)) AS published_at,
  make_timestamp(if(sent, published + puback_us, NULL)) AS acknowledged_at,
  make_timestamp(if(answered AND method = 'flighttask_execute', published + device_us // 3, NULL)) AS progressed_at,
  make_timestamp(if(answered, received, NULL)) AS received_at, make_timestamp(recorded) AS recorded_at,
  make_timestamp(woken) AS woken_at, make_timestamp(if(parked, woken + hand_us, NULL)) AS delivered_at,
  make_timestamp(deadline) AS deadline_at, if(sent, puback_us, NULL) AS publish_us,
  if(answered, woken - published, NULL) AS respond_us, if(answered, recording_us, NULL) AS record_us,
  if(parked, hand_us, NULL) AS deliver_us, register_us + woken - registered + if(parked, hand_us, 0) AS total_us
FROM command
UNION ALL BY NAME
SELECT further AS kind, command_id, device_id, outcome, attempt, home_node, again_at AS receiving_node,
  again_at AS writing_node, again_at != home_node AS forwarded, 'id' AS correlation, bytes_back AS response_bytes,
  make_timestamp(again) AS received_at, make_timestamp(again + recording_us) AS recorded_at, recording_us AS record_us
FROM command WHERE further IS NOT NULL
