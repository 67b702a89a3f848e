"""A store, devices, and drivers of one fleet run that come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from app.access.ports import Everybody
from app.commands.send.invoker import Invocation
from app.commands.send.registrar import CommandRequest
from app.core.access.callers import Caller
from app.core.commands.callback import Answer, Expectation, HoldRequest, Registration
from app.core.commands.command import CommandState
from app.core.commands.routing import MatchResult
from app.core.errors import StoreUnavailableError, UnreadableRecordError
from app.core.fleets.ids import new_run_id
from app.core.fleets.run import new_run
from app.core.fleets.spec import RunSpec, read_further, read_rules, read_waves
from app.core.profiles.correlation import Correlation
from app.core.profiles.lanes import CommandLane
from app.fleets.driver import LEASE, DriverPorts, RunDriver
from app.fleets.plan import FleetCommand, KnownRun, RunPlan
from app.fleets.replaced import ReplacedCommands
from app.store.commands import Finished, Registered
from app.store.fleets import NewRecord, RunChange, Written
from app.store.holds import Claimed
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
            hold=HoldRequest(request.hold or timedelta(), run=request.run),
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
        self.meanwhile: RunChange | None = None
        """The change that somebody makes while the driver asks who is there."""
        self.epochs = 0
        self.spec = RunSpec(
            waves=read_waves(members.get("waves", [])),
            stop=read_rules(members.get("stop", [])),
            in_flight=members.get("in_flight", 100),
            hold=members.get("hold", HOUR),
            start_at=0,
            until=2**62 if "lasts" not in members else round((self.clock.wall() + members["lasts"]) * 1_000_000),
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
        if self.meanwhile is not None:
            change, self.meanwhile = self.meanwhile, None
            assert await self.store.fleets.write(RUN, change) is Written.YES
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
        return RunDriver(RUN, epoch, holder, self.ports())

    def ports(self) -> DriverPorts:
        return DriverPorts(
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


async def succeed(world: World, result: bytes) -> None:
    """Let devices answer their commands, which are sent for that."""
    for entry in await world.store.held():
        assert isinstance(await world.store.claim(entry.command_id, "node-a", entry.command_id), Claimed)
        said = Answer(
            device_id=entry.device_id,
            topic=f"a/{entry.device_id}",
            correlation=Correlation.ID,
            value=entry.command_id,
            state=CommandState.SUCCEEDED,
            result=result,
        )
        assert (await world.store.respond(said, "node-a")).verdict is MatchResult.WON


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


def kill() -> None:
    raise Killed
