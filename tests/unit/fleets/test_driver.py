"""The driver of a run, killed at every step: each target gets one command, and the run ends with the right counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from app.access.ports import Everybody
from app.commands.send.invoker import Invocation
from app.commands.send.registrar import CommandRequest
from app.core.access.callers import Caller
from app.core.commands.callback import Expectation, HoldRequest, Registration
from app.core.commands.command import CommandState
from app.core.errors import StoreUnavailableError, UnreadableRecordError
from app.core.fleets.ids import new_run_id
from app.core.fleets.marks import TargetMark
from app.core.fleets.run import RunState, new_run
from app.core.fleets.spec import RunSpec, read_further, read_rules, read_waves
from app.core.profiles.correlation import Correlation
from app.core.profiles.lanes import CommandLane
from app.fleets.driver import BUSY_SECONDS, LEASE, LOOKS, DriverPorts, RunDriver
from app.fleets.plan import FleetCommand, KnownRun, RunPlan
from app.fleets.replaced import ReplacedCommands
from app.store.commands import Finished, Registered
from app.store.fleets import NewRecord, RunChange
from app.store.memory.commands.store import MemoryStateStore
from tests.contract.store_backends import ManualClock

HOUR = timedelta(hours=1)
RUN = new_run_id("01J00000000000000000000001")
RETENTION = timedelta(hours=1)


class Killed(BaseException):
    """The process of the driver is gone."""


class Children:
    """Registers commands as nodes do, and kills the driver before or after that, when it is told to."""

    def __init__(self, store: MemoryStateStore) -> None:
        self._store = store
        self.sent: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None
        self.fails: Callable[[], bool] = lambda: False
        self.lane: CommandLane | None = None

    async def invoke(self, request: CommandRequest, caller: Caller | None, *, park: bool) -> Invocation:
        del caller, park
        self.asked[request.device_id] += 1
        self.before()
        if self.fails():
            raise StoreUnavailableError("nobody knows")
        registration = Registration(
            command_id=request.command_id,
            device_id=request.device_id,
            method=request.method,
            params=b"{}",
            profile=request.profile,
            home_node="node-a",
            expectations=(Expectation(f"a/{request.device_id}", Correlation.ID),),
            timeout=request.timeout,
            retention=RETENTION,
            hold=HoldRequest(request.hold or timedelta()),
            lane=self.lane,
        )
        there = await self._store.get([request.command_id])
        assert isinstance(await self._store.register(registration), Registered)
        if there == [None]:
            self.sent[request.device_id] += 1
        self.after()
        return None  # type: ignore[return-value] # nobody looks at it


class World:
    """A store, devices, and drivers that come and go."""

    def __init__(self, total: int, **members: Any) -> None:
        self.clock = ManualClock()
        self.store = MemoryStateStore(self.clock)
        self.children = Children(self.store)
        self.counters: Counter[str] = Counter()
        self.total = total
        self.away: set[str] = set()
        self.unreadable = ""
        self.epochs = 0
        self.spec = RunSpec(
            waves=read_waves(members.get("waves", [])),
            stop=read_rules(members.get("stop", [])),
            in_flight=members.get("in_flight", 100),
            hold=members.get("hold", HOUR),
            start_at=0,
            until=2**62,
            **read_further(members.get("further", {})),
        )
        self.labels: Callable[[int], list[str]] = members.get("labels", lambda _: [])

    async def create(self) -> None:
        run = new_run(self.spec, self.total)
        plan = RunPlan(
            tenant="",
            by="",
            who="",
            targets={},
            command=FleetCommand("ok", {}, timedelta(seconds=10)),
            spec=self.spec,
            digest="",
        )
        targets = [[f"dock-{index}", "homing", *self.labels(index)] for index in range(self.total)]
        record = NewRecord(
            run_id=RUN,
            fingerprint="",
            plan=plan.to_json(),
            status=run.kept(),
            marks=bytes(run.marks),
            targets=targets,
            lasts=HOUR * 24,
        )
        await self.store.fleets.create(record)

    async def online(self, device_id: str) -> bool | None:
        return device_id not in self.away

    async def cancel(self, identity: str, *, only_held: bool = False) -> Finished:
        if identity == self.unreadable:
            raise UnreadableRecordError(identity, "it is of a later version")
        error = b'{"code": "cancelled"}'
        return await self.store.finish(identity, CommandState.CANCELLED, "node-a", error, only_held=only_held)

    async def driver(self) -> RunDriver:
        """One more, on another node, as the one before is known to be dead."""
        self.epochs += 1
        holder = f"node-{self.epochs} s"
        epoch = await self.store.fleets.drive(RUN, holder, LEASE, "node-")
        ports = DriverPorts(
            store=self.store.fleets,
            commands=self.store,
            children=self.children,
            cancel=self.cancel,
            replaced=ReplacedCommands(self.store, self.cancel),
            online=self.online,
            access=Everybody(),
            retention=RETENTION,
            clock=self.clock,
            counters=self.counters,
        )
        return RunDriver(RUN, epoch, holder, ports)

    async def known(self) -> KnownRun:
        record = await self.store.fleets.read(RUN)
        assert record is not None
        return KnownRun.of(record)

    async def counts(self) -> dict[str, int]:
        return (await self.known()).run.counts()

    async def answer(self, end: Callable[[str], CommandState | None]) -> None:
        """Let open commands of devices end as they say."""
        for entry in await self.store.held():
            state = end(entry.device_id)
            if state is not None:
                error = b'{"code": "x", "message": "no"}' if state is not CommandState.SUCCEEDED else None
                await self.store.finish(entry.command_id, state, "node-a", error)


async def rounds(driver: RunDriver, world: World, count: int = 1, *, step: float = 0.25) -> float | None:
    delay: float | None = 0
    for _ in range(count):
        delay = await driver.round()
        world.clock.now += step
    return delay


def window_of(world_clock: ManualClock, begin: int, end: int) -> dict[str, str]:
    """A window from so many minutes after the present one to so many."""
    now = datetime.fromtimestamp(world_clock.wall(), UTC)
    return {name: f"{now + timedelta(minutes=one):%H:%M}" for name, one in (("from", begin), ("to", end))}


def cancelled(_device: str) -> CommandState:
    return CommandState.CANCELLED


async def world_of(total: int, **members: Any) -> World:
    world = World(total, **members)
    await world.create()
    return world


async def test_a_driver_that_dies_between_mark_and_registration_leaves_it_to_the_next() -> None:
    world = await world_of(5)
    world.children.before = kill
    with pytest.raises(Killed):
        await (await world.driver()).round()
    assert await world.counts() == {"handed": 5}
    assert not world.children.sent
    world.children.before = lambda: None
    await rounds(await world.driver(), world)
    assert world.children.sent == Counter({f"dock-{index}": 1 for index in range(5)})


def kill() -> None:
    raise Killed


async def test_a_driver_that_was_replaced_hands_nothing_out() -> None:
    world = await world_of(5, in_flight=2)
    first = await world.driver()
    await rounds(first, world)
    second = await world.driver()
    await world.answer(cancelled)
    assert await first.round() is None, "its write was refused"
    assert await world.counts() == {"handed": 2, "waiting": 3}
    world.clock.now += 1
    assert await first.round() is None, "it has lost its lease"
    await rounds(second, world)
    assert await world.counts() == {"cancelled": 2, "handed": 2, "waiting": 1}
    assert sum(world.children.sent.values()) == 4


async def test_what_is_held_already_is_registered_again_once_by_the_next_driver() -> None:
    """The node that registered it may have died before it told others that it waits."""
    world = await world_of(4)
    await rounds(await world.driver(), world)
    await rounds(await world.driver(), world, 3)
    assert world.children.asked == Counter({f"dock-{index}": 2 for index in range(4)})
    assert world.children.sent == Counter({f"dock-{index}": 1 for index in range(4)})


async def test_a_store_that_says_nothing_is_asked_again_and_nobody_gets_two() -> None:
    world = await world_of(8)
    random = Random(1)
    driver = await world.driver()
    world.children.fails = lambda: random.random() < 0.7
    await rounds(driver, world, 20)
    assert world.children.sent == Counter({f"dock-{index}": 1 for index in range(8)})
    assert world.counters["fleet.again"] > 0


async def test_when_nobody_drove_for_long_a_missing_command_is_unknown_and_never_sent_again() -> None:
    world = await world_of(3)
    await rounds(await world.driver(), world)
    await world.answer(cancelled)
    world.clock.now += 2 * RETENTION.total_seconds()
    await rounds(await world.driver(), world, 2)
    assert await world.counts() == {"unknown": 3}
    assert sum(world.children.sent.values()) == 3
    assert (await world.known()).run.state is RunState.FAILED


async def test_what_was_never_registered_of_an_aborted_run_is_cancelled_after_a_while() -> None:
    world = await world_of(3)
    world.children.before = kill
    with pytest.raises(Killed):
        await (await world.driver()).round()
    world.children.before = lambda: None
    driver = await world.driver()
    known = await world.known()
    known.run.abort(await world.store.now(), "anna", cancel=False)
    change = RunChange(version=known.record.version, status=known.run.kept(), marks=bytes(known.run.marks))
    await world.store.fleets.write(RUN, change)
    await rounds(driver, world, 2)
    assert await world.counts() == {"handed": 3}, "another driver may register them at this moment"
    await rounds(driver, world, 12, step=1)
    assert await world.counts() == {"cancelled": 3}
    assert not world.children.sent


async def aborted(world: World, *, spares: bool) -> None:
    """Have somebody abort the run, and cancel what is open."""
    known = await world.known()
    known.run.abort(await world.store.now(), "anna", cancel=True, spares=spares)
    change = RunChange(version=known.record.version, status=known.run.kept(), marks=bytes(known.run.marks))
    await world.store.fleets.write(RUN, change)


async def test_what_cannot_be_read_keeps_nothing_else_from_being_cancelled() -> None:
    world = await world_of(3)
    driver = await world.driver()
    await rounds(driver, world)
    unreadable = (await world.store.held())[1]
    world.unreadable = unreadable.command_id
    await aborted(world, spares=False)
    await rounds(driver, world, 3)
    assert await world.counts() == {"cancelled": 2, "handed": 1}
    await world.store.finish(unreadable.command_id, CommandState.SUCCEEDED, "node-b")
    await rounds(driver, world)
    assert (await world.known()).run.state is RunState.ABORTED


async def test_of_a_run_that_is_replaced_what_was_sent_does_not_stop_its_lane() -> None:
    world = await world_of(2)
    world.children.lane = CommandLane("mission", stops=True)
    driver = await world.driver()
    await rounds(driver, world)
    sent = (await world.store.held())[0]
    await world.store.claim(sent.command_id, "node-a", "t")
    await aborted(world, spares=True)
    await rounds(driver, world, 3)
    assert await world.counts() == {"cancelled": 1, "handed": 1}
    assert (await world.store.lane_now(sent.device_id, world.children.lane)).stop is None
    await world.store.finish(sent.command_id, CommandState.SUCCEEDED, "node-a")
    await rounds(driver, world)
    assert (await world.known()).run.state is RunState.ABORTED


async def test_a_person_who_has_all_cancelled_has_the_last_word_about_what_was_spared() -> None:
    world = await world_of(1)
    world.children.lane = CommandLane("mission", stops=True)
    driver = await world.driver()
    await rounds(driver, world)
    (sent,) = await world.store.held()
    await world.store.claim(sent.command_id, "node-a", "t")
    await aborted(world, spares=True)
    await rounds(driver, world, 2)
    assert await world.counts() == {"handed": 1}
    await aborted(world, spares=False)
    await aborted(world, spares=True)
    await rounds(driver, world, 2)
    assert await world.counts() == {"cancelled": 1}


async def test_those_that_are_away_take_no_place_and_are_given_up_after_their_hold() -> None:
    world = await world_of(6, in_flight=2, hold=timedelta(seconds=30))
    world.away = {f"dock-{index}" for index in range(4)}
    driver = await world.driver()
    await rounds(driver, world)
    assert set(world.children.sent) == {"dock-4", "dock-5"}
    world.away = {"dock-0"}
    await world.answer(cancelled)
    await rounds(driver, world, 4, step=1)
    assert set(world.children.sent) == {"dock-4", "dock-5", "dock-1", "dock-2"}
    await world.answer(cancelled)
    await rounds(driver, world, 32, step=1)
    assert await world.counts() == {"cancelled": 4, "handed": 1, "unreachable": 1}


async def test_what_is_handed_out_is_held_no_longer_than_its_window_is_open() -> None:
    windows = [window_of(ManualClock(), 0, 5), window_of(ManualClock(), 60, 65)]
    world = await world_of(4, in_flight=2, further={"windows": windows})
    driver = await world.driver()
    await rounds(driver, world)
    held = await world.store.held()
    assert len(held) == 2
    closes = world.clock.wall() - world.clock.wall() % 60 + 300
    assert all(one.until <= closes * 1_000_000 for one in held)
    world.clock.now = world.clock.now + closes - world.clock.wall() + 0.5
    await world.answer(cancelled)
    await rounds(await world.driver(), world, 3)
    assert await world.counts() == {"cancelled": 2, "waiting": 2}
    assert (await world.known()).run.state is RunState.WAITING
    world.clock.now += 55 * 60
    await rounds(await world.driver(), world, 2)
    assert await world.counts() == {"cancelled": 2, "handed": 2}


async def test_of_one_value_of_a_label_so_many_are_in_flight_at_most() -> None:
    per = {"per": [{"label": "site", "most": 2}]}
    world = await world_of(20, further=per, labels=lambda index: ["north" if index < 10 else "south"])
    driver = await world.driver()
    seen = 0
    while await rounds(driver, world) is not None:
        flying = [int(one.device_id.partition("-")[2]) for one in await world.store.held()]
        assert sum(one < 10 for one in flying) <= 2
        assert sum(one >= 10 for one in flying) <= 2
        seen = max(seen, len(flying))
        await world.answer(cancelled)
    assert seen == 4
    assert await world.counts() == {"cancelled": 20}


@pytest.mark.parametrize("seed", range(8))
async def test_killed_again_and_again_it_ends_with_one_command_for_each(seed: int) -> None:
    """S20 in small: a driver dies at a random call, and whoever comes next goes on."""
    random = Random(seed)
    total = 60
    world = await world_of(total, waves=[5, "20%"], in_flight=random.randint(3, 20))
    dies = 0.03 + random.random() * 0.15

    def maybe_die() -> None:
        if random.random() < dies:
            raise Killed

    world.children.before = world.children.after = maybe_die
    world.children.fails = lambda: random.random() < 0.1
    ends = {f"dock-{index}": random.choice([CommandState.CANCELLED, CommandState.UNSENT]) for index in range(total)}
    driver, deaths = await world.driver(), 0
    for _ in range(3_000):
        try:
            if await rounds(driver, world) is None:
                break
        except Killed:
            deaths += 1
            driver = await world.driver()
        except StoreUnavailableError:
            continue
        await world.answer(lambda device: ends[device] if random.random() < 0.5 else None)
        most = world.spec.in_flight
        assert (await world.counts()).get("handed", 0) <= most
    assert deaths > 0
    assert world.children.sent == Counter({f"dock-{index}": 1 for index in range(total)})
    told = Counter(TargetMark[one.name].word for one in ends.values())
    assert await world.counts() == dict(told)
    assert (await world.known()).run.state is RunState.FAILED


async def test_a_driver_goes_on_at_once_while_more_have_their_turn_and_rests_when_no_more_fit() -> None:
    world = World(3 * LOOKS, in_flight=2 * LOOKS)
    await world.create()
    driver = await world.driver()
    assert [await driver.round() for _ in range(3)] == [0, BUSY_SECONDS, BUSY_SECONDS]
    assert world.children.sent.total() == 2 * LOOKS


async def test_a_driver_does_not_hurry_from_one_that_is_away_to_the_next() -> None:
    world = World(3 * LOOKS, in_flight=2 * LOOKS)
    world.away = {f"dock-{index}" for index in range(10, 3 * LOOKS)}
    await world.create()
    assert await (await world.driver()).round() == BUSY_SECONDS
    assert world.children.sent.total() == 10
