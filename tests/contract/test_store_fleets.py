"""Fleet runs in every engine that keeps them: one step changes a run, and refuses who is late or was replaced."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from app.core import keys
from app.core.errors import CapacityError
from app.core.fleets.ids import new_run_id
from app.store import fleets as port
from app.store.fleets import CHUNK, FleetStore, NewRecord, RunChange, RunRecord, Written
from app.store.redis.driver.lane import Script
from app.store.redis.driver.lanes import Lanes
from app.store.redis.fleets import RedisFleets
from app.store.state import StateStore
from tests.contract.store_backends import MINUTE, MOMENT, Backend

LEASE = timedelta(seconds=60)
_numbers = count(1)


def record(lasts: timedelta = MINUTE, fingerprint: str = "f") -> NewRecord:
    return NewRecord(
        run_id=new_run_id(f"01J{next(_numbers):023d}"),
        fingerprint=fingerprint,
        plan={"method": "ok", "n": 2**40},
        status={"state": "waiting"},
        marks=b"..\xff",
        targets=[["dock-1", "dji"], ["döck%20-2", "homing"], ["dock-3", "dji"]],
        lasts=lasts,
    )


@pytest.fixture
def fleets(store: StateStore) -> FleetStore:
    return store.fleets


async def read(fleets: FleetStore, run_id: str) -> RunRecord:
    found = await fleets.read(run_id)
    assert found is not None
    return found


def change(known: RunRecord, **more: object) -> RunChange:
    plain = RunChange(version=known.version, status={"state": "running"}, marks=b"h.s")
    return replace(plain, **more)  # type: ignore[arg-type]


async def test_what_is_kept_is_read(fleets: FleetStore) -> None:
    wanted = record()
    assert await fleets.create(wanted) == "f"
    found = await read(fleets, wanted.run_id)
    assert (found.version, found.plan, found.status, found.marks) == (1, wanted.plan, wanted.status, wanted.marks)
    assert found.fingerprint == "f"
    assert [list(one) for one in await fleets.targets(wanted.run_id)] == wanted.targets
    assert list(await fleets.results(wanted.run_id, [0, 1])) == [None, None]
    assert list(await fleets.results(wanted.run_id, [])) == []
    assert list(await fleets.open_runs()) == [wanted.run_id]
    assert await fleets.read(new_run_id("01J9")) is None
    assert list(await fleets.targets(new_run_id("01J9"))) == []


async def test_many_targets_are_read_in_parts(fleets: FleetStore) -> None:
    targets = [[f"dock-{number}", "dji"] for number in range(2 * CHUNK + 5)]
    wanted = replace(record(), targets=targets, marks=b"." * len(targets))
    await fleets.create(wanted)
    bounds: list[tuple[int, int | None]] = [(0, None), (CHUNK, 2 * CHUNK), (CHUNK - 1, CHUNK + 1), (2 * CHUNK, 9_999)]
    for begin, end in [*bounds, (2 * CHUNK + 5, 3 * CHUNK), (17, 17)]:
        found = await fleets.targets(wanted.run_id, begin, end)
        assert [list(one) for one in found] == targets[begin:end], (begin, end)


async def test_who_dies_while_targets_are_written_leaves_nothing(
    backend: Backend, fleets: FleetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Redis they are written in parts: what a dead writer has left goes by itself, and spoils no later try."""
    monkeypatch.setattr("app.store.redis.fleets._DRAFT_MS", MOMENT // timedelta(milliseconds=1))
    plain, calls = Lanes.run_for_list, count()

    async def dies(lanes: Lanes, script: Script, *rest: Any) -> object:
        if next(calls) == 2:
            raise asyncio.CancelledError
        return await plain(lanes, script, *rest)

    targets = [[f"dock-{number}", "dji"] for number in range(3 * CHUNK)]
    wanted = replace(record(), targets=targets, marks=b"." * len(targets))
    with monkeypatch.context() as patched:
        patched.setattr(Lanes, "run_for_list", dies)
        try:
            await fleets.create(wanted)
        except asyncio.CancelledError:
            assert await fleets.read(wanted.run_id) is None
            assert list(await fleets.targets(wanted.run_id)) == []
            assert list(await fleets.open_runs()) == []
            assert list(await fleets.runs()) == []
            await backend.advance(MOMENT * 3)
            assert await backend.size() == 0
        else:
            assert next(calls) == 0, "there is one step, so nobody can die between two"
    monkeypatch.setattr("app.store.redis.fleets._DRAFT_MS", 60_000)
    await fleets.create(wanted)
    assert [list(one) for one in await fleets.targets(wanted.run_id)] == targets


async def test_a_run_whose_creator_died_before_it_was_listed_is_listed_by_the_next(
    fleets: FleetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, wanted = RedisFleets._call, record()

    async def dies(place: RedisFleets, *command: str | bytes | int) -> object:
        if command[0] == "ZADD":
            raise asyncio.CancelledError
        return await plain(place, *command)

    with monkeypatch.context() as patched:
        patched.setattr(RedisFleets, "_call", dies)
        with suppress(asyncio.CancelledError):
            await fleets.create(wanted)
    await fleets.relist(await read(fleets, wanted.run_id))
    assert list(await fleets.open_runs()) == [wanted.run_id]
    ended = change(await read(fleets, wanted.run_id), ended=True)
    assert await fleets.write(wanted.run_id, ended) is Written.YES
    await fleets.relist(await read(fleets, wanted.run_id))
    assert list(await fleets.open_runs()) == []
    assert [one.run_id for one in await fleets.runs()] == [wanted.run_id]


async def test_two_who_create_one_run_mix_nothing_up(fleets: FleetStore) -> None:
    one = replace(record(), targets=[[f"a-{n}", "dji"] for n in range(3 * CHUNK)], marks=b"." * 3 * CHUNK)
    other = replace(one, targets=[[f"b-{n}", "dji"] for n in range(2 * CHUNK)], marks=b"." * 2 * CHUNK)
    await asyncio.gather(*(fleets.create(wanted) for wanted in (one, other, one)))
    found = [list(pair) for pair in await fleets.targets(one.run_id)]
    assert found in (one.targets, other.targets)
    assert len(found) == len((await read(fleets, one.run_id)).marks)


async def test_an_id_is_given_once(fleets: FleetStore) -> None:
    wanted = record()
    await fleets.create(wanted)
    assert await fleets.create(replace(wanted, fingerprint="other", marks=b"x")) == "f"
    assert (await read(fleets, wanted.run_id)).marks == wanted.marks
    assert list(await fleets.open_runs()) == [wanted.run_id]


async def test_a_change_is_made_by_who_has_read_the_last_one(fleets: FleetStore) -> None:
    wanted = record()
    await fleets.create(wanted)
    known = await read(fleets, wanted.run_id)
    assert await fleets.write(wanted.run_id, change(known, results={2: [17, "code", "ünder"]})) is Written.YES
    assert await fleets.write(wanted.run_id, change(known, marks=b"xxx")) is Written.OTHERWISE
    after = await read(fleets, wanted.run_id)
    assert (after.version, after.status, after.marks) == (2, {"state": "running"}, b"h.s")
    assert after.plan == wanted.plan
    assert [one and list(one) for one in await fleets.results(wanted.run_id, [1, 2])] == [None, [17, "code", "ünder"]]
    assert await fleets.write(new_run_id("01J9"), change(known)) is Written.GONE


async def test_one_drives_and_who_was_replaced_writes_nothing(fleets: FleetStore) -> None:
    wanted = record()
    await fleets.create(wanted)
    first = await fleets.drive(wanted.run_id, "node-a s1", LEASE)
    assert first
    assert await fleets.drive(wanted.run_id, "node-a s1", LEASE) == first
    assert await fleets.drive(wanted.run_id, "node-b s2", LEASE) == 0
    second = await fleets.drive(wanted.run_id, "node-b s2", LEASE, "node-a ")
    assert second > first
    known = await read(fleets, wanted.run_id)
    assert await fleets.write(wanted.run_id, change(known, epoch=first)) is Written.FENCED
    assert await fleets.write(wanted.run_id, change(known, epoch=second)) is Written.YES
    assert await fleets.write(wanted.run_id, change(await read(fleets, wanted.run_id))) is Written.YES, "a person"
    await fleets.let_go(wanted.run_id, "node-a s1")
    assert await fleets.drive(wanted.run_id, "node-a s1", LEASE) == 0
    await fleets.let_go(wanted.run_id, "node-b s2")
    assert await fleets.drive(wanted.run_id, "node-a s1", LEASE) > second


async def test_a_lease_ends(backend: Backend, fleets: FleetStore) -> None:
    wanted = record()
    await fleets.create(wanted)
    first = await fleets.drive(wanted.run_id, "node-a s1", MOMENT)
    await backend.advance(MOMENT * 2)
    second = await fleets.drive(wanted.run_id, "node-a s1", LEASE)
    assert second > first, "somebody else could have had it between"


async def test_what_has_ended_is_open_no_more_and_is_listed(fleets: FleetStore) -> None:
    first, second = record(), record()
    await fleets.create(first)
    await fleets.create(second)
    known = await read(fleets, first.run_id)
    assert await fleets.write(first.run_id, change(known, ended=True)) is Written.YES
    assert list(await fleets.open_runs()) == [second.run_id]
    assert await fleets.create(first) == "f"
    assert list(await fleets.open_runs()) == [second.run_id], "it does not begin again"
    listed = await fleets.runs()
    assert [(one.run_id, one.marks) for one in listed] == [(second.run_id, b""), (first.run_id, b"")]
    assert listed[1].status == {"state": "running"}


async def test_nothing_is_left_after_its_time(
    backend: Backend, fleets: FleetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("app.store.memory.fleets", "app.store.redis.fleets"):
        monkeypatch.setattr(f"{module}.KEPT", MOMENT)
    monkeypatch.setattr("app.store.redis.fleets._KEPT_MS", MOMENT // timedelta(milliseconds=1))
    wanted = record()
    await fleets.create(wanted)
    epoch = await fleets.drive(wanted.run_id, "node-a s1", MOMENT)
    known = await read(fleets, wanted.run_id)
    await fleets.write(wanted.run_id, change(known, results={0: [1]}, epoch=epoch, ended=True))
    await backend.advance(MOMENT * 3)
    assert await fleets.read(wanted.run_id) is None
    assert list(await fleets.runs()) == []
    assert list(await fleets.open_runs()) == []
    assert await backend.size() == 0


async def test_a_run_that_is_gone_before_anybody_has_ended_it_is_open_no_more_once_somebody_drives_it(
    backend: Backend, fleets: FleetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All nodes were away for long, or the server that had it has forgotten it: it would be driven again and again."""
    for module in ("app.store.memory.fleets", "app.store.redis.fleets"):
        monkeypatch.setattr(f"{module}.KEPT", timedelta())
    wanted = record(lasts=MOMENT)
    await fleets.create(wanted)
    await backend.advance(MOMENT * 2)
    epoch = await fleets.drive(wanted.run_id, "node-a s1", MOMENT)
    gone = RunChange(version=0, status={}, marks=b"", epoch=epoch)
    assert await fleets.write(wanted.run_id, gone) is Written.GONE
    assert list(await fleets.open_runs()) == []
    await backend.advance(MOMENT * 2)
    assert await backend.size() == 0


async def test_no_more_runs_are_listed_than_anybody_is_shown(
    fleets: FleetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schedule begins one each minute, and each is kept for a week."""
    for module in ("app.store.memory.fleets", "app.store.redis.fleets"):
        monkeypatch.setattr(f"{module}.MOST_LISTED", 3)
    wanted = [record() for _ in range(6)]
    for one in wanted:
        await fleets.create(one)
    assert [one.run_id for one in await fleets.runs()] == [one.run_id for one in wanted[:2:-1]]
    assert len(await fleets.open_runs()) == 6
    if isinstance(fleets, RedisFleets):
        assert await fleets._call("ZCARD", keys.RUNS) == 3


async def test_there_are_so_many_open_runs_at_most(fleets: FleetStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "MOST_OPEN", 2)
    first = record()
    await fleets.create(first)
    await fleets.create(record())
    with pytest.raises(CapacityError, match="2 fleet runs have not ended"):
        await fleets.create(record())
    assert await fleets.create(first) == "f"
