"""The composition root: settings -> adapters -> node -> HTTP application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from fastapi import FastAPI

from app.access.devices import Devices
from app.access.keys import KeyAdministrator
from app.access.people import People
from app.access.plane import AccessPlane, open_access
from app.access.ports import Everybody
from app.api.application import Application
from app.api.ports import DirectoryRecords, Ports
from app.api.representation import command_json
from app.audit.plane import AuditPlane, open_audit
from app.cluster.adopter import OnNodeDeath
from app.cluster.directory import NodeInfo
from app.cluster.engine import open_cluster
from app.core.access.keys import make_key
from app.core.clock import Clock
from app.core.events.event import TenantShares
from app.events.known import KnownFromEvents
from app.events.plane import EventPlane, open_plane
from app.events.sharing import IntakeSharing, NodeSession
from app.events.spans import UNTRACED
from app.kernel import Adapters, Kernel, OpenSession, open_kernel
from app.metrics import MetricsExposition, NodeMetrics
from app.mqtt.from_settings import intake_options, mqtt_options, ordered_session
from app.mqtt.paho import PahoMqttClient
from app.mqtt.paho_drain import PahoSessionDrain
from app.mqtt.paho_roll_call import PahoRollCall
from app.node import Node
from app.observed import event_spans
from app.parts import Parts, compose
from app.runtime.histograms import StoreMeasures
from app.runtime.services import Service, Services
from app.runtime.system import SystemClock, new_charter, new_secret, new_ulid, new_wake_key
from app.runtime.telemetry import Counters, Fill
from app.settings import Settings
from app.store.directory import AccessDirectory
from app.store.engine import EventEngine, open_directory, open_engine, open_events


def open_adapters(settings: Settings, counters: Counters, on_failure: Callable[[BaseException], None]) -> Adapters:
    """The adapters that the settings name."""
    clock, store_measures, wake_key = SystemClock(), StoreMeasures(), new_wake_key()
    engine = open_engine(
        settings.store.url,
        clock=clock,
        counters=counters,
        wake_key=wake_key,
        new_secret=new_secret,
        budget=settings.store.budget,
        measures=store_measures,
    )
    return Adapters(
        clock=clock,
        new_ulid=new_ulid,
        counters=counters,
        store=engine.store,
        open_cluster=lambda handlers: open_cluster(
            settings.store.url,
            lease=settings.cluster.lease,
            session_life=settings.mqtt.session_expiry,
            clock=clock,
            counters=counters,
            new_charter=new_charter,
            handlers=handlers,
            on_failure=on_failure,
        ),
        open_mqtt=lambda client_id, still_ours: PahoMqttClient(
            mqtt_options(settings, client_id), counters, still_ours=still_ours
        ),
        open_drain=lambda client_id: PahoSessionDrain(mqtt_options(settings, client_id), counters),
        open_roll_call=lambda client_id: PahoRollCall(mqtt_options(settings, client_id), counters),
        store_measures=store_measures,
        wake_key=wake_key,
        directory=_directory(settings),
        events=_event_engine(settings, clock, counters),
        open_intake=lambda client_id, still_ours: PahoMqttClient(
            intake_options(settings, client_id), counters, still_ours=still_ours
        ),
    )


def _directory(settings: Settings) -> AccessDirectory | None:
    if not settings.access.url:
        return None
    return open_directory(settings.access.url, new_cluster_id=new_secret, budget=settings.access.budget)


class Homing:
    """A node and its HTTP application, which is what starts and stops it.

    `outside` are the queues of this process that are in front of the application. `on_failure` is called with what
    keeps the node from starting, and with the end of a part that must run.
    """

    def __init__(
        self,
        settings: Settings,
        adapters: Adapters,
        on_failure: Callable[[BaseException], None],
        outside: Mapping[str, Callable[[], Fill]] | None = None,
    ) -> None:
        kernel = open_kernel(settings, adapters)
        directory = adapters.directory
        access = None if directory is None else open_access(kernel, directory)
        audit = None if directory is None or access is None else open_audit(kernel, access, directory)
        self.events: Final = _events(kernel, access, lambda: self.node.info)
        known = KnownFromEvents(self.events)
        self.parts: Final = compose(
            kernel,
            tenant_of=(Everybody() if access is None else access.authority).tenant_of,
            render=command_json,
            observers=[] if audit is None or audit.recorder is None else [audit.recorder],
            offline_since=known.offline_since,
            last_entry=known.last_entry,
            on_death=OnNodeDeath(known.gone, known.adopt),
        )
        self._services: Final = Services(_in_order(self.parts, access, audit, self.events), on_failure)
        self.node: Final = Node(self.parts.membership, self._services)
        self.application: Final = Application(
            self._ports(kernel, outside or {}, access, audit), settings, self._lifespan
        )
        if access is not None:
            access.changed.add(self.application.recheck)
            if self.parts.webhooks is not None:
                access.changed.add(self.parts.webhooks.book.forget)
        self._on_failure = on_failure
        self._drain_delay = settings.cluster.drain_delay

    async def drain(self) -> None:
        """Say that the node is about to stop, and go on serving until everybody knows."""
        await self.node.drain(self._drain_delay)

    @asynccontextmanager
    async def _lifespan(self, _application: FastAPI) -> AsyncIterator[None]:
        try:
            await self.node.start()
            try:
                yield
            finally:
                await self.node.stop()
        except BaseException as error:  # uvicorn only logs it
            self._on_failure(error)
            raise

    def _ports(
        self,
        kernel: Kernel,
        outside: Mapping[str, Callable[[], Fill]],
        access: AccessPlane | None,
        audit: AuditPlane | None,
    ) -> Ports:
        parts = self.parts

        def fills() -> dict[str, Fill]:
            own = {"streams": self.application.streams.fill()}
            return {**self._services.fills(), **own, **{name: fill() for name, fill in outside.items()}}

        return Ports(
            member=self.node,
            access=Everybody() if access is None else access.authority,
            directory=None if access is None or audit is None else _on_record(kernel, access, audit),
            audit=None if audit is None else audit.recorder,
            logins=None if access is None else access.logins,
            nodes=kernel.cluster.nodes,
            invoker=parts.invoker,
            profiles=kernel.languages.profiles,
            default_profile=kernel.settings.profile,
            store=kernel.store,
            open_commands=parts.open_commands,
            waiters=parts.waiters,
            watches=parts.watches,
            command_stream=parts.command_stream,
            explainer=parts.explainer,
            fills=fills,
            if_offline=parts.absence.defaults,
            webhooks=None if parts.webhooks is None else parts.webhooks.administration,
            counters=kernel.counters,
            exposition=MetricsExposition(
                NodeMetrics(
                    node_id=self.node.info.node_id,
                    measures=parts.measures,
                    open_commands=parts.open_commands,
                    waiters=parts.waiters,
                    fills=fills,
                    counters=kernel.counters,
                )
            ),
            tracing=kernel.tracing,
            now_us=lambda: round(kernel.clock.wall() * 1_000_000),
            events=self.events,
        )


def _in_order(
    parts: Parts, access: AccessPlane | None, audit: AuditPlane | None, events: EventPlane | None
) -> Sequence[Service]:
    """As they start; they stop in the opposite order."""
    return [
        *(() if audit is None else audit.first),
        *parts.services,
        *(() if audit is None else audit.services),
        *(() if access is None else access.services),
        *(() if events is None else events.services()),
    ]


def _on_record(kernel: Kernel, access: AccessPlane, audit: AuditPlane) -> DirectoryRecords:
    administration = access.administration
    return DirectoryRecords(
        devices=Devices(access.authority, administration, kernel.clock, kernel.settings.profile),
        keys=KeyAdministrator(administration, lambda: make_key(kernel.adapters.random_bytes)),
        people=People(administration),
        audit=audit.reader,
    )


def _events(kernel: Kernel, access: AccessPlane | None, info: Callable[[], NodeInfo]) -> EventPlane | None:
    """What keeps events; None where nobody has said where. `info` tells who this node is at present."""
    settings, adapters = kernel.settings, kernel.adapters
    engine, open_intake = adapters.events, adapters.open_intake
    if engine is None or open_intake is None:
        return None
    sharing = None if settings.events.intake == "ordered" else _sharing(kernel, open_intake, info)
    session = ordered_session(settings) if sharing is None else f"{settings.mqtt.share_group}-presence"
    return open_plane(
        settings.events,
        profiles=kernel.languages.profiles.values(),
        open_store=engine.open_log,
        role=engine.role,
        cold=None if engine.archive is None else (engine.archive, engine.cooling),
        open_mqtt=lambda: open_intake(session, lambda _client_id: engine.role.still_held()),
        sharing=sharing,
        spans=UNTRACED if kernel.tracing is None else event_spans(kernel.tracing),
        tenants=None if access is None else TenantShares(access.authority.tenants, access.authority.tenant_of),
        clock=kernel.clock,
        counters=kernel.counters,
        new_secret=adapters.new_secret,
    )


def _sharing(kernel: Kernel, open_intake: OpenSession, info: Callable[[], NodeInfo]) -> IntakeSharing:
    cluster = kernel.cluster
    return IntakeSharing(
        member=lambda: NodeSession(info().client_id, info().filters),
        still_member=cluster.still_member,
        others=lambda: bool((cluster.leased or frozenset()) - {info().node_id}),
        open_mqtt=open_intake,
        open_drain=kernel.adapters.open_drain,
        former=ordered_session(kernel.settings),
    )


def _event_engine(settings: Settings, clock: Clock, counters: Counters) -> EventEngine | None:
    if not settings.events.url:
        return None
    return open_events(
        settings.events.url,
        clock=clock,
        counters=counters,
        new_secret=new_secret,
        lease=settings.cluster.lease,
        name=settings.mqtt.share_group,
        node_id=settings.node.id or "",
        cold=settings.events.cold,
    )
