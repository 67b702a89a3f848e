"""The event plane of a node: all its parts, put together from the settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from app.access.plane import AccessPlane
from app.cluster.directory import NodeInfo
from app.core.clock import Clock
from app.core.errors import EventsOffError
from app.core.events.event import Database, TenantShares
from app.core.events.plan import Plan
from app.core.profiles.event_reader import EventReader
from app.core.profiles.profile import DeviceProfile
from app.events.cooler import Cooler
from app.events.gate import LogGate
from app.events.intake import Intake, OpenMqtt
from app.events.keeper import Keeper
from app.events.life import EventLife
from app.events.named_cursors import NamedCursors
from app.events.presence import PresenceKeeper
from app.events.publisher import EventPublisher
from app.events.reader import EventsReader
from app.events.shared_intake import IntakeSharing, NodeSession, SharedIntake
from app.events.spans import UNTRACED, EventSpans
from app.events.tail import Tails
from app.events.values import DevicePresence, LastValues
from app.events.writer import EventWriter
from app.kernel import Kernel, OpenSession
from app.plane import Plane
from app.runtime.telemetry import Counters
from app.settings import EventsSettings
from app.store.archive import Archive
from app.store.events import EventStore
from app.store.roles import RoleLease

BOUND: Final = 8
"""The multiple of Receive Maximum that may wait to be appended, as QoS 0 is not bounded by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPlane:
    """The parts of the event log that others use, on a node that keeps events."""

    plan: Plan
    reader: EventsReader
    values: LastValues
    publisher: EventPublisher
    cursors: NamedCursors
    tails: Tails
    presence: DevicePresence
    keeper: Keeper
    intake: Intake
    shared: SharedIntake | None
    """Brings events in where nodes share them; then `intake` looks after presence alone."""
    store: EventStore
    plane: Plane


def needed(plane: EventPlane | None) -> EventPlane:
    """The event plane; EventsOffError where there is none."""
    if plane is None:
        raise EventsOffError("this node has no event log: HOMING_EVENTS_URL is empty")
    return plane


def open_event_plane(
    kernel: Kernel, access: AccessPlane | None, spans: EventSpans, info: Callable[[], NodeInfo]
) -> EventPlane | None:
    """None where nobody has said where events are kept. `info` tells who this node is at present."""
    settings, adapters = kernel.settings, kernel.adapters
    engine, open_intake = adapters.events, adapters.open_intake
    if engine is None or open_intake is None:
        return None
    ordered = f"{settings.mqtt.share_group}-intake"  # whoever brings events in next takes this session over
    sharing = None if settings.events.intake == "ordered" else _sharing(kernel, open_intake, info, ordered)
    session = ordered if sharing is None else f"{settings.mqtt.share_group}-presence"
    return open_plane(
        settings.events,
        profiles=kernel.languages.profiles.values(),
        open_store=engine.open_log,
        role=engine.role,
        cold=None if engine.archive is None else (engine.archive, engine.cooling),
        open_mqtt=lambda: open_intake(session, lambda _client_id: engine.role.still_held()),
        sharing=sharing,
        spans=spans,
        tenants=None if access is None else TenantShares(access.authority.tenants, access.authority.tenant_of),
        clock=kernel.clock,
        counters=kernel.counters,
        new_secret=adapters.new_secret,
        heard=kernel.device_heard,
    )


def _sharing(kernel: Kernel, open_intake: OpenSession, info: Callable[[], NodeInfo], former: str) -> IntakeSharing:
    cluster = kernel.cluster
    return IntakeSharing(
        member=lambda: NodeSession(info().client_id, info().filters),
        still_member=cluster.still_member,
        others=lambda: bool((cluster.leased or frozenset()) - {info().node_id}),
        open_mqtt=open_intake,
        open_drain=kernel.adapters.open_drain,
        former=former,
    )


