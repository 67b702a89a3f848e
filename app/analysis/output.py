"""Writing results so that a reader sees all of the old or all of the new, and twice the same gives the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from app.analysis.tables import SUMMARY_NAME, Column, Table
from app.core.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NEW: Final = "_new"
_OLD: Final = "_old"


class Output:
    """The folder of results, local or by URL. Tables are written beside it under `_new` and swapped in at the end."""

    def __init__(self, where: str) -> None:
        """ConfigurationError when the folder cannot be made."""
        from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra

        try:
            self._fs, self._path = url_to_fs(where)
            self._remote = "://" in where
            self._fs.makedirs(self._path, exist_ok=True)
            for leftover in (_NEW, _OLD):
                self._remove(leftover)
            self._fs.makedirs(f"{self._path}/{_NEW}", exist_ok=True)
        except (OSError, ImportError, ValueError) as error:
            raise ConfigurationError(f"--out {where}: {error}") from error

    def write(self, table: Table, frame: DataFrame) -> None:
        """One table, with the columns, types and order that its description has."""
        types = [f"{_cast(column)} AS {column.name}" for column in table.columns]
        target = f"{self._path}/{_NEW}/{table.name}"
        url = self._fs.unstrip_protocol(target) if self._remote else f"file://{target}"
        frame.selectExpr(*types).coalesce(1).write.mode("overwrite").parquet(url)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """A table that was written before the swap."""
        from pyarrow import parquet  # noqa: PLC0415 - an extra

        found: list[dict[str, Any]] = []
        for file in sorted(self._fs.glob(f"{self._path}/{_NEW}/{name}/*.parquet")):
            with self._fs.open(file, "rb") as source:
                found.extend(parquet.read_table(source).to_pylist())
        return found

    def commit(self, names: Iterable[str], summary: dict[str, Any], texts: Mapping[str, str] | None = None) -> None:
        """Swap the tables in and further files by name, then the summary, which says that they belong together."""
        self._fs.makedirs(f"{self._path}/{_OLD}", exist_ok=True)
        for name in names:
            current = f"{self._path}/{name}"
            if self._fs.exists(current):
                self._fs.mv(current, f"{self._path}/{_OLD}/{name}", recursive=True)
            self._fs.mv(f"{self._path}/{_NEW}/{name}", current, recursive=True)
        text = json.dumps(summary, indent=1, default=_plain, allow_nan=False)
        for name, content in {**(texts or {}), SUMMARY_NAME: text + "\n"}.items():
            temporary = f"{self._path}/{_NEW}/{name}"
            with self._fs.open(temporary, "wb") as target:
                target.write(content.encode())
            self._fs.mv(temporary, f"{self._path}/{name}")
        self._remove(_NEW)
        self._remove(_OLD)

    def _remove(self, name: str) -> None:
        if self._fs.exists(f"{self._path}/{name}"):
            self._fs.rm(f"{self._path}/{name}", recursive=True)


def _cast(column: Column) -> str:
    if column.type == "double":  # tasks add up in any order: nine digits are the same each time
        return f"CAST(format_string('%.8e', CAST({column.name} AS DOUBLE)) AS DOUBLE)"
    return f"CAST({column.name} AS {column.type})"


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return instant(value)
    raise TypeError(type(value).__name__)


def instant(value: datetime) -> str:
    """As summary.json has it: 2026-11-21T07:00:00Z."""
    return value.strftime("%Y-%m-%dT%H:%M:%SZ")
