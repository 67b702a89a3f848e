"""Fleet runs in every engine that keeps them: one step changes a run, and refuses who is late or was replaced."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import count

import pytest

from app.core.errors import CapacityError
from app.core.fleets.ids import new_run_id
from app.store import fleets as port
from app.store.fleets import FleetStore, NewRecord, RunChange, RunRecord, Written
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


async def test_there_are_so_many_open_runs_at_most(fleets: FleetStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "MOST_OPEN", 2)
    first = record()
    await fleets.create(first)
    await fleets.create(record())
    with pytest.raises(CapacityError, match="2 fleet runs have not ended"):
        await fleets.create(record())
    assert await fleets.create(first) == "f"
