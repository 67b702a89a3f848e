"""The store is read for those who wait when something was held, and hardly ever else."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from math import inf
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.cluster.directory import NodeInfo
from app.cluster.shares import share_of
from app.commands.held.drainer import READ_ANYWAY, Drainer
from app.commands.held.look_pace import LookPace
from app.commands.held.store_time import StoreTime
from app.commands.held.waiting_devices import WaitingDevices
from app.core.commands.command import CommandState
from app.core.errors import StoreUnavailableError
from app.core.identifiers import partition_of
from app.runtime.listeners import Listeners
from app.store.holds import HeldEntries
from app.store.memory.commands.store import MemoryStateStore
from tests.contract.store_backends import ManualClock, registration

HOUR = timedelta(hours=1)


class CountingStore(MemoryStateStore):
    """Counts how often all that is held was read. Some of its servers may be away."""

    readings = 0
    broken = False
    without_note = False
    without_nodes = False
    unread: frozenset[int] = frozenset()
    meanwhile: Any = None

    async def last_held(self) -> str:
        if self.without_note:
            raise StoreUnavailableError("away")
        return await super().last_held()

    async def held(self) -> HeldEntries:
        self.readings += 1
        if self.broken:
            raise StoreUnavailableError("away")
        found = await super().held()
        if self.unread:
            found = HeldEntries([one for one in found if partition_of(one.device_id) not in self.unread], self.unread)
        if self.meanwhile is not None:
            await self.register(self.meanwhile)
            self.meanwhile = None
        return found


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(ManualClock())


@pytest.fixture
def drainer(store: CountingStore) -> Drainer:
    return drainer_of(store, WaitingDevices(ManualClock()), [])


def drainer_of(store: CountingStore, waiting: WaitingDevices, live: Sequence[NodeInfo]) -> Drainer:
    """The drainer of node-a, beside such nodes."""

    async def nodes() -> Sequence[NodeInfo]:
        if store.without_nodes:
            raise StoreUnavailableError("away")
        return live

    nobody = cast("Any", SimpleNamespace(held_again=Listeners(), settled=Listeners(), seconds_to=float, ready=True))
    return Drainer(
        store=store,
        waiting=waiting,
        judge=nobody,
        time=StoreTime(ManualClock(), store),
        claimant=nobody,
        claims=nobody,
        nodes=nodes,
        node_id="node-a",
        pace=LookPace(ManualClock(), 500, lambda: 0.0),
        interval=1,
    )


async def read(drainer: Drainer, times: int = 1) -> None:
    for _ in range(times):
        await drainer.read()


async def test_while_nothing_is_held_they_are_read_once_and_then_now_and_again(
    store: CountingStore, drainer: Drainer
) -> None:
    await read(drainer, READ_ANYWAY)
    await store.register(registration())
    assert store.readings == 1
    await read(drainer)
    assert store.readings == 2


async def test_each_time_when_something_was_held_and_while_somebody_waits(
    store: CountingStore, drainer: Drainer
) -> None:
    await read(drainer, 3)
    held = registration(held=HOUR)
    await store.register(held)
    await read(drainer, 3)
    assert store.readings == 4
    await store.finish(held.command_id, CommandState.CANCELLED, "node-b")
    await read(drainer, 3)
    assert store.readings == 5


async def test_where_thousands_wait_they_are_read_now_and_then_and_when_something_was_held(
    store: CountingStore, drainer: Drainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.commands.held.drainer.AT_EACH_READING", 10)
    for number in range(25):
        await store.register(registration(f"dock-{number}", held=HOUR))
    await read(drainer, 7)
    assert store.readings == 3, "each third one"
    await store.register(registration("dock-99", held=HOUR))
    await read(drainer)
    assert store.readings == 4


async def test_where_thousands_wait_and_more_are_held_all_the_time_not_each_one_is_read_for(
    store: CountingStore, drainer: Drainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.commands.held.drainer.AT_EACH_CHANGE", 10)
    for number in range(25):
        await store.register(registration(f"dock-{number}", held=HOUR))
    await read(drainer)
    for number in range(25, 29):
        await store.register(registration(f"dock-{number}", held=HOUR))
        await read(drainer)
    assert store.readings == 2, "each third one, though there is something new each time"


async def test_a_node_that_inherits_a_share_looks_at_those_whom_it_knows(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that died has looked at them until now, and nobody reads who waits in that moment."""
    monkeypatch.setattr("app.commands.held.drainer.AT_EACH_READING", 1)
    live = [NodeInfo(one, one, "0", 0) for one in ("node-a", "node-b")]
    waiting = WaitingDevices(ManualClock())
    drainer = drainer_of(store, waiting, live)
    for number in range(25):
        await store.register(registration(f"dock-{number}", held=HOUR))
    await read(drainer)
    mine = sum(one.due < inf for one in waiting.known())
    assert 0 < mine < 25
    del live[1]
    await read(drainer)
    assert store.readings == 1
    assert all(one.due < inf for one in waiting.known())


