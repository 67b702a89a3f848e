"""`homing generate-log`: a log as nodes write it, of any size, with anomalies whose truth is known."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.analysis.plant import FIRMWARES, METHODS, Anomaly, Shape, read_plants
from app.core.errors import ConfigurationError
from app.latency.arrow import DICTIONARY, METADATA, SCHEMA

TRUTH_NAME: Final = "_truth.json"
"""Beside the folders of the log; readers skip names that begin with `_`."""
MOST_NODES: Final = 26
MOST_DAYS: Final = 366
MOST_DEVICES: Final = 1_000_000
MOST_CALLBACKS: Final = 10_000_000_000
HOUR_US: Final = 3_600_000_000
_SLICE: Final = 250_000
"""Commands at once; a slice has files of its own."""


Progress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """What `homing generate-log` was asked for."""

    callbacks: int
    out: Path
    seed: int = 1
    plant: Path | None = None
    days: int = 1
    nodes: int = 3
    devices: int = 2000
    start: datetime = datetime(2026, 1, 5, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Generated:
    """What was written."""

    files: int
    truth: dict[str, Any]


def generate(options: GenerateOptions, progress: Progress = lambda _fraction, _text: None) -> Generated:
    """Write the log; ConfigurationError when the options are wrong or the folder is in use."""
    _check(options)
    nodes = tuple(f"node-{chr(ord('a') + index)}" for index in range(options.nodes))
    shape = Shape(options.start, options.days, nodes)
    anomalies = read_plants(options.plant, shape, options.seed) if options.plant else ()
    files: dict[str, int] = {}
    with duckdb.connect() as base:
        for first in range(0, options.callbacks, _SLICE):
            last = min(first + _SLICE, options.callbacks)
            for node, hour, rows in _by_file(records(base, options, shape, anomalies, first, last)):
                files[node] = files.get(node, 0) + 1
                target = options.out / f"{hour:date=%Y-%m-%d/hour=%H}" / f"{node}-1-{files[node]:06d}.parquet"
                target.parent.mkdir(parents=True, exist_ok=True)
                pq.write_table(rows, target, compression="zstd", use_dictionary=list(DICTIONARY), store_schema=False)
            progress(last / options.callbacks, f"{last:,} of {options.callbacks:,} callbacks")
    found = {
        "callbacks": options.callbacks,
        "seed": options.seed,
        "from": shape.start.isoformat(),
        "days": shape.days,
        "nodes": list(shape.nodes),
        "anomalies": [asdict(one) for one in anomalies],
    }
    (options.out / TRUTH_NAME).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return Generated(sum(files.values()), found)


def records(
    base: duckdb.DuckDBPyConnection,
    options: GenerateOptions,
    shape: Shape,
    anomalies: tuple[Anomaly, ...],
    first: int,
    last: int,
) -> pa.Table:
    """The records of the commands numbered first to last (exclusive), by node and time."""
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined)  # noqa: S701 - SQL
    environment.filters["salt"] = lambda word: int.from_bytes(blake2b(f"{options.seed} {word}".encode()).digest()[:8])
    text = environment.get_template("log.sql").render(
        firmwares=FIRMWARES,
        callbacks=options.callbacks,
        days=options.days,
        devices=options.devices,
        anomalies=anomalies,
        first=first,
        last=last,
        methods=METHODS,
        nodes=list(shape.nodes),
        homes=_homes(shape.nodes),
        start_us=int(shape.start.timestamp()) * 1_000_000,
        hour_us=HOUR_US,
    )
    make, _, select = text.partition(";")
    base.execute(make)
    names = ", ".join(SCHEMA.names)
    query = f"SELECT {names} FROM ({select}) ORDER BY writing_node, recorded_at, command_id, kind"
    table: pa.Table = base.sql(query).to_arrow_table()
    columns = [
        column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column for column in table.columns
    ]
    return pa.Table.from_arrays(columns, table.column_names).cast(SCHEMA).replace_schema_metadata(METADATA)


def _by_file(rows: pa.Table) -> Iterator[tuple[str, datetime, pa.Table]]:
    """Node and hour -> their records, which lie beside each other."""
    nodes = rows["writing_node"].to_pylist()
    hours = [at // HOUR_US for at in rows["recorded_at"].cast(pa.int64()).to_pylist()]
    begin = 0
    for place in range(1, len(nodes) + 1):
        if place == len(nodes) or (nodes[place], hours[place]) != (nodes[begin], hours[begin]):
            yield nodes[begin], datetime.fromtimestamp(hours[begin] * 3600, UTC), rows.slice(begin, place - begin)
            begin = place


def _homes(nodes: tuple[str, ...]) -> list[tuple[str, float]]:
    """Upper ends of the nodes' shares as home: the first is home to 12 % of an equal share more than the last."""
    weights = [1 + 0.12 * (0.5 - (index + 0.5) / len(nodes)) for index in range(len(nodes))]
    ends = [end / sum(weights) for end in accumulate(weights)]
    return list(zip(nodes, [*ends[:-1], 1.0], strict=True))


def _check(options: GenerateOptions) -> None:
    bounds = (
        ("callbacks", options.callbacks, MOST_CALLBACKS),
        ("days", options.days, MOST_DAYS),
        ("nodes", options.nodes, MOST_NODES),
        ("devices", options.devices, MOST_DEVICES),
    )
    for name, value, most in bounds:
        if not 1 <= value <= most:
            raise ConfigurationError(f"--{name} is {value}; allowed: 1 to {most:,}")
    try:
        if options.out.exists() and any(options.out.iterdir()):
            raise ConfigurationError(f"--out {options.out}: there is something in it; give a new or an empty folder")
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"--out {options.out}: {error.strerror or error}") from error
