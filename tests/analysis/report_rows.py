"""Rows of the tables of `homing analyze`, made up for the report's tests."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from app.analysis.contracts import TABLES
from app.analysis.report.page import UNITS

BEGIN = datetime(2026, 11, 20, tzinfo=UTC)
METHODS = {
    ("dji", "camera_photo_take"): (350_000, 0.30),
    ("dji", "flighttask_execute"): (1_800_000, 0.12),
    ("dji", "return_home"): (600_000, 0.18),
    ("homing", "configure"): (180_000, 0.1),
    ("homing", "ping"): (40_000, 0.2),
    ("homing", "read_state"): (90_000, 0.1),
}
NODES = ("node-a", "node-b", "node-c")
STAGES = (("register", 430), ("publish", 660), ("device", 612_000), ("record", 460), ("wake", 510), ("deliver", 170))
BAD_HOUR = 14
HOSTILE = '<script>window.hacked=1</script><img src=x onerror="window.hacked=1">\'"&\u202edlrow\x1b[31m'


@dataclass
class Sample:
    """The sample to make up."""

    hours: int = 24
    commands: int = 40_000
    """An hour, on average."""
    hostile: bool = False
    missing: frozenset[int] = frozenset()
    before: bool = True
    rng: random.Random = field(default_factory=lambda: random.Random(7))

    def name(self, text: str) -> str:
        return f"{text}{HOSTILE}" if self.hostile else text


def _percentiles(median: float, prefix: str = "", sigma: float = 0.55) -> dict[str, int]:
    factor = {"p50_us": 0.0, "p90_us": 1.28, "p99_us": 2.33, "p999_us": 3.4, "max_us": 4.6, "mean_us": sigma / 2}
    return {f"{prefix}{name}": round(median * math.exp(sigma * z)) for name, z in factor.items()}


def _outcomes(sample: Sample, commands: int, bad: float = 1.0) -> dict[str, Any]:
    rng = sample.rng
    failed = round(commands * 0.011 * rng.uniform(0.7, 1.3))
    timed_out = round(commands * 0.004 * rng.uniform(0.6, 1.4) * bad)
    cancelled, unsent = round(commands * 0.001), round(commands * 0.0005)
    succeeded = max(0, commands - failed - timed_out - cancelled - unsent)
    counts = {
        "commands": commands,
        "answered": succeeded + failed,
        "succeeded": succeeded,
        "failed": failed,
        "timed_out": timed_out,
        "cancelled": cancelled,
        "unsent": unsent,
    }
    shares = {f"{name}_share": counts[name] / max(1, commands) for name in ("succeeded", "failed", "timed_out")}
    return {**counts, **shares}


def _latency_row(sample: Sample, median: float, commands: int, bad: float = 1.0, **key: object) -> dict[str, Any]:
    times = _percentiles(median)
    sure = {"p99_low_us": round(times["p99_us"] * 0.96), "p99_high_us": round(times["p99_us"] * 1.05)}
    return {**key, **_outcomes(sample, commands, bad), **times, **sure}


def _latency(sample: Sample) -> list[dict[str, Any]]:
    total = sample.commands * sample.hours
    rows = [_latency_row(sample, 310_000, total, grain="all")]
    for (profile, method), (median, part) in METHODS.items():
        named: dict[str, Any] = {"profile": profile, "method": sample.name(method)}
        rows.append(_latency_row(sample, median, round(total * part), grain="method", **named))
    for hour in sorted(set(range(sample.hours)) - sample.missing):
        begin = BEGIN + timedelta(hours=hour)
        load = sample.commands * (1 - 0.5 * math.cos(2 * math.pi * hour / 24))
        bad = 2.6 if hour == BAD_HOUR else 1.0
        wave = (1 - 0.06 * math.cos(2 * math.pi * hour / 24)) * bad * sample.rng.uniform(0.97, 1.03)
        rows.append(_latency_row(sample, 310_000 * wave, round(load), bad * bad, grain="hour", hour=begin))
        for (profile, method), (median, part) in METHODS.items():
            named = {"profile": profile, "method": sample.name(method)}
            median_now = median * wave * sample.rng.uniform(0.93, 1.07)
            if method == "return_home" and hour > 17:
                median_now *= 1.8
            rows.append(
                _latency_row(sample, median_now, round(load * part), bad, grain="hour_method", hour=begin, **named)
            )
    return rows


def _forwarding(sample: Sample) -> list[dict[str, Any]]:
    total = sample.commands * sample.hours
    rows: list[dict[str, Any]] = []
    for receiving in NODES:
        for home in NODES:
            slow = 2.8 if receiving == NODES[1] else 1.0
            hop = 60 if receiving == home else 780 * slow * sample.rng.uniform(0.9, 1.1)
            key = {"receiving_node": sample.name(receiving), "home_node": sample.name(home)}
            rows.append(
                {"grain": "pair", **key, "forwarded": receiving != home, "commands": total // 9, "share": 1 / 9}
                | _percentiles(hop, "hop_")
                | _percentiles(310_000, "total_")
            )
    for forwarded, share, hop in ((False, 1 / 3, 60), (True, 2 / 3, 790)):
        rows.append(
            {"grain": "forwarded", "forwarded": forwarded, "commands": round(total * share), "share": share}
            | _percentiles(hop, "hop_")
            | _percentiles(310_000 + hop, "total_")
        )
    return rows


def _stages(sample: Sample) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    keys: list[tuple[dict[str, Any], float]] = [({"grain": "all"}, 612_000)]
    keys += [({"grain": "node", "node": sample.name(node)}, 612_000) for node in NODES]
    keys += [
        ({"grain": "method", "profile": profile, "method": sample.name(method)}, median)
        for (profile, method), (median, _) in METHODS.items()
    ]
    for key, device in keys:
        slow = 2.2 if key.get("node", "").startswith(NODES[1]) else 1.0
        means = {stage: device if stage == "device" else usual * slow for stage, usual in STAGES}
        for position, (stage, _) in enumerate(STAGES, 1):
            part = {"stage": stage, "position": position, "commands": sample.commands * sample.hours}
            rows.append({**key, **part, "share": means[stage] / sum(means.values()), **_percentiles(means[stage])})
    return rows


def _verdict(_sample: Sample) -> list[dict[str, Any]]:
    times = {"device": 611_340, "homing": 1570, "broker": 660}
    whole = sum(times.values())
    return [
        {"part": part, "position": position, "p50_us": us, "share": us / whole}
        for position, (part, us) in enumerate(times.items(), 1)
    ]


def _devices(sample: Sample) -> list[dict[str, Any]]:
    rows = []
    for kind in ("slowest", "flakiest"):
        for rank in range(1, 21):
            commands = sample.rng.randint(30, 900)
            slowness = 4.2 / rank**0.45 if kind == "slowest" else sample.rng.uniform(0.8, 1.2)
            flaky = 0.45 / rank**0.5 if kind == "flakiest" else 0.015
            wide = 1.96 / math.sqrt(commands)
            times = _percentiles(350_000 * slowness)
            rows.append(
                {
                    "slow_rank": rank if kind == "slowest" else None,
                    "flaky_rank": rank if kind == "flakiest" else None,
                    "device_id": sample.name(f"dock-fw3-{sample.rng.randint(0, 2000):05d}"),
                    "device_group": sample.name("dock-fw3"),
                    "profile": "dji",
                    "commands": commands,
                    "answered": round(commands * (1 - flaky)),
                    "failed": round(commands * flaky * 0.3),
                    "timed_out": round(commands * flaky * 0.7),
                    "flaky_share": flaky,
                    "flaky_low": max(0.0, flaky - wide / 2),
                    "flaky_high": min(1.0, flaky + wide / 2),
                    "slowness": slowness,
                    "slowness_low": slowness * math.exp(-wide),
                    "slowness_high": slowness * math.exp(wide),
                    "p50_us": times["p50_us"],
                    "p99_us": times["p99_us"],
                }
            )
    return rows


def _groups(sample: Sample) -> list[dict[str, Any]]:
    rows = []
    for profile, prefix in (("dji", "dock"), ("homing", "sensor")):
        for firmware in range(1, 5):
            flaky = 0.062 if (prefix, firmware) == ("dock", 3) else 0.015
            counts = {"devices": 250, "commands": 120_000, "answered": 118_000, "failed": 1200, "timed_out": 600}
            low_high = {"flaky_low": flaky * 0.95, "flaky_high": flaky * 1.05}
            slow = {"slowness": 1.01, "slowness_low": 0.99, "slowness_high": 1.03}
            group = {"profile": profile, "device_group": sample.name(f"{prefix}-fw{firmware}"), "flaky_share": flaky}
            rows.append({**group, **counts, **low_high, **slow})
    return rows


def _late(sample: Sample) -> list[dict[str, Any]]:
    return [
        {
            "hour": BEGIN + timedelta(hours=hour),
            "kind": kind,
            "profile": "dji",
            "method": sample.name("return_home"),
            "receiving_node": sample.name(node),
            "home_node": sample.name(NODES[0]),
            "responses": sample.rng.randint(3, 40) * (6 if hour == BAD_HOUR else 1),
            "share": 0.002,
        }
        for hour in range(sample.hours)
        for kind in ("late", "duplicate")
        for node in NODES
    ]


def _nodes(sample: Sample) -> list[dict[str, Any]]:
    total = sample.commands * sample.hours
    times = _percentiles(310_000)
    return [
        {
            "node": sample.name(node),
            "commands": round(total * share),
            "received": round(total / 3),
            "forwarded_in": round(total * share * 2 / 3),
            "forwarded_out": round(total * 2 / 9),
            "commands_share": share,
            "received_share": 1 / 3,
            "commands_skew": share * 3,
            "received_skew": 1.0,
            "late": 310,
            "duplicates": 640,
            "p50_us": times["p50_us"],
            "p99_us": times["p99_us"],
        }
        for node, share in zip(NODES, (0.373, 0.333, 0.294), strict=True)
    ]


def _capacity(sample: Sample) -> list[dict[str, Any]]:
    rate = sample.commands / 3600
    rows = []
    for node, share in (("all", 1.0), *((sample.name(node), 1 / 3) for node in NODES)):
        limit = 30_000 if node == "all" else 10_000
        arrivals = {"arrivals_mean": rate * share, "arrivals_peak": rate * share * 2.1, "arrivals_peak_at": BEGIN}
        peak = max(1, round(rate * share * 2.4))
        flight = {"in_flight_mean": rate * share * 0.62, "in_flight_peak": peak}
        room = {"max_pending": limit, "used_peak": peak / limit, "headroom": limit / peak, "sustainable": limit / 0.62}
        rows.append({"node": node, **arrivals, **flight, "in_flight_peak_at": BEGIN, **room})
    return rows


def _change(sample: Sample) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    keys: list[dict[str, Any]] = [{"scope": "all"}]
    keys += [{"scope": "method", "profile": profile, "method": sample.name(method)} for profile, method in METHODS]
    keys += [{"scope": "node", "node": sample.name(node)} for node in NODES]
    for key in keys:
        for test, before in (("median", 310_000.0), ("unanswered", 0.004), ("tail", 0.01)):
            notable = key.get("method", "").startswith("return_home") and test != "unanswered"
            times = 1.6 if notable else sample.rng.uniform(0.93, 1.07)
            q = 1e-12 if notable else sample.rng.uniform(0.05, 0.9)
            size = {"before_records": 80_000, "after_records": 82_000}
            value = {"before": before, "after": before * times, "ratio": times, "effect": (times - 1) / 3}
            sure = {"z": 9.0 if notable else 0.4, "p": q / 4, "q": q, "significant": notable, "notable": notable}
            rows.append({**key, "test": test, **size, **value, **sure})
    return rows


def _anomalies(sample: Sample) -> list[dict[str, Any]]:
    common = {"records": 40_000, "p": 1e-20, "q": 1e-18}
    bad_hour = BEGIN + timedelta(hours=BAD_HOUR)
    return [
        {"kind": "node", "subject": sample.name("node-b"), "measure": "latency", "value": 4850.0, "expected": 2230.0}
        | {"ratio": 2.2, **common},
        {"kind": "hour", "subject": f"{bad_hour:%Y-%m-%dT%H:%MZ}", "measure": "latency", "since": bad_hour}
        | {"value": 806_000.0, "expected": 310_000.0, "ratio": 2.6, **common},
        {"kind": "device_group", "subject": sample.name("dock-fw3"), "measure": "unanswered", "profile": "dji"}
        | {"value": 0.062, "expected": 0.015, "ratio": 4.1, **common},
    ]


def _quarantine(sample: Sample) -> list[dict[str, Any]]:
    return [
        {"reason": "truncated", "meaning": "the file has no end", "files": 1, "records": 0}
        | {"example": sample.name("date=2026-11-20/hour=03/node-a-1-000004.parquet")},
        {"reason": "negative_duration", "meaning": "a duration is under 0", "files": 0, "records": 12}
        | {"example": sample.name("042-0000018C2F")},
    ]


def _deadlines(sample: Sample) -> list[dict[str, Any]]:
    rows = []
    for (profile, method), (median, part) in METHODS.items():
        for group in (None, "fw1", "fw3"):
            quantile = round(median * 6 * (1.3 if group == "fw3" else 1.0))
            responses = round(sample.commands * sample.hours * part / (4 if group else 1))
            enough = responses > 1000
            rows.append(
                {
                    "profile": profile,
                    "method": sample.name(method),
                    "device_group": group and sample.name(group),
                    "responses": responses,
                    "late": responses // 500,
                    "never_answered": responses // 300,
                    "never_answered_share": 0.0033,
                    "quantile_us": quantile,
                    "weight": responses / (responses + 10_000) if group else 1.0,
                    "shrunk_us": quantile,
                    "timeout_us": round(quantile * 1.25, -4) if enough else None,
                    "logged_timeout_us": 15_000_000,
                    "why_not": None if enough else f"{responses} responses; at least 1000 are needed",
                }
            )
    return rows


def _deadlines_test(sample: Sample) -> list[dict[str, Any]]:
    rows = []
    for profile, method in ((None, None), *METHODS):
        named: dict[str, Any] = {
            "profile": profile,
            "method": method and sample.name(method),
        }
        counts: dict[str, Any] = {
            "commands": 90_000,
            "without": 0,
            "responses": 89_000,
            "wrong": 71,
            "wrong_logged": 180,
        }
        shares = {"wrong_share": 0.0008, "wrong_logged_share": 0.002, "saved_share": 0.061}
        rows.append({**named, **counts, **shares, "waited_s": 61_000.0, "waited_logged_s": 65_000.0, "saved_s": 4000.0})
    return rows


_SPLIT = {
    "latency": {"all": "latency", "method": "latency_by_method", "hour": "latency_by_hour"}
    | {"hour_method": "latency_by_hour_method"},
    "forwarding": {"pair": "forwarding", "forwarded": "hops"},
    "stages": {"all": "stages", "method": "stages_by_method", "node": "stages_by_node"},
}
"""The tables that are made up together, by grain."""


def all_rows(sample: Sample | None) -> dict[str, list[dict[str, Any]]]:
    """Table -> rows with all its columns; without a sample those of an empty log."""
    found: dict[str, list[dict[str, Any]]] = {table.name: [] for table in TABLES}
    for name, made in (_made(sample) if sample else {}).items():
        for row in made:
            grain = row.pop("grain", None)
            found[_SPLIT[name][grain] if grain else name].append(row)
    for table in TABLES:
        for row in found[table.name]:
            assert set(row) <= set(UNITS[table.name]), f"{table.name} has no {set(row) - set(UNITS[table.name])}"
        found[table.name] = [{name: row.get(name) for name in UNITS[table.name]} for row in found[table.name]]
    return found


def _made(sample: Sample) -> dict[str, list[dict[str, Any]]]:
    return {
        "latency": _latency(sample),
        "forwarding": _forwarding(sample),
        "stages": _stages(sample),
        "verdict": _verdict(sample),
        "devices": _devices(sample),
        "device_groups": _groups(sample),
        "late": _late(sample),
        "nodes": _nodes(sample),
        "capacity": _capacity(sample),
        "change": _change(sample) if sample.before else [],
        "anomalies": _anomalies(sample),
        "quarantine": _quarantine(sample),
        "deadlines": _deadlines(sample),
        "deadlines_test": _deadlines_test(sample),
    }
