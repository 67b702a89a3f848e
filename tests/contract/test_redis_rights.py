"""deploy/redis/users.acl grants what nodes use and nothing else (S9)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import timedelta

import pytest
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError

from app.cluster.directory import NodeInfo
from app.cluster.redis import RedisCluster
from app.cluster.wakeups import ChannelHandlers
from app.core.commands.approval import ApprovalDecision
from app.core.commands.command import CommandState
from app.core.commands.stream import Marks
from app.core.errors import StoreUnavailableError, UnavailableError
from app.core.events.event import Database, Entry, Shard
from app.core.events.reading import Reading
from app.core.events.transaction import Transaction, ValueCondition
from app.core.identifiers import partition_of
from app.core.queues.loans import LendingRules, LoanWish, QueueSource, Reference, SettleHow, Settlement, grouped
from app.core.webhooks.deliveries import Tidings
from app.core.webhooks.schedule import Reply
from app.runtime.system import SystemClock, new_charter, new_secret
from app.store.commands import Query
from app.store.declared import DocumentChange
from app.store.engine import open_events
from app.store.fleets import RunChange, Written
from app.store.holds import Claimed
from app.store.queues import TakeCall
from app.store.redis.commands.store import RedisStateStore
from app.store.redis.doctor import RedisFacts, inspect
from app.store.redis.queues import RedisQueues
from app.store.redis.rights import CHANNELS, COMMANDS, KEYS, OPTIONAL
from app.store.server_starts import KeptClaim
from tests.contract.session_places import RedisPlace
from tests.contract.store_backends import MINUTE, answer, by_order, by_value, registration
from tests.contract.test_store_fleets import record
from tests.contract.test_webhooks import FAILED, delivery, endpoint, tried
from tests.services import DEPLOY, NODE_PASSWORD, NODE_USER, RedisProcess
from tests.stores import redis_store
from tests.waiting import PATIENCE, eventually

RULES = next(
    line.split()[2:]
    for line in (DEPLOY / "redis" / "users.acl").read_text().splitlines()
    if line.startswith(f"user {NODE_USER} ")
)
GRANTS = [rule for rule in RULES if rule[0] in "+~&"]
DATABASE = 1
"""Not 0, which needs no SELECT."""


def test_the_acl_of_redis_is_what_the_doctor_asks_for() -> None:
    assert sorted(GRANTS) == sorted(
        [*(f"+{one}" for one in COMMANDS), *(f"~{one}" for one in KEYS), *(f"&{one}" for one in CHANNELS)]
    )
    assert [rule for rule in RULES if rule not in GRANTS][2:] == ["resetkeys", "resetchannels", "-@all"]


class ShippedRedis(RedisProcess):
    """A Redis with deploy/redis/users.acl as it is."""

    def _command(self) -> Sequence[str]:
        command = super()._command()
        (self.folder / "users.acl").write_text((DEPLOY / "redis" / "users.acl").read_text())
        return command


async def test_what_nodes_wrote_is_there_after_a_restart_and_only_who_logs_in_reads_it() -> None:
    """Redis loads its AOF as the default user: what scripts wrote is dropped where that user has no rights."""
    with ShippedRedis() as server:
        store = redis_store(server.node_url)
        await store.start()
        command = registration("SN1")
        await store.register(command)
        await store.close()
        await asyncio.to_thread(server.restart)
        store = redis_store(server.node_url)
        await store.start()
        [read] = await store.get([command.command_id])
        await store.close()
        async with Redis(port=server.port) as anybody:
            with pytest.raises(AuthenticationError):
                await anybody.ping()
    assert read is not None


@pytest.fixture(scope="module")
def server() -> Iterator[RedisProcess]:
    with RedisProcess() as process:
        yield process


@pytest.fixture
async def admin(server: RedisProcess) -> AsyncIterator[Redis]:
    async with Redis.from_url(server.url, decode_responses=True) as client:
        await client.flushall()
        await client.script_flush()
        await client.acl_log_reset()
        yield client


async def allow(admin: Redis, *rules: str) -> None:
    await admin.execute_command("ACL", "SETUSER", "probe", "reset", "on", f">{NODE_PASSWORD}", *rules)  # type: ignore[no-untyped-call]


def url_of(server: RedisProcess) -> str:
    return f"redis://probe:{NODE_PASSWORD}@127.0.0.1:{server.port}/{DATABASE}"


async def examined(url: str) -> RedisFacts:
    """Return what the doctor sees. It is asked again where Redis took longer than its limit, as on a busy machine."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(StoreUnavailableError):
                return await asyncio.to_thread(inspect, url, SystemClock().monotonic, "r1")


