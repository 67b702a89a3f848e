"""Small latency logs, written as nodes write them: whole files in the folder of their hour."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from app.latency.arrow import SCHEMA

BEGIN = datetime(2026, 1, 5, 0, 0, tzinfo=UTC)
_numbers = count()


def outcome(at: float, took_ms: float, **other: Any) -> dict[str, Any]:
    """A command that ended `at` seconds after BEGIN, `took_ms` after its registration."""
    recorded = BEGIN + timedelta(seconds=at)
    registered = recorded - timedelta(milliseconds=took_ms)
    timeout = timedelta(seconds=other.pop("timeout", 10))
    return {
        "kind": "outcome",
        "command_id": f"042-{next(_numbers):026d}",
        "device_id": "dock-fw1-0001",
        "profile": "dji",
        "method": "takeoff",
        "outcome": "succeeded",
        "home_node": "node-a",
        "receiving_node": "node-b",
        "writing_node": "node-a",
        "forwarded": True,
        "attempt": 1,
        "registered_at": registered,
        "recorded_at": recorded,
        "deadline_at": registered + timeout,
        "total_us": round(took_ms * 1000),
        **other,
    }


def timed_out(at: float, timeout: float = 10, **other: Any) -> dict[str, Any]:
    return outcome(
        at, timeout * 1000, timeout=timeout, outcome="timed_out", receiving_node=None, forwarded=False, **other
    )


def late(command: dict[str, Any], after_ms: float) -> dict[str, Any]:
    """The response to a command, `after_ms` after its registration."""
    recorded = command["registered_at"] + timedelta(milliseconds=after_ms)
    return {
        **{name: command[name] for name in ("command_id", "device_id", "outcome", "home_node", "attempt")},
        "kind": "late",
        "receiving_node": "node-b",
        "writing_node": "node-b",
        "forwarded": True,
        "received_at": recorded,
        "recorded_at": recorded,
    }


def write(log: Path, records: Iterable[dict[str, Any]], node: str = "node-a") -> list[Path]:
    """One new file for each hour that there are records of, with its name only when it is whole."""
    hours: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        hours.setdefault(f"{record['recorded_at']:date=%Y-%m-%d/hour=%H}", []).append(record)
    written = []
    for hour, rows in sorted(hours.items()):
        path = log / hour / f"{node}-1-{next(_numbers):06d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), temporary, compression="zstd", store_schema=False)
        temporary.rename(path)
        written.append(path)
    return written
