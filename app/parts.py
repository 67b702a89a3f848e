"""Puts the command plane of a node together on its kernel: what sends commands, and what brings their answers home."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from app.callbacks.answers import Answers
from app.callbacks.dispatcher import Dispatcher
from app.callbacks.echoes import Echoes
from app.callbacks.observer import Observer
from app.callbacks.open_commands import OpenCommands
from app.callbacks.waiters import Waiters
from app.callbacks.waker import Waker
from app.cluster.adopter import NOBODY, Adopter, OnNodeDeath
from app.cluster.canary import Canary
from app.cluster.directory import NodeInfo
from app.cluster.founding import Founding
from app.commands.deadlines.expirer import Expirer
from app.commands.deadlines.left import CommandRecovery
from app.commands.deadlines.sweeper import Sweeper
from app.commands.explain.asking import PeerQuery
from app.commands.explain.explainer import Explainer
from app.commands.follow.stream import CommandStream
from app.commands.follow.watches import Watches
from app.commands.send.absence import Absence, OfflineSince, nobody_knows
from app.commands.send.invoker import Invoker
from app.commands.send.publisher import Publisher
from app.commands.send.registrar import Registrar
from app.commands.send.repeater import Repeater
from app.core.commands.callback import Answer
from app.core.topics import canary_topics
from app.kernel import Kernel
from app.mqtt.inbox import Inbox
from app.node import MemberParts
from app.observed import Observed, open_observers
from app.observers.journal import Journal
from app.observers.measures import CommandMeasures
from app.observers.notes import Notes
from app.profiles.loader import Refused
from app.replies.finding import LastEntry, no_events
from app.replies.handlers import open_handlers
from app.replies.replier import Replier
from app.runtime.services import Service
from app.runtime.telemetry import Counters
from app.webhooks.book import TenantOf
from app.webhooks.events import Render
from app.webhooks.plane import WebhookPlane, nobody, open_webhooks


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a node consists of; nothing of it is connected yet."""

    membership: MemberParts
    services: Sequence[Service]
    """In the order in which they start."""
    open_commands: OpenCommands
    waiters: Waiters
    waker: Waker
    watches: Watches
    command_stream: CommandStream
    explainer: Explainer
    invoker: Invoker
    absence: Absence
    webhooks: WebhookPlane | None
    expirer: Expirer
    repeater: Repeater
    journal: Journal | None
    counters: Counters
    measures: CommandMeasures


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
    webhooks: WebhookPlane | None
    expirer: Expirer
    invoker: Invoker
    sweeper: Sweeper
    repeater: Repeater


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answering:
    """The parts that take messages of devices and reply to them."""

    inbox: Inbox
    services: Sequence[Service]


def compose(
    kernel: Kernel,
    *,
    tenant_of: TenantOf,
    render: Render,
    observers: Sequence[Observer] = (),
    offline_since: OfflineSince = nobody_knows,
    last_entry: LastEntry = no_events,
    on_death: OnNodeDeath = NOBODY,
) -> Parts:
    """Put the parts together; nothing is connected yet. ConfigurationError when settings do not fit.

    `tenant_of` tells to whom a device belongs, `render` shows a command as the API does, `observers` are told what
    happens to commands, `offline_since` tells what is known of a device that is away, `last_entry` what was said last
    on a topic, and `on_death` takes over what else a dead node had.
    """
    observed = open_observers(kernel, observers)
    home = _home(kernel, observed)
    canary = _canary(kernel)
    sending = _sending(kernel, observed, home, canary, tenant_of, render, offline_since)
    answering = _answering(kernel, observed, home, last_entry)
    adopter = _adopter(kernel, answering.inbox, sending.repeater, on_death)
    canary.strained_by(lambda: adopter.busy)
    kernel.notices.add(adopter.heard)
    explainer = _explainer(kernel, observed.notes, home.open_commands)
    membership = _member(kernel, home, sending, answering, adopter, canary)
    return Parts(
        membership=membership,
        services=_services(kernel, observed, home, sending, answering, membership),
        open_commands=home.open_commands,
        waiters=home.waiters,
        waker=home.waker,
        watches=observed.watches,
        command_stream=observed.command_stream,
        explainer=explainer,
        invoker=sending.invoker,
        absence=sending.absence,
        webhooks=sending.webhooks,
        expirer=sending.expirer,
        repeater=sending.repeater,
        journal=observed.journal,
        counters=kernel.counters,
        measures=observed.measures,
    )


