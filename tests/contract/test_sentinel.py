"""A primary that Sentinels guard: found at the start, followed when it is another, and told of when none can be."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest
from redis.asyncio import Connection, Redis
from redis.exceptions import RedisError

from app.core.errors import StoreUnavailableError
from app.core.redis_address import NO_TERMS, RedisTerms
from app.runtime.system import SystemClock
from app.runtime.tasks import end
from app.store.redis.doctor import inspect
from app.store.redis.driver import sentinel
from app.store.redis.driver.combiner import Combiner
from app.store.redis.driver.lane import CombinerOptions
from app.store.redis.driver.sentinel import watch_of
from app.store.redis.driver.server import connector
from tests.contract.store_backends import registration
from tests.contract.test_cluster import Heard, info, redis_member
from tests.guarded import Guarded, guarded, sentinel_url
from tests.services import RedisProcess, SentinelProcess, require_programs
from tests.stores import redis_store
from tests.waiting import PATIENCE, eventually

LOST_SECONDS = 2.0
"""Without WAIT an acknowledged write may be lost that is younger than this when the primary dies or is switched."""


@pytest.fixture(scope="module", autouse=True)
def programs() -> None:
    require_programs()


@pytest.fixture
def sentinels() -> Iterator[Guarded]:
    with guarded() as running:
        yield running


@asynccontextmanager
async def combining(
    url: str, counters: Counter[str] | None = None, terms: RedisTerms = NO_TERMS
) -> AsyncIterator[Combiner]:
    combiner = Combiner(
        connector(url, terms), [], counters=Counter() if counters is None else counters, options=CombinerOptions()
    )
    combiner.start()
    try:
        async with asyncio.timeout(PATIENCE):
            await combiner.call(("PING",), None)
        yield combiner
    finally:
        await combiner.close()


class Writers:
    """Sixteen that write as fast as they are acknowledged."""

    def __init__(self, combiner: Combiner) -> None:
        self.acknowledged: dict[int, float] = {}
        self._combiner = combiner
        self._number = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._write()) for _ in range(16)]

    async def stop(self) -> None:
        await end(self._tasks)

    async def _write(self) -> None:
        while True:
            self._number += 1
            number = self._number
            with suppress(StoreUnavailableError):
                await self._combiner.call(("SET", f"mqtt:history:{{{number}}}", "x"), 2.0)
                self.acknowledged[number] = asyncio.get_running_loop().time()


async def lost(writers: Writers, server: RedisProcess) -> set[int]:
    """Return what was acknowledged and the server does not have."""
    numbers = list(writers.acknowledged)
    async with Redis.from_url(server.url) as client:
        found = await client.mget([f"mqtt:history:{{{number}}}" for number in numbers])
    return {number for number, one in zip(numbers, found, strict=True) if one is None}


async def goes_on(writers: Writers, server: RedisProcess) -> None:
    """Return when this server has got what was acknowledged from now on."""
    since = asyncio.get_running_loop().time()

    async def written() -> bool:
        late = [number for number, at in list(writers.acknowledged.items()) if at > since]
        if not late:
            return False
        async with Redis.from_url(server.url) as client:
            return bool(await client.exists(f"mqtt:history:{{{late[-1]}}}"))

    await eventually(written)


async def test_F28_a_planned_switch_is_followed_at_once_under_load(sentinels: Guarded) -> None:
    before, after = sentinels.servers
    async with combining(sentinels.url) as combiner:
        writers = Writers(combiner)
        writers.start()
        await goes_on(writers, before)
        began = asyncio.get_running_loop().time()
        await asyncio.to_thread(sentinels.switch)
        await goes_on(writers, after)
        await eventually(lambda: sentinels.switched(before))
        done = asyncio.get_running_loop().time()
        await goes_on(writers, after)
        await writers.stop()
        gone = await lost(writers, after)
        assert all(began - LOST_SECONDS < writers.acknowledged[number] < done + LOST_SECONDS for number in gone)
        assert len(writers.acknowledged) > 1000


async def test_F28_after_the_primary_was_killed_its_replica_gets_what_is_written(sentinels: Guarded) -> None:
    before, after = sentinels.servers
    counters: Counter[str] = Counter()
    async with combining(sentinels.url, counters) as combiner:
        writers = Writers(combiner)
        writers.start()
        await goes_on(writers, before)
        killed = asyncio.get_running_loop().time()
        await asyncio.to_thread(before.kill)
        await eventually(lambda: counters["store.reconnected"] >= 1)
        await goes_on(writers, after)
        await writers.stop()
        gone = await lost(writers, after)
        assert all(killed - LOST_SECONDS < writers.acknowledged[number] <= killed + 0.5 for number in gone)
        # The old one comes back as a primary, until the Sentinels have told it: nobody writes to it.
        await asyncio.to_thread(before.start)
        writers.start()
        await goes_on(writers, after)
        await writers.stop()
        async with Redis.from_url(after.url) as client:
            assert (await client.role())[0] == b"master"


async def test_a_store_and_a_member_of_the_cluster_follow_the_primary(sentinels: Guarded) -> None:
    before, after = sentinels.servers
    store, heard = redis_store(sentinels.url), Heard()
    member = redis_member(sentinels.url, heard)
    await store.start()
    try:
        async with asyncio.timeout(PATIENCE):
            await member.charter()
            await member.join(info("n1"))
            await asyncio.to_thread(before.kill)
            command = registration("SN1")

            async def registered() -> bool:
                with suppress(StoreUnavailableError):
                    await store.register(command)
                    return True
                return False

            await eventually(registered)
            await eventually(lambda: member.listening)
            assert [one.node_id for one in await member.nodes()] == ["n1"]
        async with Redis.from_url(after.url) as client:
            assert await client.exists("mqtt:lease:{n1}")
        assert heard.failures.empty()
    finally:
        await member.leave()
        await store.close()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "sentinel watch" and not task.cancelling()]


async def test_the_one_of_two_primaries_counts_that_the_later_election_made(sentinels: Guarded) -> None:
    """A Sentinel that has missed an election names an old primary, and says how old its knowledge is."""
    before, after = sentinels.servers
    await asyncio.to_thread(before.kill)
    await eventually(lambda: sentinels.switched(before))
    with RedisProcess() as old, SentinelProcess(old, quorum=1) as stale:
        for guards in ([stale, sentinels.guards[0]], [sentinels.guards[0], stale]):
            async with combining(sentinel_url(guards)) as combiner:
                await combiner.call(("SET", "mqtt:history:{which}", "x"), None)
        async with Redis.from_url(after.url) as client:
            assert await client.exists("mqtt:history:{which}")
        async with Redis.from_url(old.url) as client:
            assert not await client.exists("mqtt:history:{which}")


async def test_who_connects_first_to_another_primary_takes_the_older_connections_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The old one is cut off from its Sentinels and from nothing else, so it takes writes that nobody will have."""
    monkeypatch.setattr(sentinel, "LOOK_SECONDS", PATIENCE)
    with RedisProcess() as old, RedisProcess() as new, SentinelProcess(old, quorum=1) as guard:
        url = sentinel_url([guard])
        async with combining(url) as before:
            async with Redis(port=guard.port) as admin:
                await admin.sentinel_remove(guard.service)
                await admin.sentinel_monitor(guard.service, "127.0.0.1", new.port, 1)
            async with combining(url):
                watch_of(url, NO_TERMS)._hint.set()
                writers = Writers(before)
                writers.start()
                await goes_on(writers, new)
                await writers.stop()


