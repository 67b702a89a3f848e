"""Finds and counts the files of the log that are none: Spark leaves them out without a word."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from app.analysis.places import Place
from app.analysis.stream.query import READ
from app.latency.arrow import SCHEMA
from app.latency.schema import COLUMNS

MARGIN_SECONDS: Final = 600
"""A file may appear with a time so much before that of one that was there already: renaming keeps the time."""
AT_ONCE: Final = 2000
"""Footers that one look reads."""


def is_foreign(footer: pa.Schema) -> bool:
    """Whether a Parquet file is none of the log: Spark would not find, or could not read, what the query reads."""
    for column in COLUMNS:
        at = footer.get_field_index(column.name)
        if at < 0:
            if column.required:
                return True
        elif column.name in READ and _plain(footer.field(at).type) != _plain(SCHEMA.field(column.name).type):
            return True
    return False


def _plain(kind: pa.DataType) -> str:
    """The same for all that Spark reads alike: dictionaries and large texts, instants of any unit."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return str(kind).partition("[")[0].removeprefix("large_").removesuffix("_view")


class Foreign:
    """Looks at each file once, as far as it can tell by the times of the files. `state` is JSON, to go on from."""

    def __init__(self, log: str, state: dict[str, Any] | None = None) -> None:
        self._log = Place(log)
        self.state: dict[str, Any] = state or {"until": 0.0, "seen": {}, "faults": {}}
        """Time of the latest file, the files that are hardly older, and why which were left out."""

    @property
    def counts(self) -> dict[str, int]:
        """How many files were left out, by reason."""
        return dict(Counter(self.state["faults"].values()))

    def look(self) -> bool:
        """Check files that are new, a bounded number of them; whether any were."""
        oldest, seen = self.state["until"] - MARGIN_SECONDS, self.state["seen"]
        times = {path: file.mtime_ns / 1e9 for path, file in self._log.find(ending=".parquet").items()}
        new = sorted((at, path) for path, at in times.items() if at >= oldest and path not in seen)[:AT_ONCE]
        for at, path in new:
            if (reason := self._fault(path)) is not None:
                self.state["faults"][path] = reason
            seen[path] = at
            self.state["until"] = max(self.state["until"], at)
        oldest = self.state["until"] - MARGIN_SECONDS
        self.state["seen"] = {path: at for path, at in seen.items() if at >= oldest}
        return bool(new)

    def _fault(self, path: str) -> str | None:
        try:
            with self._log.files.open_input_file(self._log.path(path)) as source:
                return "foreign" if is_foreign(pq.read_schema(source)) else None
        except FileNotFoundError:
            return None
        except (pa.ArrowException, OSError):
            return "not_parquet"