def _member(
    kernel: Kernel, home: _Home, sending: _Sending, answering: _Answering, adopter: Adopter, canary: Canary
) -> MemberParts:
    return MemberParts(
        info=kernel.info,
        sessions=kernel.sessions,
        founding=_founding(kernel),
        wake_key=kernel.adapters.wake_key,
        store=kernel.store,
        cluster=kernel.cluster,
        mqtt=kernel.mqtt,
        inbox=answering.inbox,
        adopter=adopter,
        canary=canary,
        left=CommandRecovery(
            store=kernel.store,
            open_commands=home.open_commands,
            expirer=sending.expirer,
            repeater=sending.repeater,
            node_id=kernel.info.node_id,
        ),
    )


def _services(
    kernel: Kernel, observed: Observed, home: _Home, sending: _Sending, answering: _Answering, member: MemberParts
) -> Sequence[Service]:
    """Started in this order and stopped in the opposite one: what the last wake-ups bring is in the journal."""
    tracing, journal, store, refused = kernel.tracing, observed.journal, kernel.store, kernel.languages.refused
    open_here, waiting = home.open_commands, home.waiters
    return [
        Service("traces", close=None if tracing is None else tracing.close),
        Service("store", close=store.close, fills=store.fills),
        Service("mqtt", fills=kernel.mqtt.fills),
        *([] if journal is None else [Service("journal", journal.run, close=journal.close, fills=journal.fills)]),
        Service("commands", drain=sending.invoker.drained, fills=lambda: open_here.fills() | waiting.fills()),
        *answering.services,
        Service("expirer", sending.expirer.run),
        Service("waker", home.waker.run),
        Service("watches", observed.watches.run, fills=observed.watches.fills),
        Service("feed", observed.command_stream.run),
        Service("sweeper", sending.sweeper.run),
        Service("adopter", member.adopter.run),
        Service("canary", member.canary.run),
        Service("absence", sending.absence.run),
        *([Service("profiles", check=lambda: _said_of(refused))] if refused else []),
        *([] if sending.webhooks is None else [sending.webhooks.service]),
    ]


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


def _canary(kernel: Kernel) -> Canary:
    canary = Canary(
        mqtt=kernel.mqtt,
        cluster=kernel.cluster,
        node_id=kernel.info.node_id,
        topics=canary_topics(kernel.languages.filters),
        strained=lambda: kernel.cluster.strained,
        new_secret=kernel.adapters.new_secret,
        clock=kernel.clock,
        counters=kernel.counters,
    )
    kernel.channel.resubscribed.add(canary.forget)
    kernel.channel.carried.add(canary.returned)
    kernel.own_topics.update(dict.fromkeys(canary.topics, canary.arrived))
    return canary


def _sending(
    kernel: Kernel,
    observed: Observed,
    home: _Home,
    canary: Canary,
    tenant_of: TenantOf,
    render: Render,
    offline_since: OfflineSince,
) -> _Sending:
    settings, store, profiles, node_id = kernel.settings, kernel.store, kernel.languages.profiles, kernel.info.node_id
    webhooks = open_webhooks(
        settings.webhooks,
        store=store,
        cluster=kernel.cluster,
        node_id=node_id,
        tenant_of=tenant_of,
        render=render,
        clock=kernel.clock,
        new_ulid=kernel.adapters.new_ulid,
        counters=kernel.counters,
    )
    absence = Absence(
        mqtt=kernel.mqtt,
        profiles=profiles,
        contradicted=lambda: canary.contradicted,
        offline_since=offline_since,
        expire=settings.mqtt.version != "3.1.1",
    )
    expirer = Expirer(
        store=store, open_commands=home.open_commands, clock=kernel.clock, node_id=node_id, tells=absence.tells
    )
    publisher = Publisher(
        mqtt=kernel.mqtt, profiles=profiles, observers=observed.observers, absence=absence, carrier=observed.spans
    )
    return _Sending(
        absence=absence,
        webhooks=webhooks,
        expirer=expirer,
        invoker=_invoker(kernel, observed, home, publisher, expirer, webhooks),
        sweeper=Sweeper(
            store=store,
            cluster=kernel.cluster,
            open_commands=home.open_commands,
            node_id=node_id,
            interval=kernel.interval,
            counters=kernel.counters,
        ),
        repeater=Repeater(
            store=store,
            publisher=publisher,
            profiles=profiles,
            expirer=expirer,
            clock=kernel.clock,
            node_id=node_id,
            counters=kernel.counters,
            observers=observed.observers,
        ),
    )