async def test_few_sentinels_that_have_missed_the_latest_election_lead_nobody_back(sentinels: Guarded) -> None:
    """They are the only ones that answer, and the old primary takes writes. Most of them may have begun anew."""
    before, after = sentinels.servers
    guard = sentinels.guards[0]
    await asyncio.to_thread(before.kill)
    await eventually(lambda: sentinels.switched(before))
    with RedisProcess() as old, SentinelProcess(old, quorum=1) as stale, SentinelProcess(old, quorum=1) as other:
        few, most = sentinel_url([guard, stale]), sentinel_url([guard, stale, other])
        async with combining(few) as kept, combining(most) as led:
            await asyncio.to_thread(guard.kill)
            with pytest.raises(RedisError, match="have missed the latest fail-over"):
                await watch_of(few, NO_TERMS)._look()
            await kept.call(("SET", "mqtt:history:{which}", "x"), None)
            async with Redis.from_url(after.url) as client:
                assert await client.exists("mqtt:history:{which}")
            writers = Writers(led)
            writers.start()
            await goes_on(writers, old)
            await writers.stop()


async def test_a_transport_that_closes_while_sentinels_are_asked_ends_no_watch(
    sentinels: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As uvloop says it; without the watch nobody would leave the old primary after a planned switch."""
    broken: list[str] = []
    send = Connection.send_command

    async def closing(self: Connection, *command: str, **options: bool) -> None:
        if command[0] == "SENTINEL" and len(broken) < 2 * len(sentinels.guards):
            broken.append(command[1])
            raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")
        await send(self, *command, **options)

    async with combining(sentinels.url) as combiner:
        monkeypatch.setattr(Connection, "send_command", closing)
        await eventually(lambda: len(broken) == 2 * len(sentinels.guards))
        assert await combiner.call(("PING",), None) == b"PONG"


async def test_what_sentinels_do_not_say_is_said_at_the_start(sentinels: Guarded) -> None:
    unknown = sentinels.url.replace(f"/{SentinelProcess.service}/", "/somebody/")
    with pytest.raises(StoreUnavailableError, match="no Sentinel names the primary of somebody: it knows no service"):
        await redis_store(unknown).start()
    for guard in sentinels.guards:
        await asyncio.to_thread(guard.kill)
    with pytest.raises(StoreUnavailableError, match="no Sentinel names the primary of homing: "):
        await redis_store(sentinels.url).start()


async def test_a_replica_is_not_used_whoever_names_it(sentinels: Guarded) -> None:
    _, replica = sentinels.servers
    with SentinelProcess(replica, quorum=1) as wrong, pytest.raises(StoreUnavailableError, match="a replica still"):
        await redis_store(sentinel_url([wrong])).start()


async def test_nodes_log_in_at_sentinels_with_the_user_of_the_settings() -> None:
    users = "user default off\nuser guarded on >secret allchannels allkeys +@all"
    with guarded(users) as running:
        terms = RedisTerms("guarded", "secret")
        async with combining(running.url, terms=terms) as combiner:
            assert await combiner.call(("PING",), None) == b"PONG"
        facts = await asyncio.to_thread(inspect, running.url, SystemClock().monotonic, "r1", terms)
        assert facts.guards is not None
        assert facts.guards.silent == ()
        with pytest.raises(StoreUnavailableError, match="no Sentinel names the primary of homing: "):
            await redis_store(running.url).start()


async def test_the_doctor_sees_who_guards_the_primary(sentinels: Guarded) -> None:
    await asyncio.to_thread(sentinels.guards[0].kill)
    facts = await asyncio.to_thread(inspect, sentinels.url, SystemClock().monotonic, "r1")
    assert facts.guards is not None
    assert (facts.guards.asked, facts.guards.quorum, facts.guards.known) == (3, 2, 3)
    assert [one.partition(": ")[0] for one in facts.guards.silent] == [f"127.0.0.1:{sentinels.guards[0].port}"]
    assert facts.replicas == 1
    assert facts.role == "master"
    assert facts.missing_rights == []
    async with Redis.from_url(sentinels.servers[0].url) as admin:
        await admin.execute_command("ACL", "SETUSER", "homing", "-role")  # type: ignore[no-untyped-call]
    facts = await asyncio.to_thread(inspect, sentinels.url, SystemClock().monotonic, "r1")
    assert facts.missing_rights == ["+role"]
