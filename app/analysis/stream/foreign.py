"""Finds and counts the files of the log that are none: Spark leaves them out without a word."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from app.analysis.places import LogFolder, as_json, write_whole
from app.analysis.stream.query import READ
from app.latency.arrow import SCHEMA
from app.latency.schema import COLUMNS

MARGIN_SECONDS: Final = 600
"""A file may appear with a time so much before that of one that was there already: renaming keeps the time."""
AT_ONCE: Final = 2000
"""Footers that one look reads: more than a batch has files."""


def look(log: LogFolder, state: Path, now: float) -> dict[str, int]:
    """Count the files that were left out so far, by reason.

    Each is looked at once, as far as the times of files tell. `now` is in seconds since 1970: a file with a time of the
    future says nothing of others.
    """
    seen, counts = json.loads(state.read_bytes()) if state.exists() else ({}, {})
    oldest = _oldest(seen, now)
    times = {path: file.mtime_ns / 1e9 for path, file in log.find(ending=".parquet").items()}
    new = sorted((at, path) for path, at in times.items() if at >= oldest and path not in seen)[:AT_ONCE]
    if new:
        counts = Counter(counts) + Counter(reason for _, path in new if (reason := _fault(log, path)))
        seen |= {path: at for at, path in new}
        oldest = _oldest(seen, now)
        write_whole(state, as_json([{path: at for path, at in seen.items() if at >= oldest}, counts]))
    return dict(counts)


def _oldest(seen: Mapping[str, float], now: float) -> float:
    """The time of the oldest file that may be new."""
    return max((at for at in seen.values() if at <= now), default=0.0) - MARGIN_SECONDS


def _fault(log: LogFolder, path: str) -> str | None:
    try:
        with log.files.open_input_file(log.path(path)) as source:
            return "foreign" if is_foreign(pq.read_schema(source)) else None
    except FileNotFoundError:
        return None
    except (pa.ArrowException, OSError):
        return "not_parquet"


def is_foreign(footer: pa.Schema) -> bool:
    """True if a Parquet file is none of the log: Spark would not find, or could not read, what the query reads."""
    missing = {column.name for column in COLUMNS if column.required}.difference(footer.names)
    found = READ.intersection(footer.names)
    return bool(missing) or any(_plain(footer.field(one).type) != _plain(SCHEMA.field(one).type) for one in found)


def _plain(kind: pa.DataType) -> str:
    """The same for all that Spark reads alike: dictionaries and large texts, instants of any unit."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return str(kind).partition("[")[0].removeprefix("large_").removesuffix("_view")
