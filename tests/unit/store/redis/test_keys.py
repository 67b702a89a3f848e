"""Every key that a script is given or reaches lies in one slot of a Redis Cluster (F38), as keys.py derives it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest
from redis.asyncio import Redis
from redis.crc import key_slot

from app.core import keys
from app.core.commands.command import OPEN_STATES, TRANSITIONS, CommandEvent, CommandState
from app.core.identifiers import PARTITIONS, partition_of
from app.store.state import StateStore
from tests.contract.store_backends import MINUTE, answer, by_order, by_value, registration, topic_of

THE_END = "~~end~~"
"""Scripts are shown by MONITOR, too, when they are loaded; this is in none."""
DEVICES = [f"dock:{i}" for i in range(40)]


async def all_keys(client: Redis) -> set[str]:
    return {str(key, "ascii") for key in await client.keys() if isinstance(key, bytes)}


async def use_everything(store: StateStore, device: str) -> None:
    places = (by_order(device), by_value("v", device), by_value("w", device, "other"))
    done = registration(device, *places, key="k", quarantine=MINUTE)
    await store.register(done)
    await store.register(registration(device, key="k", home="node-b"))
    await store.mark(done.command_id, CommandState.SENT)
    await store.respond(answer(done, CommandState.RUNNING), "node-a")
    await store.respond(answer(done, expectation=1), "node-a")
    late = registration(device, by_order(device), quarantine=MINUTE)
    await store.register(late)
    await store.finish(late.command_id, CommandState.CANCELLED, "node-a")
    await store.respond(answer(late), "node-a")
    await store.register(registration(device, *places, timeout=timedelta()))


def scripts_calls(commands: list[str]) -> Iterator[tuple[list[str], list[str]]]:
    """The declared keys of each script, and all keys that it touched, out of MONITOR's lines."""
    declared: list[str] = []
    touched: list[str] = []
    for line in commands:
        words = re.findall(r'"((?:[^"\\]|\\.)*)"', line)
        if words[0].upper() == "EVALSHA":
            yield declared, touched
            declared, touched = words[3 : 3 + int(words[2])], []
        elif " lua]" in line and words[0].upper() not in ("TIME", "PUBLISH", "INFO"):
            touched.append(words[1])
    yield declared, touched


async def monitored(client: Redis, store: StateStore) -> list[str]:
    lines = []
    async with client.monitor() as monitor:
        for device in DEVICES:
            await use_everything(store, device)
        await store.pending_of("node-a")
        await store.sweep(range(PARTITIONS), "node-a", timedelta())
        await client.echo(THE_END)
        async for entry in monitor.listen():
            if THE_END in entry["command"]:
                break
            lua = " lua]" if entry["client_type"] == "lua" else ""
            lines.append(lua + " ".join(f'"{word}"' for word in entry["command"].split(" ")))
    return lines


async def test_F38_every_script_touches_one_slot(client: Redis, store: StateStore) -> None:
    seen: Counter[str] = Counter()
    for declared, touched in scripts_calls(await monitored(client, store)):
        slots = {key_slot(key.encode()) for key in (*declared, *touched)}
        assert len(slots) <= 1, (declared, touched)
        assert all(key.startswith("mqtt:") for key in (*declared, *touched))
        seen.update(key.split(":")[1] for key in touched)
    assert set(seen) == {
        "callback",
        "topic",
        "correlation",
        "due",
        "list",
        "idempotency",
        "history",
        "happened",
        "held",
    }


async def test_scripts_derive_keys_as_keys_py_does(client: Redis, store: StateStore) -> None:
    device = "dock-1"
    partition = partition_of(device)
    places = (by_order(device), by_value("v", device))
    wanted = registration(device, *places, key="k")
    await store.register(wanted)
    expected = {
        keys.callback(partition, wanted.command_id),
        keys.topic(partition, places[0].topic),
        keys.topic(partition, places[1].topic),
        keys.correlation(partition, places[1].topic, "v"),
        keys.due(partition),
        keys.listing(partition),
        keys.idempotency(partition, device, "k"),
    }
    assert await all_keys(client) == expected
    await store.respond(answer(wanted, expectation=1), "node-a")
    left = await all_keys(client)
    assert left == {key for key in expected if key.split(":")[1] in ("callback", "list", "idempotency", "correlation")}


async def test_F36_every_key_lives_as_long_as_the_record_that_lives_longest(client: Redis, store: StateStore) -> None:
    longest = 0
    for seconds in (30, 60, 1):
        life = timedelta(seconds=seconds)
        one = registration("dock-1", timeout=life, retention=life)
        await store.register(one)
        record = await client.pexpiretime(keys.callback(partition_of("dock-1"), one.command_id))
        longest = max(longest, record)
        shared = [key for key in await all_keys(client) if key.split(":")[1] in ("due", "list", "topic")]
        assert len(shared) == 3
        for key in shared:
            assert await client.pexpiretime(key) >= longest, key


async def test_F36_a_settled_command_waits_on_no_topic_and_for_no_deadline(client: Redis, store: StateStore) -> None:
    others = registration("dock-1")
    await store.register(others)
    topic, due = keys.topic(partition_of("dock-1"), topic_of("dock-1")), keys.due(partition_of("dock-1"))
    for settle in (
        lambda one: store.respond(answer(one), "node-a"),
        lambda one: store.finish(one.command_id, CommandState.TIMED_OUT, "node-a"),
    ):
        one = registration("dock-1", quarantine=MINUTE)
        await store.register(one)
        assert await client.zcard(topic) == await client.zcard(due) == 2
        await settle(one)
        assert await client.zrange(topic, 0, -1) == [others.command_id.encode()]
        assert await client.zrange(due, 0, -1) == [others.command_id.encode()]


async def test_F36_index_entries_without_a_record_leave_a_busy_partition(client: Redis, store: StateStore) -> None:
    """After a crash, say: records expired, and nobody had swept."""
    device = "dock-1"
    partition = partition_of(device)
    kept = registration(device)
    for one in [registration(device) for _ in range(300)]:
        await store.register(one)
        await client.delete(keys.callback(partition, one.command_id))
    await store.register(kept)
    for one in [registration(device) for _ in range(5)]:
        await store.register(one)
    topic, due, listing = (
        keys.topic(partition, kept.expectations[0].topic),
        keys.due(partition),
        keys.listing(partition),
    )
    assert await client.zcard(topic) <= 7  # each registration takes out the oldest that is gone
    for _ in range(4):
        await store.sweep([partition], "node-a", timedelta(days=-1))
    assert await client.zcard(listing) == 6
    assert await client.zcard(due) == 0


@pytest.mark.parametrize(
    "event", [CommandEvent.SUCCEED, CommandEvent.FAIL, CommandEvent.PROGRESS, CommandEvent.EXPIRE, CommandEvent.CANCEL]
)
def test_the_scripts_may_take_these_events_in_every_open_state(event: CommandEvent) -> None:
    """respond.lua and sweep.lua ask only whether the command is open. A held one has no deadline."""
    states = set(OPEN_STATES) - ({CommandState.HELD} if event is CommandEvent.EXPIRE else set())
    assert all(event in TRANSITIONS[state] for state in states)