async def everything(url: str) -> None:
    """All that nodes do to Redis, down to the rare branches of the scripts."""
    store = redis_store(url)
    try:
        await store.start()
        await of_commands(store)
        await store.states.tell_state("dock-1", "state", b"{}", MINUTE)
        await of_webhooks(store)
        await of_fleets(store)
        assert await store.schedules.write("- nightly", b"{}", None)
        assert await store.schedules.write("- nightly", None, b"{}")
        assert (await store.schedules.read()).changes == await store.schedules.changes()
    finally:
        await store.close()
    await of_nodes(url)
    await of_events(url)
    await of_queues(url)
    await of_sessions(url)


async def of_sessions(url: str) -> None:
    sessions = RedisPlace(url).open()
    try:
        await sessions.start()
        await sessions.write({b"ta": b"1", b"tb": b"2"})
        await sessions.write({b"ta": None})
    finally:
        await sessions.close()


async def of_queues(url: str) -> None:
    queues = RedisQueues(url, clock=SystemClock(), counters=Counter(), new_life=lambda: "00000001")
    source, rules = QueueSource("01QUEUE", Shard("events", 0)), LendingRules(ordered=True, max_deliveries=2)
    wishes, heard = [LoanWish(10, "one")], asyncio.Event()
    queues.hear(lambda _hint: heard.set())
    try:
        await queues.start()
        version = await queues.version()
        await queues.apply([DocumentChange("q -/alarms", b"{}"), DocumentChange("q -/gone", None)], version)
        await queues.read()
        await queues.forget([source])
        await queues.feed(source, 0, 0, 9, grouped([Reference(1, 1), Reference(2, 1), Reference(3, 2)]), 100)
        (loan,) = (await queues.take(source, rules, wishes, TakeCall("n1", "1"))).loans
        assert loan is not None
        told = (Settlement(loan.number, SettleHow.RETRY, (0,), 0), Settlement(loan.number, SettleHow.RELEASE))
        await queues.settle(source, rules, loan.life, told, 1000)
        (loan,) = (await queues.take(source, rules, wishes, TakeCall("n1", "2"))).loans
        assert loan is not None
        told = (Settlement(loan.number, SettleHow.EXTEND, (), 1), Settlement(loan.number, SettleHow.DEAD))
        await queues.settle(source, rules, loan.life, told, 1000)
        await queues.buried(source.shard, (await queues.dying(source.shard, 10))[-1].number)
        await queues.states([source])
        await queues.redrive(source, 5)
        await queues.seek(source, 0)
        await eventually(lambda: queues.hears)
        await queues.hint([source])
        await asyncio.wait_for(heard.wait(), PATIENCE)
    finally:
        await queues.close()


async def of_events(url: str) -> None:
    counters: Counter[str] = Counter()
    clock, shard = SystemClock(), Shard("events", 0)
    engine = open_events(url, clock=clock, counters=counters, new_secret=new_secret)
    log = engine.open_log([Database("events", 1)])
    try:
        await log.start()
        first = await log.append(shard, [Entry("a/b", b"1"), Entry("a/c", b"2")], epoch=1)
        await log.commit(Transaction(shard, (ValueCondition("a/c", first),), (Entry("a/c", b""),)))
        await log.rotate("events", 1)
        await log.read(shard, Reading(), 10)
        await log.value(shard, "a/b")
        await log.values(shard, "#", "", 10)
        await log.structures("events")
        await log.generations("events")
        await log.drop("events", 1)
        await log.cursors.swap("ops", "archive", None, b"1")
    finally:
        await log.close()
    try:
        async with asyncio.timeout(PATIENCE):
            await engine.role.hold()
            await engine.role.still_held()
    finally:
        await engine.role.close()


