"""A whole node of the product on simulated adapters, from its start to its death."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, Final

from app.api.hot import SWEEP_GRACE
from app.api.problems import BY_ERROR, INTERNAL, NO_OUTCOME, NOT_SENT, TIMED_OUT, UNSENT_BY_CODE
from app.api.representation import command_json
from app.cluster.adopter import OnNodeDeath
from app.command_plane.observed import event_spans, open_observers
from app.command_plane.plane import CommandPlane, open_commands
from app.command_plane.way_out import CommandSurroundings
from app.commands.send.registrar import CommandRequest
from app.commands.send.unsent import unsent_code
from app.core.clock import Clock
from app.core.cluster.charter import Charter
from app.core.cluster.wakekey import WakeKey
from app.core.commands.command import Command, CommandState
from app.core.errors import CommandFinishedError, HomingError
from app.core.events.batches import call_of
from app.core.events.event import Entry, Event
from app.events.gate import call_budget
from app.events.known import KnownFromEvents
from app.events.plane import EventPlane, needed, open_event_plane
from app.kernel import Adapters, Kernel, Languages, open_kernel
from app.membership import open_canary, open_membership
from app.node import Node, NodeState
from app.plane import HasPlane, services_of
from app.replies.finder import no_events
from app.replies.plane import open_replies
from app.runtime.services import Services
from app.settings import Settings
from app.store.engine import EventEngine
from app.webhooks.plane import WebhookPlane, nobody, open_webhooks
from homing_rig.simulation.broker import SimBroker
from homing_rig.simulation.cluster import SimCluster
from homing_rig.simulation.event_store import EventHost, open_engine
from homing_rig.simulation.guards import EPOCH
from homing_rig.simulation.loop import Lane, SimLoop
from homing_rig.simulation.mqtt import SimMqttClient, SimRollCall, SimSessionDrain
from homing_rig.simulation.network import Connection, Link
from homing_rig.simulation.receiver import Receiver, SimSender
from homing_rig.simulation.store import SimStore, StoreHost, StorePlaces

_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""The digits of a ULID: https://github.com/ulid/spec."""
_TWO_DIGITS: Final = [first + second for first in _CROCKFORD for second in _CROCKFORD]
REPEATABLE: Final = "land"
"""The method that the profile of simulated devices calls repeatable; that of their family knows of none."""
SLICE: Final = 128
"""Partitions of one sweep: the store of a run is never busy, and what nodes do while idle is most of its cost."""


class SimClock:
    """The clocks of one machine. Its wall clock is off by `offset` seconds, which may change."""

    def __init__(self, loop: SimLoop, offset: float = 0.0) -> None:
        self.offset = offset
        self._loop = loop

    def monotonic(self) -> float:
        """Seconds since the beginning."""
        return self._loop.now

    def wall(self) -> float:
        """Seconds since 1970, as this machine believes."""
        return EPOCH + self._loop.now + self.offset


