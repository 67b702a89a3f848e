"""A value of a later version, or a damaged one, is skipped, counted and named: it stops nobody else."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from app.core import keys
from app.core.commands.command import CommandState
from app.core.errors import StoreRefusedError, UnreadableRecordError
from app.core.identifiers import partition_of_command
from app.core.versions import RECORD
from app.store.commands import Joined, Query, Registered
from app.store.redis.commands.store import RedisStateStore
from tests.contract.store_backends import answer, by_order, registration
from tests.contract.store_reading import ALL_PARTITIONS, NO_GRACE
from tests.services import RedisProcess
from tests.stores import redis_store
from tests.waiting import eventually

HOUR_LATER_NOBODY_WAITS = timedelta(milliseconds=1)

DAMAGE: dict[str, dict[str, str]] = {
    "a state that is unknown": {"state": "paused"},
    "a later version": {"v": f"{RECORD + 1} token"},
    "a version that is no number": {"v": "next"},
    "nothing in about": {"about": ""},
    "an about of another form": {"about": "1 2 3"},
    "an about without a device": {"about": "1 2 3 0 - - home \0takeoff\0dji\0{}"},
    "an instant that nobody can write down": {
        "about": f"{10**18} {10**18} 60000 0 - - home dock-1\0takeoff\0dji\0{{}}"
    },
    "a retention that Redis does not take": {"about": f"1 2 {10**19} 0 - - home dock-1\0takeoff\0dji\0{{}}"},
}


@pytest.fixture
def counters() -> Counter[str]:
    return Counter()


@pytest.fixture
async def store(redis_server: RedisProcess, client: Redis, counters: Counter[str]) -> AsyncIterator[RedisStateStore]:
    store = redis_store(redis_server.node_url, counters=counters)
    await store.start()
    yield store
    await store.close()


async def damage(client: Redis, command_id: str, kind: str) -> None:
    key = keys.callback(partition_of_command(command_id), command_id)
    if kind == "no hash":
        await client.delete(key)
        await client.set(key, "something else")
    else:
        for field, text in DAMAGE[kind].items():
            await client.hset(key, field, text)


@pytest.mark.parametrize("kind", [*DAMAGE, "no hash"])
async def test_an_unreadable_record_is_left_out_of_the_list_and_refused_by_name(
    store: RedisStateStore, client: Redis, counters: Counter[str], kind: str
) -> None:
    bad, good = registration(), registration()
    for one in (bad, good):
        await store.register(one)
    await damage(client, bad.command_id, kind)
    page = await store.list_commands(Query())
    assert len(page.commands) in (1, 2)
    assert good.command_id in {one.id for one in page.commands}
    if kind == "a retention that Redis does not take":
        return  # only scripts care
    assert [one.id for one in page.commands] == [good.command_id]
    assert counters["drop.unreadable_record"] == 1
    assert (await store.get([bad.command_id, good.command_id]))[0] is None
    with pytest.raises(UnreadableRecordError, match="cannot be read here: it"):
        await store.read(bad.command_id)
    assert (await store.read(good.command_id)).id == good.command_id
    assert await store.outcomes([bad.command_id, good.command_id]) == [None, None]
    assert await store.pending_of("node-a")
    assert counters["drop.unreadable_record"] >= 3


@pytest.mark.parametrize("kind", [*DAMAGE, "no hash"])
async def test_an_unreadable_record_does_not_stop_the_sweep_of_its_partition(
    store: RedisStateStore, client: Redis, counters: Counter[str], kind: str
) -> None:
    bad, good = (registration(timeout=HOUR_LATER_NOBODY_WAITS) for _ in range(2))
    for one in (bad, good):
        await store.register(one)
    await damage(client, bad.command_id, kind)
    ended: set[str] = set()

    async def swept() -> bool:
        ended.update(one.command_id for one in await store.sweep(ALL_PARTITIONS, "sweeper", NO_GRACE))
        return good.command_id in ended

    await eventually(swept)
    if kind in ("a state that is unknown", "an instant that nobody can write down"):
        return  # its deadline is known, so it ends; or is not known, so it does not
    assert ended == {good.command_id}
    assert counters["drop.unreadable_record"] == 1


async def test_more_unreadable_ones_than_a_sweep_looks_at_do_not_hide_the_others(
    store: RedisStateStore, client: Redis
) -> None:
    bad = [registration(timeout=HOUR_LATER_NOBODY_WAITS) for _ in range(150)]
    for one in bad:
        await store.register(one)
        await damage(client, one.command_id, "a later version")
    good = registration(timeout=HOUR_LATER_NOBODY_WAITS)
    await store.register(good)

    async def swept() -> bool:
        outcomes = await store.sweep(ALL_PARTITIONS, "sweeper", NO_GRACE)
        return [one.command_id for one in outcomes] == [good.command_id]

    await eventually(swept)


@pytest.mark.parametrize("kind", ["a later version", "an about of another form", "no hash"])
async def test_a_step_on_an_unreadable_record_is_refused_and_changes_nothing(
    store: RedisStateStore, client: Redis, counters: Counter[str], kind: str
) -> None:
    bad = registration(key="once", fingerprint="same")
    await store.register(bad)
    await damage(client, bad.command_id, kind)
    before = await client.dump(keys.callback(partition_of_command(bad.command_id), bad.command_id))
    with pytest.raises(UnreadableRecordError):
        await store.finish(bad.command_id, CommandState.CANCELLED, "node-b")
    # Without an acknowledgement the broker keeps it for a node that can read what it answers.
    with pytest.raises(StoreRefusedError, match="cannot be read here"):
        await store.respond(answer(bad), "node-b")
    await store.mark(bad.command_id, CommandState.SENT)
    if kind != "an about of another form":
        with pytest.raises(UnreadableRecordError):
            await store.register(registration(key="once", fingerprint="same"))
    after = await client.dump(keys.callback(partition_of_command(bad.command_id), bad.command_id))
    if kind != "an about of another form":
        assert after == before
    assert counters["store.failed"] == 0
    assert counters["drop.unreadable_record"] >= 2


async def test_an_outcome_with_an_unknown_state_is_not_handed_out(store: RedisStateStore, client: Redis) -> None:
    done = registration()
    await store.register(done)
    await store.respond(answer(done), "node-b")
    await damage(client, done.command_id, "a state that is unknown")
    with pytest.raises(UnreadableRecordError, match="its state 'paused' is unknown"):
        await store.finish(done.command_id, CommandState.CANCELLED, "node-b")
    assert await store.outcomes([done.command_id]) == [None]
    assert (await store.respond(answer(done), "node-b")).outcome is None


async def test_a_quarantine_that_is_no_number_is_over(store: RedisStateStore, client: Redis) -> None:
    first, second = (registration("dock-1", by_order(), quarantine=timedelta(minutes=1)) for _ in range(2))
    await store.register(first)
    await store.finish(first.command_id, CommandState.CANCELLED, "node-b")
    key = keys.callback(partition_of_command(first.command_id), first.command_id)
    await client.hset(key, "quarantine", "later")
    assert isinstance(await store.register(second), Registered)


async def test_members_of_lists_that_are_none_of_ours_are_left_out(
    store: RedisStateStore, client: Redis, counters: Counter[str]
) -> None:
    good = registration()
    await store.register(good)
    partition = partition_of_command(good.command_id)
    strange = {b"\xff\xfe": 1.0, b"no id": 2.0, b":": 3.0, b"": 4.0, b"x:y": float("inf"), b"z:y": -1.0}
    await client.zadd(keys.listing(partition), strange)
    await client.zadd(keys.due(partition), {b"\xff\xfe": 1.0, b"no id": 2.0})
    assert [one.id for one in (await store.list_commands(Query())).commands] == [good.command_id]
    own = await store.list_commands(Query(device_id=good.device_id))
    assert [one.id for one in own.commands] == [good.command_id]
    assert counters["drop.unreadable_record"] > 0
    assert await store.sweep(ALL_PARTITIONS, "sweeper", NO_GRACE) == []
    assert [one.id for one in await store.pending_of("node-a")] == [good.command_id]


async def test_a_list_that_is_none_takes_no_other_partition_with_it(store: RedisStateStore, client: Redis) -> None:
    bad, good = registration("dock-1"), registration("dock-2")
    for one in (bad, good):
        await store.register(one)
    partition = partition_of_command(bad.command_id)
    assert partition != partition_of_command(good.command_id)
    for key in (keys.listing(partition), keys.due(partition)):
        await client.delete(key)
        await client.set(key, "something else")
    assert [one.id for one in (await store.list_commands(Query())).commands] == [good.command_id]
    overdue = registration("dock-2", timeout=HOUR_LATER_NOBODY_WAITS)
    await store.register(overdue)

    async def swept() -> bool:
        outcomes = await store.sweep(ALL_PARTITIONS, "sweeper", NO_GRACE)
        return [one.command_id for one in outcomes] == [overdue.command_id]

    await eventually(swept)


async def test_a_joined_command_that_is_readable_is_joined(store: RedisStateStore) -> None:
    first = registration(key="once", fingerprint="same")
    await store.register(first)
    joined = await store.register(registration(key="once", fingerprint="same"))
    assert isinstance(joined, Joined)
