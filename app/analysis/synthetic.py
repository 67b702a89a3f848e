"""The records of `homing generate-log`, as SQL over a range of numbers.

Every value is a function of the seed, the number of the command and a word (xxhash64), so a log is the same however
many tasks made it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from app.analysis import world
from app.analysis.plant import Anomaly, Shape
from app.latency.schema import COLUMNS, PARTITIONS, ColumnType, Kind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

from app.analysis.source import TYPES as DDL

HOUR_US: Final = 3_600_000_000
FILE_NODE: Final = "_node"
"""The node that a file is of; not a column of the log."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to make."""

    callbacks: int
    seed: int
    devices: int
    shape: Shape
    anomalies: tuple[Anomaly, ...]


def records(spark: SparkSession, plan: Plan, first: int, last: int, parts: int) -> DataFrame:
    """The records of the commands numbered first to last (exclusive), in the order of their registration."""
    frame = spark.range(first, last, 1, parts)
    for step in _steps(plan):
        frame = frame.selectExpr("*", *(f"{sql} AS {name}" for name, sql in step.items()))
    types = {column.name: DDL[column.type] for column in COLUMNS}
    texts = {column.name for column in COLUMNS if column.type is ColumnType.INSTANT}
    outcome = _outcome_record()
    further = " ".join(
        f"WHEN {kind} THEN {_struct(_further_record(kind), types, texts)}" for kind in (Kind.LATE, Kind.DUPLICATE)
    )
    rows = f"{_struct(outcome, types, texts)}, CASE {further} END"
    frame = frame.selectExpr(f"inline(array({rows}))").where("kind IS NOT NULL")
    return frame.selectExpr(
        *(column.name for column in COLUMNS),
        f"date_format(recorded_at, 'yyyy-MM-dd') AS {PARTITIONS[0]}",
        f"date_format(recorded_at, 'HH') AS {PARTITIONS[1]}",
        f"writing_node AS {FILE_NODE}",
    )


def _struct(values: dict[str, str], types: dict[str, str], instants: set[str]) -> str:
    """All columns of the log; those without a value are null."""
    cells = []
    for name, type_ in types.items():
        value = values.get(name, "NULL")
        if name in instants and value != "NULL":
            value = f"timestamp_micros({value})"
        cells.append(f"'{name}', CAST({value} AS {type_})")
    return f"named_struct({', '.join(cells)})"


