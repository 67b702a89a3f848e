"""Puts the command plane of a node together on its kernel: what sends commands, and what brings their answers home."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.callbacks.answers import Answers
from app.callbacks.dispatcher import Dispatcher
from app.callbacks.echoes import Echoes
from app.callbacks.open_commands import OpenCommands
from app.callbacks.waiters import Waiters
from app.callbacks.waker import Waker
from app.cluster.canary import Canary
from app.command_plane.held import HeldParts, open_held
from app.command_plane.observed import Observed
from app.command_plane.probes import ProbeParts, open_probes
from app.command_plane.way_out import CommandSurroundings, WayOut, open_way_out
from app.commands.deadlines.expirer import Expirer
from app.commands.deadlines.sweeper import Sweeper
from app.commands.dry_runner import DryRunner
from app.commands.explain.explainer import Explainer
from app.commands.follow.stream import CommandStream
from app.commands.follow.watches import Watches
from app.commands.held.approver import Approver
from app.commands.held.command_holder import CommandHolder
from app.commands.held.held_judge import HeldJudge
from app.commands.held.lane_resumer import LaneResumer
from app.commands.peer_query import PeerQuery
from app.commands.send.absence import Absence
from app.commands.send.invoker import Invoker
from app.commands.send.repeater import Repeater
from app.core.commands.callback import Answer
from app.kernel import Kernel
from app.mqtt.inbox import Arrival, Inbox
from app.observers.notes import Notes
from app.plane import Plane
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
class _Sending:
    """The parts that send commands and end those that get no answer."""

    absence: Absence
    expirer: Expirer
    probes: ProbeParts
    invoker: Invoker
    sweeper: Sweeper
    repeater: Repeater
    held: HeldParts
    dry_runner: DryRunner


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
        explainer=_explainer(kernel, peers, observed.notes, home, sending.held.judge),
        invoker=sending.invoker,
        holder=sending.held.holder,
        approver=sending.held.approver,
        lanes=sending.held.lanes,
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
                sending.held.service,
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


def _sending(kernel: Kernel, observed: Observed, home: _Home, canary: Canary, around: CommandSurroundings) -> _Sending:
    way = open_way_out(kernel, observed, home.open_commands, canary, around)
    held = open_held(kernel, observed, way, open_commands=home.open_commands, waiters=home.waiters, around=around)
    invoker = _invoker(kernel, observed, home, way)
    invoker.cancelled.add(held.claims.cancelled)
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
        held=held,
        dry_runner=DryRunner(
            admission=way.admission,
            registrar=way.registrar,
            publisher=way.publisher,
            holder=held.holder,
            judge=held.judge,
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


def _repeater(kernel: Kernel, observed: Observed, way: WayOut) -> Repeater:
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


def _invoker(kernel: Kernel, observed: Observed, home: _Home, way: WayOut) -> Invoker:
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
