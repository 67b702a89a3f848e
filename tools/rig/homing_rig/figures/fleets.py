"""A fleet run whose driver is killed again and again, over a real Redis: who got what, seconds, and memory."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2b
from time import perf_counter
from typing import Annotated, Final

from redis.asyncio import Redis
from typer import Option

from app.access.ports import Everybody
from app.commands.send.invoker import Invocation
from app.commands.send.registrar import CommandRequest
from app.core.access.callers import Caller
from app.core.commands.callback import Answer, Expectation, HoldRequest, Registration
from app.core.commands.command import CommandState
from app.core.fleets.ids import new_run_id
from app.core.fleets.run import RunState, new_run
from app.core.fleets.spec import RunSpec, read_rules, read_waves
from app.core.profiles.correlation import Correlation
from app.fleets.driver import LEASE, DriverPorts, RunDriver
from app.fleets.plan import FleetCommand, KnownRun, RunPlan
from app.fleets.replaced import ReplacedCommands
from app.runtime.system import SystemClock, new_secret, new_ulid, new_wake_key
from app.store.commands import Finished
from app.store.fleets import NewRecord, RunChange, Written
from app.store.holds import Claimed, HeldEntry
from app.store.redis.commands.store import RedisStateStore
from homing_rig.figures.kit import MIB, FigureError, Findings
from homing_rig.services import RedisProcess

RETENTION: Final = timedelta(hours=1)
HOLD: Final = timedelta(hours=1)
LONGEST: Final = timedelta(hours=12)
MUTE, REFUSES = 5, 5
"""The shares, in percent, of devices that never answer and of those that refuse."""
AT_A_TIME: Final = 64
LOOK_SECONDS: Final = 0.1
STANDS_SECONDS: Final = 2.0
"""The time for which the measurement looks whether a run that a rule has stopped hands anything out."""
TELL_SECONDS: Final = 5.0
DEVICES: Final = "devices"


class _Children:
    """Registers held commands, as a node does for the driver of a run."""

    def __init__(self, store: RedisStateStore) -> None:
        self._store = store

    async def invoke(self, request: CommandRequest, caller: Caller | None, *, park: bool) -> Invocation:
        del caller, park
        await self._store.register(
            Registration(
                command_id=request.command_id,
                device_id=request.device_id,
                method=request.method,
                params=b"{}",
                profile=request.profile,
                home_node="driver",
                expectations=(Expectation(_topic(request.device_id), Correlation.ID),),
                timeout=request.timeout,
                retention=RETENTION,
                hold=HoldRequest(request.hold or HOLD),
            )
        )
        return None  # type: ignore[return-value] # the driver does not look at it


@dataclass
class DeviceBooks:
    """The commands that devices got, by their own books."""

    store: RedisStateStore
    got: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    ended: Counter[str] = field(default_factory=Counter)

    async def answer(self) -> None:
        """Take what is held for any of them, and answer it, or not; until cancelled."""
        while True:
            entries = (await self.store.held()).entries
            for begin in range(0, len(entries), AT_A_TIME):
                await asyncio.gather(*(self._take(one) for one in entries[begin : begin + AT_A_TIME]))
            await asyncio.sleep(LOOK_SECONDS)

    async def _take(self, entry: HeldEntry) -> None:
        device, command = entry.device_id, entry.command_id
        if not isinstance(await self.store.claim(command, DEVICES, "token"), Claimed):
            return
        self.got[device].append(command)
        chance = blake2b(device.encode(), digest_size=4).digest()[0] * 100 // 256
        if chance < MUTE:
            await self.store.finish(command, CommandState.TIMED_OUT, DEVICES, b'{"code": "no_response"}')
            self.ended["timed_out"] += 1
            return
        refuses = chance < MUTE + REFUSES
        state = CommandState.FAILED if refuses else CommandState.SUCCEEDED
        error = b'{"code": 42, "message": "no GPS"}' if refuses else None
        result = None if refuses else b'{"code":0}'
        await self.store.respond(Answer(_topic(device), device, Correlation.ID, command, state, result, error), DEVICES)
        self.ended[str(state)] += 1


@dataclass
class _Driving:
    """The process that drives the run, killed at an interval, and another one each time."""

    url: str
    run_id: str
    every: float
    kills: int = 0

    async def go_on(self) -> None:
        number = 0
        while True:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", __spec__.name, self.url, self.run_id, f"driver-{number}"),
                stdout=asyncio.subprocess.PIPE,
            )
            number += 1
            try:
                if process.stdout is not None:
                    await process.stdout.readline()  # it drives
                async with asyncio.timeout(self.every or None):
                    if await process.wait():
                        raise FigureError("the driver has failed")
                    return
            except TimeoutError:
                process.kill()
                await process.wait()
                self.kills += 1
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()


async def fleets(
    findings: Findings,
    *,
    targets: Annotated[int, Option(min=100, max=100_000, help="The number of devices.")] = 100_000,
    in_flight: Annotated[int, Option(min=1, max=5_000, help="The most targets at once.")] = 1_000,
    kill_every: Annotated[float, Option(min=0, help="The seconds for which a driver lives; 0: to the end.")] = 5,
) -> None:
    """A fleet run of many devices whose driver is killed: once each, nothing after a rule, seconds, Redis' memory."""
    with RedisProcess() as server:
        async with Redis.from_url(server.url) as redis, opened(server.url) as store:
            before = await _memory(redis)
            began = perf_counter()
            run_id = await _create(store, targets, in_flight)
            frozen, written = perf_counter() - began, await _memory(redis)
            findings.write(f"{targets} targets are frozen: {frozen:.1f} s, Redis {written / MIB:.0f} MiB")
            books, driving = DeviceBooks(store), _Driving(server.url, run_id, kill_every)
            tasks = [asyncio.create_task(books.answer()), asyncio.create_task(driving.go_on())]
            tasks.append(asyncio.create_task(_told(findings, redis, books, driving, targets)))
            peak = 0
            try:
                overrun = await _stopped(store, run_id, tasks)
                while not (known := await _read(store, run_id, tasks)).run.state.final:
                    peak = max(peak, await _memory(redis))
                    await asyncio.sleep(LOOK_SECONDS * 5)
            finally:
                for one in tasks:
                    one.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            seconds = perf_counter() - began
            peak = max(peak, await _memory(redis))
            kept = await _kept(redis, run_id)
    counts = known.run.counts()
    findings.note(f"{targets} targets, {in_flight} at once, {driving.kills} kills: {known.run.state}, {counts}")
    findings.figure("devices that got two commands", sum(len(one) > 1 for one in books.got.values()), most=0)
    findings.figure("devices that got none", targets - len(books.got), most=0)
    findings.figure("counts that differ from the devices' books", _differ(counts, books.ended), most=0)
    findings.figure("targets handed out after the rule had stopped the run", overrun, most=0)
    findings.figure("until its targets are frozen", frozen, " s", most=5)
    findings.figure("from its creation to its end", seconds, " s")
    findings.figure("targets a second", targets / seconds)
    findings.figure("Redis for frozen targets", (written - before) / targets, " B each")
    findings.figure("Redis for the run alone, when it has ended", kept / targets, " B each")
    findings.figure("Redis, with each command on record", (peak - before) / targets, " B each")
    findings.figure("Redis in all, at most", peak / MIB, " MiB")


