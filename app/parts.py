"""Puts the parts of a node together, on adapters that somebody else has chosen; nothing is connected yet."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import structlog

from app.callbacks.answers import Answers
from app.callbacks.dispatcher import Dispatcher
from app.callbacks.echoes import Echoes
from app.callbacks.observer import Observer, Observers
from app.callbacks.open_commands import OpenCommands
from app.callbacks.waiters import Waiters
from app.callbacks.waker import Waker
from app.cluster.adopter import NOBODY, Adopter, OnNodeDeath
from app.cluster.canary import Canary
from app.cluster.cluster import Cluster
from app.cluster.directory import NodeInfo
from app.cluster.founding import Founding
from app.cluster.sessions import OwnTopics, Sessions
from app.cluster.wakeups import ChannelHandlers, WakeUpHandler
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
from app.core.clock import Clock, IdFactory
from app.core.cluster.notices import SessionNotice
from app.core.cluster.wakekey import WakeKey
from app.core.commands.callback import Answer
from app.core.commands.routing import Outcome
from app.core.errors import BrokerUnavailableError, ConfigurationError
from app.core.messages import Publication
from app.core.profiles.listening import ReplyReader
from app.core.profiles.profile import DeviceProfile
from app.core.profiles.reading import ResponseReader
from app.core.topics import canary_topics
from app.latency.factory import open_log
from app.latency.log import LatencyLog
from app.mqtt.base import MqttClient, RollCall, SessionDrain
from app.mqtt.inbox import Inbox
from app.node import MemberParts
from app.observers.drops import Drops
from app.observers.journal import Journal
from app.observers.measures import CommandMeasures
from app.observers.notes import Notes
from app.profiles.loader import Refused, load_what_can_be
from app.replies.finding import LastEntry, no_events
from app.replies.handlers import open_handlers
from app.replies.replier import Replier
from app.runtime.histograms import StoreMeasures
from app.runtime.services import Service
from app.runtime.system import new_secret, new_wake_key
from app.runtime.telemetry import BurstLog, Counters
from app.settings import Settings
from app.store.directory import AccessDirectory
from app.store.engine import EventEngine, kind_of
from app.store.state import StateStore
from app.webhooks.book import TenantOf
from app.webhooks.events import Render
from app.webhooks.plane import WebhookPlane, nobody, open_webhooks

if TYPE_CHECKING:
    from app.observers.event_spans import LogSpans
    from app.observers.spans import Spans
    from app.runtime.tracing import Tracing  # whose library is an extra


@dataclass(frozen=True, slots=True)
class Adapters:
    """What a node stands on. Tests put other ones in place and leave the rest as it is."""

    clock: Clock
    new_ulid: IdFactory
    counters: Counters
    store: StateStore
    open_cluster: Callable[[ChannelHandlers], Cluster]
    open_mqtt: Callable[[str, Callable[[str], Awaitable[None]]], MqttClient]
    """Makes the client of an MQTT client id, with what to await before each of its connections."""
    open_drain: Callable[[str], SessionDrain]
    """Makes what empties and ends the session of an MQTT client id."""
    open_roll_call: Callable[[str], RollCall] | None = None
    """Makes what asks who is there, under an MQTT client id; None where nobody else can be."""
    store_measures: StoreMeasures = field(default_factory=StoreMeasures)
    new_secret: Callable[[], str] = new_secret
    wake_key: WakeKey = field(default_factory=new_wake_key)
    """The same as the store's, or no wake-up is believed."""
    directory: AccessDirectory | None = None
    """Who may do what; None: everybody may do everything."""
    events: EventEngine | None = None
    """What keeps events; None: nothing does."""
    open_intake: Callable[[str, Callable[[str], Awaitable[None]]], MqttClient] | None = None
    """The same as `open_mqtt` for sessions that bring events in."""
    observers: Sequence[Observer] = ()
    """Who wants to know what happens to commands, besides metrics, log and traces."""


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
    profiles: Mapping[str, DeviceProfile]
    default_profile: str
    absence: Absence
    webhooks: WebhookPlane | None
    expirer: Expirer
    repeater: Repeater
    journal: Journal | None
    counters: Counters
    measures: CommandMeasures
    tracing: Tracing | None


