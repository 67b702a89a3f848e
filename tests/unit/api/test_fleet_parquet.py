"""Tables of fleet runs as Parquet: the same as in CSV, with types."""

from __future__ import annotations

import csv
import sys
from datetime import UTC, datetime
from io import BytesIO, StringIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.api.v1.fleet_csv import COLUMNS, targets_csv
from app.api.v1.fleet_parquet import targets_parquet
from app.core.errors import InvalidInputError
from app.core.fleets.marks import TargetMark
from app.fleets.administration import TargetRow

AT = 1_700_000_000_123_456
ROWS = [
    TargetRow(0, "dock-1", "dji", 0, TargetMark.SUCCEEDED, "239-01", [AT, None, "", '{"height":20.50}']),
    TargetRow(1, "=dock", "dji", 1, TargetMark.FAILED, "239-02", [AT, 42, "no\nGPS ü", "-3"]),
    TargetRow(2, "dock-3", "dji", 1, TargetMark.UNSENT, "239-03", [AT, ["a"], "no"]),
    TargetRow(3, "dock-4", "dji", 1, TargetMark.WAITING, None, ()),
]


def read(content: bytes) -> pa.Table:
    return pq.read_table(BytesIO(content))


def test_it_has_the_columns_and_the_rows_of_the_csv() -> None:
    table = read(targets_parquet(ROWS))
    assert tuple(table.column_names) == COLUMNS
    _, *rows = csv.reader(StringIO(targets_csv(ROWS).decode(), newline=""))
    assert table.column("device_id").to_pylist() == ["dock-1", "=dock", "dock-3", "dock-4"], "nothing is escaped"
    assert table.column("ended_at").to_pylist() == [*[datetime.fromtimestamp(AT / 1_000_000, UTC)] * 3, None]
    for name in ("profile", "state", "command_id", "message", "code", "result"):
        shown = [row[COLUMNS.index(name)] for row in rows]
        assert [one or "" for one in table.column(name).to_pylist()] == shown
    assert table.column("wave").to_pylist() == [1, 2, 2, 2]


def test_columns_have_their_types_also_where_no_target_has_a_value() -> None:
    assert read(targets_parquet([])).schema.types == read(targets_parquet(ROWS)).schema.types


def test_without_the_extra_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidInputError, match=r"homing\[latency\]"):
        targets_parquet(ROWS)
