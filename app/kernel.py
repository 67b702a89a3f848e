"""The kernel of a node: the parts that every subject uses, made before all of them and not connected yet."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from app.cluster.cluster import Cluster
from app.cluster.directory import NodeInfo
from app.cluster.sessions import OwnTopics, Sessions
from app.cluster.shares import SLICE
from app.cluster.wakeups import ChannelHandlers
from app.core.clock import Clock, IdFactory, wall_us
from app.core.cluster.identity import NodeIdentity
from app.core.cluster.notices import SessionNotice
from app.core.cluster.wakekey import WakeKey
from app.core.commands.routing import Outcome
from app.core.errors import BrokerUnavailableError, ConfigurationError
from app.core.messages import Publication
from app.core.profiles.event_reader import ReplyReader
from app.core.profiles.profile import DeviceProfile
from app.core.profiles.response_reader import ResponseReader
from app.mqtt.base import MqttClient, RollCall, SessionDrain
from app.plane import Plane
from app.profiles.loader import Refused, load_what_can_be
from app.runtime.histograms import StoreMeasures
from app.runtime.listeners import Listeners
from app.runtime.services import Service
from app.runtime.system import new_secret, new_wake_key, random_bytes, resident_bytes
from app.runtime.telemetry import Counters
from app.settings import Settings
from app.store.directory import AccessDirectory
from app.store.engine import EventEngine, kind_of
from app.store.sessions import SessionStore
from app.store.state import StateStore

if TYPE_CHECKING:
    from app.runtime.tracing import Tracing  # whose library is an extra


OpenSession = Callable[[str, Callable[[str], Awaitable[None]]], MqttClient]
"""Makes the client of an MQTT client id, with what to await before each of its connections."""


@dataclass(frozen=True, slots=True)
class Adapters:
    """The adapters that a node stands on. Tests put other ones in place and leave the rest as it is."""

    clock: Clock
    new_ulid: IdFactory
    counters: Counters
    store: StateStore
    open_cluster: Callable[[ChannelHandlers], Cluster]
    open_mqtt: OpenSession
    open_drain: Callable[[str], SessionDrain]
    """Makes what empties and ends the session of an MQTT client id."""
    open_roll_call: Callable[[str], RollCall] | None = None
    """Makes what asks who is there, under an MQTT client id; None where nobody else can be."""
    store_measures: StoreMeasures = field(default_factory=StoreMeasures)
    identity: NodeIdentity | None = None
    """The identity of the node, where its store knows it; else the node makes an id and a session at each start."""
    new_secret: Callable[[], str] = new_secret
    random_bytes: Callable[[int], bytes] = random_bytes
    resident_bytes: Callable[[], int] = resident_bytes
    wake_key: WakeKey = field(default_factory=new_wake_key)
    """The same as the store's, or no wake-up is believed."""
    directory: AccessDirectory | None = None
    """The directory that says who may do what; None: everybody may do everything."""
    events: EventEngine | None = None
    """The engine that keeps events; None: nothing does."""
    sweep_slice: int = SLICE
    """Partitions of one sweep, at most."""
    sessions: SessionStore | None = None
    """The store of the sessions of a broker in this node; None: they are in memory alone."""
    open_intake: OpenSession | None = None
    """The same as `open_mqtt` for sessions that bring events in."""
    open_listener: Callable[[str], MqttClient] | None = None
    """Makes a client that looks on for a while, and of which the broker keeps nothing; None where nobody can."""