def _steps(plan: Plan) -> list[dict[str, str]]:
    """Columns in terms of those of the steps before; the range's own is `id`."""
    u = _Uniform(plan.seed)
    start_us = int(plan.shape.start.timestamp()) * 1_000_000
    days = plan.shape.days
    turn = f"((id + {u('moment')}) / {plan.callbacks}D * {days})"
    # The density of the time is 1 / (1 - rhythm * cos): quiet at midnight, busiest at noon (UTC).
    day = f"({turn} + {world.RHYTHM} * sin(2 * pi() * {turn}) / (2 * pi()))"
    count = len(plan.shape.nodes)
    home_ends = _home_ends(count)
    names = ", ".join(f"'{node}'" for node in plan.shape.nodes)
    return [
        {
            "day": day,
            # Squaring makes some devices busier than others: the first tenth has a third of the load.
            "device": f"CAST(floor({plan.devices} * power({u('device')}, 2)) AS BIGINT)",
            "pick": u("method"),
            "home": f"element_at(array({names}), {_step_index(u('home'), home_ends)})",
            "receiving": f"element_at(array({names}), CAST(floor({u('receiving')} * {count}) AS INT) + 1)",
        },
        {
            "profile": f"IF({u.of('profile', 'device')} < {world.PROFILE_SHARE}, 'dji', 'homing')",
            "firmware": f"CAST(floor({u.of('firmware', 'device')} * {len(world.FIRMWARES)}) AS INT) + 1",
            "registered": f"{start_us} + CAST(day * {24 * HOUR_US} AS BIGINT)",
            "forwarded": "home != receiving",
        },
        {
            "device_group": f"concat(IF(profile = 'dji', '{world.PROFILES['dji']}', '{world.PROFILES['homing']}'), "
            f"'-', element_at(array({_quoted(world.FIRMWARES)}), firmware))",
            "method": _by_method(),
            "home_slow": _slow_node(plan, "home"),
            "receiving_slow": _slow_node(plan, "receiving"),
        },
        {
            "device_id": "concat(device_group, '-', lpad(device, 5, '0'))",
            "method_us": _of_method("median_us"),
            "method_sigma": _of_method("sigma"),
            "timeout_us": _of_method("timeout_us"),
            "failed_share": _of_method("failed"),
            "no_answer": f"{u('answer')} < {_no_answer_share(plan)}",
            "stopped": u("stopped"),
        },
        {
            "device_us": f"CAST({_device_time(plan, u)} AS BIGINT)",
            "register_us": _normal(u, "register", world.REGISTER, "home_slow"),
            "hand_over_us": _normal(u, "hand over", world.HAND_OVER),
            "publish_us": _normal(u, "publish", world.PUBLISH),
            "record_us": _normal(u, "record", world.RECORD, "receiving_slow"),
            "wake_us": f"IF(forwarded, {_normal(u, 'wake', world.WAKE_FORWARDED)}, "
            f"{_normal(u, 'wake', world.WAKE_LOCAL)})",
            "deliver_us": _normal(u, "deliver", world.DELIVER, "home_slow"),
            "expire_us": _normal(u, "expire", world.EXPIRE),
            "parked": f"{u('parked')} < {world.PARKED}",
        },
        {
            "published": "registered + hand_over_us",
            "received": "registered + hand_over_us + device_us",
            "deadline": "registered + timeout_us",
            "outcome": f"CASE WHEN stopped < {world.UNSENT} THEN 'unsent' "
            f"WHEN stopped < {world.UNSENT + world.CANCELLED} THEN 'cancelled' "
            f"WHEN no_answer OR hand_over_us + device_us + record_us >= timeout_us THEN 'timed_out' "
            f"WHEN {u('failed')} < failed_share THEN 'failed' ELSE 'succeeded' END",
        },
        {
            "answered": "outcome IN ('succeeded', 'failed')",
            "recorded": "CASE WHEN outcome IN ('succeeded', 'failed') THEN received + record_us "
            "WHEN outcome = 'timed_out' THEN deadline + expire_us "
            f"WHEN outcome = 'cancelled' THEN published + CAST({u('cancel')} * least(device_us, timeout_us) AS BIGINT) "
            "ELSE registered + hand_over_us END",
            "late": f"outcome = 'timed_out' AND {u('late')} < {world.LATE}",
            "duplicate": f"outcome IN ('succeeded', 'failed') AND {u('duplicate')} < {world.DUPLICATE}",
            "again_us": f"1000 + CAST({u('again')} * 2000000 AS BIGINT)",
            "again_at": f"element_at(array({names}), CAST(floor({u('again at')} * {count}) AS INT) + 1)",
            "request_bytes": f"120 + CAST({u('request')} * 480 AS INT)",
            "response_bytes": f"90 + CAST(power({u('response')}, 4) * 6000 AS INT)",
            "attempt": f"IF({u('attempt')} < 0.004, 2, 1)",
            "command_id": f"concat(lpad(conv(device % 256, 10, 16), 3, '0'), '-', "
            f"lpad(hex(registered), 14, '0'), lpad(hex(xxhash64({plan.seed}L, id)), 16, '0'))",
        },
        {"woken": "recorded + IF(answered, wake_us, 0)"},
        {"total_us": "register_us + woken - registered + IF(parked, deliver_us, 0)"},
    ]


def _outcome_record() -> dict[str, str]:
    sent = "outcome != 'unsent'"
    same = (
        "command_id",
        "device_id",
        "profile",
        "method",
        "outcome",
        "attempt",
        "request_bytes",
        "register_us",
        "total_us",
    )
    return {
        **{name: name for name in same},
        "kind": f"'{Kind.OUTCOME}'",
        "error_code": "CASE outcome WHEN 'failed' THEN concat('3', lpad(device_us % 7, 2, '0')) "
        "WHEN 'timed_out' THEN 'timeout' END",
        "home_node": "home",
        "receiving_node": "IF(answered, receiving, NULL)",
        "writing_node": "home",
        "forwarded": "answered AND forwarded",
        "correlation": "IF(answered, 'id', NULL)",
        "response_bytes": "IF(answered, response_bytes, NULL)",
        "registered_at": "registered",
        "published_at": f"IF({sent}, published, NULL)",
        "acknowledged_at": f"IF({sent}, published + publish_us, NULL)",
        "progressed_at": "IF(answered AND method = 'flighttask_execute', published + device_us DIV 3, NULL)",
        "received_at": "IF(answered, received, NULL)",
        "recorded_at": "recorded",
        "woken_at": "woken",
        "delivered_at": "IF(parked, woken + deliver_us, NULL)",
        "deadline_at": "deadline",
        "publish_us": f"IF({sent}, publish_us, NULL)",
        "respond_us": "IF(answered, woken - published, NULL)",
        "record_us": "IF(answered, record_us, NULL)",
        "deliver_us": "IF(parked, deliver_us, NULL)",
    }