async def of_commands(store: RedisStateStore) -> None:
    page = await store.changes.after(Marks.since(await store.changes.keep(MINUTE)))
    ordered = registration("dock-1", by_order(), by_value("flight"), key="k", fingerprint="f", quarantine=MINUTE)
    await store.register(ordered)
    await store.register(registration("dock-1", by_order(), key="k", fingerprint="f", home="node-b"))
    await store.mark(ordered.command_id, CommandState.ACKNOWLEDGED)
    await store.respond(answer(ordered, CommandState.RUNNING), "node-c")
    await store.follow(ordered.command_id, watcher="node-d")
    await store.respond(answer(ordered), "node-c")
    valued = registration("dock-2", by_value("flight", "dock-2"), retention=2 * MINUTE)
    await store.register(valued)
    await store.respond(answer(valued), "node-a")
    overdue = [registration("dock-3", timeout=timedelta(milliseconds=1)) for _ in range(2)]
    for one in overdue:
        await store.register(one)
    await store.finish(overdue[0].command_id, CommandState.TIMED_OUT, "node-a")
    await store.respond(answer(overdue[0]), "node-a")
    await store.sweep([partition_of("dock-3")], "node-b", timedelta())
    await of_held_commands(store)
    await store.pending_of("node-a")
    await store.outcomes([ordered.command_id])
    await store.list_commands(Query(device_id="dock-1"))
    assert (await store.changes.after(page.marks)).changes
    await store.now()
    await store.ping()


async def of_held_commands(store: RedisStateStore) -> None:
    held = registration("dock-5", by_order("dock-5"), by_value("flight", "dock-5"), held=MINUTE)
    lapsed = registration("dock-5", held=timedelta(milliseconds=1))
    for one in (held, lapsed):
        await store.register(one)
    assert await store.last_held()
    assert held.command_id in [one.command_id for one in await store.held()]
    assert await store.claim(held.command_id, "node-b", "t1")
    assert await store.give_back(held.command_id, "t1")
    claimed = await store.claim(held.command_id, "node-b", "t2", await store.starts.starts())
    assert isinstance(claimed, Claimed)
    await store.starts.reclaim(KeptClaim(claimed, "t2"), "node-b")
    await store.starts.enter("node-b", frozenset({"a start"}))
    await store.respond(answer(held), "node-b")
    for approves in (True, False):
        proposed = registration("dock-5", held=MINUTE, approval=MINUTE)
        await store.register(proposed)
        assert (await store.decide(proposed.command_id, ApprovalDecision(approves, "", "anna"), "node-b")).won

    async def has_lapsed() -> bool:
        swept = await store.sweep([partition_of("dock-5")], "node-b", timedelta())
        return [one.command_id for one in swept] == [lapsed.command_id]

    await eventually(has_lapsed)


async def of_fleets(store: RedisStateStore) -> None:
    runs, run = store.fleets, record()
    assert await runs.create(run) == "f"
    assert await runs.drive(run.run_id, "n1 s", MINUTE)
    known = await runs.read(run.run_id)
    assert known is not None
    assert await runs.targets(run.run_id)
    ended = RunChange(version=known.version, status={}, marks=b"s", results={0: [1]}, ended=True)
    assert await runs.write(run.run_id, ended) is Written.YES
    assert await runs.results(run.run_id, [0]) == [[1]]
    assert await runs.open_runs() == []
    assert len(await runs.runs()) == 1
    await runs.let_go(run.run_id, "n1 s")


async def of_webhooks(store: RedisStateStore) -> None:
    hooks, hook = store.webhooks, endpoint()
    await hooks.put_endpoint(hook, None)
    await hooks.endpoints()
    told = registration("dock-4", notify=(hook.id,))
    await store.register(told)
    await store.finish(told.command_id, CommandState.CANCELLED, "node-a")
    await store.respond(answer(told), "node-a")
    await hooks.forget(await hooks.outbox([partition_of("dock-4")], 10))
    for one in Tidings:
        await hooks.enqueue(hook.id, delivery(told.command_id, one))
    (claimed,) = await hooks.claim(hook.id, 1, timedelta(seconds=30))
    for reply in (FAILED, Reply(200)):
        await hooks.settle(hook.id, tried(claimed, reply, timedelta()))
    await hooks.again(hook.id, claimed.event_id)
    await hooks.deliveries(hook.id, 5)
    await hooks.waiting([hook.id])
    await hooks.keep(hook.id, None)
    await hooks.remove_endpoint(hook.id)