def compose(
    settings: Settings,
    adapters: Adapters,
    *,
    tenant_of: TenantOf,
    render: Render,
    offline_since: OfflineSince = nobody_knows,
    last_entry: LastEntry = no_events,
    on_node_death: OnNodeDeath = NOBODY,
) -> Parts:
    """Put the parts of a node together; nothing is connected yet. ConfigurationError when settings do not fit.

    `tenant_of` tells to whom a device belongs, `render` shows a command as the API does, `offline_since` what is known
    of a device that is away, `last_entry` what was said last on a topic; `on_node_death` takes over what else a dead
    node had.
    """
    clock, counters, store = adapters.clock, adapters.counters, adapters.store
    profiles, refused = _profiles(settings)
    reader, reply_reader, filters = _readers(profiles.values())
    own_topics: OwnTopics = {}

    def heard(notice: SessionNotice) -> None:
        adopter.heard(notice)

    sessions = Sessions(
        group=settings.mqtt.share_group if kind_of(settings.store.url).shared else None,
        prefix=settings.mqtt.share_group,
        filters=filters,
        own_topics=own_topics,
        heard=heard,
        answer=_answering(lambda: mqtt),
        new_ulid=adapters.new_ulid,
        new_secret=adapters.new_secret,
        clock=clock,
        counters=counters,
    )
    info = sessions.incarnation(settings.node.id or f"node-{adapters.new_ulid()[-10:].lower()}")
    tracing = open_tracing(settings, info, counters)
    measures = CommandMeasures(profiles, info.node_id, counters, adapters.store_measures)
    log = _latency_log(settings, adapters, info)

    def gone(node_id: str) -> bool:
        return cluster.leased is not None and node_id not in cluster.leased

    journal = None if log is None else _journal(settings, adapters, info, log, gone)
    spans = None if tracing is None else _spans(tracing, clock)
    interval = settings.cluster.sweep_interval.total_seconds()
    watches, command_stream = _followed(settings, adapters, info)
    notes = Notes(info.node_id, clock)
    observers = Observers(
        counters,
        _those_there(
            *(*adapters.observers, notes, measures, watches),
            *(Drops(BurstLog(counters, clock)), spans, journal),
        ),
    )
    waiters = Waiters(clock, observers, most=settings.command.max_waiters)
    open_commands = OpenCommands(clock, waiters, observers, most=settings.command.max_pending)
    waker = Waker(
        store=store,
        open_commands=open_commands,
        waiters=waiters,
        clock=clock,
        interval=interval,
        wake_key=adapters.wake_key,
        observers=observers,
    )

    def resubscribed() -> None:
        waker.resync()
        canary.forget()

    def carried(secret: str) -> None:
        canary.returned(secret)

    def noted(what: bytes) -> None:
        explainer.noted(what)

    channel_handlers = ChannelHandlers(_waking(watches, waker), resubscribed, carried, watches.hear, noted)
    cluster = adapters.open_cluster(channel_handlers)
    explainer = _explainer(adapters, info, cluster, profiles, notes, open_commands)
    mqtt = adapters.open_mqtt(info.client_id, cluster.still_member)
    absence = Absence(
        mqtt=mqtt,
        profiles=profiles,
        contradicted=lambda: canary.contradicted,
        offline_since=offline_since,
        expire=settings.mqtt.version != "3.1.1",
    )
    expirer = Expirer(store=store, open_commands=open_commands, clock=clock, node_id=info.node_id, tells=absence.tells)
    webhooks = open_webhooks(
        settings.webhooks,
        store=store,
        cluster=cluster,
        node_id=info.node_id,
        tenant_of=tenant_of,
        render=render,
        clock=clock,
        new_ulid=adapters.new_ulid,
        counters=counters,
    )
    publisher = Publisher(mqtt=mqtt, profiles=profiles, observers=observers, absence=absence, carrier=spans)
    registrar = Registrar(
        publisher=publisher,
        new_ulid=adapters.new_ulid,
        node_id=info.node_id,
        retention=settings.store.retention,
        told_of=nobody if webhooks is None else webhooks.book.told_of,
    )
    invoker = Invoker(
        store=store,
        echoes=Echoes(store.states, profiles),
        publisher=publisher,
        open_commands=open_commands,
        waiters=waiters,
        profiles=profiles,
        registrar=registrar,
        node_id=info.node_id,
        expirer=expirer,
        observers=observers,
    )
    answers = Answers(
        store=store,
        echoes=Echoes(store.states, profiles),
        open_commands=open_commands,
        node_id=info.node_id,
        clock=clock,
        observers=observers,
        store_clock=None if log is None else log.store_clock,
    )
    replier, replying = _replier(settings, adapters, profiles, reply_reader, mqtt, observers, last_entry)
    dispatcher = Dispatcher(
        reader=reader,
        takers={Answer: answers.take},
        observers=observers,
        own=own_topics,
        replies_to=replier.replies_to if reply_reader.filters() else None,
    )
    inbox = Inbox(dispatcher.take, clock)
    sweeper = Sweeper(
        store=store,
        cluster=cluster,
        open_commands=open_commands,
        node_id=info.node_id,
        interval=interval,
        counters=counters,
    )

    repeater = Repeater(
        store=store,
        publisher=publisher,
        profiles=profiles,
        expirer=expirer,
        clock=clock,
        node_id=info.node_id,
        counters=counters,
        observers=observers,
    )

    adopter = _adopter(adapters, cluster, inbox, repeater, mqtt, interval, on_node_death)
    canary = Canary(
        mqtt=mqtt,
        cluster=cluster,
        node_id=info.node_id,
        topics=canary_topics(filters),
        strained=lambda: cluster.strained or adopter.busy,
        new_secret=adapters.new_secret,
        clock=clock,
        counters=counters,
    )
    own_topics.update(dict.fromkeys(canary.topics, canary.arrived))
    membership = MemberParts(
        info=info,
        sessions=sessions,
        founding=_founding(adapters, cluster, info),
        wake_key=adapters.wake_key,
        store=store,
        cluster=cluster,
        mqtt=mqtt,
        inbox=inbox,
        adopter=adopter,
        canary=canary,
        left=CommandRecovery(
            store=store, open_commands=open_commands, expirer=expirer, repeater=repeater, node_id=info.node_id
        ),
    )
    # Started in this order and stopped in the opposite one: what the last wake-ups bring is in the journal.
    services = [
        Service("traces", close=None if tracing is None else tracing.close),
        Service("store", close=store.close, queues=store.queues),
        Service("mqtt", queues=mqtt.queues),
        *([] if journal is None else [Service("journal", journal.run, close=journal.close, queues=journal.queues)]),
        Service("commands", drain=invoker.drained, queues=lambda: open_commands.queues() | waiters.queues()),
        *replying,
        Service("expirer", expirer.run),
        Service("waker", waker.run),
        Service("watches", watches.run, queues=watches.queues),
        Service("feed", command_stream.run),
        Service("sweeper", sweeper.run),
        Service("adopter", adopter.run),
        Service("canary", canary.run),
        Service("absence", absence.run),
        *([Service("profiles", check=lambda: _said_of(refused))] if refused else []),
        *([] if webhooks is None else [webhooks.service]),
    ]
    return Parts(
        membership=membership,
        services=services,
        open_commands=open_commands,
        waiters=waiters,
        waker=waker,
        watches=watches,
        command_stream=command_stream,
        explainer=explainer,
        invoker=invoker,
        profiles=profiles,
        default_profile=settings.profile,
        absence=absence,
        webhooks=webhooks,
        expirer=expirer,
        repeater=repeater,
        journal=journal,
        counters=counters,
        measures=measures,
        tracing=tracing,
    )


