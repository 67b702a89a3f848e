"""A RocksDB event log whose process is killed, whose disk fails, or whose rows are damaged."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from rocksdict import Rdict
from structlog.testing import capture_logs

from app.core.errors import ConfigurationError, StoreUnavailableError, ValueChangedError
from app.core.events.batches import BatchId
from app.core.events.event import Database, Entry, Shard
from app.core.events.generation import GenerationState
from app.core.events.reading import Reading
from app.core.events.transaction import Transaction, ValueCondition
from app.runtime.system import SystemClock
from app.store.rocks.events import RocksEventLog
from app.store.rocks.folder import RocksFolder
from tests.waiting import PATIENCE

KILLS = 4
DISK = "24m"
DATABASE = Database("events", 2)
SHARD = Shard("events", 0)
WRITER = Path(__file__).with_name("writes_on.py")


@asynccontextmanager
async def opened(folder: Path, database: Database = DATABASE) -> AsyncIterator[RocksEventLog]:
    log = RocksEventLog(RocksFolder(folder), [database], SystemClock())
    await log.start()
    try:
        yield log
    finally:
        await log.close()


async def numbers(log: RocksEventLog, shard: int, topic_filter: str = "#") -> list[int]:
    found: list[int] = []
    after, more = 0, True
    while more:
        part = await log.read(Shard("events", shard), Reading(topic_filter, after), 5000)
        found += [int(event.entry.value) for event in part.events]
        after, more = part.position, part.more
    return found


def write_and_kill(folder: Path, begins: list[int], lines: int) -> list[int]:
    """Return what is acknowledged of each shard when a writer is killed after so many acknowledgements."""
    acknowledged = list(begins)
    command = [sys.executable, str(WRITER), str(folder), *map(str, begins)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=Path.cwd(), env={"PYTHONPATH": str(Path.cwd())}
    ) as writer:
        assert writer.stdout is not None
        for _ in range(lines):
            shard, number = writer.stdout.readline().split()
            acknowledged[int(shard)] = int(number)
        writer.send_signal(signal.SIGKILL)
        for line in writer.stdout:
            if line.endswith("\n"):
                shard, number = line.split()
                acknowledged[int(shard)] = int(number)
    return acknowledged


async def test_what_was_acknowledged_before_a_kill_is_there_in_order(tmp_path: Path) -> None:
    begins = [0, 0]
    for kill in range(KILLS):
        acknowledged = await asyncio.to_thread(write_and_kill, tmp_path, begins, 40 + 30 * kill)
        async with opened(tmp_path) as log:
            for shard in (0, 1):
                found = await numbers(log, shard)
                assert found == list(range(len(found))), "in order, without gap and without repetition"
                assert len(found) >= acknowledged[shard]
                of_one_topic = await numbers(log, shard, "site/3/up")
                assert of_one_topic == [number for number in found if number % 7 == 3]
                begins[shard] = len(found)
            (about,) = await log.generations("events")
            assert about.count == sum(begins)


async def test_a_disk_that_fails_acknowledges_nothing_and_may_come_back(tmp_path: Path) -> None:
    failing = False

    def flush(database: Rdict) -> None:
        if failing:
            raise OSError(28, "No space left on device")
        database.flush_wal(True)

    log = RocksEventLog(RocksFolder(tmp_path, flush=flush), [DATABASE], SystemClock())
    await log.start()
    await log.append(SHARD, [Entry("a/b", b"1")])
    failing = True
    for number in range(12):  # new structures, too
        with pytest.raises(StoreUnavailableError, match="No space left on device"):
            await log.append(SHARD, [Entry(f"c/{number}", b"2")])
    assert (await log.read(SHARD, Reading(), 10)).events == [] or await numbers(log, 0) == [1]
    failing = False
    await log.append(SHARD, [Entry("c/12", b"3")])
    found = await numbers(log, 0)
    assert (found[0], found[-1]) == (1, 3)
    await log.close()
    async with opened(tmp_path) as again:
        assert await numbers(again, 0) == found
        assert (await numbers(again, 0, "c/12")) == [3]


async def test_a_batch_that_is_in_and_not_on_the_disk_is_in_once_and_synced_before_it_is_acknowledged(
    tmp_path: Path,
) -> None:
    refused, synced = False, 0

    def flush(database: Rdict) -> None:
        nonlocal synced
        if refused:
            raise OSError(5, "Input/output error")
        synced += 1
        database.flush_wal(True)

    log = RocksEventLog(RocksFolder(tmp_path, flush=flush), [DATABASE], SystemClock())
    await log.start()
    await log.append(SHARD, [Entry("a", b"1")], 1, BatchId("one", 1))
    refused, before = True, synced
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="Input/output error"):
            await log.append(SHARD, [Entry("a", b"2")], 1, BatchId("one", 2))
    refused = False
    position = await log.append(SHARD, [Entry("a", b"2")], 1, BatchId("one", 2))
    assert synced > before
    assert await numbers(log, 0) == [1, 2]
    await log.close()
    async with opened(tmp_path) as again:
        assert await again.append(SHARD, [Entry("a", b"2")], 1, BatchId("one", 2)) == position
        assert await numbers(again, 0) == [1, 2]


async def test_a_full_disk_refuses_and_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """A real one: the kernel lets no file grow, then it does again."""
    command = [sys.executable, str(WRITER.with_name("fills_up.py")), str(tmp_path)]
    ended = await asyncio.to_thread(
        subprocess.run,
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=Path.cwd(),
        env={"PYTHONPATH": str(Path.cwd())},
        timeout=PATIENCE,
    )
    assert ended.returncode == 0, ended.stderr
    lines = [line.split(maxsplit=1) for line in ended.stdout.splitlines() if line.startswith(("ack", "ref"))]
    refused = [text for word, text in lines if word == "refused"]
    assert any("File too large" in text for text in refused)
    acknowledged = [int(text) for word, text in lines if word == "acknowledged"]
    async with opened(tmp_path, Database("events", 1)) as log:
        part = await log.read(SHARD, Reading(), 5000)
        found = [int(event.entry.value.split()[0]) for event in part.events]
        assert set(acknowledged) <= set(found)
        assert found == sorted(found)


def on_a_small_disk(folder: Path, *command: str) -> list[str]:
    """Run it where the folder is a disk of a few megabytes, in a namespace of mounts that ends with it."""
    mount = f"mount -t tmpfs -o size={DISK} none {shlex.quote(str(folder))}"
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("a small disk needs `unshare`")
    return [unshare, "--user", "--map-root-user", "--mount", "sh", "-c", f'{mount} && exec "$@"', "-", *command]


def has_small_disks(folder: Path) -> bool:
    return subprocess.run(on_a_small_disk(folder, "true"), capture_output=True, check=False).returncode == 0


def run_on_a_small_disk(program: str, folder: Path) -> str:
    """Return what a program of these tests says, which has the folder on a disk that is soon full."""
    if not has_small_disks(folder):
        pytest.skip("this machine lets nobody mount a small disk")
    ended = subprocess.run(
        on_a_small_disk(folder, sys.executable, str(WRITER.with_name(program)), str(folder)),
        capture_output=True,
        text=True,
        check=False,
        cwd=Path.cwd(),
        env={"PYTHONPATH": str(Path.cwd()), "PATH": os.environ["PATH"]},
        timeout=PATIENCE,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended.stdout


async def test_a_disk_that_is_full_and_has_room_again_ends_neither_log_nor_keeper(tmp_path: Path) -> None:
    """A real one, with a keeper that begins and drops generations, and a reader, at every moment of it."""
    said = await asyncio.to_thread(run_on_a_small_disk, "full_disk.py", tmp_path)
    lines = [line.split(maxsplit=1) for line in said.splitlines()]
    told = {word: text for word, text in lines if word != "acknowledged"}
    acknowledged = [int(text) for word, text in lines if word == "acknowledged"]
    found = [int(number) for number in told["there"].split()]
    assert "No space left on device" in told["refused"]
    assert set(acknowledged) <= set(found)
    assert found == sorted(found)
    assert told["states"] == "current", "but for the last one all are sealed"


async def test_a_disk_that_is_full_at_the_start_is_waited_for(tmp_path: Path) -> None:
    """It is no wrong setting, after which nobody starts a node again."""
    said = await asyncio.to_thread(run_on_a_small_disk, "starts_full.py", tmp_path)
    refused, there = said.splitlines()
    assert refused.startswith("StoreUnavailableError HOMING_STORE_URL: the store cannot be opened: ")
    assert refused.count("No space left on device")
    assert there == "there 50"


async def test_a_generation_that_cannot_be_ended_now_is_ended_later(tmp_path: Path) -> None:
    failing = False

    def flush(database: Rdict) -> None:
        if failing:
            raise OSError(28, "No space left on device")
        database.flush_wal(True)

    log = RocksEventLog(RocksFolder(tmp_path, flush=flush), [DATABASE], SystemClock())
    await log.start()
    await log.append(SHARD, [Entry("a/b", b"1")])
    failing = True
    with pytest.raises(StoreUnavailableError, match="No space left on device"):
        await log.rotate("events", 1)
    failing = False
    await log.append(SHARD, [Entry("a/b", b"2")])
    await log.rotate("events", (await log.generations("events"))[-1].number)
    await log.append(SHARD, [Entry("a/b", b"3")])
    found = await log.generations("events")
    assert [one.state for one in found] == [GenerationState.SEALED] * (len(found) - 1) + [GenerationState.CURRENT]
    assert await numbers(log, 0) == [1, 2, 3]
    await log.close()


@pytest.mark.parametrize("picking", [False, True])
async def test_a_damaged_generation_is_named_and_left_out_and_the_others_are_served(
    tmp_path: Path, *, picking: bool
) -> None:
    ends: list[int] = []
    async with opened(tmp_path) as log:
        for generation in (1, 2, 3):
            last = await log.append(SHARD, [Entry("a/b", b"%d" % generation) for _ in range(200 + generation)])
            ends.append(last)
            await log.rotate("events", generation)
    async with opened(tmp_path) as log:
        tables = {one["num_entries"]: one["name"] for one in log._state.database.live_files()}
    table = tmp_path / tables[202 + 2].lstrip("/")  # with its structure, and the order
    data = bytearray(table.read_bytes())
    data[100:400] = b"\xff" * 300
    table.write_bytes(data)
    with capture_logs() as logs:
        async with opened(tmp_path) as log:
            if picking:
                picked = await log.pick(SHARD, [*ends, ends[1] - 50])
                assert (sorted(picked.events), sorted(picked.damaged)) == ([ends[0], ends[2]], [ends[1] - 50, ends[1]])
            assert sorted(set(await numbers(log, 0))) == [1, 3]
            states = {one.number: one.state for one in await log.generations("events")}
            assert states[2] is GenerationState.DAMAGED
            await log.append(SHARD, [Entry("a/b", b"4")])
    (line,) = [one for one in logs if one["event"] == "events_damaged"]
    assert (line["generation"], line["database"]) == (2, "events")
    assert table.name in line["reason"]
    async with opened(tmp_path) as log:
        assert sorted(set(await numbers(log, 0))) == [1, 3, 4]
        (damaged,) = [one for one in await log.generations("events") if one.state is GenerationState.DAMAGED]
        assert "orruption" in damaged.note


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        for number in range(30):
            await log.append(SHARD, [Entry(f"site/{number}/up", b"%d" % number)], epoch=4)
        await log.rotate("events", 1)
        last = await log.append(SHARD, [Entry("x", b"99")])
        structures = await log.structures("events")
    async with opened(tmp_path) as log:
        assert await numbers(log, 0) == [*range(30), 99]
        assert await numbers(log, 0, "site/17/up") == [17]
        assert await log.structures("events") == structures
        assert [one.count for one in await log.generations("events")] == [30, 1]
        with pytest.raises(ValueChangedError):
            await log.commit(Transaction(SHARD, (ValueCondition("x", last - 1),), (Entry("x", b"1"),)))
        assert await log.append(SHARD, [Entry("x", b"100")]) > last


async def test_the_number_of_shards_is_for_ever(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    with pytest.raises(ConfigurationError, match="'events' of events has 2 shards, which cannot be changed"):
        async with opened(tmp_path, Database("events", 3)):
            pass


async def test_two_processes_cannot_have_one_log(tmp_path: Path) -> None:
    async with opened(tmp_path):
        said = rf"HOMING_EVENTS_URL: {tmp_path} is in use by process {os.getpid()} since 2.*Z?; one process at a time"
        with pytest.raises(ConfigurationError, match=said):
            async with opened(tmp_path):
                pass


async def test_one_sync_serves_all_who_wait_for_it(tmp_path: Path) -> None:
    syncs = 0

    def flush(database: Rdict) -> None:
        nonlocal syncs
        syncs += 1
        database.flush_wal(True)

    log = RocksEventLog(RocksFolder(tmp_path, flush=flush), [DATABASE], SystemClock())
    await log.start()
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(log.append(Shard("events", n % 2), [Entry("a", b"%d" % n)]) for n in range(200)))
    assert sorted(await numbers(log, 0) + await numbers(log, 1)) == list(range(200))
    assert syncs < 20
    await log.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        await log.append(SHARD, [Entry("a", b"1")])