async def _told(findings: Findings, redis: Redis, books: DeviceBooks, driving: _Driving, targets: int) -> None:
    """Say now and then how far it is, until cancelled: a long run is then no riddle."""
    began = perf_counter()
    while True:
        await asyncio.sleep(TELL_SECONDS)
        memory, ended = await _memory(redis), books.ended.total()
        findings.write(
            f"{perf_counter() - began:.0f} s: {len(books.got)} of {targets} devices got it, {ended} ended, "
            f"{driving.kills} kills, Redis {memory / MIB:.0f} MiB"
        )


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[RedisStateStore]:
    """A store as nodes have it."""
    store = RedisStateStore(
        url, clock=SystemClock(), counters=Counter(), wake_key=new_wake_key(), new_secret=new_secret
    )
    await store.start()
    try:
        yield store
    finally:
        await store.close()


async def _create(store: RedisStateStore, total: int, in_flight: int) -> str:
    run_id, now = new_run_id(new_ulid()), await store.now()
    spec = RunSpec(
        waves=read_waves([100, "10%"]),
        stop=read_rules([{"of": ["failed"], "count": max(1, total // 100)}]),
        in_flight=in_flight,
        hold=HOLD,
        start_at=now,
        until=now + LONGEST // timedelta(microseconds=1),
    )
    run = new_run(spec, total)
    plan = RunPlan(
        tenant="",
        by="",
        who="",
        targets={},
        command=FleetCommand("ok", {}, timedelta(seconds=10)),
        spec=spec,
        digest="",
    )
    await store.fleets.create(
        NewRecord(
            run_id=run_id,
            fingerprint="",
            plan=plan.to_json(),
            status=run.kept(),
            marks=bytes(run.marks),
            targets=[[f"dock-{number:06d}", "homing"] for number in range(total)],
            lasts=LONGEST,
        )
    )
    return run_id


async def _read(store: RedisStateStore, run_id: str, tasks: Iterable[asyncio.Task[None]]) -> KnownRun:
    for one in tasks:
        if one.done() and one.exception() is not None:
            one.result()
    record = await store.fleets.read(run_id)
    if record is None:
        raise FigureError("the run is gone")
    return KnownRun.of(record)


async def _stopped(store: RedisStateStore, run_id: str, tasks: Iterable[asyncio.Task[None]]) -> int:
    """Wait until the rule has stopped the run; how many targets have had their turn since. Then it goes on."""
    while (first := await _read(store, run_id, tasks)).run.state is not RunState.PAUSED:
        if first.run.state.final:
            raise FigureError("the rule has not stopped the run")
        await asyncio.sleep(LOOK_SECONDS)
    await asyncio.sleep(STANDS_SECONDS)
    waiting = first.run.counts()["waiting"]
    while True:
        known = await _read(store, run_id, tasks)
        overrun = waiting - known.run.counts()["waiting"]
        known.run.resume(await store.now(), "anna", forgive=True)
        known.run.status.forgiven = {"failed": known.run.counts()["failed"] * 1_000}
        change = RunChange(version=known.record.version, status=known.run.kept(), marks=bytes(known.run.marks))
        if await store.fleets.write(run_id, change) is Written.YES:
            return overrun


def _differ(counts: dict[str, int], books: Counter[str]) -> int:
    return sum(abs(counts.get(one, 0) - books[one]) for one in {*counts, *books})


async def _memory(redis: Redis) -> int:
    return int((await redis.info("memory"))["used_memory"])


async def _kept(redis: Redis, run_id: str) -> int:
    found = [
        int(await redis.memory_usage(key, samples=0) or 0) async for key in redis.scan_iter(f"mqtt:run:*{run_id}*")
    ]
    return sum(found)


def _topic(device_id: str) -> str:
    return f"homing/{device_id}/response"


async def drive(url: str, run_id: str, name: str) -> None:
    """Drive the run to its end, as whoever drove it before is known to be dead."""
    async with opened(url) as store:

        async def nobody_knows(_device: str) -> bool | None:
            return None

        async def cancel(identity: str, *, only_held: bool = False) -> Finished:
            return await store.finish(identity, CommandState.CANCELLED, name, None, only_held=only_held)

        ports = DriverPorts(
            store=store.fleets,
            commands=store,
            children=_Children(store),
            cancel=cancel,
            replaced=ReplacedCommands(store, cancel),
            online=nobody_knows,
            access=Everybody(),
            retention=RETENTION,
            clock=SystemClock(),
            counters=Counter(),
        )
        holder = f"{name} {new_secret()}"
        epoch = await store.fleets.drive(run_id, holder, LEASE, "driver-")
        print("drives", flush=True)
        await RunDriver(run_id, epoch, holder, ports).run()


if __name__ == "__main__":
    asyncio.run(drive(*sys.argv[1:4]))
