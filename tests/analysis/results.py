"""Running an analysis and reading what it wrote, with DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from app.analysis.analyze import analyze_with
from app.analysis.log import open_log
from app.analysis.options import AnalyzeOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def analysis(spark: SparkSession, log: Path, out: Path, **options: Any) -> dict[str, Any]:
    asked = AnalyzeOptions(log=str(log), out=str(out), **options)
    return analyze_with(
        spark, asked, open_log(asked.log, asked.first, asked.end), lambda _fraction, _text: None
    ).summary


def queried(sql: str) -> duckdb.DuckDBPyRelation:
    found = duckdb.sql(sql)
    assert found is not None
    return found


def rows(out: Path, table: str, where: str = "true") -> list[dict[str, Any]]:
    return list(
        queried(f"SELECT * FROM read_parquet('{out}/{table}/*.parquet') WHERE {where}").to_arrow_table().to_pylist()
    )


def one(out: Path, table: str, where: str = "true") -> dict[str, Any]:
    (row,) = rows(out, table, where)
    return row