def _further_record(kind: Kind) -> dict[str, str]:
    """A response after the outcome."""
    received = "recorded + again_us"
    node = "again_at" if kind is Kind.DUPLICATE else "receiving"
    same = ("command_id", "device_id", "outcome", "attempt", "response_bytes", "record_us")
    return {
        **{name: name for name in same},
        "kind": f"'{kind}'",
        "home_node": "home",
        "receiving_node": node,
        "writing_node": node,
        "forwarded": f"{node} != home",
        "correlation": "'id'",
        "received_at": received,
        "recorded_at": f"{received} + record_us",
    }


@dataclass(frozen=True, slots=True)
class _Uniform:
    """Numbers from 0 (inclusive) to 1 (exclusive), one for each word and command."""

    seed: int

    def __call__(self, word: str) -> str:
        return self.of(word, "id")

    def of(self, word: str, key: str) -> str:
        return f"(shiftrightunsigned(xxhash64({self.seed}L, {key}, '{word}'), 11) * {2.0**-53!r}D)"


def _gauss(u: _Uniform, word: str, key: str = "id") -> str:
    return f"(sqrt(-2 * ln(1 - {u.of(word, key)})) * cos(2 * pi() * {u.of(word + ' angle', key)}))"


def _normal(u: _Uniform, word: str, shape: tuple[int, float], factor: str = "1") -> str:
    """A log-normal time in microseconds."""
    median, sigma = shape
    return f"CAST({median} * {factor} * exp({sigma} * {_gauss(u, word)}) AS BIGINT)"


def _device_time(plan: Plan, u: _Uniform) -> str:
    tail = f"least({world.TAIL_MOST}, power(1 - {u('tail factor')}, {-1 / world.TAIL_SHAPE}))"
    load = f"(1 - {world.LOAD_EFFECT} * cos(2 * pi() * day))"
    factors = [
        "method_us",
        f"exp(method_sigma * {_gauss(u, 'device time')})",
        f"exp({world.DEVICE_SIGMA} * {_gauss(u, 'device itself', 'device')})",
        f"IF({u('tail')} < {world.TAIL}, {tail}, 1)",
        load,
    ]
    begin = int(plan.shape.start.timestamp()) * 1_000_000
    for one in plan.anomalies:
        if one.hour is not None:
            low = begin + one.hour * HOUR_US
            factors.append(f"IF(registered >= {low} AND registered < {low + HOUR_US}, {one.factor}, 1)")
        if one.since_day is not None:
            profile, _, method = one.subject.partition("/")
            since = begin + one.since_day * 24 * HOUR_US
            factors.append(
                f"IF(profile = '{profile}' AND method = '{method}' AND registered >= {since}, {one.factor}, 1)"
            )
    return " * ".join(factors)


def _no_answer_share(plan: Plan) -> str:
    flaky = [one for one in plan.anomalies if one.plant == "flaky_firmware"]
    cases = "".join(f" WHEN '{one.subject}' THEN {one.share}" for one in flaky)
    return f"CASE device_group{cases} ELSE {world.NO_ANSWER} END" if cases else str(world.NO_ANSWER)


def _slow_node(plan: Plan, node: str) -> str:
    slow = [one for one in plan.anomalies if one.plant == "slow_node"]
    cases = "".join(f" WHEN '{one.subject}' THEN {one.factor}" for one in slow)
    return f"CASE {node}{cases} ELSE 1.0 END" if cases else "1.0"


def _home_ends(count: int) -> list[float]:
    """Upper ends of the nodes' shares as home."""
    weights = [1 + world.HOME_TILT * (0.5 - (index + 0.5) / count) for index in range(count)]
    ends = [sum(weights[: index + 1]) / sum(weights) for index in range(count)]
    return [*ends[:-1], 1.0]


def _step_index(value: str, ends: list[float]) -> str:
    cases = " ".join(f"WHEN {value} < {end!r} THEN {index}" for index, end in enumerate(ends[:-1], 1))
    return f"CASE {cases} ELSE {len(ends)} END" if cases else "1"


def _by_method() -> str:
    """The method's name, by `pick` and the device's profile."""
    profiles = []
    for profile in world.PROFILES:
        below, cases = 0.0, []
        own = [method for method in world.METHODS if method.profile == profile]
        for method in own[:-1]:
            below += method.share
            cases.append(f"WHEN pick < {below!r} THEN '{method.name}'")
        profiles.append(f"WHEN '{profile}' THEN CASE {' '.join(cases)} ELSE '{own[-1].name}' END")
    return f"CASE profile {' '.join(profiles)} END"


def _of_method(field: str) -> str:
    cases = " ".join(f"WHEN '{method.name}' THEN {getattr(method, field)!r}" for method in world.METHODS)
    return f"CASE method {cases} END"


def _quoted(names: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in names)