def open_plane(  # noqa: PLR0913 - one per part that a node has
    settings: EventsSettings,
    *,
    profiles: Collection[DeviceProfile],
    open_store: Callable[[Sequence[Database]], EventStore],
    role: RoleLease,
    open_mqtt: OpenMqtt,
    clock: Clock,
    counters: Counters,
    new_secret: Callable[[], str],
    cold: tuple[Archive, RoleLease] | None = None,
    sharing: IntakeSharing | None = None,
    spans: EventSpans = UNTRACED,
    tenants: TenantShares | None = None,
    heard: Callable[[str], None] = lambda _device_id: None,
) -> EventPlane:
    """The event plane as the settings say; nothing is open yet. `cold`: the cold tier, and the role of who fills it.

    `heard` is called with each device of which something came in.
    """
    gate = LogGate()
    plan = Plan(settings.kept, profiles, settings.shards, settings.values, settings.values_bytes, tenants)
    store = open_store(plan.databases)
    keeper = _keeper(settings, store, plan, clock, counters, hourly=cold is not None)
    writer = _writer(settings, store, new_secret(), keeper, counters, spans, role.outrun)
    build = partial(Intake, plan=plan, writer=writer, clock=clock, counters=counters, heard=heard)
    presence = PresenceKeeper(store, plan, clock, counters)
    intake = build(
        role=role, open_mqtt=open_mqtt, reader=EventReader(profiles, events=sharing is None), presence=presence
    )
    shared = None if sharing is None else _shared_intake(sharing, profiles, build, lambda: intake.has_role)
    reader = EventsReader(store, plan, gate.check)
    values = LastValues(store, plan, reader, gate)
    publisher = EventPublisher(
        log=store, plan=plan, reader=reader, values=values, keeper=keeper, gate=gate, spans=spans
    )
    tails = Tails(store, reader, counters, clock)
    life = EventLife(
        store=store,
        gate=gate,
        intake=intake,
        keeper=keeper,
        tails=tails,
        writer=writer,
        cooler=None if cold is None else _cooler(settings, store, cold, plan, clock, counters),
        shared=shared,
    )
    return EventPlane(
        plan=plan,
        reader=reader,
        values=values,
        publisher=publisher,
        cursors=NamedCursors(store, reader, gate, clock, counters),
        tails=tails,
        presence=DevicePresence(values, plan, intake.is_held),
        keeper=keeper,
        intake=intake,
        shared=shared,
        store=store,
        plane=Plane(name="events", services=[life.service()]),
    )


def _shared_intake(
    sharing: IntakeSharing,
    profiles: Collection[DeviceProfile],
    build: Callable[..., Intake],
    leads: Callable[[], bool],
) -> SharedIntake:
    return SharedIntake(sharing, EventReader(profiles, presence=False), EventReader(profiles).filters(), build, leads)


def _keeper(
    settings: EventsSettings, store: EventStore, plan: Plan, clock: Clock, counters: Counters, *, hourly: bool
) -> Keeper:
    return Keeper(
        store,
        plan.kept,
        generation_bytes=settings.generation_bytes,
        quota_bytes=settings.quota_bytes,
        discard=settings.discard,
        clock=clock,
        counters=counters,
        hourly=hourly,
        groups=settings.groups,
    )


def _writer(
    settings: EventsSettings,
    store: EventStore,
    name: str,
    keeper: Keeper,
    counters: Counters,
    spans: EventSpans,
    outrun: Callable[[int], None],
) -> EventWriter:
    return EventWriter(
        store,
        name=name,
        flush_interval=settings.flush_interval,
        max_items=settings.max_items,
        bound=settings.receive_maximum * BOUND,
        admit=keeper.admit,
        counters=counters,
        spans=spans,
        outrun=outrun,
    )


def _cooler(
    settings: EventsSettings,
    store: EventStore,
    cold: tuple[Archive, RoleLease],
    plan: Plan,
    clock: Clock,
    counters: Counters,
) -> Cooler:
    archive, cooling = cold
    return Cooler(
        store,
        archive,
        plan.kept,
        cooling,
        hot=settings.hot,
        quota_bytes=settings.quota_bytes,
        clock=clock,
        counters=counters,
    )