async def test_what_was_held_while_they_were_read_is_found_by_the_next_reading(
    store: CountingStore, drainer: Drainer
) -> None:
    store.meanwhile = registration(held=HOUR)
    await read(drainer, 2)
    assert store.readings == 2


async def test_a_reading_that_failed_is_done_again(store: CountingStore, drainer: Drainer) -> None:
    store.broken = True
    with pytest.raises(StoreUnavailableError):
        await read(drainer)
    store.broken = False
    await read(drainer, 2)
    assert store.readings == 2


async def test_devices_whose_server_is_away_are_waited_for_on_and_read_as_soon_as_it_is_back(
    store: CountingStore,
) -> None:
    """The note is at another server: it does not change when this one comes back."""
    waiting = WaitingDevices(ManualClock())
    drainer = drainer_of(store, waiting, [])
    await store.register(registration("dock-1", held=HOUR))
    await read(drainer)
    waiting.heard("dock-1")
    store.unread = frozenset({partition_of("dock-1"), partition_of("dock-2")})
    await store.register(registration("dock-2", held=HOUR))
    await read(drainer, 2)
    (known,) = waiting.known()
    assert (known.device_id, waiting.lately_heard(known)) == ("dock-1", True)
    store.unread = frozenset()
    await read(drainer)
    assert [one.device_id for one in waiting.known()] == ["dock-1", "dock-2"]


async def test_while_all_that_is_held_is_at_the_server_that_is_away_a_node_reads_on(store: CountingStore) -> None:
    waiting = WaitingDevices(ManualClock())
    drainer = drainer_of(store, waiting, [])
    await store.register(registration("dock-1", held=HOUR))
    store.unread = frozenset({partition_of("dock-1")})
    await read(drainer, 2)
    assert not waiting
    store.unread = frozenset()
    await read(drainer)
    assert "dock-1" in waiting


async def test_without_the_note_they_are_read_each_time(store: CountingStore, drainer: Drainer) -> None:
    store.without_note = True
    await read(drainer, 2)
    assert store.readings == 2
    store.without_note = False
    await read(drainer, READ_ANYWAY)
    assert store.readings == 3, "the note that is there again may be another one"


async def test_while_nobody_tells_which_nodes_live_a_node_looks_at_those_of_its_last_share(
    store: CountingStore,
) -> None:
    waiting = WaitingDevices(ManualClock())
    drainer = drainer_of(store, waiting, [NodeInfo(one, one, "0", 0) for one in ("node-a", "node-b")])
    await read(drainer)
    await store.register(registration("dock-0", held=HOUR))
    await read(drainer)
    store.without_nodes = True
    for number in range(1, 25):
        await store.register(registration(f"dock-{number}", held=HOUR))
    await read(drainer)
    mine = set(share_of("node-a", ["node-a", "node-b"]))
    assert {one.device_id for one in waiting.known() if one.due < inf} == {
        one.device_id for one in waiting.known() if one.partition in mine
    }
