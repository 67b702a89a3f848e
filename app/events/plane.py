"""The event plane of a node: all its parts, as one life, and what the API asks of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Final

import structlog

from app.access.plane import AccessPlane
from app.cluster.directory import NodeInfo
from app.core.clock import Clock
from app.core.errors import EventsOffError, StoreUnavailableError, UnavailableError
from app.core.events.cursors import Scope
from app.core.events.event import END, Database, Entry, Event, Position, Shard, TenantShares, validate_entry
from app.core.events.generation import Generation
from app.core.events.plan import NamedDatabase, Plan
from app.core.events.presence import Change, change_of, topic_of
from app.core.events.quota import is_bounded
from app.core.events.reading import Cursor
from app.core.events.transaction import Transaction, ValueCondition
from app.core.profiles.listening import EventReader
from app.core.profiles.profile import DeviceProfile
from app.events.cooler import Cooler
from app.events.intake import Intake, OpenMqtt
from app.events.keeper import Keeper
from app.events.merging import May, MergedPage
from app.events.presence import PresenceKeeper
from app.events.reader import EventsReader
from app.events.sharing import IntakeSharing, NodeSession, SharedIntake
from app.events.spans import UNTRACED, EventSpans
from app.events.tail import EventBatch, Tails
from app.events.writer import EventWriter
from app.kernel import Kernel, OpenSession
from app.plane import Plane
from app.runtime.services import Service
from app.runtime.telemetry import Counters, Fill
from app.settings import EventsSettings
from app.store.archive import Archive
from app.store.events import EventStore
from app.store.roles import RoleLease

BOUND: Final = 8
"""How many times Receive Maximum may wait to be appended, as QoS 0 is not bounded by it."""
CALL_SECONDS: Final = 5.0
"""The budget of a call of the API."""
START_AGAIN_SECONDS: Final = 0.5
LISTEN_SECONDS: Final = 5.0
"""How long a node is not ready because nobody has subscribed to events yet: commands go on without them."""

_log = structlog.get_logger(__name__)


class EventPlane:
    """Calls raise StoreUnavailableError before the log is open, and DatabaseNotFoundError."""

    def __init__(
        self,
        store: EventStore,
        plan: Plan,
        reader: EventsReader,
        intake: Intake,
        keeper: Keeper,
        tails: Tails,
        writer: EventWriter,
        cooler: Cooler | None = None,
        shared: SharedIntake | None = None,
        spans: EventSpans = UNTRACED,
    ) -> None:
        """With a `shared` one the intake looks after presence alone."""
        self.plan: Final = plan
        self._store = store
        self._reader = reader
        self._intake = intake
        self._keeper = keeper
        self._tails = tails
        self._writer = writer
        self._cooler = cooler
        self._shared = shared
        self._spans = spans
        self._open = False
        self._tried = False
        self._listened = False

    @property
    def plane(self) -> Plane:
        """All of it, as one life."""
        life = Service("events", self._run, drain=self._drain, close=self._close, check=self._health, fills=self._fills)
        return Plane(name="events", services=[life])

    async def page(
        self, scope: Scope, cursor: Cursor, limit: int, until: Position = END, may: May | None = None
    ) -> MergedPage:
        """See `EventsReader.page`."""
        self._check()
        async with _budget():
            return await self._reader.page(scope.databases, scope.topic_filter, cursor, limit, until, may)

    async def event(self, shard: Shard, position: Position) -> Event:
        """See `EventsReader.event`."""
        self._check()
        async with _budget():
            return await self._reader.event(shard, position)

    def start_of(
        self, database: str | None, topic_filter: str, cursor: str | None, since: Position | None
    ) -> tuple[Scope, Cursor]:
        """What is read of the database that is named, else of all, and where to begin: see `EventsReader.start`."""
        self._check()
        return self._reader.start(self._reader.scope(database, topic_filter), cursor, since)

    def text_of(self, cursor: Cursor, scope: Scope) -> str:
        """The cursor, to be given out."""
        return self._reader.text(cursor, scope)

    @property
    def room(self) -> int:
        """Bytes of the longest cursor."""
        return self._reader.room

    async def end_of(self, scope: Scope) -> Cursor:
        """Behind the last event that is there now."""
        self._check()
        return await self._reader.heads(scope.databases)

    async def gap(self, scope: Scope, cursor: Cursor) -> Position | None:
        """See `EventsReader.gap`."""
        self._check()
        return await self._reader.gap(scope.databases, cursor)

    def follow(self, scope: Scope, cursor: Cursor) -> AsyncGenerator[EventBatch, None]:
        """See `Tails.follow`."""
        self._check()
        return self._tails.follow(scope.databases, scope.topic_filter, cursor)

    async def database_of(self, topic: str) -> str:
        """The database of a topic where none is named: that of its last value, else that of its profile."""
        found = await self.found(None, topic)
        return self.plan.home(topic) if found is None else found[0]

    async def publish(self, database: str, entries: Iterable[Entry]) -> list[Position]:
        """Append what a backend says, in its order, and return the positions.

        All entries of one shard are appended together; when one fails, those of other shards may be there.
        """
        self._check()
        self._reader.database(database)
        given = [validate_entry(one) for one in entries]
        self._admit(database, given)
        shards: dict[Shard, list[int]] = {}
        for number, one in enumerate(given):
            shards.setdefault(self.plan.shard(database, one.topic), []).append(number)
        positions = [0] * len(given)
        async with _budget():
            for shard, numbers in shards.items():
                part = [given[number] for number in numbers]
                with self._spans.append(shard, part):
                    last = await self._store.append(shard, part)
                for place, number in enumerate(reversed(numbers)):
                    positions[number] = last - place
        return positions

    async def value(self, database: str | None, topic: str) -> Event | None:
        """The last value of a topic: in the database that is named, else the latest one of all."""
        found = await self.found(database, topic)
        return None if found is None else found[1]

    async def found(self, database: str | None, topic: str) -> tuple[str, Event] | None:
        """The last value of a topic, and the name of its database."""
        self._check()
        shards = self._reader.shards(self._reader.scope(database, topic).databases)
        values = await asyncio.gather(*(self._store.value(shard, topic) for shard in shards))
        # A topic has one shard, but may have had another one under other profiles.
        known = [(shard.database, one) for shard, one in zip(shards, values, strict=True) if one is not None]
        return max(known, key=lambda one: one[1].position, default=None)

    async def values_of(self, device_id: str) -> list[Event]:
        """The last values on the topics of a device, in the order of the topics."""
        self._check()
        topics = dict.fromkeys(self.plan.topics_of(device_id))
        found = await asyncio.gather(*(self.value(database, topic) for database, topic in topics))
        return sorted((one for one in found if one is not None), key=lambda event: event.entry.topic)

    async def presence_of(self, device_id: str) -> tuple[Change, Position] | None:
        """Whether the device is there, and since when; None when nobody has heard of it."""
        found = await self.value(self.plan.kept[0].name, topic_of(device_id))
        return None if found is None else change_of(found.entry)

    async def offline_since(self, device_id: str) -> Position | None:
        """Since when the device is known to be away: it has said so, or its will, and has not come back.

        None where there is no such evidence: nobody has heard of it, only its silence tells, or no node listens now.
        """
        found = await self.presence_of(device_id)
        if found is None or found[0].online or not found[0].said or not await self._intake.is_held():
            return None
        return found[1]

    def gone(self, node_id: str) -> None:
        """A node is known to be dead: this one brings events in for it, without waiting for the end of its lease."""
        self._intake.gone(node_id)

    async def adopt(self, client_id: str, topic_filters: Sequence[str], idle: timedelta) -> int:
        """Take in what a dead node's session of events holds, where it had one; how many messages that were.

        `client_id` and `topic_filters` are those of the session of its commands. BrokerUnavailableError.
        """
        return 0 if self._shared is None else await self._shared.adopt(NodeSession(client_id, topic_filters), idle)

    async def commit(self, transaction: Transaction) -> Position:
        """See `EventLog.commit`."""
        self._check()
        self._reader.database(transaction.shard.database)
        for one in transaction.entries:
            validate_entry(one)
        self._admit(transaction.shard.database, transaction.entries)
        async with _budget():
            with self._spans.append(transaction.shard, transaction.entries):
                return await self._store.commit(transaction)

    async def put_value(self, database: str, entry: Entry, conditions: Sequence[ValueCondition]) -> Position:
        """Make it the last value if the conditions hold, which are about its topic; ValueChangedError."""
        self._check()
        there = await self.value(database, entry.topic)
        shard = self.plan.shard(database, entry.topic) if there is None else Shard(database, there.shard)
        return await self.commit(Transaction(shard, tuple(conditions), (entry,)))

    async def topics(self, database: str | None, topic_filter: str, after: str, limit: int) -> list[Event]:
        """Last values by topic, behind this topic."""
        self._check()
        shards = self._reader.shards(self._reader.scope(database, topic_filter).databases)
        found = await asyncio.gather(*(self._store.values(shard, topic_filter, after, limit) for shard in shards))
        latest: dict[str, Event] = {}
        for event in sorted(one for part in found for one in part):
            latest[event.entry.topic] = event
        return [latest[topic] for topic in sorted(latest, key=str.encode)[:limit]]

    async def structures(self, database: str | None) -> list[tuple[str, str]]:
        """The structures of topics, each with the name of its database."""
        self._check()
        names = self._reader.scope(database, "#").databases
        return [(name, structure) for name in names for structure in await self._store.structures(name)]

    async def generations(self) -> list[tuple[NamedDatabase, Sequence[Generation]]]:
        """All databases with their generations."""
        self._check()
        return [(one, await self._store.generations(one.name)) for one in self.plan.kept]

    async def _run(self) -> None:
        await self._start()
        self._open = True
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keeper.run(), name="events keeper")
            group.create_task(self._intake.run(), name="events intake")
            if self._shared is not None:
                group.create_task(self._shared.run(), name="shared events intake")
            if self._cooler is not None:
                group.create_task(self._cooler.run(), name="events cooler")
            group.create_task(self._listen(), name="first subscription to events")

    async def _start(self) -> None:
        """Open the log, as soon as it can be; ConfigurationError when that will never be."""
        while True:
            try:
                await self._store.start()
            except UnavailableError as error:
                self._tried = True
                _log.warning("events_not_open", reason=str(error))
                await asyncio.sleep(START_AGAIN_SECONDS)
            else:
                return

    async def _listen(self) -> None:
        """What devices say before anybody has ever subscribed, the broker keeps for nobody."""
        try:
            async with asyncio.timeout(LISTEN_SECONDS):
                await self._intake.listened()
                if self._shared is not None:
                    await self._shared.listened()
        except TimeoutError:
            _log.warning("events_not_subscribed", seconds=LISTEN_SECONDS)
        self._listened = True

    async def _drain(self) -> None:
        if self._shared is not None:
            await self._shared.hand_over()

    async def _close(self) -> None:
        self._open = False
        await self._tails.close()
        await self._intake.close()
        if self._shared is not None:
            await self._shared.close()
        await self._writer.close()
        if self._cooler is not None:
            await self._cooler.close()
        await self._store.close()

    def _health(self) -> str:
        """Only the first try is waited for, to open the log and to subscribe: commands go on without events."""
        if self._tried or self._listened:
            return "ok"
        return "nobody has subscribed to events yet" if self._open else "the event log is not open yet"

    def _fills(self) -> dict[str, Fill]:
        return {
            "followers": self._tails.fill(),
            "events": self._writer.fill(),
            **(self._store.fills() if self._open else {}),
        }

    def _admit(self, database: str, entries: Sequence[Entry]) -> None:
        """QuotaError while the database is full, but for what only deletes last values."""
        if is_bounded(entries):
            self._keeper.admit(database)

    def _check(self) -> None:
        if not self._open:
            raise StoreUnavailableError("the event log is not open yet")


@asynccontextmanager
async def _budget() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(CALL_SECONDS):
            yield
    except TimeoutError:
        raise StoreUnavailableError(f"the event log did not answer within {CALL_SECONDS:g} s") from None


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
) -> EventPlane:
    """The event plane as the settings say; nothing is open yet. `cold`: the cold tier, and the role of who fills it."""
    plan = Plan(settings.kept, profiles, settings.shards, settings.values, settings.values_bytes, tenants)
    store = open_store(plan.databases)
    keeper = Keeper(
        store,
        plan.kept,
        generation_bytes=settings.generation_bytes,
        quota_bytes=settings.quota_bytes,
        discard=settings.discard,
        clock=clock,
        counters=counters,
        hourly=cold is not None,
        groups=settings.groups,
    )
    writer = EventWriter(
        store,
        name=new_secret(),
        flush_interval=settings.flush_interval,
        max_items=settings.max_items,
        bound=settings.receive_maximum * BOUND,
        admit=keeper.admit,
        counters=counters,
        spans=spans,
    )
    build = partial(Intake, plan=plan, writer=writer, clock=clock, counters=counters)
    intake = build(
        role=role,
        open_mqtt=open_mqtt,
        reader=EventReader(profiles, events=sharing is None),
        presence=PresenceKeeper(store, plan, clock, counters),
    )
    shared = None
    if sharing is not None:
        shared = SharedIntake(sharing, EventReader(profiles, presence=False), EventReader(profiles).filters(), build)
    events = EventsReader(store, plan)
    cooler = None
    if cold is not None:
        archive, cooling = cold
        cooler = Cooler(
            store,
            archive,
            plan.kept,
            cooling,
            hot=settings.hot,
            quota_bytes=settings.quota_bytes,
            clock=clock,
            counters=counters,
        )
    return EventPlane(
        store, plan, events, intake, keeper, Tails(store, events, counters, clock), writer, cooler, shared, spans
    )
