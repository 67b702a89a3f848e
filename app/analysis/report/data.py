"""What the report is made of: the tables and the summary in the folder that `homing analyze` wrote."""

from __future__ import annotations

import json
from typing import Any, Final

from app.analysis.report.text import instant
from app.analysis.tables import SUMMARY_NAME, TABLES
from app.core.errors import ConfigurationError

Row = dict[str, Any]
_KEYS: Final = {table.name: table.key for table in TABLES}


class Output:
    """The folder, local or by URL, read as the sections ask for it."""

    def __init__(self, where: str) -> None:
        """ConfigurationError when there is no summary.json, or none that can be read."""
        from fsspec.core import url_to_fs  # noqa: PLC0415 - an extra

        self._fs, self._path = url_to_fs(where)
        path = f"{where.rstrip('/')}/{SUMMARY_NAME}"
        try:
            summary = json.loads(self._fs.cat_file(f"{self._path}/{SUMMARY_NAME}"))
        except FileNotFoundError as error:
            raise ConfigurationError(f"{path} is not there; `homing analyze` writes it") from error
        except ValueError as error:
            raise ConfigurationError(f"{path} is not JSON: {error}") from error
        if not isinstance(summary, dict):
            raise ConfigurationError(f"{path} holds {type(summary).__name__}; an object is expected")
        self._summary: dict[str, Any] = summary

    def write(self, name: str, text: str) -> None:
        """A file beside the tables; a reader sees the old or the new one."""
        writing = f"{self._path}/_{name}"
        self._fs.pipe_file(writing, text.encode())
        self._fs.mv(writing, f"{self._path}/{name}")

    def has(self, name: str) -> bool:
        """Whether the table was written, with or without rows."""
        return bool(self._files(name))

    def _files(self, name: str) -> list[str]:
        return sorted(self._fs.glob(f"{self._path}/{name}/*.parquet"))

    def rows(self, name: str, grain: str | None = None) -> list[Row]:
        """The rows of a table in the order of its key; none when the table is not there. Instants are UTC."""
        import pyarrow as pa  # noqa: PLC0415 - an extra
        import pyarrow.dataset as ds  # noqa: PLC0415 - an extra

        files = self._files(name)
        if not files:
            return []
        where = None if grain is None else ds.field("grain") == grain
        table = ds.dataset(files, format="parquet", filesystem=self._fs).to_table(filter=where)
        utc = pa.timestamp("us", tz="UTC")
        for index, field in enumerate(table.schema):
            if pa.types.is_timestamp(field.type):
                table = table.set_column(index, field.name, table.column(index).cast(utc, safe=False))
        rows: list[Row] = table.to_pylist()
        return sorted(rows, key=lambda row: [_sortable(row.get(column)) for column in _KEYS[name]])

    def value(self, name: str) -> object:
        """A value of the summary; None when it is not there."""
        return self._summary.get(name)

    def section(self, name: str) -> dict[str, Any]:
        """An object of the summary; empty when it is not there."""
        found = self._summary.get(name)
        return found if isinstance(found, dict) else {}

    def listed(self, name: str) -> list[dict[str, Any]]:
        """The objects of a list of the summary; empty when it is not there."""
        found = self._summary.get(name)
        return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _sortable(value: object) -> tuple[int, Any]:
    """Nulls first, and each type among its own kind."""
    if value is None:
        return (0, "")
    if isinstance(value, bool | int | float):
        return (1, value)
    at = instant(value)
    return (2, at.timestamp()) if at else (3, str(value))