def _answering(mqtt: Callable[[], MqttClient]) -> Callable[[str, bytes], None]:
    def answer(topic: str, payload: bytes) -> None:
        with suppress(BrokerUnavailableError):
            _written = mqtt().publish(Publication(topic, payload, qos=0))

    return answer


def _founding(adapters: Adapters, cluster: Cluster, info: NodeInfo) -> Founding:
    asker = adapters.open_roll_call
    roll_call = None if asker is None else asker(f"{info.client_id}-asks")
    return Founding(cluster=cluster, roll_call=roll_call, counters=adapters.counters)


def _profiles(settings: Settings) -> tuple[Mapping[str, DeviceProfile], Sequence[Refused]]:
    """Those that this node speaks, and files that are none; ConfigurationError when its default is not spoken."""
    given = settings.profiles
    profiles, refused = load_what_can_be(given.dir, given.shipped_names, given.values)
    if settings.profile not in profiles:
        unknown = f"HOMING_PROFILE: {settings.profile!r} is unknown; allowed: {', '.join(sorted(profiles))}"
        raise ConfigurationError("\n".join([*(one.faults for one in refused), unknown]))
    for one in refused:
        structlog.get_logger().error("profile_refused", file=str(one.file), profile=one.name, reason=one.faults)
    return profiles, refused


def _said_of(refused: Sequence[Refused]) -> str:
    more = f" (and {len(refused) - 1} more files)" if len(refused) > 1 else ""
    return f"ok, but not spoken: {refused[0].name}, as {refused[0].first}{more}"


def _readers(profiles: Collection[DeviceProfile]) -> tuple[ResponseReader, ReplyReader, tuple[str, ...]]:
    """Who reads what devices say to nodes, and the topic filters that bring it."""
    responses, replies = ResponseReader(profiles), ReplyReader(profiles)
    return responses, replies, tuple(dict.fromkeys((*responses.filters(), *replies.filters())))


