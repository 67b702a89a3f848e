"""One folder: who has it, how it is laid out, and drawers that share its batches."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from rocksdict import Rdict, WriteBatch
from structlog.testing import capture_logs

from app.core.errors import ConfigurationError, StoreUnavailableError
from app.store.rocks.folder import COMMANDS, RocksFolder, table_of
from tests.waiting import eventually


class Shelf:
    """A drawer with one column family; a job is a key, of which the value is the job's number."""

    def __init__(self, family: str) -> None:
        self.family = family
        self.stale = False
        self.opened = 0
        self.batches: list[int] = []
        self.lost_batches = 0
        self.table: Rdict | None = None

    def open(self, database: Rdict, families: Sequence[str]) -> None:
        self.opened += 1
        self.stale = False
        self.table = table_of(database, self.family)
        self._handle = database.get_column_family_handle(self.family)

    def shut(self) -> None:
        self.table = None
        del self._handle

    def pack(self, rows: WriteBatch, jobs: Sequence[bytes]) -> Sequence[int]:
        for job in jobs:
            rows.put(job, b"x", self._handle)
        self.batches.append(len(jobs))
        return [len(self.batches)] * len(jobs)

    def kept(self) -> None:
        assert self.table is not None

    def lost(self) -> None:
        self.lost_batches += 1
        self.stale = True


async def test_all_drawers_share_a_sync(tmp_path: Path) -> None:
    syncs = 0

    def flush(database: Rdict) -> None:
        nonlocal syncs
        syncs += 1
        database.flush_wal(True)

    folder = RocksFolder(tmp_path / "new", COMMANDS, flush)
    one, other = Shelf("one"), Shelf("other")
    await folder.start(one)
    await folder.start(other)
    await asyncio.gather(*(folder.submit((one, other)[n % 2], b"%d" % n) for n in range(100)))
    assert syncs <= 4
    await folder.close(one)
    with pytest.raises(StoreUnavailableError, match="the store is closed"):
        await folder.submit(one, b"1")
    await folder.submit(other, b"1")
    await folder.close(other)


async def test_what_is_not_on_the_disk_makes_a_drawer_open_anew(tmp_path: Path) -> None:
    fails = True

    def flush(database: Rdict) -> None:
        if fails:
            raise OSError(28, "No space left on device")
        database.flush_wal(True)

    folder, shelf = RocksFolder(tmp_path, COMMANDS, flush), Shelf("one")
    await folder.start(shelf)
    with pytest.raises(StoreUnavailableError, match=r"the store cannot be written to: .*No space left"):
        await folder.submit(shelf, b"1")
    assert (shelf.lost_batches, shelf.stale) == (1, True)
    fails = False
    await eventually(lambda: shelf.opened == 2 and not folder.broken)
    await folder.submit(shelf, b"2")
    await folder.close(shelf)


async def test_a_folder_whose_disk_is_gone_is_not_begun_anew_in_the_place_where_it_was(tmp_path: Path) -> None:
    """As a mount point that is empty: what the node had acknowledged would be gone without a word."""
    fails = False

    def flush(database: Rdict) -> None:
        if fails:
            raise OSError(5, "Input/output error")
        database.flush_wal(True)

    place, away = tmp_path / "data", tmp_path / "away"
    folder, shelf = RocksFolder(place, COMMANDS, flush), Shelf("one")
    await folder.start(shelf)
    await folder.submit(shelf, b"1")
    place.rename(away)
    place.mkdir()
    fails = True
    with pytest.raises(StoreUnavailableError, match="Input/output error"):
        await folder.submit(shelf, b"2")
    fails = False
    with capture_logs() as logs:
        await eventually(lambda: bool(logs))
    assert logs[0]["event"] == "events_not_open"
    assert re.match(rf"{place}/homing.lock is not the file any more.*put the folder back", logs[0]["reason"])
    assert list(place.iterdir()) == []
    place.rmdir()
    away.rename(place)
    await eventually(lambda: shelf.opened == 2 and not folder.broken)
    await folder.submit(shelf, b"3")
    assert shelf.table is not None
    assert {*shelf.table.keys()} >= {b"1", b"3"}
    await folder.close(shelf)


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        (
            b'{"layout": 3, "written_by": "0.6.0"}',
            r"HOMING_STORE_URL: .* was written by 0\.6\.0 \(layout 3\); this is .*, which reads up to layout 1$",
        ),
        (b"{}", r"HOMING_STORE_URL: .*layout\.json is damaged: it names no layout"),
        (b"\xff", r"HOMING_STORE_URL: .*layout\.json cannot be read"),
    ],
)
async def test_a_folder_of_another_layout_is_left_alone(tmp_path: Path, layout: bytes, said: str) -> None:
    (tmp_path / "layout.json").write_bytes(layout)
    with pytest.raises(ConfigurationError, match=said):
        await RocksFolder(tmp_path, COMMANDS).start(Shelf("one"))
    assert not (tmp_path / "CURRENT").exists()
    (tmp_path / "layout.json").unlink()
    folder, shelf = RocksFolder(tmp_path, COMMANDS), Shelf("one")
    await folder.start(shelf)  # which the one before has not locked
    assert json.loads((tmp_path / "layout.json").read_bytes())["layout"] == 1
    await folder.close(shelf)


async def test_a_damaged_database_is_one_sentence(tmp_path: Path) -> None:
    folder, shelf = RocksFolder(tmp_path, COMMANDS), Shelf("one")
    await folder.start(shelf)
    await folder.close(shelf)
    (tmp_path / "CURRENT").write_bytes(b"nonsense")
    with pytest.raises(
        ConfigurationError, match=r"^HOMING_STORE_URL: the store cannot be opened: .*CURRENT.*homing restore"
    ):
        await RocksFolder(tmp_path, COMMANDS).start(shelf)


async def test_a_damaged_manifest_is_one_sentence_with_the_way_to_a_backup(tmp_path: Path) -> None:
    folder, shelf = RocksFolder(tmp_path, COMMANDS), Shelf("one")
    await folder.start(shelf)
    await folder.close(shelf)
    manifest = next(tmp_path.glob("MANIFEST-*"))
    manifest.write_bytes(b"nonsense" * 10)
    with pytest.raises(
        ConfigurationError, match=r"cannot be opened: .*MANIFEST.*; put a backup in its place .*restore"
    ):
        await RocksFolder(tmp_path, COMMANDS).start(shelf)


async def test_tables_and_blocks_have_the_memory_that_they_are_given(tmp_path: Path) -> None:
    shelf = Shelf("a")
    folder = RocksFolder(tmp_path, tables_bytes=3_000_000)
    await folder.start(shelf)
    try:
        written = max(tmp_path.glob("OPTIONS-*")).read_text(encoding="utf-8")
        assert "  db_write_buffer_size=2000000\n" in written
        assert shelf.table is not None
        assert shelf.table.property_int_value("rocksdb.block-cache-capacity") == 1_000_000
    finally:
        await folder.close(shelf)
