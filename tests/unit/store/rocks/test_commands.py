"""A state store in a folder after it was closed, after its disk has failed, and with rows that are damaged."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from rocksdict import Rdict
from structlog.testing import capture_logs

from app.core.commands.command import CommandState
from app.core.commands.routing import MatchResult
from app.core.errors import ConfigurationError, DeviceBusyError, StoreUnavailableError
from app.core.events.event import Database, Entry, Shard
from app.core.events.reading import Reading
from app.core.profiles.probes import ProbeEvidence, ProbeFinding
from app.core.webhooks.deliveries import Delivery, OutboxEntry, Progress, Tidings, event_id
from app.core.webhooks.endpoints import Endpoint, EventType
from app.runtime.system import SystemClock
from app.store.commands import Joined, Registered
from app.store.rocks.events import RocksEventLog
from app.store.rocks.folder import options
from tests.contract.store_backends import MINUTE, RocksBackend, answer, by_order, by_value, registration, topic_of
from tests.waiting import eventually

ENDPOINT = Endpoint("wh_1", "", "https://example.com", frozenset({EventType.SUCCEEDED}), "*", "*:*", 1)


FOUND = ProbeFinding(CommandState.SUCCEEDED, ProbeEvidence.GOAL, "d/dock 2/ö", 17, {"a.b": "wide open ü"})


async def opened(folder: Path) -> RocksBackend:
    backend = RocksBackend(folder)
    await backend.open()
    return backend


async def test_all_of_a_command_is_there_after_a_restart(tmp_path: Path) -> None:
    place = await opened(tmp_path)
    store, quarantined = place.store, registration("dock-2", by_order("dock-2"), quarantine=MINUTE)
    quarantined = replace(quarantined, by_homing=True)
    open_one = registration("dock-1", by_value("v"), by_order("dock-1"), key="k", fingerprint="f", notify=("wh_1",))
    for one in (open_one, quarantined):
        await store.register(one)
    await store.mark(open_one.command_id, CommandState.SENT, "node-b")
    report = answer(open_one, CommandState.RUNNING, b'{"percent": 40}')
    await store.respond(report, "node-a")
    await store.finish(quarantined.command_id, CommandState.TIMED_OUT, "node-a", b'{"code": "x"}')
    await store.verify(quarantined.command_id, FOUND)
    await store.states.tell_state("dock-1", "state", b"{}", MINUTE)
    before = await store.follow(open_one.command_id), await store.get([quarantined.command_id])
    await place.again()
    assert (await store.follow(open_one.command_id), await store.get([quarantined.command_id])) == before
    assert [one.id for one in await store.pending_of("node-a")] == [open_one.command_id]
    assert await store.states.last_state("dock-1", "state") == b"{}"
    joined = await store.register(replace(open_one, command_id=registration("dock-1").command_id))
    assert isinstance(joined, Joined)
    with pytest.raises(DeviceBusyError, match="quarantine_seconds"):
        await store.register(registration("dock-2", by_order("dock-2")))
    won = await store.respond(answer(open_one), "node-a")
    assert won.verdict is MatchResult.WON
    late = await store.respond(answer(quarantined), "node-a")
    assert late.verdict is MatchResult.LATE
    await place.again()
    assert await store.webhooks.outbox(range(256), 10) == [OutboxEntry(open_one.command_id)]
    assert isinstance(await store.register(registration("dock-2", by_order("dock-2"))), Registered), "it was freed"
    await place.advance(timedelta(hours=25))
    assert await store.get([open_one.command_id, quarantined.command_id]) == [None, None]
    await place.again()
    assert await store.get([open_one.command_id, quarantined.command_id]) == [None, None]
    await place.close()


async def test_webhooks_and_their_queues_are_there_after_a_restart(tmp_path: Path) -> None:
    place = await opened(tmp_path)
    webhooks = place.store.webhooks
    assert await webhooks.put_endpoint(ENDPOINT, None)
    first, later = (event_id(OutboxEntry("c1", one)) for one in (Tidings.OUTCOME, Tidings.LATE))
    for name in (first, later):
        assert await webhooks.enqueue("wh_1", Delivery(name, EventType.SUCCEEDED, b"{}", 1))
    (claimed,) = await webhooks.claim("wh_1", 10, timedelta(hours=1))
    failing = replace(claimed, attempts=1, reason="it is off", attempted_at=0, next_at=60_000_000)
    assert await webhooks.settle("wh_1", failing) == 0
    await place.again()
    assert await webhooks.endpoints() == [ENDPOINT]
    assert await webhooks.waiting(["wh_1"]) == [2]
    assert await webhooks.claim("wh_1", 10, MINUTE) == [], "not before its time"
    await place.advance(timedelta(seconds=61))
    (again,) = await webhooks.claim("wh_1", 10, timedelta(hours=1))
    assert (again.event_id, again.reason) == (first, "it is off")
    await place.again()
    (free,) = await webhooks.claim("wh_1", 10, timedelta(hours=1))
    assert free.event_id == first, "a claim ends with its process"
    await webhooks.settle("wh_1", replace(free, progress=Progress.DELIVERED, attempted_at=1, next_at=None))
    await place.again()
    assert [one.event_id for one in await webhooks.claim("wh_1", 10, MINUTE)] == [later]
    assert await webhooks.remove_endpoint("wh_1")
    await place.again()
    assert (await webhooks.endpoints(), await webhooks.waiting(["wh_1"])) == ([], [0])
    await place.close()


async def test_a_clock_that_was_set_back_moves_no_instant_back(tmp_path: Path) -> None:
    place = await opened(tmp_path)
    before = await place.store.register(registration())
    await place.close()
    later = RocksBackend(tmp_path)
    later.clock.now -= 3600
    await later.open()
    assert isinstance(before, Registered)
    assert await later.store.now() >= before.created_at
    await later.close()


async def test_a_row_that_cannot_be_read_is_named_and_left_out(tmp_path: Path) -> None:
    place = await opened(tmp_path)
    kept, damaged = registration(), registration()
    for one in (kept, damaged):
        await place.store.register(one)
    await place.close()
    raw = Rdict(str(tmp_path), options(), {"commands": options()})
    rows = raw.get_column_family("commands")
    rows[b"c\0" + damaged.command_id.encode()] = b"{"
    rows[b"c\0later"] = b'{"v": 2}\n'
    rows[b"\xff"] = b""
    rows.close()
    raw.close()
    del rows, raw
    with capture_logs() as logs:
        await place.open()
        await place.store.start()
    assert {one["name"] for one in logs if one["event"] == "row_unreadable"} == {damaged.command_id, "later"}
    assert place.counters["drop.unreadable_record"] == 2
    found = await place.store.get([kept.command_id, damaged.command_id])
    assert [one is None for one in found] == [False, True]
    await place.close()


async def test_a_table_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    place = await opened(tmp_path)
    for _ in range(300):
        await place.store.register(registration())
    place.folder._database.flush()  # type: ignore[union-attr]
    place.store._table._table.flush()  # type: ignore[union-attr]
    await place.close()
    largest = max(tmp_path.glob("*.sst"), key=lambda file: file.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[100:600] = b"\xff" * 500
    largest.write_bytes(data)
    with pytest.raises(ConfigurationError, match=r"^HOMING_STORE_URL: the rows of commands in .* cannot be read"):
        await place.store.start()


async def test_a_disk_that_fails_is_never_ahead_of_what_is_told(tmp_path: Path) -> None:
    fails = False

    def flush(database: Rdict) -> None:
        if fails:
            raise OSError(28, "No space left on device")
        database.flush_wal(True)

    place = RocksBackend(tmp_path, flush)
    store = place.store
    await place.open()
    first, second = registration(), registration()
    await store.register(first)
    fails = True
    with pytest.raises(StoreUnavailableError, match="No space left"):
        await store.register(second)
    for refused in (store.get([first.command_id]), store.ping(), store.mark(first.command_id, CommandState.SENT)):
        with pytest.raises(StoreUnavailableError):
            await refused
    told = asyncio.create_task(store.respond(answer(first), "node-a"))
    fails = False
    recorded = await told
    assert recorded.verdict in (MatchResult.WON, MatchResult.DUPLICATE), "it waits as long as it takes"
    await eventually(lambda: not place.folder.broken)
    before = await store.get([first.command_id, second.command_id])
    await place.again()
    assert await store.get([first.command_id, second.command_id]) == before
    await place.close()


async def test_events_and_commands_share_a_sync(tmp_path: Path) -> None:
    syncs = 0

    def flush(database: Rdict) -> None:
        nonlocal syncs
        syncs += 1
        database.flush_wal(True)

    place = RocksBackend(tmp_path, flush)
    await place.open()
    log = RocksEventLog(place.folder, [Database("events", 1)], SystemClock())
    await log.start()
    shard, before = Shard("events", 0), syncs
    appended = (log.append(shard, [Entry(topic_of("dock-1"), b"%d" % n)]) for n in range(50))
    await asyncio.gather(*appended, *(place.store.register(registration(f"d-{n}")) for n in range(50)))
    assert syncs - before <= 6
    await place.store.close()
    assert len((await log.read(shard, Reading(), 100)).events) == 50, "the log is there for itself"
    await place.store.start()
    await log.close()
    assert await place.size() > 0
    await place.close()