class Channel:
    """The messages on the channel of this node; each subject adds a listener to those that it takes."""

    def __init__(self) -> None:
        self.wake: Listeners[str, Outcome | None] = Listeners()
        self.resubscribed: Listeners[[]] = Listeners()
        self.carried: Listeners[str] = Listeners()
        self.watched: Listeners[str] = Listeners()
        self.noted: Listeners[bytes] = Listeners()

    def handlers(self) -> ChannelHandlers:
        """As the cluster calls them."""
        return ChannelHandlers(self.wake, self.resubscribed, self.carried, self.watched, self.noted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Languages:
    """The profiles that this node speaks, and the readers of device messages."""

    profiles: Mapping[str, DeviceProfile]
    refused: Sequence[Refused]
    """Files that are no profiles."""
    responses: ResponseReader
    replies: ReplyReader
    filters: Sequence[str]
    """Topic filters that bring both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The parts that every subject of a node uses."""

    settings: Settings
    adapters: Adapters
    info: NodeInfo
    """The first incarnation."""
    sessions: Sessions
    own_topics: OwnTopics
    """The receivers of messages on topics of this node itself."""
    notices: Listeners[SessionNotice]
    """Called with what the broker says of the sessions of other nodes."""
    channel: Channel
    cluster: Cluster
    mqtt: MqttClient
    languages: Languages
    tracing: Tracing | None
    access_changed: Listeners[[]]
    """Called whenever another version of the access directory counts."""
    device_heard: Listeners[str]
    """Called with a device whose event came to this node, or that has come back."""
    plane: Plane

    @property
    def clock(self) -> Clock:
        """This machine's clock."""
        return self.adapters.clock

    @property
    def counters(self) -> Counters:
        """Counts of everything that happens, by name."""
        return self.adapters.counters

    @property
    def store(self) -> StateStore:
        """Commands on record."""
        return self.adapters.store

    def now_us(self) -> int:
        """Microseconds since 1970, as this machine believes."""
        return wall_us(self.clock)

    async def live(self) -> Sequence[str]:
        """Return the ids of the nodes that are alive; StoreUnavailableError."""
        return [one.node_id for one in await self.cluster.nodes()]

    @property
    def interval(self) -> float:
        """The number of seconds between two rounds of what goes on by itself."""
        return self.settings.cluster.sweep_interval.total_seconds()


def open_kernel(settings: Settings, adapters: Adapters) -> Kernel:
    """Nothing is connected yet. ConfigurationError when settings do not fit."""
    languages = _languages(settings)
    own_topics: OwnTopics = {}
    notices: Listeners[SessionNotice] = Listeners()
    channel = Channel()
    sessions = Sessions(
        group=settings.mqtt.share_group if kind_of(settings.store.url).shared else None,
        prefix=settings.mqtt.share_group,
        filters=languages.filters,
        own_topics=own_topics,
        heard=notices,
        answer=lambda topic, payload: _answer(mqtt, topic, payload),
        new_ulid=adapters.new_ulid,
        new_secret=adapters.new_secret,
        clock=adapters.clock,
        counters=adapters.counters,
    )
    identity = adapters.identity
    own_id = f"node-{adapters.new_ulid()[-10:].lower()}" if identity is None else identity.node_id
    info = sessions.incarnation(settings.node.id or own_id, secret=None if identity is None else identity.session)
    cluster = adapters.open_cluster(channel.handlers())
    mqtt = adapters.open_mqtt(info.client_id, cluster.still_member)
    tracing = open_tracing(settings, info, adapters.counters)
    return Kernel(
        settings=settings,
        adapters=adapters,
        info=info,
        sessions=sessions,
        own_topics=own_topics,
        notices=notices,
        channel=channel,
        cluster=cluster,
        mqtt=mqtt,
        languages=languages,
        tracing=tracing,
        access_changed=Listeners(),
        device_heard=Listeners(),
        plane=Plane(name="kernel", services=_services(adapters.store, mqtt, languages, tracing)),
    )


def _services(store: StateStore, mqtt: MqttClient, languages: Languages, tracing: Tracing | None) -> Sequence[Service]:
    refused = languages.refused
    return [
        Service("traces", close=None if tracing is None else tracing.close),
        Service("store", close=store.close, fills=store.fills),
        Service("mqtt", fills=mqtt.fills),
        *([Service("profiles", check=lambda: _described(refused))] if refused else []),
    ]


def _described(refused: Sequence[Refused]) -> str:
    more = f" (and {len(refused) - 1} more files)" if len(refused) > 1 else ""
    return f"ok, but not spoken: {refused[0].name}, as {refused[0].first}{more}"


def _answer(mqtt: MqttClient, topic: str, payload: bytes) -> None:
    with suppress(BrokerUnavailableError):
        _written = mqtt.publish(Publication(topic, payload, qos=0))


def _languages(settings: Settings) -> Languages:
    """ConfigurationError when the default profile is not spoken."""
    given = settings.profiles
    profiles, refused = load_what_can_be(given.dir, given.shipped_names, given.values)
    if settings.profile not in profiles:
        unknown = f"HOMING_PROFILE: {settings.profile!r} is unknown; allowed: {', '.join(sorted(profiles))}"
        raise ConfigurationError("\n".join([*(one.faults for one in refused), unknown]))
    for one in refused:
        structlog.get_logger().error("profile_refused", file=str(one.file), profile=one.name, reason=one.faults)
    responses, replies = ResponseReader(profiles.values()), ReplyReader(profiles.values())
    return Languages(
        profiles=profiles,
        refused=refused,
        responses=responses,
        replies=replies,
        filters=tuple(dict.fromkeys((*responses.filters(), *replies.filters()))),
    )


def open_tracing(settings: Settings, info: NodeInfo, counters: Counters) -> Tracing | None:
    """The tracer of the settings; ConfigurationError when OpenTelemetry is asked for and not installed."""
    if not settings.tracing.endpoint:
        return None
    try:
        from app.runtime.tracing import Tracing  # noqa: PLC0415 - its library is an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"HOMING_TRACING_ENDPOINT: {error.name} is not installed; traces need the extra homing[tracing]"
        ) from None
    return Tracing(settings.tracing, info.node_id, info.incarnation, counters)
