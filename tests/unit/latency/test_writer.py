"""Files: whole or not there, in the right partition, with the schema."""

from __future__ import annotations

import errno
import gc
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.core.errors import ConfigurationError
from app.latency.arrow import SCHEMA
from app.latency.files import LocalFileStore, open_place
from app.latency.record import Row, WriteError, error_code
from app.latency.schema import COLUMNS, VERSION, ColumnType
from app.latency.writer import LogWriter

INCARNATION = "01J00000000000000000000000"
HOUR = 3_600_000_000
T0 = 1_763_689_751_123_456
"""2025-11-21 01:49:11 UTC"""


def row(recorded_at: int = T0, **changes: Any) -> Row:
    facts = {
        "kind": "late",
        "command_id": "042-01J00000000000000000000001",
        "device_id": "lamp-1",
        "outcome": "timed_out",
        "home_node": "n1",
        "writing_node": "n1",
        "forwarded": False,
        "attempt": 1,
        "recorded_at": recorded_at,
    }
    return facts | changes


def writer_in(folder: Path, node_id: str = "n1", **options: Any) -> LogWriter:
    return LogWriter(LocalFileStore(folder), node_id, INCARNATION, **options)


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_file_has_the_schema_and_says_its_version(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    writer.add([], [row()], None)
    assert writer.finish() == (1, 1)
    (name,) = files(tmp_path)
    assert name == f"date=2025-11-21/hour=01/n1-{INCARNATION}-000001.parquet"
    file = pq.ParquetFile(tmp_path / name)
    assert file.schema_arrow.names == [one.name for one in COLUMNS]
    types = {
        ColumnType.TEXT: pa.string(),
        ColumnType.FLAG: pa.bool_(),
        ColumnType.COUNT: pa.int32(),
        ColumnType.INSTANT: pa.timestamp("us", tz="UTC"),
        ColumnType.MICROSECONDS: pa.int64(),
    }
    for one in COLUMNS:
        field = file.schema_arrow.field(one.name)
        assert (field.type, field.nullable) == (types[one.type], not one.required), one.name
    assert file.metadata.metadata[b"homing.schema"] == str(VERSION).encode()
    group = file.metadata.row_group(0)
    by_name = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert all(one.compression == "ZSTD" for one in by_name.values())
    assert by_name["recorded_at"].statistics.has_min_max
    assert by_name["recorded_at"].statistics.min == datetime(2025, 11, 21, 1, 49, 11, 123456, UTC)
    assert by_name["device_id"].has_dictionary_page
    assert not by_name["command_id"].has_dictionary_page


def test_an_interval_over_the_turn_of_an_hour_makes_a_file_for_each(tmp_path: Path) -> None:
    before, after = T0 - T0 % HOUR - 1, T0 - T0 % HOUR + 23 * HOUR
    writer = writer_in(tmp_path)
    writer.add([], [row(before), row(after), row(before - 5)], None)
    writer.add([], [row(after + 1)], None)
    assert writer.finish() == (2, 4)
    assert files(tmp_path) == [
        f"date=2025-11-21/hour=00/n1-{INCARNATION}-000001.parquet",
        f"date=2025-11-22/hour=00/n1-{INCARNATION}-000002.parquet",
    ]
    counts = [pq.ParquetFile(tmp_path / name).metadata.num_rows for name in files(tmp_path)]
    assert counts == [2, 2]
    assert pq.read_table(tmp_path).num_rows == 4


def test_nobody_sees_a_file_before_it_is_complete(tmp_path: Path) -> None:
    writer = writer_in(tmp_path, row_group=2)
    for number in range(5):
        writer.add([], [row(T0 + number), row(T0 + number)], None)
        (name,) = files(tmp_path)
        assert name.endswith(f"/.n1-{INCARNATION}-000001.parquet.tmp")
    assert not list(tmp_path.rglob("*.parquet"))
    assert writer.finish() == (1, 10)
    (name,) = files(tmp_path)
    assert pq.ParquetFile(tmp_path / name).metadata.num_row_groups == 5


def test_what_a_crash_left_is_removed_by_this_node_alone(tmp_path: Path) -> None:
    folder = tmp_path / "date=2025-11-21" / "hour=01"
    folder.mkdir(parents=True)
    ours = folder / ".n1-01J0000000000000000000000A-000007.parquet.tmp"
    others = [
        folder / ".n1-2-01J0000000000000000000000A-000007.parquet.tmp",
        folder / ".n2-01J0000000000000000000000A-000007.parquet.tmp",
        folder / ".somebody.tmp",
        folder / "n1-01J0000000000000000000000A-000006.parquet",
    ]
    for path in (ours, *others):
        path.write_bytes(b"PAR1")
    writer = writer_in(tmp_path)
    assert ours.exists()  # another process of this name may live, as long as we do not hold the lease
    writer.add([], [row()], None)
    assert not ours.exists()
    assert all(path.exists() for path in others)


def test_a_full_disk_loses_the_records_and_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "date=2025-11-21" / "hour=01"
    folder.mkdir(parents=True)
    (folder / f".n1-{INCARNATION}-000001.parquet.tmp").symlink_to("/dev/full")
    writer = writer_in(tmp_path)
    writer._tidied = True  # it would remove the link
    with pytest.raises(WriteError, match=os.strerror(errno.ENOSPC)) as caught:
        writer.add([], [row(), row()], None)
    assert caught.value.records == 2
    assert files(tmp_path) == []
    assert Path("/dev/full").exists()
    writer.add([], [row()], None)
    assert writer.finish() == (1, 1)
    assert files(tmp_path) == [f"date=2025-11-21/hour=01/n1-{INCARNATION}-000002.parquet"]


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """As a disk that has so much room left; Python ignores SIGXFSZ, so the write fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("row_group", [3, 100], ids=["in-the-middle", "at-the-end"])
def test_a_disk_that_fills_up_loses_the_open_interval_and_says_how_much(tmp_path: Path, row_group: int) -> None:
    writer = writer_in(tmp_path, row_group=row_group)
    writer.add([], [row(), row(T0 + 2 * HOUR)], None)
    with no_file_longer_than(1000), pytest.raises(WriteError, match=os.strerror(errno.EFBIG)) as caught:  # noqa: PT012
        writer.add([], [row(), row()], None)
        writer.finish()
    gc.collect()  # nobody may try to write to the other file any more
    assert caught.value.records == 4
    assert files(tmp_path) == []
    assert writer.finish() == (0, 0)


def test_a_folder_that_is_gone_is_made_anew(tmp_path: Path) -> None:
    place = tmp_path / "log"
    writer = writer_in(place)
    place.rmdir()
    writer.add([], [row()], None)
    assert writer.finish() == (1, 1)


def test_a_file_in_the_way_of_the_folder_is_a_write_error(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    (tmp_path / "date=2025-11-21").write_text("in the way")
    with pytest.raises(WriteError) as caught:
        writer.add([], [row()], None)
    assert caught.value.records == 1


def test_a_url_gets_whole_files_only() -> None:
    filesystem = fsspec.filesystem("memory")
    place = open_place("memory://bucket/logs")
    writer = LogWriter(place, "n1", INCARNATION, row_group=1)
    assert writer.add([], [row(), row()], None) == 2  # all of it waits in memory
    assert filesystem.find("/bucket") == []
    assert writer.finish() == (1, 2)
    (name,) = filesystem.find("/bucket")
    assert name == f"/bucket/logs/date=2025-11-21/hour=01/n1-{INCARNATION}-000001.parquet"
    with filesystem.open(name) as file:
        assert pq.read_table(file).num_rows == 2
    filesystem.rm("/bucket", recursive=True)


def test_an_older_file_stays_readable_beside_new_ones(tmp_path: Path) -> None:
    """A later version adds columns; this is how its readers see the files of this one, and the other way round."""
    writer = writer_in(tmp_path)
    writer.add([], [row()], None)
    writer.finish()
    older = pa.schema([field for field in SCHEMA if field.name not in ("total_us", "attempt")])
    pq.write_table(pa.table({field.name: pa.array([None], field.type) for field in older}), tmp_path / "old.parquet")
    table = pa.dataset.dataset(tmp_path, schema=SCHEMA, format="parquet").to_table()
    assert table.num_rows == 2
    assert sorted(table.column("attempt").to_pylist(), key=str) == [1, None]


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("/proc/nowhere", "HOMING_LATENCY_LOG_DIR: /proc/nowhere cannot be written: "),
        ("/dev/null/log", "HOMING_LATENCY_LOG_DIR: /dev/null/log cannot be written: Not a directory"),
        ("file:///dev/null/log", "HOMING_LATENCY_LOG_DIR: /dev/null/log cannot be written: Not a directory"),
        ("s4://bucket", "HOMING_LATENCY_LOG_DIR: scheme 's4' is unknown; allowed: a folder, s3://"),
    ],
)
def test_a_wrong_place_is_one_clear_sentence(url: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        open_place(url)
    assert str(caught.value).startswith(sentence)


def test_an_object_store_that_is_away_is_no_reason_not_to_start() -> None:
    open_place("s3://no-such-bucket/logs")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, None),
        (b'{"code":"timed_out","message":"x"}', "timed_out"),
        (b'{"code":314004}', "314004"),
        (b'{"code":null}', None),
        (b"{}", None),
        (b"[1]", None),
        (b"7", None),
        (b"{", None),
        (b'{"code":"\\ud800"}', "?"),
        (b'{"code":"%s"}' % (b"x" * 1000), "x" * 128),
        (b'{"message":"' + b"x" * 10_000 + b'","code":"y"}', None),
    ],
)
def test_the_error_code_is_what_arrow_can_hold(error: bytes | None, code: str | None) -> None:
    assert error_code(error) == code
    pa.array([error_code(error)], pa.string())
