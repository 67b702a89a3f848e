"""The store in memory alone has these: a bound, and a clock that may be moved."""

from __future__ import annotations

from datetime import timedelta

import pytest

from app.core.commands.command import CommandState, WaitReason
from app.core.errors import CapacityError
from app.store.holds import Claimed, Waits
from app.store.memory.commands.records import RECORD_BYTES
from app.store.memory.commands.store import MemoryStateStore
from tests.contract.store_backends import MINUTE, ManualClock, answer, by_order, by_value, registration


async def test_it_has_so_many_bytes_of_commands_and_no_more() -> None:
    clock = ManualClock()
    store = MemoryStateStore(clock, max_bytes=3 * RECORD_BYTES)
    first = [registration(f"dock-{i}") for i in range(3)]
    for one in first:
        await store.register(one)
    with pytest.raises(CapacityError, match="has 3 commands in 6144 bytes, its limit"):
        await store.register(registration())
    await store.register(first[0])
    clock.now += 200
    await store.register(registration())


async def test_a_clock_that_is_set_ahead_brings_a_date_and_ends_no_command() -> None:
    """An edge box starts with the time at which it was switched off, until NTP tells it."""
    clock = ManualClock()
    store = MemoryStateStore(clock)
    date = round((clock.wall() + 8 * 3600) * 1_000_000)
    dated, waiting = registration("dock-1", held=MINUTE * 600, not_before=date), registration("dock-2")
    for one in (dated, waiting):
        await store.register(one)
    assert await store.claim(dated.command_id, "node-a", "t") == Waits(WaitReason.TIME, date)
    clock.ahead = 8 * 3600
    assert isinstance(await store.claim(dated.command_id, "node-a", "t"), Claimed)
    assert await store.sweep(range(256), "node-a", timedelta()) == []
    assert (await store.read(waiting.command_id)).state is CommandState.PENDING


async def test_what_callers_and_devices_say_counts() -> None:
    store = MemoryStateStore(ManualClock(), max_bytes=3 * RECORD_BYTES)
    long = b'"' + b"x" * RECORD_BYTES + b'"'
    one = registration("dock-1", params=long)
    await store.register(one)
    await store.register(registration("dock-2", params=b"{}"))
    with pytest.raises(CapacityError, match="has 2 commands"):
        await store.register(registration("dock-3"))
    await store.respond(answer(one, result=long), "node-a")
    assert store.fills()["records"].size > 4 * RECORD_BYTES, "an answer is recorded though there is no room"


async def test_F36_memory_comes_back_to_nothing() -> None:
    clock = ManualClock()
    store = MemoryStateStore(clock)
    for round_number in range(20):
        for i in range(50):
            device = f"dock-{i % 5}"
            places = ((), (by_order(device, f"t{i}"),), (by_value(f"{round_number}-{i}", device),))[i % 3]
            one = registration(device, *places, key=f"{i}", quarantine=MINUTE)
            await store.register(one)
            if i % 4 == 0:
                await store.respond(answer(one), "node-a")
            if i % 4 == 1:
                await store.finish(one.command_id, CommandState.TIMED_OUT, "node-a")
        clock.now += 300
        await store.sweep(range(256), "node-a", timedelta())
    clock.now += 300
    assert store.size == 0
    assert store._table._expiries == []
    assert store.fills()["records"].size == 0


async def test_the_stores_clock_does_not_jump_with_the_machines() -> None:
    class Jumping(ManualClock):
        hours = 0

        def wall(self) -> float:
            return super().wall() + self.hours * 3600

    clock = Jumping()
    store = MemoryStateStore(clock)
    one = registration()
    await store.register(one)
    clock.hours = -5
    clock.now += 1
    (command,) = await store.get([one.command_id])
    recorded = await store.respond(answer(one), "node-a")
    assert command is not None
    assert recorded.outcome is not None
    assert recorded.outcome.finished_at - command.created_at == 1_000_000
