"""The tables of a period: DuckDB over its rollups, which are small. The queries are in tables.sql."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from app.analysis.buckets import QUANTILES
from app.analysis.contracts import LATENCY_TABLES, Table
from app.analysis.deadlines import End
from app.analysis.lake import Lake, Row
from app.analysis.rollup import STAGES
from app.analysis.source import MEANINGS, OUTCOMES

TOP: Final = 20
"""Devices that the page shows as slowest and as flakiest."""
LIMITS: Final = {
    "least_commands": 20,  # devices with fewer are not ranked
    "least_events": 10,  # devices with fewer have no usual gap
    "least_silence_us": 60_000_000,
    "least_records": 30,  # cells with fewer take part in no test
    "share_step": 0.02,  # a share stands out when it is that much larger ...
    "share_ratio": 2,  # ... in both senses
    "notable_effect": 0.1,  # a median has moved when P(longer) - P(shorter) is more
    "notable_tail": 2,
    # Least natural variance of logarithms from hour to hour and day to day: differences below it are weather.
    "spread": 0.03**2,
}
_STATEMENT: Final = re.compile(r"^-- (macro|view|held|table) (\w+).*$", re.MULTILINE)


Compared = dict[str, dict[str, datetime]]
"""The hours `before` and `after`, each `from` and `to` (exclusive)."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One of tables.sql."""

    kind: str
    name: str
    sql: str


def statements(compared: Compared | None, **values: float) -> list[Statement]:
    """Of a period; `values` are what tables.sql names."""
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined)  # noqa: S701 - SQL
    text = environment.get_template("tables.sql").render(
        LIMITS | values,
        side=_side(compared),
        quantiles=QUANTILES.items(),
        outcomes=OUTCOMES,
        stage_names=list(STAGES),
        meanings=MEANINGS.items(),
        **{end.name.lower(): int(end) for end in End},
        latency=[(table.name, list(table.key)) for table in LATENCY_TABLES],
        forwarding=[("forwarding", ["receiving_node", "home_node"]), ("hops", ["forwarded"])],
        stages=[("stages", []), ("stages_by_method", ["profile", "method"]), ("stages_by_node", ["node"])],
        hour_name="strftime(hour, '%Y-%m-%dT%H:00Z')",
    )
    _, *parts = _STATEMENT.split(text)
    return [Statement(kind, name, sql.strip()) for kind, name, sql in zip(*[iter(parts)] * 3, strict=True)]


def _side(compared: Compared | None) -> str:
    if compared is None:
        return "NULL::VARCHAR"
    cases = (
        f"WHEN hour >= to_timestamp({ends['from'].timestamp()}) AND hour < to_timestamp({ends['to'].timestamp()}) "
        f"THEN '{name}'"
        for name, ends in compared.items()
    )
    return f"CASE {' '.join(cases)} END"


@contextmanager
def database(memory: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """In memory, and in a folder that goes away when that is not enough."""
    with tempfile.TemporaryDirectory(prefix="homing-report-") as scratch, duckdb.connect() as base:
        limit = f"{memory[:-1]}{'GiB' if memory.endswith('g') else 'MiB'}"
        base.execute(f"SET TimeZone = 'UTC'; SET memory_limit = '{limit}'; SET temp_directory = '{scratch}'")
        yield base


def read_rollup(base: duckdb.DuckDBPyConnection, lake: Lake, rollup: Table, runs: dict[str, str]) -> None:
    """A view of the rows that belong to these days, and to no earlier run of one of them."""
    files = [file for date in runs for file in lake.place.find(f"rollups/{rollup.name}/date={date}", ".parquet")]
    date_and_run = [pa.field("run", pa.string()), pa.field("date", pa.string())]
    schema = pa.schema([*rollup.arrow, *date_and_run])
    if not files:
        base.register(f"{rollup.name}_files", schema.empty_table())
    else:
        root = lake.place.path(f"rollups/{rollup.name}")
        found = ds.dataset(
            [lake.place.path(file) for file in files], schema, "parquet", lake.place.files,
            ds.partitioning(pa.schema(date_and_run[1:]), flavor="hive"), partition_base_dir=root,
        )  # fmt: skip
        base.register(f"{rollup.name}_files", found)
    chosen = ", ".join(f"('{date}', '{run}')" for date, run in runs.items())
    base.execute(f"CREATE VIEW {rollup.name} AS SELECT * FROM {rollup.name}_files WHERE (date, run) IN ({chosen})")


def define(base: duckdb.DuckDBPyConnection, found: Iterable[Statement]) -> None:
    """Make the macros and views."""
    made = {"macro": "", "view": "CREATE VIEW {} AS ", "held": "CREATE TABLE {} AS "}
    for one in found:
        if one.kind in made:
            base.execute(made[one.kind].format(one.name) + one.sql)


def rows_of(base: duckdb.DuckDBPyConnection, table: Table, query: str) -> pa.Table:
    """The rows of a table, as its contract has them."""
    order = f"ORDER BY {' NULLS FIRST, '.join(table.key)} NULLS FIRST" if table.key else ""
    columns = ", ".join(_cast(column.name, column.type) for column in table.columns)
    return base.sql(f"SELECT {columns} FROM ({query}) {order}").to_arrow_table().cast(table.arrow)


def _cast(name: str, type_: str) -> str:
    if type_ == "double":  # threads add up in any order: nine digits are the same each time
        return f'format(\'{{:.8e}}\', "{name}"::DOUBLE)::DOUBLE AS "{name}"'
    return f'"{name}"::{ {"string": "VARCHAR", "timestamp": "TIMESTAMPTZ"}.get(type_, type_) } AS "{name}"'


def shown(table: Table, rows: pa.Table, most: int) -> list[Row]:
    """What the page looks at: of devices those with a rank, of anything so many rows."""
    if table.name == "devices":
        rows = rows.filter((pc.field("slow_rank") <= TOP) | (pc.field("flaky_rank") <= TOP))
    found: list[Row] = rows.slice(0, most).to_pylist()
    return found