def _replier(
    settings: Settings,
    adapters: Adapters,
    profiles: Mapping[str, DeviceProfile],
    reader: ReplyReader,
    mqtt: MqttClient,
    observers: Observers,
    last_entry: LastEntry,
) -> tuple[Replier, Sequence[Service]]:
    """Who replies to devices, and what lives with it."""
    handlers = open_handlers(
        settings.reply,
        profiles.values(),
        clock=adapters.clock,
        new_ulid=adapters.new_ulid,
        counters=adapters.counters,
    )
    replier = Replier(
        reader=reader,
        mqtt=mqtt,
        store=adapters.store,
        clock=adapters.clock,
        counters=adapters.counters,
        observers=observers,
        last_entry=last_entry,
        handlers=None if handlers is None else handlers.handlers,
    )
    asked = [] if handlers is None else [handlers.service]
    return replier, [*asked, Service("replier", drain=replier.drained, queues=replier.queues)]


def _those_there(*observers: Observer | None) -> list[Observer]:
    return [one for one in observers if one is not None]


def _waking(watches: Watches, waker: Waker) -> WakeUpHandler:
    def wake(command_id: str, outcome: Outcome | None) -> None:
        watches.hear(command_id)
        waker.wake(command_id, outcome)

    return wake


def _followed(settings: Settings, adapters: Adapters, info: NodeInfo) -> tuple[Watches, CommandStream]:
    """What follows single commands, and what follows them all."""
    store, interval = adapters.store, settings.cluster.sweep_interval.total_seconds()
    always = settings.command.events == "always"
    return (
        Watches(store, info.node_id, interval=interval),
        CommandStream(store.changes, store, adapters.counters, always=always),
    )


def _explainer(
    adapters: Adapters,
    info: NodeInfo,
    cluster: Cluster,
    profiles: Mapping[str, DeviceProfile],
    notes: Notes,
    open_commands: OpenCommands,
) -> Explainer:
    notes.open_command = open_commands.get
    asking = PeerQuery(
        cluster=cluster,
        node_id=info.node_id,
        notes=notes.about,
        new_secret=adapters.new_secret,
        counters=adapters.counters,
    )
    return Explainer(
        asking=asking,
        cluster=cluster,
        profiles=profiles,
        elsewhere=notes.elsewhere,
        last_heard=notes.last_heard,
    )


def _adopter(
    adapters: Adapters,
    cluster: Cluster,
    inbox: Inbox,
    repeater: Repeater,
    mqtt: MqttClient,
    interval: float,
    on_node_death: OnNodeDeath,
) -> Adopter:
    async def drain(orphan: NodeInfo, idle: timedelta) -> int:
        found = await adapters.open_drain(orphan.client_id).drain(orphan.filters, inbox.handle, idle)
        await cluster.nodes()  # so that `leased` is of now
        if orphan.node_id not in (cluster.leased or ()):  # else it lives again, and looks after its commands itself
            await repeater.take_over(orphan.node_id)
        return found + await on_node_death.adopt(orphan.client_id, orphan.filters, idle)

    return Adopter(
        cluster=cluster,
        drain=drain,
        interval=interval,
        counters=adapters.counters,
        connected=lambda: mqtt.connected,
        gone=on_node_death.gone,
    )


def open_tracing(settings: Settings, info: NodeInfo, counters: Counters) -> Tracing | None:
    """The tracer of the settings; ConfigurationError when OpenTelemetry is asked for and not installed."""
    if not settings.tracing.endpoint:
        return None
    try:
        from app.runtime.tracing import Tracing
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"HOMING_TRACING_ENDPOINT: {error.name} is not installed; traces need the extra homing[tracing]"
        ) from None
    return Tracing(settings.tracing, info.node_id, info.incarnation, counters)


def _spans(tracing: Tracing, clock: Clock) -> Spans:
    from app.observers.spans import Spans

    return Spans(tracing, clock)


def event_spans(tracing: Tracing) -> LogSpans:
    """What traces appends to the event log."""
    from app.observers.event_spans import LogSpans

    return LogSpans(tracing)


def _latency_log(settings: Settings, adapters: Adapters, info: NodeInfo) -> LatencyLog | None:
    return open_log(
        settings.latency,
        node_id=info.node_id,
        incarnation=info.incarnation,
        clock=adapters.clock,
        store_now=adapters.store.now,
        counters=adapters.counters,
    )


def _journal(
    settings: Settings, adapters: Adapters, info: NodeInfo, log: LatencyLog, gone: Callable[[str], bool]
) -> Journal:
    news = settings.cluster.sweep_interval.total_seconds() + 1  # the members are read with each sweep
    return Journal(
        log=log,
        store=adapters.store,
        clock=adapters.clock,
        node_id=info.node_id,
        gone=gone,
        patience=settings.cluster.lease.total_seconds() + news,
        news=news,
        counters=adapters.counters,
    )
