"""Puts the command plane of a node together on its kernel: what sends commands, and what brings their answers home."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from app.callbacks.answers import Answers
from app.callbacks.dispatcher import Dispatcher
from app.callbacks.echoes import Echoes
from app.callbacks.open_commands import OpenCommands
from app.callbacks.waiters import Waiters
from app.callbacks.waker import Waker
from app.cluster.canary import Canary
from app.commands.deadlines.expirer import Expirer
from app.commands.deadlines.sweeper import Sweeper
from app.commands.dry_runner import DryRunner
from app.commands.explain.explainer import Explainer
from app.commands.follow.stream import CommandStream
from app.commands.follow.watches import Watches
from app.commands.held.approver import Approver
from app.commands.held.claimant import Claimant
from app.commands.held.command_holder import CommandHolder
from app.commands.held.drainer import Drainer
from app.commands.held.held_judge import HeldJudge
from app.commands.held.lane_resumer import LaneResumer
from app.commands.held.look_pace import LookPace
from app.commands.peer_query import PeerQuery
from app.commands.send.absence import Absence, OfflineSince, nobody_knows, nobody_knows_now
from app.commands.send.admission import CommandAdmission, LastEvent, no_events
from app.commands.send.invoker import Invoker
from app.commands.send.publisher import Publisher
from app.commands.send.registrar import Registrar, ToldOf
from app.commands.send.repeater import Repeater
from app.core.commands.callback import Answer
from app.core.commands.command import Command
from app.kernel import Kernel
from app.mqtt.base import MqttClient
from app.mqtt.inbox import Arrival, Inbox
from app.observed import Observed
from app.observers.notes import Notes
from app.plane import Plane
from app.probes import ProbeParts, open_probes
from app.runtime.services import Service
from app.store.engine import kind_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPlane:
    """The parts that send commands and bring their answers home."""

    inbox: Inbox
    """Takes everything that the broker delivers to this node."""
    open_commands: OpenCommands
    waiters: Waiters
    waker: Waker
    watches: Watches
    stream: CommandStream
    """All commands, for readers that follow them together."""
    peers: PeerQuery
    """Asks the other nodes."""
    explainer: Explainer
    invoker: Invoker
    holder: CommandHolder
    approver: Approver
    lanes: LaneResumer
    dry_runner: DryRunner
    absence: Absence
    expirer: Expirer
    probes: ProbeParts
    repeater: Repeater
    plane: Plane


@dataclass(frozen=True, slots=True, kw_only=True)
class _Home:
    """The commands that are open on this node, and the callers that wait for them."""

    waiters: Waiters
    open_commands: OpenCommands
    waker: Waker


@dataclass(frozen=True, slots=True, kw_only=True)
class _WayOut:
    """The parts that every command passes on its way to a device, at once or later."""

    admission: CommandAdmission
    registrar: Registrar
    publisher: Publisher
    absence: Absence
    expirer: Expirer


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sending:
    """The parts that send commands and end those that get no answer."""

    absence: Absence
    expirer: Expirer
    probes: ProbeParts
    invoker: Invoker
    sweeper: Sweeper
    repeater: Repeater
    holder: CommandHolder
    approver: Approver
    lanes: LaneResumer
    dry_runner: DryRunner
    drainer: Drainer
    judge: HeldJudge


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSurroundings:
    """The questions that commands ask of other planes."""

    told_of: ToldOf
    """Says which webhooks are told of a command."""
    offline_since: OfflineSince = nobody_knows
    """Says since when a device is known to be away."""
    online: Callable[[str], Awaitable[bool | None]] = nobody_knows_now
    """Says whether a device is there; None where nobody knows."""
    last_event: LastEvent = no_events
    """The last value of a topic."""
    may_send: Callable[[Command], None] = lambda _command: None
    """Return where the caller of a held command may send it, by the rules of this moment."""


def open_commands(
    kernel: Kernel,
    observed: Observed,
    canary: Canary,
    *,
    replies_to: Callable[[Arrival], bool] | None,
    around: CommandSurroundings,
) -> CommandPlane:
    """Nothing is connected yet. `replies_to` replies to messages of devices that ask."""
    home = _home(kernel, observed)
    sending = _sending(kernel, observed, home, canary, around)
    peers = _peers(kernel)
    return CommandPlane(
        inbox=_inbox(kernel, observed, home, replies_to),
        open_commands=home.open_commands,
        waiters=home.waiters,
        waker=home.waker,
        watches=observed.watches,
        stream=observed.command_stream,
        peers=peers,
        explainer=_explainer(kernel, peers, observed.notes, home, sending.judge),
        invoker=sending.invoker,
        holder=sending.holder,
        approver=sending.approver,
        lanes=sending.lanes,
        dry_runner=sending.dry_runner,
        absence=sending.absence,
        expirer=sending.expirer,
        probes=sending.probes,
        repeater=sending.repeater,
        plane=Plane(
            name="commands",
            services=[
                Service(
                    "commands",
                    drain=sending.invoker.drained,
                    fills=lambda: home.open_commands.fills() | home.waiters.fills(),
                ),
                Service("expirer", sending.expirer.run),
                Service("prober", sending.probes.prober.run),
                Service("waker", home.waker.run),
                Service("sweeper", sending.sweeper.run),
                Service("absence", sending.absence.run),
                Service(
                    "held",
                    sending.drainer.run,
                    drain=sending.drainer.drained,
                    fills=observed.waiting.fills,
                    gauges=sending.drainer.gauges.shown,
                ),
            ],
        ),
    )


def _home(kernel: Kernel, observed: Observed) -> _Home:
    limits = kernel.settings.command
    waiters = Waiters(kernel.clock, observed.observers, most=limits.max_waiters)
    open_commands = OpenCommands(kernel.clock, waiters, observed.observers, most=limits.max_pending)
    waker = Waker(
        store=kernel.store,
        open_commands=open_commands,
        waiters=waiters,
        clock=kernel.clock,
        interval=kernel.interval,
        wake_key=kernel.adapters.wake_key,
        observers=observed.observers,
    )
    kernel.channel.wake.add(waker.wake)
    kernel.channel.resubscribed.add(waker.resync)
    return _Home(waiters=waiters, open_commands=open_commands, waker=waker)


def _way_out(kernel: Kernel, observed: Observed, home: _Home, canary: Canary, around: CommandSurroundings) -> _WayOut:
    profiles, node_id = kernel.languages.profiles, kernel.info.node_id
    absence = Absence(
        mqtt=kernel.mqtt,
        profiles=profiles,
        contradicted=lambda: canary.contradicted,
        offline_since=around.offline_since,
        expire=kernel.settings.mqtt.version != "3.1.1",
    )
    publisher = Publisher(
        mqtt=kernel.mqtt, profiles=profiles, observers=observed.observers, absence=absence, carrier=observed.spans
    )
    return _WayOut(
        admission=CommandAdmission(
            profiles=profiles,
            last_event=around.last_event,
            store=kernel.store,
            now_us=kernel.now_us,
            counters=kernel.counters,
        ),
        registrar=Registrar(
            publisher=publisher,
            new_ulid=kernel.adapters.new_ulid,
            node_id=node_id,
            retention=kernel.settings.store.retention,
            told_of=around.told_of,
        ),
        publisher=publisher,
        absence=absence,
        expirer=Expirer(
            store=kernel.store,
            open_commands=home.open_commands,
            clock=kernel.clock,
            node_id=node_id,
            tells=absence.tells,
        ),
    )


def _sending(kernel: Kernel, observed: Observed, home: _Home, canary: Canary, around: CommandSurroundings) -> _Sending:
    way = _way_out(kernel, observed, home, canary, around)
    drainer, judge = _drainer(kernel, observed, home, way, around)
    holder = CommandHolder(
        store=kernel.store,
        registrar=way.registrar,
        admission=way.admission,
        waiters=home.waiters,
        drainer=drainer,
        all_know=kernel.cluster.all_know,
        observers=observed.observers,
        clock=kernel.clock,
    )
    invoker = _invoker(kernel, observed, home, way)
    return _Sending(
        absence=way.absence,
        expirer=way.expirer,
        probes=open_probes(
            kernel,
            open_commands=home.open_commands,
            invoker=invoker,
            last_event=around.last_event,
            kept=way.expirer.kept,
        ),
        invoker=invoker,
        drainer=drainer,
        judge=judge,
        holder=holder,
        approver=Approver(
            store=kernel.store,
            open_commands=home.open_commands,
            drainer=drainer,
            node_id=kernel.info.node_id,
            counters=kernel.counters,
        ),
        lanes=LaneResumer(
            store=kernel.store, drainer=drainer, profiles=kernel.languages.profiles, counters=kernel.counters
        ),
        dry_runner=DryRunner(
            admission=way.admission,
            registrar=way.registrar,
            publisher=way.publisher,
            holder=holder,
            judge=judge,
            store=kernel.store,
        ),
        sweeper=Sweeper(
            store=kernel.store,
            cluster=kernel.cluster,
            open_commands=home.open_commands,
            node_id=kernel.info.node_id,
            interval=kernel.interval,
            shared=kind_of(kernel.settings.store.url).shared,
            counters=kernel.counters,
            slice_size=kernel.adapters.sweep_slice,
        ),
        repeater=_repeater(kernel, observed, way),
    )


def _repeater(kernel: Kernel, observed: Observed, way: _WayOut) -> Repeater:
    return Repeater(
        store=kernel.store,
        publisher=way.publisher,
        profiles=kernel.languages.profiles,
        expirer=way.expirer,
        clock=kernel.clock,
        node_id=kernel.info.node_id,
        counters=kernel.counters,
        observers=observed.observers,
    )


def _drainer(
    kernel: Kernel, observed: Observed, home: _Home, way: _WayOut, around: CommandSurroundings
) -> tuple[Drainer, HeldJudge]:
    judge = HeldJudge(
        store=kernel.store,
        publisher=way.publisher,
        admission=way.admission,
        may=around.may_send,
        online=around.online,
        now_us=kernel.now_us,
    )
    claimant = Claimant(
        store=kernel.store,
        publisher=way.publisher,
        open_commands=home.open_commands,
        expirer=way.expirer,
        serves=lambda: kernel.cluster.listening,
        node_id=kernel.info.node_id,
        new_secret=kernel.adapters.new_secret,
        clock=kernel.clock,
        counters=kernel.counters,
        observers=observed.observers,
    )
    drainer = Drainer(
        store=kernel.store,
        waiting=observed.waiting,
        judge=judge,
        claimant=claimant,
        nodes=kernel.cluster.nodes,
        node_id=kernel.info.node_id,
        interval=kernel.interval,
        pace=LookPace(kernel.clock, kernel.settings.command.hold_rate, partial(_taken_window, kernel.mqtt)),
    )
    kernel.device_heard.add(drainer.heard)
    return drainer, judge


def _taken_window(mqtt: MqttClient) -> float:
    """The share of the window of publishes that the broker has to confirm."""
    fill = mqtt.fills().get("publishes")
    return 0.0 if fill is None else fill.size / fill.bound


def _invoker(kernel: Kernel, observed: Observed, home: _Home, way: _WayOut) -> Invoker:
    return Invoker(
        store=kernel.store,
        echoes=Echoes(kernel.store.states, kernel.languages.profiles),
        publisher=way.publisher,
        open_commands=home.open_commands,
        waiters=home.waiters,
        admission=way.admission,
        registrar=way.registrar,
        node_id=kernel.info.node_id,
        expirer=way.expirer,
        observers=observed.observers,
    )


def _inbox(kernel: Kernel, observed: Observed, home: _Home, replies_to: Callable[[Arrival], bool] | None) -> Inbox:
    answers = Answers(
        store=kernel.store,
        echoes=Echoes(kernel.store.states, kernel.languages.profiles),
        open_commands=home.open_commands,
        node_id=kernel.info.node_id,
        clock=kernel.clock,
        observers=observed.observers,
        store_clock=None if observed.log is None else observed.log.store_clock,
    )
    dispatcher = Dispatcher(
        reader=kernel.languages.responses,
        takers={Answer: answers.take},
        observers=observed.observers,
        own=kernel.own_topics,
        replies_to=replies_to,
    )
    return Inbox(dispatcher.take, kernel.clock)


def _peers(kernel: Kernel) -> PeerQuery:
    peers = PeerQuery(
        cluster=kernel.cluster,
        node_id=kernel.info.node_id,
        new_secret=kernel.adapters.new_secret,
        counters=kernel.counters,
    )
    kernel.channel.noted.add(peers.noted)
    return peers


def _explainer(kernel: Kernel, peers: PeerQuery, notes: Notes, home: _Home, judge: HeldJudge) -> Explainer:
    notes.open_command = home.open_commands.get
    return Explainer(
        peers=peers,
        recall=notes.about,
        cluster=kernel.cluster,
        profiles=kernel.languages.profiles,
        elsewhere=notes.elsewhere,
        last_heard=notes.last_heard,
        why_held=judge.why,
    )
