"""Injects the faults of a schedule at their time, and knows how long everything took."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from redis.asyncio import Redis
from redis.exceptions import RedisError

from app.core import keys
from app.core.eventlog.keys import role
from app.rig.chaos import broker_log
from app.rig.chaos.options import SHARE_GROUP, ChaosError
from app.rig.chaos.proxy import FaultProxy
from app.rig.chaos.schedule import BROKER, INTAKE, REDIS, Fault, Kind
from app.rig.chaos.servers import (
    POLL_SECONDS,
    START_SECONDS,
    MosquittoProcess,
    NodeProcess,
    RedisProcess,
    ServerProcess,
)
from app.rig.chaos.strangers import login, stranger
from app.rig.rights import NODE_USER


@dataclass(slots=True)
class Nemesis:
    """Injects faults. What it needs to reach stands in its fields."""

    nodes: Mapping[str, NodeProcess]
    broker: MosquittoProcess
    store: RedisProcess
    redis: Redis
    proxies: Mapping[str, FaultProxy]
    note: Callable[[str, str, str], None]
    """Called with kind, target and phase (`begin`, `end`) of each fault."""
    counts: Counter[str] = field(default_factory=Counter)
    stop_seconds: list[float] = field(default_factory=list)
    """How long each orderly stop took."""
    returns: list[float] = field(default_factory=list)
    """Seconds from the start of a service, or the end of a freeze, until it was ready."""
    receiving: list[float] = field(default_factory=list)
    """Seconds from the start of the broker until all nodes were ready again."""
    begun: list[tuple[float, Fault]] = field(default_factory=list)
    """Every fault so far, with the loop time of its beginning."""
    _under_way: set[asyncio.Task[None]] = field(default_factory=set)
    _staying_down: set[str] = field(default_factory=set)

    async def run(self, schedule: Sequence[Fault]) -> None:
        """Inject every fault at its time; returns when the last one has begun."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        for fault in sorted(schedule):
            await asyncio.sleep(max(0.0, began + fault.at - loop.time()))
            task = loop.create_task(self._inject(fault), name=f"fault {fault}")
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def heal(self) -> None:
        """Wait until all faults are over, and everything that should run serves."""
        while self._under_way:
            await asyncio.gather(*self._under_way)
        for proxy in self.proxies.values():
            proxy.heal()
        for service in (self.store, self.broker, *self.nodes.values()):
            if service.name not in self._staying_down:
                service.thaw()
                try:
                    await service.start()
                except ChaosError:
                    self.counts["not back"] += 1

    async def _inject(self, fault: Fault) -> None:
        if fault.target == INTAKE:
            fault = replace(fault, target=await self.intake())
        self.counts[fault.kind] += 1
        self.begun.append((asyncio.get_running_loop().time(), fault))
        self.note(fault.kind, fault.target, "begin")
        acts: dict[Kind, Callable[[Fault], Awaitable[None]]] = {
            Kind.KILL: self._kill,
            Kind.FREEZE: self._freeze,
            Kind.RESTART: self._restart,
            Kind.CUT_PUBSUB: self._cut_pubsub,
            Kind.BLACKHOLE: self._blackhole,
            Kind.FLUSH: self._flush,
            Kind.WIPE: self._wipe,
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
            return self.store
        return self.broker if target == BROKER else self.nodes[target]

    async def intake(self) -> str:
        """Which node brings events in, as soon as one does; ChaosError when none ever does."""
        if len(self.nodes) == 1:
            return next(iter(self.nodes))
        loop = asyncio.get_running_loop()
        until = loop.time() + START_SECONDS
        while loop.time() < until:
            name = await self._holder()
            if name in self.nodes and self.nodes[name].running:
                return name
            await asyncio.sleep(POLL_SECONDS)
        raise ChaosError("no node brings events in")

    async def _holder(self) -> str:
        try:
            holder = await self.redis.get(role(f"{SHARE_GROUP}-intake"))
        except RedisError:
            return ""
        return holder.partition(b" ")[0].decode() if isinstance(holder, bytes) else ""

    async def _kill(self, fault: Fault) -> None:
        service = self._service(fault.target)
        was_running = service.running
        await service.kill()
        if not fault.seconds:
            self._staying_down.add(service.name)
        elif was_running:
            await asyncio.sleep(fault.seconds)
            await self._bring_back(service)

    async def _restart(self, fault: Fault) -> None:
        service = self._service(fault.target)
        self.stop_seconds.append(await service.stop())
        await asyncio.sleep(fault.seconds)
        await self._bring_back(service)

    async def _freeze(self, fault: Fault) -> None:
        service = self._service(fault.target)
        service.freeze()
        await asyncio.sleep(fault.seconds)
        service.thaw()
        began = asyncio.get_running_loop().time()
        if await service.until_ready(10.0):
            self.returns.append(asyncio.get_running_loop().time() - began)

    async def _cut_pubsub(self, _fault: Fault) -> None:
        try:
            await self.redis.client_kill_filter(_type="pubsub")
        except RedisError:
            self.counts["cut_pubsub failed"] += 1

    async def _blackhole(self, fault: Fault) -> None:
        proxy = self.proxies[fault.target]
        proxy.blackhole()
        await asyncio.sleep(fault.seconds)
        proxy.heal()

    async def _flush(self, _fault: Fault) -> None:
        await self.redis.flushall()

    async def _wipe(self, fault: Fault) -> None:
        await self.store.kill()
        self.store.wipe()
        await asyncio.sleep(fault.seconds)
        await self._bring_back(self.store)

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
        if await service.until_ready(30.0):
            self.returns.append(asyncio.get_running_loop().time() - began)
        if service is self.broker:
            await asyncio.gather(*(node.until_ready(30.0) for node in self.nodes.values()))
            self.receiving.append(asyncio.get_running_loop().time() - began)
