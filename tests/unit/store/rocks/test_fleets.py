"""Fleet runs in a folder when its process starts again, after its disk has failed, and with rows that are damaged."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from rocksdict import Rdict
from structlog.testing import capture_logs

from app.core.errors import StoreUnavailableError
from app.store.fleets import KEPT, NewRecord, Written
from app.store.rocks.folder import options
from app.store.rocks.rows import rows_from
from tests.contract.store_backends import MINUTE, RocksBackend
from tests.contract.test_store_fleets import LEASE, change, read, record
from tests.waiting import eventually

Rows = dict[bytes, bytes]


async def opened(folder: Path) -> RocksBackend:
    backend = RocksBackend(folder)
    await backend.open()
    return backend


def rows_in(folder: Path, alter: Callable[[Rows], Rows]) -> Rows:
    """The rows of a closed folder, of which some are put in place of what is there."""
    database = Rdict(str(folder), options(), {"commands": options()})
    table = database.get_column_family("commands")
    rows: Rows = dict(rows_from(table, b""))
    for key, row in alter(rows).items():
        if row:
            table[key] = row
        else:
            del table[key]
    table.close()
    database.close()
    return rows


def key(kind: str, run: NewRecord) -> bytes:
    return f"{kind}\0{run.run_id}".encode()


async def test_a_run_is_there_after_a_restart_and_nobody_drives_it(tmp_path: Path) -> None:
    place, wanted = await opened(tmp_path), record()
    fleets = place.store.fleets
    await fleets.create(wanted)
    first = await fleets.drive(wanted.run_id, "node-a s1", LEASE)
    known = await read(fleets, wanted.run_id)
    written = change(known, results={2: [17, "code", "ünder"]}, epoch=first)
    assert await fleets.write(wanted.run_id, written) is Written.YES
    before = await fleets.read(wanted.run_id), await fleets.results(wanted.run_id, [0, 1, 2])
    await place.again()
    assert (await fleets.read(wanted.run_id), await fleets.results(wanted.run_id, [0, 1, 2])) == before
    assert await fleets.targets(wanted.run_id) == wanted.targets
    assert await fleets.open_runs() == [wanted.run_id]
    second = await fleets.drive(wanted.run_id, "node-a s2", LEASE)
    assert second > first, "the lease ended with its process, and the epoch did not"
    known = await read(fleets, wanted.run_id)
    assert await fleets.write(wanted.run_id, change(known, epoch=first)) is Written.FENCED
    assert await fleets.write(wanted.run_id, change(known, epoch=second, ended=True)) is Written.YES
    await place.again()
    assert await fleets.open_runs() == []
    assert [one.run_id for one in await fleets.runs()] == [wanted.run_id]
    await place.close()


async def test_no_row_is_left_of_what_expired(tmp_path: Path) -> None:
    place, wanted = await opened(tmp_path), record()
    fleets = place.store.fleets
    await fleets.create(wanted)
    await fleets.write(wanted.run_id, change(await read(fleets, wanted.run_id), results={0: [1, None, ""]}))
    await place.advance(KEPT + 2 * MINUTE)
    assert await fleets.open_runs() == []
    await place.close()
    assert rows_in(tmp_path, lambda _: {}) == {}


async def test_a_run_may_come_again_under_the_key_of_one_that_expired(tmp_path: Path) -> None:
    place, wanted = await opened(tmp_path), record()
    fleets = place.store.fleets
    await fleets.create(wanted)
    await fleets.write(wanted.run_id, change(await read(fleets, wanted.run_id), results={0: [1, None, ""]}))
    await place.advance(KEPT + 2 * MINUTE)
    await fleets.create(wanted)
    await place.again()
    assert (await read(fleets, wanted.run_id)).version == 1
    assert list(await fleets.results(wanted.run_id, [0])) == [None]
    await place.close()


async def test_a_clock_that_was_set_back_begins_at_the_last_change(tmp_path: Path) -> None:
    place, wanted = await opened(tmp_path), record()
    await place.store.fleets.create(wanted)
    await place.advance(MINUTE)
    await place.store.fleets.write(wanted.run_id, change(await read(place.store.fleets, wanted.run_id)))
    before = await place.store.now()
    await place.close()
    later = RocksBackend(tmp_path)
    later.clock.now -= 3600
    await later.open()
    assert await later.store.now() >= before
    await later.close()


async def test_a_row_that_cannot_be_read_is_named_and_left_out(tmp_path: Path) -> None:
    place = await opened(tmp_path)
    fleets, (good, damaged, newer, short, planless) = place.store.fleets, [record() for _ in range(5)]
    for one in (good, damaged, newer, short, planless):
        await fleets.create(one)
        await fleets.write(one.run_id, change(await read(fleets, one.run_id), results={0: [1], 1: [2]}))
    await place.close()

    def altered(rows: Rows) -> Rows:
        return {
            key("r", damaged): b"{",
            key("r", newer): rows[key("r", newer)].replace(b'"v": 1', b'"v": 2', 1),
            key("r", short): rows[key("r", short)][:-1],
            key("p", planless): b"",
            b"s\0" + good.run_id.encode() + b"\x001": b'"',
            b"s\0" + good.run_id.encode() + b"\0x": b"[1]",
        }

    rows_in(tmp_path, altered)
    with capture_logs() as logs:
        await place.store.start()
    named = [one["name"] for one in logs if one["event"] == "row_unreadable"]
    assert {one.run_id for one in (damaged, newer, short, planless)} < set(named)
    assert [one["reason"] for one in logs if one["name"] == newer.run_id] == [
        "ValueError('it is of version 2, and this node reads 1')"
    ]
    assert place.counters["drop.unreadable_record"] == len(named) == 6
    assert await fleets.open_runs() == [good.run_id]
    assert list(await fleets.results(good.run_id, [0, 1])) == [[1], None]
    await place.close()
    kept = rows_in(tmp_path, lambda _: {})
    assert b"r\0" + newer.run_id.encode() in kept, "a later version may read it"


async def test_who_drove_it_before_a_write_that_failed_drives_it_no_more(tmp_path: Path) -> None:
    fails = False

    def flush(database: Rdict) -> None:
        if fails:
            raise OSError("No space left on device")
        database.flush_wal(True)

    place, wanted = RocksBackend(tmp_path, flush), record()
    await place.open()
    fleets = place.store.fleets
    await fleets.create(wanted)
    epoch = await fleets.drive(wanted.run_id, "node-a s1", timedelta(hours=1))
    known = await read(fleets, wanted.run_id)
    fails = True
    with pytest.raises(StoreUnavailableError):
        await fleets.write(wanted.run_id, change(known, epoch=epoch))
    fails = False

    async def is_back() -> bool:
        try:
            await fleets.read(wanted.run_id)
        except StoreUnavailableError:
            return False
        return True

    await eventually(is_back)
    assert await fleets.drive(wanted.run_id, "node-a s1", LEASE) > epoch, "all was read anew"
    await place.close()
