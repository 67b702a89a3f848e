"""A Redis Cluster: slots that move, primaries that end, and scripts that never begin where they could not finish."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from itertools import count

import pytest
from redis.asyncio import Connection, Redis
from redis.crc import key_slot

from app.cluster.redis import RedisCluster
from app.core import keys
from app.core.commands.command import CommandState
from app.core.commands.routing import MatchResult
from app.core.errors import StoreUnavailableError
from app.core.identifiers import PARTITIONS, partition_of
from app.core.redis_address import NO_TERMS, RedisAddress, RedisKind, RedisTerms
from app.runtime.tasks import end
from app.store.commands import Query, Registered
from app.store.redis.commands.store import RedisStateStore
from app.store.redis.driver.slots import SlotMap
from app.store.redis.driver.store_calls import open_calls
from app.store.redis.driver.topology import read_slots, slots_of
from homing_rig.redis_members import PRIMARIES, SLOTS, takes_over
from tests.contract.store_backends import answer, registration
from tests.contract.test_cluster import Heard, info, redis_member
from tests.contract.test_redis_rights import everything
from tests.services import RedisProcess, require_programs
from tests.sharded import MemberProcess, Sharded, sharded
from tests.stores import redis_store
from tests.unit.store.redis.test_keys import THE_END, scripts_calls
from tests.waiting import PATIENCE, eventually


@pytest.fixture(scope="module", autouse=True)
def programs() -> None:
    require_programs()


@pytest.fixture
def replicated() -> Iterator[Sharded]:
    """Each primary has a replica, and all of them may end."""
    with sharded(replicas=True) as cluster:
        yield cluster


@asynccontextmanager
async def opened(
    cluster: Sharded, counters: Counter[str] | None = None, terms: RedisTerms = NO_TERMS
) -> AsyncIterator[RedisStateStore]:
    store = redis_store(cluster.url, counters=counters, terms=terms, budget=timedelta(seconds=5))
    await store.start()
    try:
        yield store
    finally:
        await store.close()


class Commanders:
    """Callers that register and answer commands of many devices as fast as they may, and know what they were told."""

    def __init__(self, store: RedisStateStore, devices: list[str]) -> None:
        self.registered: set[str] = set()
        self.answered: dict[str, bytes] = {}
        self.wrong: list[str] = []
        self.refused = 0
        self._store = store
        self._devices = devices
        self._numbers = count()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, callers: int = 8) -> None:
        self._tasks = [asyncio.create_task(self._call(number)) for number in range(callers)]

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for one in tasks:
            if one.done():
                one.result()
        await end(tasks)

    async def _call(self, number: int) -> None:
        while True:
            command = registration(self._devices[next(self._numbers) % len(self._devices)])
            try:
                if not isinstance(await self._store.register(command), Registered):
                    self.wrong.append(f"{command.command_id} was joined")
                self.registered.add(command.command_id)
                result = f'"{number} {command.command_id}"'.encode()
                recorded = await self._store.respond(answer(command, result=result), "node-a")
                if recorded.verdict not in (MatchResult.WON, MatchResult.DUPLICATE):
                    self.wrong.append(f"{command.command_id}: {recorded.verdict}")
                self.answered[command.command_id] = result
            except StoreUnavailableError:
                self.refused += 1
                await asyncio.sleep(0)  # a store without room refuses at once, and would never be heard again

    async def moves_on(self, more: int = 50) -> None:
        """Return when so many more are answered."""
        known = len(self.answered)
        await eventually(lambda: len(self.answered) >= known + more or self.wrong)

    async def lost(self) -> list[str]:
        """Say what was acknowledged and is not there, or is there with another answer."""
        gone, names = [], list(self.registered)
        found_all = [one for at in range(0, len(names), 500) for one in await self._store.get(names[at : at + 500])]
        for command_id, found in zip(names, found_all, strict=True):
            if found is None:
                gone.append(f"{command_id} is gone")
            elif command_id in self.answered and found.result != self.answered[command_id]:
                gone.append(f"{command_id} has {found.result!r}")
        return gone


def follows(member: MemberProcess) -> bool:
    return not member.is_primary()


async def told(other: RedisCluster, heard: Heard) -> bool:
    """True if a message comes through. It is lost where the listener has not noticed yet that it hears nothing."""
    with suppress(StoreUnavailableError):
        await other.carry("n1", "secret")
    with suppress(TimeoutError):
        return await asyncio.wait_for(heard.carried.get(), 0.2) == "secret"
    return False


def slot_of_partition(partition: int) -> int:
    return key_slot(keys.due(partition).encode())


async def test_nodes_have_the_rights_that_they_need(redis_cluster: Sharded) -> None:
    await asyncio.to_thread(redis_cluster.empty)
    for one in redis_cluster.members:
        await asyncio.to_thread(one.forget_refusals)
    await asyncio.wait_for(everything(redis_cluster.url), PATIENCE)
    assert [await asyncio.to_thread(one.refusals) for one in redis_cluster.members] == ["", "", ""]


async def test_F38_all_scripts_touch_the_slot_of_the_keys_that_they_name(redis_server: RedisProcess) -> None:
    lines = await all_that_nodes_send(redis_server)
    seen: set[str] = set()
    for declared, touched in scripts_calls(lines):
        assert len({key_slot(key.encode()) for key in (*declared, *touched)}) <= 1, (declared, touched)
        seen.update(key.split(":")[1] for key in touched)
    of_nodes, of_queues = {"lease", "sessions", "adoption", "cluster", "nodes", "access"}, {"queue", "queues", "dying"}
    of_events = {"shard", "slab", "cuts", "latest", "topics", "done", "role", "epoch", "cursors"}
    assert seen >= of_nodes | of_queues | of_events | {"callback", "due", "outbox", "webhook", "webhooks", "happened"}


async def all_that_nodes_send(server: RedisProcess) -> list[str]:
    """The lines of MONITOR while nodes do all that they do, down to the rare branches of scripts."""
    lines: list[str] = []
    async with Redis.from_url(server.url) as client, client.monitor() as monitor:
        await client.flushall()

        async def work() -> None:
            await everything(server.node_url)
            await client.echo(THE_END)

        working = asyncio.create_task(work())
        async with asyncio.timeout(PATIENCE):
            async for entry in monitor.listen():
                if THE_END in entry["command"]:
                    break
                lua = " lua]" if entry["client_type"] == "lua" else ""
                lines.append(lua + " ".join(f'"{word}"' for word in entry["command"].split(" ")))
        await working
    return lines


async def test_F38_a_script_never_begins_in_a_slot_that_moves_and_goes_on_behind_it(redis_cluster: Sharded) -> None:
    """Its record is there and a key that it derives is not: Redis would stop it behind its first write."""
    counters: Counter[str] = Counter()
    device = "moving"
    slot = slot_of_partition(partition_of(device))
    async with opened(redis_cluster, counters) as store:
        command = registration(device)
        await store.register(command)
        source = await asyncio.to_thread(redis_cluster.owner, slot)
        target = next(one for one in redis_cluster.members if one is not source)
        await asyncio.to_thread(redis_cluster.begin_move, slot, target)
        before = await asyncio.to_thread(contents, source, slot)
        answering = asyncio.create_task(store.respond(answer(command), "node-a"))
        await eventually(lambda: counters["store.parked"] >= 2)
        assert await asyncio.to_thread(contents, source, slot) == before
        await asyncio.to_thread(redis_cluster.move_keys, slot, source, target)
        # All of its keys are gone: a single command is asked of the next member, a script still waits.
        assert [one and one.id for one in await store.get([command.command_id])] == [command.command_id]
        assert counters["store.asked"] >= 1
        assert not answering.done()
        await asyncio.to_thread(redis_cluster.end_move, slot, source, target)
        assert (await answering).verdict is MatchResult.WON
        assert counters["store.moved"] >= 1
        [found] = await store.get([command.command_id])
        assert found is not None
        assert found.state is CommandState.SUCCEEDED
    await asyncio.to_thread(redis_cluster.move, slot, source)


def contents(member: MemberProcess, slot: int) -> dict[str, object]:
    """The keys of a slot, and the fields of records."""
    names = sorted(member.ask("CLUSTER", "GETKEYSINSLOT", slot, 1000))
    return {name: member.ask("HGETALL", name) if ":callback:" in name else None for name in names}


async def test_slots_move_there_and_back_under_writers(redis_cluster: Sharded) -> None:
    await asyncio.to_thread(redis_cluster.empty)  # commands of other tests get overdue, too
    counters: Counter[str] = Counter()
    devices = [f"device-{number}" for number in range(20)]
    slots = sorted({slot_of_partition(partition_of(one)) for one in devices})[:6]
    async with opened(redis_cluster, counters) as store:
        writers = Commanders(store, devices)
        writers.start()
        await writers.moves_on()
        homes = {slot: await asyncio.to_thread(redis_cluster.owner, slot) for slot in slots}
        for slot, home in homes.items():
            other = next(one for one in redis_cluster.members if one is not home)
            await asyncio.to_thread(redis_cluster.move, slot, other)
        await writers.moves_on()
        for slot, home in homes.items():
            await asyncio.to_thread(redis_cluster.move, slot, home)
        await writers.moves_on()
        await writers.stop()
        assert writers.wrong == []
        assert await writers.lost() == []
        assert counters["store.parked"] > 0
        assert 0 < counters["store.moved"] < 1000, "each is told once, and goes there"
        assert counters["store.failed"] == 0
        overdue = {one.command_id for one in await store.sweep(range(PARTITIONS), "node-a", timedelta())}
        assert overdue <= writers.registered - set(writers.answered), "the refused ones, where all this took a minute"
        assert len((await store.list_commands(Query(limit=100))).commands) == 100


async def test_of_many_slots_that_have_moved_is_told_once(redis_cluster: Sharded) -> None:
    """Each map costs milliseconds in which a node does nothing else, and after a switch of primaries a third moves."""
    await asyncio.to_thread(redis_cluster.empty)
    source, target, _ = redis_cluster.members
    owned = [one for one in map(slot_of_partition, range(PARTITIONS)) if one < SLOTS // PRIMARIES][:30]
    names = [keys.due(one) for one in range(PARTITIONS) if slot_of_partition(one) in owned]
    counters, follower = Counter[str](), Maps()
    calls = open_calls(redis_cluster.url, [], counters=counters)
    calls.start()
    try:
        await calls.call(("EXISTS", *names), PATIENCE)
        slots_of(redis_cluster.url).follow(follower)
        for slot in owned:
            await asyncio.to_thread(redis_cluster.end_move, slot, source, target)
        known = follower.told
        await asyncio.gather(*(calls.call(("EXISTS", one), PATIENCE) for one in names))
        assert counters["store.moved"] > len(owned) // 2
        assert follower.told - known < len(owned) // 2
    finally:
        await end(slots_of(redis_cluster.url).leave(follower))
        await calls.close()
        for slot in owned:
            await asyncio.to_thread(redis_cluster.end_move, slot, target, source)


class Maps:
    """Counts the maps that it is told."""

    disturbed = False

    def __init__(self) -> None:
        self.told = 0

    def mapped(self, slots: SlotMap) -> None:
        self.told += slots.whole


async def test_F28_a_primary_is_killed_and_nothing_is_lost_that_a_replica_acknowledged(replicated: Sharded) -> None:
    counters: Counter[str] = Counter()
    devices = [f"device-{number}" for number in range(60)]
    async with opened(replicated, counters, RedisTerms(wait_replicas=1)) as store:
        writers = Commanders(store, devices)
        writers.start()
        await writers.moves_on(500)
        killed = replicated.members[0]
        await asyncio.to_thread(killed.kill)
        successor = replicated.members[3]
        await eventually(successor.is_primary)
        # It has no replica, so its writes are not acknowledged until the old primary follows it.
        await asyncio.to_thread(killed.start)
        await eventually(lambda: not killed.is_primary() and replicated.whole())
        served = {partition_of(one) for one in devices}
        mine = [one for one in served if replicated.owner(slot_of_partition(one)) is successor]
        assert mine

        async def all_served() -> bool:
            for device in (one for one in devices if partition_of(one) in mine):
                with suppress(StoreUnavailableError):
                    await store.register(registration(device))
                    return True
            return False

        await eventually(all_served)
        await writers.moves_on(500)
        await writers.stop()
        assert writers.wrong == []
        assert await writers.lost() == []
        assert len(writers.answered) > 1000
        assert counters["store.failed"] == 0


async def test_a_primary_that_is_replaced_as_planned_sends_its_calls_on(replicated: Sharded) -> None:
    """It answers WAIT with an error then, as a replica may not be asked."""
    counters: Counter[str] = Counter()
    async with opened(replicated, counters, RedisTerms(wait_replicas=1)) as store:
        writers = Commanders(store, [f"device-{number}" for number in range(60)])
        writers.start()
        await writers.moves_on(200)
        for primary, replica in zip(replicated.members[:3], replicated.members[3:], strict=True):
            assert await asyncio.to_thread(takes_over, replica)
            await eventually(partial(follows, primary))
            await writers.moves_on(200)
        await writers.stop()
        assert writers.wrong == []
        assert await writers.lost() == []
    assert counters["store.moved"] + counters["store.parked"] > 0


async def test_a_member_of_the_cluster_of_nodes_stays_one_when_primaries_are_replaced(replicated: Sharded) -> None:
    heard = Heard()
    member, other = redis_member(replicated.url, heard), redis_member(replicated.url, Heard())
    async with asyncio.timeout(2 * PATIENCE):
        await member.charter()
        await member.join(info("n1"))
        await other.charter()
        await other.join(info("n2"))
        try:
            for primary, replica in zip(replicated.members[:3], replicated.members[3:], strict=True):
                assert await asyncio.to_thread(takes_over, replica)
                await eventually(partial(follows, primary))
                await asyncio.to_thread(primary.kill)
                await eventually(lambda: told(other, heard))
                await asyncio.to_thread(primary.start)
                await eventually(replicated.whole)
            assert sorted(one.node_id for one in await member.nodes()) == ["n1", "n2"]
            assert heard.failures.empty()
        finally:
            await other.leave()
            await member.leave()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "slot watch" and not task.cancelling()]


async def test_a_member_that_is_cut_off_is_not_believed_whatever_epoch_it_has(redis_cluster: Sharded) -> None:
    """As a replica that has called for elections which nobody has heard of."""
    lonely = MemberProcess()
    (lonely.folder / "nodes.conf").write_text(
        f"{'a' * 40} 127.0.0.1:{lonely.port}@{lonely.bus_port} myself,slave {'b' * 40} 0 0 1 connected\n"
        f"{'b' * 40} 127.0.0.1:1@2 master - 0 0 1 connected 0-{SLOTS - 1}\n"
        "vars currentEpoch 99 lastVoteEpoch 0\n"
    )
    with lonely:
        await eventually(lambda: lonely.state()["cluster_state"] == "fail")
        assert lonely.state()["cluster_current_epoch"] == "99"
        places = [("127.0.0.1", one.port) for one in redis_cluster.members]
        found = await read_slots(RedisAddress(RedisKind.CLUSTER, [("127.0.0.1", lonely.port), *places]))
        assert sorted(found.primaries) == sorted(places)


async def test_a_transport_that_closes_while_slots_are_asked_for_ends_no_watch(
    redis_cluster: Sharded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As uvloop says it; without the watch nobody would follow a fail-over."""
    broken: list[str] = []
    send = Connection.send_command

    async def closing(self: Connection, *command: str, **options: bool) -> None:
        if command[0] == "CLUSTER" and len(broken) < 2 * len(redis_cluster.members):
            broken.append(command[1])
            raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")
        await send(self, *command, **options)

    async with opened(redis_cluster):
        watch = slots_of(redis_cluster.url)
        monkeypatch.setattr(Connection, "send_command", closing)
        watch.hint()
        await eventually(lambda: len(broken) == 2 * len(redis_cluster.members))
        await eventually(lambda: not watch.reason)
