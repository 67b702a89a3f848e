"""Injects the faults of a schedule at their time, and knows how long everything took."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from redis.asyncio import Redis, RedisCluster
from redis.exceptions import RedisError

from app.core import keys
from app.core.events.keys import role
from homing_rig.chaos import broker_log
from homing_rig.chaos.options import SHARE_GROUP, ChaosError
from homing_rig.chaos.proxy_process import RemoteProxy
from homing_rig.chaos.redis_cluster import RedisThirds
from homing_rig.chaos.redis_pair import RedisPair
from homing_rig.chaos.schedule import BROKER, DRIVER, INTAKE, REDIS, SLOW_MS, THIRDS, Fault, Kind
from homing_rig.chaos.servers import (
    POLL_SECONDS,
    START_SECONDS,
    MosquittoProcess,
    NodeProcess,
    RedisProcess,
    ServerProcess,
)
from homing_rig.chaos.strangers import login, stranger
from homing_rig.rights import NODE_USER

_INTAKE_ROLE: Final = role(f"{SHARE_GROUP}-intake")
BACK_SECONDS: Final = 30.0
"""The time within which a process serves again; later, it counts as one that has not come back."""


@dataclass(slots=True)
class Nemesis:
    """Injects faults. What it needs to reach stands in its fields."""

    nodes: Mapping[str, NodeProcess]
    broker: MosquittoProcess
    store: RedisProcess
    redis: Redis | RedisCluster
    proxies: Mapping[str, RemoteProxy]
    note: Callable[[str, str, str], None]
    """Called with kind, target and phase (`begin`, `end`) of each fault."""
    pair: RedisPair | None = None
    """The Redis and its replica, where it has one."""
    thirds: RedisThirds | None = None
    """The Redis Cluster, where it is one."""
    counts: Counter[str] = field(default_factory=Counter)
    in_vain: Counter[str] = field(default_factory=Counter)
    """The faults of each kind that met nobody: the target was down already, or had no connection to break."""
    stop_seconds: list[float] = field(default_factory=list)
    """The time that each orderly stop took."""
    returns: list[float] = field(default_factory=list)
    """Seconds from the start of a service, or the end of a freeze, until it was ready; infinite where it never was."""
    switches: list[float] = field(default_factory=list)
    """Seconds from each planned fail-over until all replicas were in step again."""
    receiving: list[float] = field(default_factory=list)
    """Seconds from the start of the broker until all nodes were ready again."""
    takeovers: list[float] = field(default_factory=list)
    """Seconds from the kill of the node that brought events in until another one did."""
    begun: list[tuple[float, Fault]] = field(default_factory=list)
    """Every fault so far, with the loop time of its beginning."""
    run_lease: str = ""
    """The key in Redis that names the driver of the fleet run, where there is one."""
    poll_seconds: float = POLL_SECONDS
    """The time between two looks for what it waits for."""
    patience: float = START_SECONDS
    """The time for which it looks; then the run ends with an error that says what never was."""
    _healing: bool = False
    _under_way: set[asyncio.Task[None]] = field(default_factory=set)
    _staying_down: set[str] = field(default_factory=set)
    _former: set[bytes] = field(default_factory=set)
    """The former holders of the intake and drivers of the run whose process was killed; Redis may still name them."""
    _choosing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def kinds_in_vain(self, schedule: Iterable[Fault]) -> list[Kind]:
        """Return the kinds of faults in a schedule of which none met anybody, or none ever began."""
        return sorted(kind for kind in {one.kind for one in schedule} if self.counts[kind] <= self.in_vain[kind])

    async def run(self, schedule: Sequence[Fault]) -> None:
        """Inject every fault at its time; returns when the last one has begun."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        for fault in sorted(schedule):
            await asyncio.sleep(max(0.0, began + fault.at - loop.time()))
            task = loop.create_task(self._inject(fault), name=f"fault {fault}")
            self._under_way.add(task)
            task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        """Forget a fault that is over; one that could not be done is kept for `heal`, which fails then."""
        if task.cancelled() or task.exception() is None:
            self._under_way.discard(task)

    async def heal(self) -> None:
        """Wait until all faults are over, and everything that should run serves."""
        await self._end_faults()
        for proxy in self.proxies.values():
            await proxy.heal()
        for service in (self.store, self.broker, *self.nodes.values()):
            if service.name not in self._staying_down:
                service.thaw()
                try:
                    await service.start()
                except ChaosError:
                    self.counts["not back"] += 1

    async def _end_faults(self) -> None:
        """Wait until those that have begun are over; the others are left out."""
        self._healing = True
        while self._under_way:
            await asyncio.gather(*self._under_way)
        self._healing = False

    async def _inject(self, fault: Fault) -> None:
        if fault.kind is Kind.FAIL_OVER and self.pair is not None and not self.pair.whole:
            # There is no replica that could take over.
            self.counts["left out"] += 1
        elif self.thirds is not None and fault.target in THIRDS:
            await self._inject_into_third(fault, self.thirds)
        elif fault.target == DRIVER:
            await self._inject_into_driver(fault)
        elif fault.target != INTAKE:
            await self._act(fault)
        elif self._choosing.locked():
            # The one before waits until it may be: two in a row would be another scenario.
            self.counts["left out"] += 1
        else:
            await self._inject_into_intake(fault)

    async def _inject_into_third(self, fault: Fault, thirds: RedisThirds) -> None:
        """Into the primary of a third of the slots, as soon as the fault before is over; never after the load."""
        async with thirds.turns:
            if self._healing:
                self.counts["left out"] += 1
            else:
                await self._act(fault)

    async def _inject_into_driver(self, fault: Fault) -> None:
        name, holder = await self._first_in(self.run_lease, "no node drives the run")
        if fault.kind is Kind.KILL:
            self._former.add(holder)
        await self._act(replace(fault, target=name))

    async def _inject_into_intake(self, fault: Fault) -> None:
        """Into the node that brings events in, as soon as another one is there that can take over."""
        loop = asyncio.get_running_loop()
        async with self._choosing:
            until = loop.time() + self.patience
            while True:
                name, holder = await self._intake()
                if len(self.nodes) == 1 or (
                    await self._other_is_ready(name) and await self._holder(_INTAKE_ROLE) == holder
                ):
                    break
                if loop.time() >= until:
                    raise ChaosError(f"{name} brings events in, and no other node is ready to take over")
                await asyncio.sleep(self.poll_seconds)
            if fault.kind is Kind.KILL:
                self._former.add(holder)
            began = loop.time()
            acting = loop.create_task(self._act(replace(fault, target=name)), name=f"fault {fault}")
            self._under_way.add(acting)
            acting.add_done_callback(self._over)
            if fault.kind is Kind.KILL and len(self.nodes) > 1:
                with suppress(ChaosError):  # who never takes over is judged by what is lost
                    await self._intake()
                    self.takeovers.append(loop.time() - began)

    async def _other_is_ready(self, name: str) -> bool:
        others = [node for node in self.nodes.values() if node.name != name and node.running and not node.frozen]
        return any(await asyncio.gather(*(node.ready() for node in others)))

    async def _act(self, fault: Fault) -> None:
        self.counts[fault.kind] += 1
        self.begun.append((asyncio.get_running_loop().time(), fault))
        self.note(fault.kind, fault.target, "begin")
        acts: dict[Kind, Callable[[Fault], Awaitable[None]]] = {
            Kind.KILL: self._kill,
            Kind.FREEZE: self._freeze,
            Kind.RESTART: self._restart,
            Kind.CUT_PUBSUB: self._cut_pubsub,
            Kind.BLACKHOLE: self._blackhole,
            Kind.SLOW: self._slow,
            Kind.FLUSH: self._flush,
            Kind.FORGET_SCRIPTS: self._forget_scripts,
            Kind.FULL: self._full,
            Kind.WIPE: self._wipe,
            Kind.FAIL_OVER: self._fail_over,
            Kind.SWITCH: self._switch,
            Kind.OUTAGE: self._outage,
            Kind.CLOCK_FORWARD: self._set_clock,
            Kind.CLOCK_BACK: self._set_clock,
            Kind.THIEF: self._thief,
            Kind.TAKE_OVER: self._take_over,
        }
        await acts[fault.kind](fault)
        self.note(fault.kind, fault.target, "end")

    def _service(self, target: str) -> ServerProcess:
        if target == REDIS:
            return self.store if self.pair is None else self.pair.primary
        return self.broker if target == BROKER else self.nodes[target]

    async def intake(self) -> str:
        """Return the node that brings events in, as soon as one does; ChaosError when none ever does."""
        return (await self._intake())[0]

    async def _intake(self) -> tuple[str, bytes]:
        if len(self.nodes) == 1:
            return next(iter(self.nodes)), b""
        return await self._first_in(_INTAKE_ROLE, "no node brings events in")

    async def _first_in(self, key: str, none: str) -> tuple[str, bytes]:
        """Return the node that a lease names, and its words, as soon as that is one that lives; ChaosError if never."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self.patience
        while True:
            holder = await self._holder(key)
            name = holder.partition(b" ")[0].decode()
            if holder not in self._former and name in self.nodes and self.nodes[name].running:
                return name, holder
            if loop.time() >= until:
                raise ChaosError(none)
            await asyncio.sleep(self.poll_seconds)

    async def _holder(self, key: str) -> bytes:
        try:
            holder = await self.redis.get(key)
        except RedisError:
            return b""
        return holder if isinstance(holder, bytes) else b""

    async def _kill(self, fault: Fault) -> None:
        service = self._service(fault.target)
        was_running = service.running
        self._hit(fault, was_running)
        await service.kill()
        if not fault.seconds:
            self._staying_down.add(service.name)
        elif was_running:
            await asyncio.sleep(fault.seconds)
            await self._bring_back(service)

    async def _restart(self, fault: Fault) -> None:
        service = self._service(fault.target)
        self._hit(fault, service.running)
        self.stop_seconds.append(await service.stop())
        await asyncio.sleep(fault.seconds)
        await self._bring_back(service)

    async def _freeze(self, fault: Fault) -> None:
        service = self._service(fault.target)
        was_running = service.running
        self._hit(fault, was_running)
        service.freeze()
        await asyncio.sleep(fault.seconds)
        service.thaw()
        if was_running:
            await self._until_back(service, asyncio.get_running_loop().time())

    async def _cut_pubsub(self, fault: Fault) -> None:
        cut = 0
        with suppress(RedisError):
            cut = await self.redis.client_kill_filter(_type="pubsub")
        self._hit(fault, cut)

    async def _blackhole(self, fault: Fault) -> None:
        proxy = self.proxies[fault.target]
        self._hit(fault, await proxy.blackhole())
        await asyncio.sleep(fault.seconds)
        await proxy.heal()

    async def _slow(self, fault: Fault) -> None:
        proxy = self.proxies[fault.target]
        self._hit(fault, await proxy.latency(timedelta(milliseconds=SLOW_MS)))
        await asyncio.sleep(fault.seconds)
        await proxy.heal()

    async def _flush(self, _fault: Fault) -> None:
        await self.redis.flushall()

    async def _forget_scripts(self, _fault: Fault) -> None:
        await self.redis.script_flush()

    async def _full(self, fault: Fault) -> None:
        await self.redis.config_set("maxmemory", 1)  # less than it has: nothing more is taken
        await asyncio.sleep(fault.seconds)
        await self.redis.config_set("maxmemory", 0)

    async def _wipe(self, fault: Fault) -> None:
        await self.store.kill()
        self.store.wipe()
        await asyncio.sleep(fault.seconds)
        await self._bring_back(self.store)

    async def _fail_over(self, fault: Fault) -> None:
        if self.thirds is not None:
            self.returns.append(await self.thirds.fail_over(fault.target, fault.seconds))
        elif self.pair is not None:
            self.returns.append(await self.pair.fail_over(fault.seconds))
        else:
            raise ChaosError("this Redis has no replica")

    async def _switch(self, fault: Fault) -> None:
        if self.thirds is None:
            raise ChaosError("this Redis is no cluster")
        self.switches.append(await self.thirds.switch(fault.target))

    async def _outage(self, fault: Fault) -> None:
        await self.store.stop()
        self.store.clock.step(round(fault.seconds))
        await self._bring_back(self.store)

    async def _set_clock(self, fault: Fault) -> None:
        seconds = round(fault.seconds)
        self.store.clock.step(seconds if fault.kind is Kind.CLOCK_FORWARD else -seconds)

    async def _thief(self, fault: Fault) -> None:
        filters = broker_log.filters_of_group(self.broker.log_text, NODE_USER)
        async with stranger(login(NODE_USER, "thief", self.broker.port), filters):
            await asyncio.sleep(fault.seconds)

    async def _take_over(self, fault: Fault) -> None:
        client_id = await self._client_id(fault.target)
        async with stranger(login(NODE_USER, client_id, self.broker.port)):
            await asyncio.sleep(fault.seconds)

    async def _client_id(self, name: str) -> str:
        """Under which a node has logged in last."""
        noted = {one.decode() if isinstance(one, bytes) else one for one in await self.redis.hkeys(keys.sessions(name))}
        known = [one for one in broker_log.logged_in(self.broker.log_text, NODE_USER) if one in noted]
        if not known:
            raise ChaosError(f"no session of {name} is noted in Redis that the broker knows of")
        return known[-1]

    async def _bring_back(self, service: ServerProcess) -> None:
        began = asyncio.get_running_loop().time()
        await service.spawn()
        await self._until_back(service, began)
        if service is self.broker:
            await asyncio.gather(*(node.until_ready(30.0) for node in self.nodes.values()))
            self.receiving.append(asyncio.get_running_loop().time() - began)

    async def _until_back(self, service: ServerProcess, began: float) -> None:
        back = await service.until_ready(BACK_SECONDS)
        self.returns.append(asyncio.get_running_loop().time() - began if back else math.inf)

    def _hit(self, fault: Fault, met: int) -> None:
        """Note whom a fault met: how many processes or connections."""
        self.in_vain[fault.kind] += not met
