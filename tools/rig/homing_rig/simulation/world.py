"""The world of one run: it is put together, loaded, broken and mended as the plan says, and looked at in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache, partial
from typing import Any, Final, TypeVar

from pydantic import SecretStr

from app.core.keys import lease
from app.settings import Settings, load_settings
from app.store.rules import TOLD_WITHIN
from homing_rig.chaos.history import (
    REDIS_KEYS_AFTER_TTL,
    REDIS_KEYS_BASELINE,
    End,
    Executed,
    Fault,
    FaultPhase,
    Header,
    Metric,
)
from homing_rig.simulation.broker import SimBroker
from homing_rig.simulation.callers import Callers
from homing_rig.simulation.cluster import URL
from homing_rig.simulation.coverage import Census
from homing_rig.simulation.devices import SimDevice
from homing_rig.simulation.event_store import EventHost
from homing_rig.simulation.event_talk import Talk
from homing_rig.simulation.loop import Lane, SimLoop
from homing_rig.simulation.mqtt_link import KEEPALIVE
from homing_rig.simulation.network import Link
from homing_rig.simulation.node import SimClock, SimNode, Surroundings
from homing_rig.simulation.plan import BEGIN, BROKER, Plan, Trouble, TroubleKind
from homing_rig.simulation.receiver import HOOK, ROOT, Receiver
from homing_rig.simulation.recording import Recording
from homing_rig.simulation.replica import Excused, Replica
from homing_rig.simulation.store import StoreHost, at_once

_T = TypeVar("_T")

RETENTION: Final = timedelta(minutes=2)
TAKE_OVER_SECONDS: Final = 1.0
"""The time that nobody answers while a replica takes the place of the store."""
CLAIM_SECONDS: Final = 40.0
"""After so long what a dead node was about to deliver is delivered by another one, though it is refused once."""
REST_SECONDS: Final = 40.0
"""The time that everything may take to come to rest after the last trouble."""
LOOKS_SECONDS: Final = 0.1
GRACE_SECONDS: Final = 4.0
"""A node tries for three seconds to register a command; its time begins then, and ends with a whole second."""


class World:
    """Everything there is in one run."""

    def __init__(self, loop: SimLoop, plan: Plan, recording: Recording) -> None:
        self.recording: Final = recording
        self.unrest: list[str] = []
        """The things that had not come to rest in the end."""
        self.mistold: list[str] = []
        """The mistakes of deliveries to the webhook."""
        self.miskept: list[tuple[str, str]] = []
        """The mistakes of the event log, each with the rule that it breaks."""
        self.unserved: list[str] = []
        """The failures of nodes to serve a command that was sent when everything had come to rest."""
        self.excused: Final = Excused()
        """The commands of which a fail-over made the store forget something."""
        self._replicas: dict[Trouble, Replica] = {}
        self._loop = loop
        self._plan = plan
        self.receiver: Final = Receiver(plan.stream) if plan.webhooks else None
        self.store: Final = StoreHost(loop, SimClock(loop))
        self._events: Final = EventHost(self.store.clock) if plan.sayings else None
        if self.receiver is not None:
            at_once(self.store.commands.webhooks.put_endpoint(HOOK, None))
        self.census: Final = Census(self.store)
        recording.told.append(self.census.take)
        self.broker: Final = SimBroker(loop, plan.quirks, plan.stream("broker"))
        self.nodes: Final = {
            node_id: self._node(node_id, offset) for node_id, offset in zip(plan.node_ids, plan.offsets, strict=False)
        }
        self.devices: Final = {
            device_id: SimDevice(
                device_id,
                loop,
                self.broker,
                self._link(device_id, "devices"),
                self.recording,
                plan.stream,
                max((one.timeout for one in plan.wishes), default=1.0),
            )
            for device_id in plan.devices
        }
        nodes = list(self.nodes.values())
        ways = [one.around.to_callers for one in nodes]
        self.callers: Final = Callers(loop, nodes, ways, self.recording, plan.stream("callers"))
        self._talk: Final = None if self._events is None else self._everything_said(self._events)

    @property
    def lanes(self) -> list[Lane]:
        """All that ever ran."""
        lanes = [self._loop.world, self.store.lane, self.broker.lane, self.callers.lane]
        lanes += [device.lane for device in self.devices.values()]
        return lanes + [lane for node in self.nodes.values() for lane in node.lanes]

    @property
    def kept(self) -> Sequence[object]:
        """The event log in the end, as part of a digest."""
        return () if self._talk is None else self._talk.facts()

    async def run(self) -> None:
        """From the first start to the last look."""
        self.recording.write(self._header())
        self.recording.write(Metric(at=0.0, source="store", name=REDIS_KEYS_BASELINE, value=0))
        self._start_devices()
        for node in self.nodes.values():
            node.start()
        self.callers.send(self._plan.wishes)
        if self._talk is not None:
            self._talk.start()
        for trouble in self._plan.troubles:
            if trouble.kind is TroubleKind.FAIL_OVER:
                self._loop.call_at(BEGIN + trouble.at - trouble.seconds, self._fall_behind, trouble)
            self._loop.call_at(BEGIN + trouble.at, self._break, trouble)
        await asyncio.sleep(self._plan.ends)
        await self._come_to_rest()
        if self._talk is not None and not self.unrest:
            await self._in_lane_of_callers(self._talk.finish())
            self.miskept = list(self._talk.mistakes())
        if not self.unrest:
            self.unserved = await self._in_lane_of_callers(self.callers.probe(list(self.devices)))
            await self._come_to_rest()  # else an answer may get its PUBACK after the last reading
        known = dict.fromkeys(self.callers.known)
        known |= dict.fromkeys(one.command_id for one in self.recording.events if isinstance(one, Executed))
        if all(node.running for node in self.nodes.values()):
            await self._in_lane_of_callers(self.callers.read_all(list(known)))
        if self.receiver is not None and not self.unrest:
            self.mistold = self.receiver.mistakes(one.command for one in self.store.commands.table.records.values())
        self._end()

    def _start_devices(self) -> None:
        for name, device in self.devices.items():
            if name in self._plan.returns:
                self._loop.call_at(self._plan.returns[name], partial(device.start, late=True))
            else:
                device.start()

    async def _in_lane_of_callers(self, work: Coroutine[Any, Any, _T]) -> _T:
        return await self._loop.create_task(work, context=self.callers.lane.context.copy())

    def _end(self) -> None:
        for node in self.nodes.values():
            self.census.counted(node.counters)
            if node.running:
                node.kill()
        self._after_all_retentions()
        self.recording.write(End(at=self._loop.time()))

    def _after_all_retentions(self) -> None:
        """Nobody lives any more; what is on record when all times are over stays for ever."""
        self._loop.skip(max(RETENTION, TOLD_WITHIN).total_seconds() + 3600.0)
        size = self.store.commands.size
        self.recording.write(Metric(at=self._loop.time(), source="store", name=REDIS_KEYS_AFTER_TTL, value=size))

    async def _come_to_rest(self) -> None:
        ends = self._loop.time() + self._plan.longest + REST_SECONDS
        ends += CLAIM_SECONDS if self.receiver is not None else 0.0
        ends += max((one.hold or 0.0 for one in self._plan.wishes), default=0.0)
        while (unrest := self._unrest()) and self._loop.time() < ends:
            await asyncio.sleep(LOOKS_SECONDS)
        self.unrest = unrest

    def _unrest(self) -> list[str]:
        """The reasons why the cluster is not at rest, in words; cheap questions first, as this is asked often."""
        if self.callers.open:
            return [f"{self.callers.open} callers wait"]
        away = [node.node_id for node in self.nodes.values() if not (node.ready and node.life.kernel.mqtt.connected)]
        if away:
            return [f"{', '.join(away)} not ready"]
        unaware = [node.node_id for node in self.nodes.values() if node.around.to_broker.half_open]
        unaware += [name for name in self.nodes if self.store.keys.call("GET", lease(name)) is None]
        if unaware:
            return [f"{', '.join(unaware)} have not noticed yet what they lost"]
        if self._talk is not None and self._talk.open:
            return [f"{self._talk.open} events are not taken"]
        absent = [name for name, one in self.devices.items() if not one.connected]
        if absent:
            return [f"{', '.join(absent)} not there"]
        waiting = sum(device.open for device in self.devices.values())
        if waiting:
            return [f"{waiting} answers wait for their PUBACK"]
        return self._left_over()

    def _left_over(self) -> list[str]:
        """The things that store and broker still have, though everybody is there and nobody waits."""
        found = []
        for node in self.nodes.values():
            here, there = len(node.life.commands.open_commands), self.store.open_of(node.node_id)
            if here or there:
                found.append(f"{node.node_id} has {here} open commands, and {there} are on record")
        if count := self.store.held():
            found.append(f"{count} commands are held")
        sessions = self.store.keys.sessions()
        orphans = len(sessions) - len(self.nodes)
        if orphans:
            found.append(f"{orphans} sessions of dead nodes not adopted")
        if self.receiver is not None and (count := self.store.untold_of(HOOK.id)):
            found.append(f"{count} events wait for the webhook")
        waiting = self.broker.waiting()
        return found + [f"{count} messages wait in session {one}" for one, count in waiting.items()]

    def _break(self, trouble: Trouble) -> None:
        self.census.hit(trouble, self.nodes.get(trouble.target))
        if trouble.kind is TroubleKind.OUTAGE:
            self._outage(trouble, trouble.seconds)
        elif trouble.kind is TroubleKind.FAIL_OVER:
            self._fail_over(trouble)
        elif trouble.target == BROKER:
            self._restart_broker(trouble)
        elif trouble.target in self.devices:
            self._on_the_way(trouble, self.devices[trouble.target].way)
        elif trouble.target in self.nodes:
            self._break_node(trouble, self.nodes[trouble.target])

    def _break_node(self, trouble: Trouble, node: SimNode) -> None:
        match trouble.kind:
            case TroubleKind.KILL | TroubleKind.UNPLUG:
                if node.running:
                    node.kill(silent=trouble.kind is TroubleKind.UNPLUG)
                    self._note(trouble, lambda: self._start(node))
            case TroubleKind.RESTART:
                if node.running:
                    node.stop(lambda: self._note(trouble, lambda: self._start(node)))
            case TroubleKind.FREEZE:
                if node.running:
                    self._freeze(trouble, node)
            case TroubleKind.CLOCK:
                node.clock.offset += trouble.seconds
                self._note(trouble)
            case _:
                around = node.around
                self._on_the_way(trouble, around.to_store if trouble.kind.endswith("_store") else around.to_broker)

    def _start(self, node: SimNode) -> None:
        if not node.running:
            node.start()

    def _freeze(self, trouble: Trouble, node: SimNode) -> None:
        go_on = node.freeze()
        way = node.around.to_broker
        if trouble.seconds > 1.5 * KEEPALIVE:
            self._loop.call_later(1.5 * KEEPALIVE, way.cut)  # the broker has not heard of it for too long
        self._note(trouble, go_on)

    def _restart_broker(self, trouble: Trouble) -> None:
        if not self.broker.up:
            return
        self.broker.up = False
        ways = [node.around.to_broker for node in self.nodes.values()] + [one.way for one in self.devices.values()]
        for way in ways:
            way.cut()
        self._note(trouble, self.broker.restart)

    def _fall_behind(self, trouble: Trouble) -> None:
        self._replicas[trouble] = Replica.of(self.store)
        if self._talk is not None:
            self._talk.fall_behind()

    def _fail_over(self, trouble: Trouble) -> None:
        replica = self._replicas.pop(trouble, None)
        if replica is not None and self.store.up:
            self._outage(trouble, TAKE_OVER_SECONDS)
            self.excused.add(replica.take_over(self.store))
            if self._talk is not None:
                self._talk.fail_over()

    def _outage(self, trouble: Trouble, seconds: float) -> None:
        self.store.up = False
        for node in self.nodes.values():
            node.around.to_store.cut()

        def back() -> None:
            self.store.up = True

        self._note(replace(trouble, seconds=seconds), back)

    def _on_the_way(self, trouble: Trouble, way: Link) -> None:
        match trouble.kind:
            case TroubleKind.CUT_STORE | TroubleKind.CUT_BROKER:
                way.cut()
                self._note(trouble)
            case TroubleKind.HALF_OPEN_STORE | TroubleKind.HALF_OPEN_BROKER:
                way.cut(silent=True)
                self._note(trouble)
            case TroubleKind.STALL_STORE | TroubleKind.STALL_BROKER:
                way.stall(trouble.seconds)
                self._note(trouble)
            case _:
                way.up = False
                way.cut(silent=True)

                def mend() -> None:
                    way.up = True

                self._note(trouble, mend)

    def _note(self, trouble: Trouble, mend: Callable[[], None] | None = None) -> None:
        """On record, and mended after its time."""
        fault = partial(Fault, kind=trouble.kind.value, target=trouble.target)
        if mend is None:
            self.recording.write(fault(at=self._loop.time(), phase=FaultPhase.MOMENT))
            return
        self.recording.write(fault(at=self._loop.time(), phase=FaultPhase.BEGIN))

        def end() -> None:
            mend()
            self.recording.write(fault(at=self._loop.time(), phase=FaultPhase.END))

        self._loop.call_later(trouble.seconds, end, context=self._loop.world.context)

    def _everything_said(self, host: EventHost) -> Talk:
        return Talk(
            self._plan.sayings,
            host,
            self.devices,
            self.callers,
            self._loop,
            self._plan.stream("publishers"),
            ordered=self._plan.intake == "ordered",
        )

    def _header(self) -> Header:
        return Header(
            scenario="simulation",
            seed=self._plan.seed,
            started_at="1970-01-01T00:00:00Z",
            retention=RETENTION.total_seconds(),
            grace=GRACE_SECONDS,
            limits={"hung": float("inf"), "late_finals": float("inf")},
        )

    def _link(self, name: str, where: str) -> Link:
        return Link(self._loop, name, self._plan.laws[where], self._plan.stream(f"net/{name}"))

    def _node(self, node_id: str, offset: float) -> SimNode:
        around = Surroundings(
            self._loop,
            self.broker,
            self.store,
            self._link(f"{node_id}-broker", "broker"),
            self._link(f"{node_id}-store", "store"),
            self._link(f"{node_id}-callers", "callers"),
            self.receiver,
            self._events,
        )
        return SimNode(
            node_id,
            settings_of(self._plan, node_id),
            around,
            SimClock(self._loop, offset),
            self._plan.stream,
            self._plan.receive_maximum,
        )


def settings_of(plan: Plan, node_id: str) -> Settings:
    """The settings of a node: those of all nodes with what the plan decides, as to load settings takes milliseconds."""
    base = _base()
    command = {"max_pending": plan.max_pending, "max_waiters": plan.max_waiters}
    cluster = {"lease": timedelta(seconds=plan.lease), "sweep_interval": timedelta(seconds=plan.sweep)}
    return base.model_copy(
        update={
            "node": base.node.model_copy(update={"id": node_id}),
            "command": base.command.model_copy(update=command),
            "cluster": base.cluster.model_copy(update=cluster),
            "events": base.events.model_copy(update={"intake": plan.intake}),
            "webhooks": base.webhooks.model_copy(
                update={"secret_key": SecretStr(ROOT.decode())} if plan.webhooks else {}
            ),
        }
    )


@cache
def _base() -> Settings:
    return load_settings(
        _env_file=None,
        store={"url": URL, "retention": RETENTION},
        profiles={"shipped": "homing"},
        cluster={"drain_delay": timedelta(seconds=0.5)},
    )
