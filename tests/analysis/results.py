"""Running an analysis and reading what it wrote, with DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from app.analysis.analyze import run
from app.analysis.options import AnalyzeOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def analysis(spark: SparkSession, log: Path, out: Path, **options: Any) -> dict[str, Any]:
    return run(spark, AnalyzeOptions(log=str(log), out=str(out), **options))


def queried(sql: str) -> duckdb.DuckDBPyRelation:
    found = duckdb.sql(sql)
    assert found is not None
    return found


def rows(out: Path, table: str, where: str = "true") -> list[dict[str, Any]]:
    files = f"read_parquet('{out}/tables/{table}/*.parquet')"
    return list(queried(f"SELECT * FROM {files} WHERE {where}").to_arrow_table().to_pylist())


def one(out: Path, table: str, where: str = "true") -> dict[str, Any]:
    (row,) = rows(out, table, where)
    return row


def rolled(out: Path, select: str, rollup: str, rest: str = "") -> list[tuple[Any, ...]]:
    files = f"read_parquet('{out}/rollups/{rollup}/date=*/*.parquet', hive_partitioning=true)"
    table = queried(f"SELECT {select} FROM {files} {rest}").to_arrow_table()
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
