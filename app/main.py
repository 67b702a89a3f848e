"""The composition root: settings -> adapters -> node -> HTTP application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from fastapi import FastAPI

from app.access.administration import AccessAdministrator
from app.access.authority import Authority
from app.access.bootstrap import prepare
from app.access.copying import RulesCopier
from app.access.devices import Devices
from app.access.following import DirectoryFollower
from app.access.keys import KeyAdministrator
from app.access.login.logins import Logins
from app.access.people import People
from app.access.ports import Everybody
from app.access.sharing import LimitSharer
from app.api.application import Application
from app.api.ports import DirectoryRecords, Ports
from app.api.representation import command_json
from app.audit.reader import AuditReader
from app.audit.recorder import Audit
from app.audit.retention import Retention
from app.audit.writer import AuditWriter
from app.cluster.adopter import OnNodeDeath
from app.cluster.engine import open_cluster
from app.core.access.keys import Key, KeyFault, make_key, parse_key
from app.core.addresses import split_address
from app.core.clock import Clock
from app.core.errors import ConfigurationError, HomingError
from app.core.events.event import Entry, TenantShares
from app.events.plane import EventPlane, open_plane
from app.events.sharing import IntakeSharing
from app.events.sharing import NodeSession as EventsMembership
from app.events.spans import UNTRACED
from app.metrics import Exposition, NodeMetrics
from app.mqtt.from_settings import intake_options, mqtt_options, ordered_session
from app.mqtt.paho import PahoMqttClient
from app.mqtt.paho_drain import PahoSessionDrain
from app.mqtt.paho_roll_call import PahoRollCall
from app.node import Node
from app.parts import Adapters, Parts, compose, event_spans
from app.runtime.histograms import StoreMeasures
from app.runtime.services import Service, Services
from app.runtime.system import SystemClock, new_charter, new_secret, new_ulid, new_wake_key, random_bytes
from app.runtime.telemetry import Counters, Fill
from app.settings import AccessSettings, Settings
from app.store.copies import Copies
from app.store.directory import AccessDirectory
from app.store.engine import EventEngine, open_directory, open_engine, open_events

if TYPE_CHECKING:
    from app.access.login.passwords import Passwords


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


PRESENCE_SECONDS: Final = 0.25
"""How long a command waits to be told that its device is away; then it is sent."""


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
        audit = None if adapters.directory is None else _audit(settings, adapters, adapters.directory)
        guard = None if adapters.directory is None else self._guard(settings, adapters, adapters.directory, audit)
        tenant_of = (Everybody() if guard is None else guard.authority).tenant_of
        self.parts: Final = compose(
            settings,
            _with_observer(adapters, audit),
            tenant_of=tenant_of,
            render=command_json,
            offline_since=self._offline_since,
            last_entry=self._last_entry,
            on_node_death=OnNodeDeath(self._gone, self._adopt),
        )
        if audit is not None and guard is not None:
            info = self.parts.membership.info
            audit.begin(f"{info.node_id}/{info.incarnation}", guard.authority.who, guard.authority.tenant_of)
        self._clock = adapters.clock
        tenants = None if guard is None else TenantShares(guard.authority.tenants, guard.authority.tenant_of)
        self.events: Final = _events(settings, adapters, self.parts, self._sharing(settings, adapters), tenants)
        planes = [] if self.events is None else self.events.services()
        first, own = ([], []) if guard is None else (guard.first, guard.services)
        self._services: Final = Services([*first, *self.parts.services, *own, *planes], on_failure)
        self.node: Final = Node(self.parts.membership, self._services)
        ports = self._ports(outside or {}, guard)
        self.application: Final = Application(ports, settings, self._lifespan)
        self._on_failure = on_failure
        self._drain_delay = settings.cluster.drain_delay

    async def _offline_since(self, device_id: str) -> int | None:
        """What the events tell of a device, soon or not at all."""
        if self.events is None:
            return None
        with suppress(TimeoutError, HomingError):
            async with asyncio.timeout(PRESENCE_SECONDS):
                return await self.events.offline_since(device_id)
        return None

    async def _last_entry(self, database: str | None, topic: str) -> Entry | None:
        """What was said last on a topic, in the database that a profile proposes."""
        if self.events is None:
            return None
        found = await self.events.value(self.events.plan.name(database), topic)
        return None if found is None else found.entry

    def _gone(self, node_id: str) -> None:
        if self.events is not None:
            self.events.gone(node_id)

    async def _adopt(self, client_id: str, topic_filters: Sequence[str], idle: timedelta) -> int:
        return 0 if self.events is None else await self.events.adopt(client_id, topic_filters, idle)

    def _sharing(self, settings: Settings, adapters: Adapters) -> IntakeSharing | None:
        open_intake, membership = adapters.open_intake, self.parts.membership
        if settings.events.intake == "ordered" or open_intake is None:
            return None

        def member() -> EventsMembership:
            return EventsMembership(self.node.info.client_id, self.node.info.filters)

        return IntakeSharing(
            member=member,
            still_member=membership.cluster.still_member,
            others=lambda: bool((membership.cluster.leased or frozenset()) - {self.node.info.node_id}),
            open_mqtt=open_intake,
            open_drain=adapters.open_drain,
            former=ordered_session(settings),
        )

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

    def _guard(self, settings: Settings, adapters: Adapters, directory: AccessDirectory, audit: Audit | None) -> _Guard:
        clock, services = adapters.clock, []
        tokens = None
        if settings.oidc.issuer:
            from app.access.login.oidc import open_issuer  # noqa: PLC0415 - its libraries are an extra

            tokens, keys = open_issuer(settings.oidc, clock, adapters.counters)
            services.append(Service("issuer", keys.run, close=keys.close))
        following = DirectoryFollower(
            directory,
            clock,
            prepare=_preparation(settings, directory, adapters.clock),
            interval=settings.access.refresh.total_seconds(),
            changed=self._recheck,
            agreed=self._agreed,
            copying=_copying(settings, clock, lambda: self.parts.membership.cluster),
        )
        authority = Authority(
            following,
            clock,
            stale=settings.access.stale.total_seconds(),
            nodes=lambda: len(self.parts.membership.cluster.leased or ()),
            counters=adapters.counters,
            tokens=tokens,
        )
        administration = AccessAdministrator(directory, authority, clock, audited=settings.audit != "off")
        services.append(
            Service("limits", LimitSharer(authority.limiting.shares, self._exchange, authority.counts_open).run)
        )
        logins = Logins(
            authority,
            administration,
            _passwords(),
            clock,
            random_bytes,
            adapters.counters,
            per_address=settings.access.logins,
        )
        services.append(Service("logins", close=logins.close))
        if settings.audit_keep is not None:
            services.append(Service("audit retention", Retention(directory.audit, clock, settings.audit_keep).run))
        services.append(Service("access", following.run, close=following.close, check=lambda: authority.health))
        on_record = DirectoryRecords(
            devices=Devices(authority, administration, clock, settings.profile),
            keys=KeyAdministrator(administration, lambda: make_key(random_bytes)),
            people=People(administration),
            audit=AuditReader(directory.audit, authority, administration),
        )
        return _Guard(authority, on_record, logins, services, _first_services(directory, audit), audit)

    async def _exchange(self, told: str) -> Sequence[str]:
        """With the cluster, whose parts are put together later."""
        return await self.parts.membership.cluster.exchange(told)

    async def _agreed(self, own: str) -> str:
        """The id of the directory of this cluster, whose parts are put together later."""
        return await self.parts.membership.cluster.directory(own)

    def _recheck(self) -> None:
        self.application.recheck()
        if self.parts.webhooks is not None:
            self.parts.webhooks.book.forget()

    def _ports(self, outside: Mapping[str, Callable[[], Fill]], guard: _Guard | None) -> Ports:
        parts = self.parts

        def queues() -> dict[str, Fill]:
            own = {"streams": self.application.streams.fill()}
            return {**self._services.queues(), **own, **{name: fill() for name, fill in outside.items()}}

        return Ports(
            member=self.node,
            access=Everybody() if guard is None else guard.authority,
            directory=None if guard is None else guard.directory,
            audit=None if guard is None else guard.audit,
            logins=None if guard is None else guard.logins,
            nodes=parts.membership.cluster.nodes,
            invoker=parts.invoker,
            profiles=parts.profiles,
            default_profile=parts.default_profile,
            store=parts.membership.store,
            open_commands=parts.open_commands,
            waiters=parts.waiters,
            watches=parts.watches,
            command_stream=parts.command_stream,
            explainer=parts.explainer,
            queues=queues,
            if_offline=parts.absence.defaults,
            webhooks=None if parts.webhooks is None else parts.webhooks.administration,
            counters=parts.counters,
            exposition=Exposition(
                NodeMetrics(
                    node_id=self.node.info.node_id,
                    measures=parts.measures,
                    open_commands=parts.open_commands,
                    waiters=parts.waiters,
                    queues=queues,
                    counters=parts.counters,
                )
            ),
            tracing=parts.tracing,
            now_us=lambda: round(self._clock.wall() * 1_000_000),
            events=self.events,
        )


@dataclass(frozen=True, slots=True)
class _Guard:
    """What a node with an access directory has besides."""

    authority: Authority
    directory: DirectoryRecords
    logins: Logins
    services: Sequence[Service]
    first: Sequence[Service]
    """They begin before all others, and so end after them."""
    audit: Audit | None


def _copying(settings: Settings, clock: Clock, copies: Callable[[], Copies]) -> RulesCopier | None:
    """What signs copies of the rules; None where nothing is secret in the URL of the database."""
    found = split_address(settings.access.url or "")
    return RulesCopier(copies, unquote(found.password), clock, settings.access.stale) if found.password else None


def _audit(settings: Settings, adapters: Adapters, directory: AccessDirectory) -> Audit | None:
    if settings.audit == "off":
        return None
    return Audit(
        AuditWriter(directory.audit, adapters.counters, settings.audit_dir),
        adapters.clock,
        adapters.counters,
        commands=settings.audit == "commands",
        required=settings.audit_required,
    )


def _with_observer(adapters: Adapters, audit: Audit | None) -> Adapters:
    return adapters if audit is None else replace(adapters, observers=[*adapters.observers, audit])


def _first_services(directory: AccessDirectory, audit: Audit | None) -> list[Service]:
    first = [Service("directory", close=directory.close)]
    if audit is not None:
        # What is not written is no reason to take no commands, unless that is asked for.
        first.append(Service("audit", audit.run, close=audit.close, queues=audit.queues))
    return first


def _passwords() -> Passwords:
    from app.access.login.passwords import Passwords  # noqa: PLC0415 - its library is an extra

    return Passwords()


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


def _events(
    settings: Settings, adapters: Adapters, parts: Parts, sharing: IntakeSharing | None, tenants: TenantShares | None
) -> EventPlane | None:
    """What keeps events; None where nobody has said where."""
    engine, open_intake = adapters.events, adapters.open_intake
    if engine is None or open_intake is None:
        return None
    session = ordered_session(settings) if sharing is None else f"{settings.mqtt.share_group}-presence"
    return open_plane(
        settings.events,
        profiles=parts.profiles.values(),
        open_store=engine.open_log,
        role=engine.role,
        cold=None if engine.archive is None else (engine.archive, engine.cooling),
        open_mqtt=lambda: open_intake(session, lambda _client_id: engine.role.still_held()),
        sharing=sharing,
        spans=UNTRACED if parts.tracing is None else event_spans(parts.tracing),
        tenants=tenants,
        clock=adapters.clock,
        counters=adapters.counters,
        new_secret=adapters.new_secret,
    )


def _preparation(settings: Settings, directory: AccessDirectory, clock: Clock) -> Callable[[], Awaitable[None]]:
    access = settings.access
    key = bootstrap_key(access)
    migrate = access.migrate or access.url.startswith("sqlite:")
    return lambda: prepare(directory, migrate=migrate, key=key, now_us=int(clock.wall() * 1_000_000))


def bootstrap_key(access: AccessSettings) -> Key | None:
    """The key of the settings; ConfigurationError when it is none, without repeating it."""
    text, variable = access.bootstrap_key.get_secret_value(), "HOMING_ACCESS_BOOTSTRAP_KEY"
    if access.bootstrap_key_file is not None:
        variable += "_FILE"
        try:
            text = access.bootstrap_key_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeError) as error:
            raise ConfigurationError(f"{variable}: {error}") from None
    if not text:
        return None
    key = parse_key(text)
    if isinstance(key, KeyFault):
        raise ConfigurationError(f"{variable}: the key is {key}; homing keys new makes one")
    return key
