"""Finds and counts the files of the log that are none: Spark leaves them out without a word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem

from app.analysis.stream.query import READ
from app.latency.schema import COLUMNS, ColumnType

MARGIN_SECONDS: Final = 600
"""A file may appear with a time so much before that of one that was there already: renaming keeps the time."""
AT_ONCE: Final = 2000
"""Footers that one look reads."""

_TEXTS: Final = ("string", "large_string", "string_view", "dictionary<values=string, indices=int32, ordered=0>")
_TYPES: Final = {
    ColumnType.TEXT: lambda kind: str(kind) in _TEXTS,
    ColumnType.FLAG: pa.types.is_boolean,
    ColumnType.COUNT: pa.types.is_int32,
    ColumnType.INSTANT: pa.types.is_timestamp,
    ColumnType.MICROSECONDS: pa.types.is_int64,
}


def fault_of(footer: pa.Schema) -> str | None:
    """In a word why a Parquet file is none of the log; None when it is."""
    for column in COLUMNS:
        if column.name not in READ:
            continue
        index = footer.get_field_index(column.name)
        if index < 0:
            if column.required:
                return "foreign"
        elif not _TYPES[column.type](footer.field(index).type):
            return "foreign"
    return None


class Foreign:
    """Looks at each file once, as far as it can tell by the times of the files. `state` is JSON, to go on from."""

    def __init__(self, log_dir: str, state: dict[str, Any] | None = None) -> None:
        self._until: float = state["until"] if state else 0.0
        self._seen: dict[str, float] = dict(state["seen"]) if state else {}
        self.faults: dict[str, str] = dict(state["faults"]) if state else {}
        """File -> why it was left out."""
        self._files, self._root = _open(log_dir)

    @property
    def state(self) -> dict[str, Any]:
        """For the next start."""
        return {"until": self._until, "seen": self._seen, "faults": self.faults}

    @property
    def counts(self) -> dict[str, int]:
        """How many files were left out, by reason."""
        found: dict[str, int] = {}
        for reason in self.faults.values():
            found[reason] = found.get(reason, 0) + 1
        return found

    def look(self) -> bool:
        """Check files that are new, a bounded number of them; whether any were."""
        new = sorted(self._new(), key=lambda file: (file.mtime_ns, file.path))[:AT_ONCE]
        for file in new:
            reason = self._check(file.path)
            if reason is not None:
                self.faults[file.path] = reason
            self._seen[file.path] = file.mtime_ns / 1e9
            self._until = max(self._until, file.mtime_ns / 1e9)
        oldest = self._until - MARGIN_SECONDS
        self._seen = {path: at for path, at in self._seen.items() if at >= oldest}
        return bool(new)

    def _new(self) -> Iterator[FileInfo]:
        oldest = self._until - MARGIN_SECONDS
        for file in self._files.get_file_info(FileSelector(self._root, recursive=True, allow_not_found=True)):
            inside = file.path[len(self._root) :].strip("/").split("/")
            named = file.path.endswith(".parquet") and not any(part.startswith((".", "_")) for part in inside)
            if named and file.type is FileType.File and file.path not in self._seen and file.mtime_ns / 1e9 >= oldest:
                yield file

    def _check(self, path: str) -> str | None:
        try:
            with self._files.open_input_file(path) as source:
                return fault_of(pq.read_schema(source))
        except FileNotFoundError:
            return None
        except (pa.ArrowException, OSError):
            return "not_parquet"


def _open(log_dir: str) -> tuple[FileSystem, str]:
    if "://" not in log_dir:
        return LocalFileSystem(), log_dir.rstrip("/")
    files, root = FileSystem.from_uri(log_dir.replace("s3a://", "s3://", 1))
    return files, root.rstrip("/")
