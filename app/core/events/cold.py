"""The files of the cold tier: their columns, and where each lies. One place for the writer, the analysis and the docs.

    events/db=telemetry/date=2026-11-21/hour=10/shard=01-gen=000123-64412f0b3a400.parquet

A file has events of one shard, generation and hour (UTC); its name ends with the position of its first event, so it is
the same whoever writes it. Names that begin with `.` are being written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from app.core.events.event import Position
from app.core.events.generation import HOUR_US, ColdFile

VERSION: Final = 1
"""Written into each file as metadata `homing.events`. A new column is null in older files; none changes its meaning."""


@dataclass(frozen=True, slots=True)
class ColdColumn:
    """A column, with its type in Spark SQL."""

    name: str
    type: str
    meaning: str
    required: bool = False


COLUMNS: Final = (
    ColdColumn(
        "logged_at", "timestamp", "position of the event: microseconds since 1970, unique in its shard", required=True
    ),
    ColdColumn("topic", "string", "where it was said", required=True),
    ColdColumn("device_id", "string", "device that said it; null where nobody knows"),
    ColdColumn("kind", "string", "what its profile calls it, profile:name; null where none does"),
    ColdColumn("id", "string", "what a repetition has in common with it; null where it has none"),
    ColdColumn("bytes", "int", "size of the value", required=True),
    ColdColumn("value", "binary", "what was said, byte for byte", required=True),
)
_NAME: Final = re.compile(r"shard=(\d+)-gen=(\d+)-([0-9a-z]+)\.parquet")


class Named(NamedTuple):
    """The parts of the name of a file."""

    shard: int
    generation: int
    first: Position


def hour_of(position: Position) -> int:
    """The hour of a position, counted from 1970."""
    return position // HOUR_US


def folder_of(database: str, hour: int) -> str:
    """The folder of the files of an hour."""
    at = datetime.fromtimestamp(hour * 3600, UTC)
    return f"db={database}/date={at:%Y-%m-%d}/hour={at:%H}"


def path_of(database: str, generation: int, file: ColdFile) -> str:
    """The path of a file."""
    name = f"shard={file.shard:02}-gen={generation:06}-{file.first:x}.parquet"
    return f"{folder_of(database, hour_of(file.first))}/{name}"


def parse_name(name: str) -> Named | None:
    """Parse the name of a file; None when it is none of ours."""
    found = _NAME.fullmatch(name)
    return None if found is None else Named(int(found[1]), int(found[2]), int(found[3], 16))


def hour_named(date: str, hour: str) -> int | None:
    """The hour that two folders name, `date=…` and `hour=…`; None when they name none."""
    try:
        at = datetime.strptime(f"{date} {hour} +0000", "date=%Y-%m-%d hour=%H %z")
    except ValueError:
        return None
    return int(at.timestamp()) // 3600