@dataclass(frozen=True, slots=True)
class Told:
    """The answer to a caller: a status of HTTP, the slug of a problem, and the command as it is."""

    status: int
    slug: str = ""
    command: Command | None = None
    command_id: str | None = None
    replayed: bool = False
    found: Sequence[Command | None] = ()
    """The commands that were read; None for those that are gone."""
    events: Sequence[Event] = ()
    """A page of events, where its reader has come with it, and whether there is more."""
    cursor: str | None = None
    more: bool = False


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings that all nodes share, and the ways of this one to them."""

    loop: SimLoop
    broker: SimBroker
    store: StoreHost
    to_broker: Link
    to_store: Link
    to_callers: Link
    receiver: Receiver | None = None
    """None where nobody has webhooks."""
    events: EventHost | None = None
    """None where nobody keeps events."""

    @property
    def links(self) -> tuple[Link, Link, Link]:
        """All of them."""
        return self.to_broker, self.to_store, self.to_callers


@dataclass(slots=True)
class _Life:
    """One process: from its start until it is killed or has stopped."""

    lane: Lane
    kernel: Kernel
    commands: CommandPlane
    events: EventPlane | None
    node: Node


@dataclass
class SimNode:
    """A node that may be started again and again; each start is a new process. `make_chance` gives each its own."""

    node_id: str
    settings: Settings
    around: Surroundings
    clock: SimClock
    make_chance: Callable[[str], Random]
    receive_maximum: int
    counters: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    """The errors that ended a part that must run."""
    lanes: list[Lane] = field(default_factory=list)
    starts: int = 0
    _life: _Life | None = None

    @property
    def running(self) -> bool:
        """True if there is a process."""
        return self._life is not None

    @property
    def ready(self) -> bool:
        """True if the node takes commands."""
        return self._life is not None and self._life.node.state is NodeState.READY

    @property
    def life(self) -> _Life:
        """The process that runs."""
        if self._life is None:
            raise RuntimeError(f"{self.node_id} does not run")
        return self._life

    def start(self) -> None:
        """Begin a new process."""
        self.starts += 1
        lane = Lane(f"{self.node_id}/{self.starts}")
        self.lanes.append(lane)
        self._life = lane.context.copy().run(self._compose, lane)
        self._run(self._life.node.start())

    def kill(self, *, silent: bool = False) -> None:
        """As SIGKILL, or, `silent`, as when the plug of its host is pulled."""
        self.around.loop.kill(self.life.lane)
        self._life = None
        for link in self.around.links:
            link.half_open.clear()
            for connection in tuple(link.connections):
                if link is self.around.to_callers:
                    connection.drop()
                elif silent:
                    connection.vanish()
                else:
                    connection.close()

    def stop(self, then: Callable[[], None]) -> None:
        """As SIGTERM; `then` is called when the process has ended, unless it was killed before."""
        life = self.life

        async def leave() -> None:
            await life.node.drain(self.settings.cluster.drain_delay)
            await life.node.stop()
            if self._life is life:
                self.kill()
                then()

        self._run(leave())

    def freeze(self) -> Callable[[], None]:
        """As SIGSTOP; what it returns is SIGCONT."""
        lane = self.life.lane
        self.around.loop.hold(lane)
        return partial(self.around.loop.release, lane)

    def serve(
        self,
        work: Callable[[_Life], Coroutine[Any, Any, Told]],
        connection: Connection,
        reply: asyncio.Future[Told],
        serving: list[asyncio.Task[None]],
    ) -> None:
        """Take a request of a caller; called in the context of the process."""
        life = self._life
        if life is None:
            return

        async def answer() -> None:
            try:
                told = await work(life)
            except HomingError as error:
                kind = next((BY_ERROR[one] for one in type(error).__mro__ if one in BY_ERROR), INTERNAL)
                told = Told(kind.status, kind.slug, getattr(error, "command", None), getattr(error, "command_id", None))
            connection.to_client.send(_settle, reply, told)

        serving.append(asyncio.get_running_loop().create_task(answer()))

    async def send(self, request: CommandRequest, life: _Life, *, waits: bool) -> Told:
        """POST: as app/api/hot.py does it, without bytes."""
        life.node.admit()
        if request.hold is None:
            invocation = await life.commands.invoker.invoke(request, park=waits)
        else:
            invocation = await life.commands.holder.invoke(request, None, park=waits)
        command, replayed = invocation.command, invocation.replayed
        if waits and not command.state.final:
            store, cluster = self.settings.store, self.settings.cluster
            budget = request.timeout + store.budget + 2 * cluster.sweep_interval + SWEEP_GRACE + request.longest_hold()
            command = await invocation.wait(budget)
        if not command.state.final:
            slug = NO_OUTCOME.slug if waits else ""
            return Told(503 if waits else 202, slug, command, command.id, replayed)
        if command.state is CommandState.TIMED_OUT:
            return Told(504, TIMED_OUT.slug, command, command.id, replayed)
        if (code := unsent_code(command)) is not None:
            kind = UNSENT_BY_CODE.get(code, NOT_SENT)
            return Told(kind.status, kind.slug, command, command.id, replayed)
        return Told(200, "", command, command.id, replayed)

    @staticmethod
    async def read(command_ids: Sequence[str], life: _Life) -> Told:
        """GET, of many."""
        return Told(200, found=await life.kernel.store.get(command_ids))

    @staticmethod
    async def cancel(command_id: str, life: _Life) -> Told:
        """POST …/cancel."""
        life.node.admit()
        finished = await life.commands.invoker.cancel(command_id)
        if not finished.won:
            raise CommandFinishedError(command_id, finished.outcome.state)
        return Told(200, "", await life.kernel.store.read(command_id), command_id)

    @staticmethod
    async def publish(database: str, entry: Entry, key: str, life: _Life) -> Told:
        """POST of an event, as app/api/v1/events.py does it."""
        call = call_of("", key, database, [entry])
        await needed(life.events).publisher.publish(database, [entry], call)
        return Told(200)

    @staticmethod
    async def follow(database: str, cursor: str | None, limit: int, life: _Life) -> Told:
        """GET of a page of events, as app/api/v1/events.py does it."""
        reader = needed(life.events).reader
        scope, begin = reader.start(reader.scope(database, "#"), cursor, None)
        async with call_budget():
            page = await reader.page(scope.databases, "#", begin, limit)
        return Told(200, events=page.events, cursor=reader.text(page.cursor, scope), more=page.more)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.around.loop.create_task(work, context=self.life.lane.context.copy())
        task.add_done_callback(self._ended, context=copy_context())

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    def _compose(self, lane: Lane) -> _Life:
        """As app/main.py does it, without what is switched off: access, audit, fleets, queues."""
        kernel = open_kernel(self.settings, self._adapters())
        kernel = replace(kernel, languages=_repeating(kernel.languages))
        webhooks = self._webhooks(kernel)
        events = open_event_plane(kernel, None, event_spans(kernel), lambda: node.info)
        known = KnownFromEvents(events)
        observed = open_observers(kernel, ())
        replies = open_replies(kernel, observed.observers, no_events)
        canary = open_canary(kernel)
        commands = open_commands(
            kernel,
            observed,
            canary,
            replies_to=replies.replies_to,
            around=CommandSurroundings(told_of=nobody if webhooks is None else webhooks.book.told_of),
        )
        membership = open_membership(kernel, canary, commands, OnNodeDeath(known.gone, _nobody, known.adopt))
        planes: list[HasPlane | None] = [kernel, observed, commands, replies, membership, webhooks, events]
        node = Node(membership.parts, Services(services_of(planes), self._failed))
        return _Life(lane, kernel, commands, events, node)

    def _webhooks(self, kernel: Kernel) -> WebhookPlane | None:
        if self.around.receiver is None:
            return None
        sender = SimSender(self.around.receiver, self.around.to_callers)
        return open_webhooks(kernel, tenant_of=lambda _device_id: "", render=command_json, sender=sender)

    def _failed(self, error: BaseException) -> None:
        self.failures.append(f"{type(error).__name__}: {error}")

    def _adapters(self) -> Adapters:
        around, chance, counters = self.around, self.make_chance(f"{self.node_id}/{self.starts}"), self.counters
        loop, way = around.loop, around.to_broker
        places = StorePlaces(around.store, around.to_store, chance)
        wake_key = WakeKey(chance.randbytes(32))
        settings = self.settings

        def new_secret() -> str:
            return chance.randbytes(16).hex()

        def open_session(client_id: str, still_ours: Callable[[str], Awaitable[None]]) -> SimMqttClient:
            return SimMqttClient(
                loop,
                around.broker,
                way,
                client_id,
                counters,
                chance,
                still_ours=still_ours,
                receive_maximum=self.receive_maximum,
            )

        return Adapters(
            clock=self.clock,
            new_ulid=lambda: _ulid(self.clock, chance),
            counters=counters,
            store=SimStore(around.store, places.wire, settings.store.budget.total_seconds(), wake_key),
            open_cluster=lambda handlers: SimCluster(
                places,
                around.store.keys,
                lease=settings.cluster.lease,
                session_life=settings.mqtt.session_expiry,
                clock=self.clock,
                counters=counters,
                new_charter=lambda: Charter(new_secret(), chance.randbytes(32).hex().encode()),
                handlers=handlers,
                on_failure=self._failed,
            ),
            open_mqtt=open_session,
            open_drain=lambda client_id: SimSessionDrain(loop, around.broker, way, client_id, counters),
            open_roll_call=lambda client_id: SimRollCall(loop, around.broker, way, client_id, counters),
            new_secret=new_secret,
            random_bytes=chance.randbytes,
            wake_key=wake_key,
            sweep_slice=SLICE,
            events=None if around.events is None else self._event_engine(around.events, places, new_secret()),
            open_intake=open_session,
        )

    def _event_engine(self, host: EventHost, places: StorePlaces, secret: str) -> EventEngine:
        return open_engine(
            host,
            places,
            self.around.store.keys,
            holder=f"{self.node_id} {secret}",
            lease=self.settings.cluster.lease,
            budget=self.settings.store.budget,
            clock=self.clock,
        )


def _nobody(_node_id: str) -> None:
    """Nobody looks at a list of nodes that died."""


def _repeating(languages: Languages) -> Languages:
    """The languages, with a method that survivors repeat."""
    profiles = {
        name: replace(one, requests=tuple(replace(how, repeatable=frozenset((REPEATABLE,))) for how in one.requests))
        for name, one in languages.profiles.items()
    }
    return replace(languages, profiles=profiles)


def _ulid(clock: Clock, chance: Random) -> str:
    number = round(clock.wall() * 1000) << 80 | chance.getrandbits(80)
    return "".join([_TWO_DIGITS[number >> shift & 1023] for shift in range(120, -1, -10)])


def _settle(reply: asyncio.Future[Told], told: Told) -> None:
    if not reply.done():
        reply.set_result(told)
