"""The tables of a period: DuckDB over its rollups, which are small. The queries are in tables.sql."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.analysis.buckets import QUANTILES
from app.analysis.contracts import LATENCY_TABLES, TABLES, Table
from app.analysis.deadlines import End
from app.analysis.lake import Lake
from app.analysis.rollup import STAGES
from app.analysis.source import MEANINGS, OUTCOMES

TOP: Final = 20
"""Devices that the page shows as slowest and as flakiest."""
_NAME: Final = re.compile(r"^CREATE \w+ (\w+)", re.MULTILINE)
_DUCKDB: Final = {"string": "VARCHAR", "timestamp": "TIMESTAMPTZ"}


def statements(**values: float) -> list[tuple[str, str]]:
    """Name and text of each of tables.sql, in order; `values` are what it names."""
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined)  # noqa: S701 - SQL
    text = environment.get_template("tables.sql").render(
        **values,
        **{end.name.lower(): int(end) for end in End},
        quantiles=QUANTILES.items(),
        outcomes=OUTCOMES,
        stage_names=list(STAGES),
        meanings=MEANINGS,
        latency=[table.name for table in LATENCY_TABLES],
        keys={table.name: list(table.key) for table in TABLES},
        hour_name="strftime(hour, '%Y-%m-%dT%H:00Z')",
    )
    return [(found[1], one.strip()) for one in text.split(";\n") if (found := _NAME.search(one))]


@contextmanager
def database(memory: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """In memory, and in a folder that goes away when that is not enough."""
    with tempfile.TemporaryDirectory(prefix="homing-report-") as scratch, duckdb.connect() as base:
        limit = f"{memory[:-1]}{'GiB' if memory.endswith('g') else 'MiB'}"
        base.execute(f"SET TimeZone = 'UTC'; SET memory_limit = '{limit}'; SET temp_directory = '{scratch}'")
        base.execute("CREATE SCHEMA rollups")
        yield base


def read_rollup(base: duckdb.DuckDBPyConnection, lake: Lake, rollup: Table, runs: dict[str, str]) -> None:
    """A view of the rows that belong to these days, and to no earlier run of one of them."""
    paths = [lake.place.path(file) for date in runs for file in lake.place.find(f"rollups/{rollup.name}/date={date}")]
    of_day = pa.schema([pa.field("date", pa.string())])
    schema = pa.schema([*rollup.arrow, pa.field("run", pa.string()), *of_day])
    days, root = ds.partitioning(of_day, flavor="hive"), lake.place.path(f"rollups/{rollup.name}")
    found = ds.dataset(paths, schema, "parquet", lake.place.files, days, partition_base_dir=root) if paths else None
    base.register(f"{rollup.name}_files", found or schema.empty_table())
    chosen = ", ".join(f"('{date}', '{run}')" for date, run in runs.items()) or "NULL"
    base.execute(f"CREATE VIEW rollups.{rollup.name} AS FROM {rollup.name}_files WHERE (date, run) IN ({chosen})")


def rows_of(base: duckdb.DuckDBPyConnection, table: Table, where: str = "true") -> pa.Table:
    """The rows of a table, as its contract has them."""
    columns = ", ".join(_cast(column.name, column.type) for column in table.columns)
    order = f"ORDER BY {' NULLS FIRST, '.join(table.key)} NULLS FIRST" if table.key else ""
    return base.sql(f"SELECT {columns} FROM {table.name} WHERE {where} {order}").to_arrow_table().cast(table.arrow)


def _cast(name: str, type_: str) -> str:
    if type_ == "double":  # threads add up in any order: nine digits are the same each time
        return f'format(\'{{:.8e}}\', "{name}"::DOUBLE)::DOUBLE AS "{name}"'
    return f'"{name}"::{_DUCKDB.get(type_, type_)} AS "{name}"'
