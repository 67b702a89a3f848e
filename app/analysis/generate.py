"""`homing generate-log`: a log as nodes write it, of any size, with anomalies whose truth is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.analysis.places import as_json
from app.analysis.plant import FIRMWARES, METHODS, START, Anomaly, GenerateOptions, named, read_plants
from app.latency.arrow import DICTIONARY, SCHEMA

_SLICE: Final = 250_000
"""Commands at once; a slice has files of its own."""
Progress = Callable[[float, str], None]


def generate(options: GenerateOptions, progress: Progress = lambda _fraction, _text: None) -> dict[str, Any]:
    """Write the log; returns what `_truth.json` says. ConfigurationError when a plant is wrong or the folder in use."""
    anomalies, files = read_plants(options), 0
    with named(f"--out {options.out}"):
        options.out.mkdir(parents=True, exist_ok=True)
        if any(options.out.iterdir()):
            raise ValueError("there is something in it; give a new or an empty folder")
    with duckdb.connect() as base:
        for first in range(0, options.callbacks, _SLICE):
            last = min(first + _SLICE, options.callbacks)
            for place, rows in _by_file(records(base, options, anomalies, first, last)):
                files += 1
                target = options.out / f"{place}-1-{files:06d}.parquet"
                target.parent.mkdir(parents=True, exist_ok=True)
                pq.write_table(rows, target, compression="zstd", use_dictionary=list(DICTIONARY), store_schema=False)
            progress(last / options.callbacks, f"{last:,} of {options.callbacks:,} callbacks")
    truth = {
        "callbacks": options.callbacks,
        "files": files,
        "seed": options.seed,
        "from": START.isoformat(),
        "days": options.days,
        "nodes": options.node_ids,
        "anomalies": anomalies,
    }
    # Beside the folders of the log, whose readers skip names that begin with `_`.
    (options.out / "_truth.json").write_bytes(as_json(truth))
    return truth


def records(
    base: duckdb.DuckDBPyConnection, options: GenerateOptions, anomalies: Sequence[Anomaly], first: int, last: int
) -> pa.Table:
    """The records of the commands numbered first to last (exclusive), by node and time."""
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined)  # noqa: S701 - SQL
    environment.filters["salt"] = lambda word: int.from_bytes(blake2b(f"{options.seed} {word}".encode()).digest()[:8])
    nodes = options.node_ids
    # The first node is home to 12 % of an equal share more than the last.
    weights = [1 + 0.12 * (0.5 - (index + 0.5) / len(nodes)) for index in range(len(nodes))]
    ends = [end / sum(weights) for end in accumulate(weights)]
    sql = environment.get_template("log.sql").render(
        asdict(options) | {"nodes": nodes},
        homes=list(zip(nodes, [*ends[:-1], 1.0], strict=True)),
        firmwares=FIRMWARES,
        methods=METHODS,
        anomalies=anomalies,
        first=first,
        last=last,
        start_us=int(START.timestamp()) * 1_000_000,
        hour_us=3_600_000_000,
    )
    table: pa.Table = base.sql(sql).order("writing_node, recorded_at, command_id, kind").to_arrow_table()
    return table.select(SCHEMA.names).cast(SCHEMA)


def _by_file(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Folder of an hour and name of a node -> their records, which lie beside each other."""
    hours = pc.strftime(rows["recorded_at"], "date=%Y-%m-%d/hour=%H")
    runs = pc.run_end_encode(pc.binary_join_element_wise(hours, rows["writing_node"], "/").combine_chunks())
    begin = 0
    for place, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield place, rows.slice(begin, end - begin)
        begin = end