def _invoker(
    kernel: Kernel,
    observed: Observed,
    home: _Home,
    publisher: Publisher,
    expirer: Expirer,
    webhooks: WebhookPlane | None,
) -> Invoker:
    registrar = Registrar(
        publisher=publisher,
        new_ulid=kernel.adapters.new_ulid,
        node_id=kernel.info.node_id,
        retention=kernel.settings.store.retention,
        told_of=nobody if webhooks is None else webhooks.book.told_of,
    )
    return Invoker(
        store=kernel.store,
        echoes=Echoes(kernel.store.states, kernel.languages.profiles),
        publisher=publisher,
        open_commands=home.open_commands,
        waiters=home.waiters,
        profiles=kernel.languages.profiles,
        registrar=registrar,
        node_id=kernel.info.node_id,
        expirer=expirer,
        observers=observed.observers,
    )


def _answering(kernel: Kernel, observed: Observed, home: _Home, last_entry: LastEntry) -> _Answering:
    answers = Answers(
        store=kernel.store,
        echoes=Echoes(kernel.store.states, kernel.languages.profiles),
        open_commands=home.open_commands,
        node_id=kernel.info.node_id,
        clock=kernel.clock,
        observers=observed.observers,
        store_clock=None if observed.log is None else observed.log.store_clock,
    )
    handlers = open_handlers(
        kernel.settings.reply,
        kernel.languages.profiles.values(),
        clock=kernel.clock,
        new_ulid=kernel.adapters.new_ulid,
        counters=kernel.counters,
    )
    replies = kernel.languages.replies
    replier = Replier(
        reader=replies,
        mqtt=kernel.mqtt,
        store=kernel.store,
        clock=kernel.clock,
        counters=kernel.counters,
        observers=observed.observers,
        last_entry=last_entry,
        handlers=None if handlers is None else handlers.handlers,
    )
    dispatcher = Dispatcher(
        reader=kernel.languages.responses,
        takers={Answer: answers.take},
        observers=observed.observers,
        own=kernel.own_topics,
        replies_to=replier.replies_to if replies.filters() else None,
    )
    asked = [] if handlers is None else [handlers.service]
    services = [*asked, Service("replier", drain=replier.drained, fills=replier.fills)]
    return _Answering(inbox=Inbox(dispatcher.take, kernel.clock), services=services)


def _adopter(kernel: Kernel, inbox: Inbox, repeater: Repeater, on_death: OnNodeDeath) -> Adopter:
    cluster = kernel.cluster

    async def drain(orphan: NodeInfo, idle: timedelta) -> int:
        found = await kernel.adapters.open_drain(orphan.client_id).drain(orphan.filters, inbox.handle, idle)
        await cluster.nodes()  # so that `leased` is of now
        if orphan.node_id not in (cluster.leased or ()):  # else it lives again, and looks after its commands itself
            await repeater.take_over(orphan.node_id)
        return found + await on_death.adopt(orphan.client_id, orphan.filters, idle)

    return Adopter(
        cluster=cluster,
        drain=drain,
        interval=kernel.interval,
        counters=kernel.counters,
        connected=lambda: kernel.mqtt.connected,
        gone=on_death.gone,
    )


def _founding(kernel: Kernel) -> Founding:
    asker = kernel.adapters.open_roll_call
    roll_call = None if asker is None else asker(f"{kernel.info.client_id}-asks")
    return Founding(cluster=kernel.cluster, roll_call=roll_call, counters=kernel.counters)


def _explainer(kernel: Kernel, notes: Notes, open_commands: OpenCommands) -> Explainer:
    notes.open_command = open_commands.get
    asking = PeerQuery(
        cluster=kernel.cluster,
        node_id=kernel.info.node_id,
        notes=notes.about,
        new_secret=kernel.adapters.new_secret,
        counters=kernel.counters,
    )
    explainer = Explainer(
        asking=asking,
        cluster=kernel.cluster,
        profiles=kernel.languages.profiles,
        elsewhere=notes.elsewhere,
        last_heard=notes.last_heard,
    )
    kernel.channel.noted.add(explainer.noted)
    return explainer


def _said_of(refused: Sequence[Refused]) -> str:
    more = f" (and {len(refused) - 1} more files)" if len(refused) > 1 else ""
    return f"ok, but not spoken: {refused[0].name}, as {refused[0].first}{more}"