async def of_nodes(url: str) -> None:
    heard, living = asyncio.Event(), NodeInfo("n1", "01", "homing-n1-01", 0.0, ("x",))
    members = [
        RedisCluster(
            url,
            lease=timedelta(seconds=5),
            session_life=MINUTE,
            clock=SystemClock(),
            counters=Counter(),
            new_charter=new_charter,
            handlers=ChannelHandlers(lambda *_: None, heard.set, lambda _: None),
            on_failure=lambda _: None,
        )
        for _ in range(2)
    ]
    member, other = members
    async with AsyncExitStack() as stack:
        for one in members:
            stack.push_async_callback(one.leave)
        await member.join(living)
        await asyncio.wait_for(heard.wait(), PATIENCE)
        await member.still_member(living.client_id)
        await member.nodes()
        dead = NodeInfo("n2", "02", "homing-n2-02", 0.0, ("x",))
        await other.join(dead)
        await other.leave(session_kept=True)
        (orphan,) = await member.orphans()
        await member.claim(orphan, MINUTE)
        await member.adopted(orphan)
        await eventually(lambda: member.listening)
        subscribed_at = member._listener._heard_at
        await eventually(lambda: member._listener._heard_at > subscribed_at)  # a heartbeat: PUBLISH to our own channel
        await member.carry("n2", "a canary")
        await member.exchange("{}")
        await member.copies.keep(1, 1, b"copy", MINUTE)
        assert (await member.copies.kept(), await member.copies.read()) == ((1, 1), b"copy")
        await member.join(NodeInfo("n1", "03", "homing-n1-03", 0.0, ("x",)), replaces=living)
        await member.drain()


async def test_S9_the_grants_are_enough(server: RedisProcess, admin: Redis) -> None:
    await allow(admin, *GRANTS)
    await asyncio.wait_for(everything(url_of(server)), PATIENCE)
    assert await admin.acl_log() == []


@pytest.mark.parametrize("grant", [one for one in GRANTS if one[1:] not in OPTIONAL])
async def test_S9_each_grant_is_needed_and_the_doctor_names_the_one_that_lacks(
    grant: str, server: RedisProcess, admin: Redis
) -> None:
    await allow(admin, *(one for one in GRANTS if one != grant))

    async def refused() -> bool:
        return any(str(entry["object"]) in grant or grant[0] != "+" for entry in await admin.acl_log())

    async def until_refused() -> None:
        while not await refused():  # on a busy machine the budget of an earlier call may run out
            await admin.flushall()
            with suppress(UnavailableError, ValueError, TimeoutError):
                await everything(url_of(server))

    work = asyncio.create_task(until_refused())
    try:
        await eventually(lambda: work.done() or refused())
    finally:
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
    await eventually(lambda: asyncio.all_tasks() == {asyncio.current_task()})  # what could not start is closed, too
    if grant != "+select":  # without it there is not even a connection
        facts = await examined(url_of(server))
        assert facts.missing_rights == [grant]
        assert facts.user == "probe"


async def test_S9_the_doctor_changes_nothing(server: RedisProcess, admin: Redis) -> None:
    await allow(admin, *GRANTS)
    facts = await examined(url_of(server))
    assert facts.missing_rights == []
    assert (await admin.info("keyspace")) == {}


@pytest.mark.parametrize(
    "command",
    [
        "GET other:key", "SET mqtt:other x", "DEL mqtt:nodes:other", "KEYS *", "SCAN 0", "FLUSHALL", "CONFIG GET dir",
        "EVAL return(1) 0", "SCRIPT FLUSH", "PUBLISH other x", "SUBSCRIBE other", "PSUBSCRIBE *", "ACL LIST", "MONITOR",
        "CLIENT LIST", "SHUTDOWN", "BGSAVE", "MODULE LIST", "REPLICAOF NO ONE", "FUNCTION LIST",
    ],
)  # fmt: skip
async def test_S9_everything_else_is_refused(command: str, redis_server: RedisProcess) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", redis_server.port)
    writer.write(f"AUTH {NODE_USER} {NODE_PASSWORD}\r\n{command}\r\n".encode())
    assert await reader.readline() == b"+OK\r\n"
    assert (await reader.readline()).startswith(b"-NOPERM")
    writer.close()
    await writer.wait_closed()
