"""The composition root: settings -> adapters -> node -> HTTP application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from fastapi import FastAPI

from app.api.application import create_application
from app.callbacks.adopter import Adopter
from app.callbacks.delivery import Delivery
from app.callbacks.dispatcher import Dispatcher
from app.callbacks.journal import Journal
from app.callbacks.measuring import Measuring
from app.callbacks.registry import Registry
from app.cluster.base import Cluster, NodeInfo
from app.cluster.local import LocalCluster
from app.commands.expirer import Expirer
from app.commands.invoker import Invoker
from app.commands.sweeper import Sweeper
from app.core.clock import Clock, IdFactory
from app.core.errors import ConfigurationError
from app.core.profile import ResponseReader
from app.core.topics import share
from app.latency.factory import open_log
from app.measures import Measures, StoreMeasures
from app.mqtt.base import MqttClient, Subscription
from app.mqtt.options import MqttOptions
from app.mqtt.paho import PahoMqttClient
from app.node import Node, Parts
from app.observability import BurstLog, Counters
from app.profiles.loader import load_profiles
from app.settings import Settings
from app.store.base import StateStore
from app.store.factory import open_store
from app.system import SystemClock, new_ulid

if TYPE_CHECKING:
    from app.tracing import Tracing  # whose library is an extra

_Seen = TypeVar("_Seen")


@dataclass(frozen=True, slots=True)
class Adapters:
    """What a node stands on. Tests put other ones in place and leave the rest as it is."""

    clock: Clock
    new_ulid: IdFactory
    counters: Counters
    store: StateStore
    open_cluster: Callable[[Delivery], Cluster]
    open_mqtt: Callable[[str, Callable[[str], Awaitable[None]] | None], MqttClient]
    """Makes the client of an MQTT client id, with what to await before each of its connections."""
    store_measures: StoreMeasures = field(default_factory=StoreMeasures)


def compose(settings: Settings, adapters: Adapters) -> Parts:
    """Put the parts of a node together; nothing is connected yet. ConfigurationError when settings do not fit."""
    clock, counters, store = adapters.clock, adapters.counters, adapters.store
    profiles = load_profiles(settings.profiles.dir)
    if settings.profile not in profiles:
        raise ConfigurationError(
            f"HOMING_PROFILE: {settings.profile!r} is unknown; allowed: {', '.join(sorted(profiles))}"
        )
    reader = ResponseReader(profiles.values())
    measures = Measures(profiles, adapters.store_measures)
    subscriptions = _subscriptions(settings, reader)

    def incarnation(node_id: str) -> NodeInfo:
        ulid = adapters.new_ulid()
        client_id = f"{settings.mqtt.share_group}-{node_id}-{ulid}"
        filters = tuple(one.topic_filter for one in subscriptions)
        return NodeInfo(node_id, ulid, client_id, clock.wall(), filters)

    info = incarnation(settings.node.id or f"node-{adapters.new_ulid()[-10:].lower()}")
    tracing = open_tracing(settings, info, counters)
    new_delivery: Callable[..., Delivery] = Delivery
    if tracing is not None:
        from app.callbacks.traced import TracedDelivery, TracedStore

        store = TracedStore(store, tracing, clock)
        new_delivery = partial(TracedDelivery, tracing)
    registry = Registry(clock, max_pending=settings.command.max_pending, max_waiters=settings.command.max_waiters)
    interval = settings.cluster.sweep_interval.total_seconds()
    delivery = new_delivery(store=store, registry=registry, clock=clock, interval=interval, counters=counters)
    cluster = adapters.open_cluster(delivery)
    mqtt = adapters.open_mqtt(info.client_id, cluster.still_member)
    if tracing is not None:
        from app.callbacks.traced import TracedMqtt

        mqtt = TracedMqtt(mqtt, tracing)
    journal = _journal(settings, adapters, info, cluster)
    if journal is not None:
        registry.on_closed, registry.on_foreign = journal.closed, journal.ended
    expirer = Expirer(store=store, registry=registry, clock=clock, node_id=info.node_id)
    invoker = Invoker(
        store=store,
        mqtt=mqtt,
        registry=registry,
        profiles=profiles,
        new_ulid=adapters.new_ulid,
        node_id=info.node_id,
        retention=settings.store.retention,
        expirer=expirer,
        counters=counters,
        trace=None if tracing is None else tracing.sampled,
    )
    dispatcher = Dispatcher(
        reader=reader,
        store=store,
        registry=registry,
        node_id=info.node_id,
        clock=clock,
        counters=counters,
        drops=BurstLog(counters, clock),
        measures=measures,
        journal=journal,
    )
    sweeper = Sweeper(
        store=store, cluster=cluster, registry=registry, node_id=info.node_id, interval=interval, counters=counters
    )

    async def drain(orphan: NodeInfo, idle: timedelta) -> int:
        return await adapters.open_mqtt(orphan.client_id, None).drain(orphan.filters, dispatcher.handle, idle)

    measuring = Measuring(measures, info.node_id)
    registry.on_closed = _both(measuring.closed, registry.on_closed)
    registry.on_foreign = _both(measuring.foreign, registry.on_foreign)
    return Parts(
        info=info,
        reborn=lambda previous: incarnation(previous.node_id),
        store=store,
        mqtt=mqtt,
        cluster=cluster,
        registry=registry,
        dispatcher=dispatcher,
        delivery=delivery,
        invoker=invoker,
        expirer=expirer,
        sweeper=sweeper,
        adopter=Adopter(cluster=cluster, drain=drain, interval=interval, counters=counters),
        journal=journal,
        counters=counters,
        measures=measures,
        subscriptions=subscriptions,
        tracing=tracing,
    )


def _both(one: Callable[[_Seen], None], other: Callable[[_Seen], None] | None) -> Callable[[_Seen], None]:
    if other is None:
        return one

    def call(seen: _Seen) -> None:
        one(seen)
        other(seen)

    return call


def build_node(settings: Settings, on_failure: Callable[[BaseException], None]) -> Node:
    """A node on the adapters that its settings name."""
    clock, counters, store_measures = SystemClock(), Counters(), StoreMeasures()
    adapters = Adapters(
        clock=clock,
        new_ulid=new_ulid,
        counters=counters,
        store=open_store(
            settings.store.url,
            clock=clock,
            counters=counters,
            budget=settings.store.budget,
            measures=store_measures,
        ),
        open_cluster=lambda delivery: _cluster(settings, clock, counters, delivery, on_failure),
        open_mqtt=lambda client_id, still_ours: PahoMqttClient(
            mqtt_options(settings, client_id), counters, still_ours=still_ours
        ),
        store_measures=store_measures,
    )
    return Node(compose(settings, adapters), on_failure)


def build_application(settings: Settings, on_failure: Callable[[BaseException], None]) -> FastAPI:
    """The HTTP application with its node, which lives as long as the application does."""
    node = build_node(settings, on_failure)

    @asynccontextmanager
    async def lifespan(_application: FastAPI) -> AsyncIterator[None]:
        await node.start()
        try:
            yield
        finally:
            await node.stop()

    application = create_application(node, settings, lifespan)
    application.state.drain = lambda: node.drain(settings.cluster.drain_delay)
    return application


def mqtt_options(settings: Settings, client_id: str) -> MqttOptions:
    """What the settings say about the broker, for one client of it."""
    mqtt = settings.mqtt
    options = MqttOptions.from_url(mqtt.url, client_id=client_id, version=mqtt.version)
    return replace(
        options,
        username=mqtt.username or options.username,
        password=mqtt.password.get_secret_value() or options.password,
        ca_file=mqtt.ca_file,
        certificate_file=mqtt.cert_file,
        key_file=mqtt.key_file,
        keepalive=mqtt.keepalive,
        receive_maximum=mqtt.receive_maximum,
        session_expiry=mqtt.session_expiry,
        user_properties=bool(settings.tracing.endpoint),
    )


def open_tracing(settings: Settings, info: NodeInfo, counters: Counters) -> Tracing | None:
    """The tracer of the settings; ConfigurationError when OpenTelemetry is asked for and not installed."""
    if not settings.tracing.endpoint:
        return None
    try:
        from app.tracing import Tracing
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"HOMING_TRACING_ENDPOINT: {error.name} is not installed; traces need the extra homing[tracing]"
        ) from None
    return Tracing(settings.tracing, info.node_id, info.incarnation, counters)


def _journal(settings: Settings, adapters: Adapters, info: NodeInfo, cluster: Cluster) -> Journal | None:
    log = open_log(
        settings.latency,
        node_id=info.node_id,
        incarnation=info.incarnation,
        clock=adapters.clock,
        store_now=adapters.store.now,
        counters=adapters.counters,
    )
    if log is None:
        return None

    def gone(node_id: str) -> bool:
        return cluster.leased is not None and node_id not in cluster.leased

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


def _cluster(
    settings: Settings,
    clock: SystemClock,
    counters: Counters,
    delivery: Delivery,
    on_failure: Callable[[BaseException], None],
) -> Cluster:
    if settings.store.url.startswith("memory:"):
        return LocalCluster()
    from app.cluster.redis import RedisCluster

    return RedisCluster(
        settings.store.url,
        lease=settings.cluster.lease,
        session_life=settings.mqtt.session_expiry,
        clock=clock,
        counters=counters,
        on_wake=delivery.wake,
        on_resubscribed=delivery.resync,
        on_failure=on_failure,
    )


def _subscriptions(settings: Settings, reader: ResponseReader) -> list[Subscription]:
    """One node alone subscribes plainly, as some small brokers know no shared subscriptions."""
    alone = settings.store.url.startswith("memory:")
    group = settings.mqtt.share_group
    return [Subscription(one if alone else share(group, one)) for one in reader.filters()]
