"""The queues that are declared, as this node knows them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from app.core.clock import IdFactory
from app.core.errors import (
    CapacityError,
    ExchangeDiffersError,
    ExchangeInUseError,
    ExchangeNotFoundError,
    InvalidInputError,
    QueueChangedError,
    QueueDiffersError,
    QueueNotFoundError,
)
from app.core.events.event import Position
from app.core.queues.exchanges import (
    DeclaredExchange,
    KeyRoute,
    Kind,
    encode_exchange,
    exchange_document,
    validate_exchange_name,
)
from app.core.queues.model import (
    DeclaredQueue,
    QueueOptions,
    QueueRoute,
    document_of,
    encode_queue,
    in_order,
    validate_options,
    validate_queue_name,
)
from app.queues.declarations import KnownDeclarations
from app.runtime.listeners import Listeners
from app.store.declared import Declarations, Declared, DocumentChange

MOST_QUEUES: Final = 1000
MOST_OF_TENANT: Final = 100
MOST_EXCHANGES_OF_TENANT: Final = 50
ATTEMPTS: Final = 8
"""The number of times that a change is decided anew, as that of another node was faster."""
TURN_SECONDS: Final = 10.0
"""The time that a change waits for others of this node."""
_OTHERS: Final = "others have changed queues meanwhile; try again"

_T = TypeVar("_T")
_Decision = tuple[DocumentChange | None, _T]
"""The change that is to be written, None where all is so already; and what the caller is told then."""


class QueueBook:
    """`databases` are those that there are. Calls raise StoreUnavailableError."""

    def __init__(self, declared: Declared, databases: Iterable[str], new_id: IdFactory) -> None:
        self._declared = declared
        self._databases = tuple(databases)
        self._new_id = new_id
        self._version = -1
        self._known = KnownDeclarations()
        self._turn = asyncio.Lock()
        self.changed: Final = Listeners[[Collection[str]]]()
        """Called with the ids of the queues that are others than before, or gone."""

    @property
    def all(self) -> Sequence[DeclaredQueue]:
        """All of them, by tenant and name."""
        return tuple(self._known.queues.values())

    def by_id(self, queue_id: str) -> DeclaredQueue | None:
        """The queue of this id, where there is one."""
        return self._known.by_id.get(queue_id)

    def get(self, tenant: str, name: str) -> DeclaredQueue:
        """The queue of a tenant; QueueNotFoundError."""
        found = self._known.queues.get(document_of(tenant, name))
        if found is None:
            raise QueueNotFoundError(f"there is no queue {name[:64]!a}")
        return found

    async def find(self, tenant: str, name: str) -> DeclaredQueue:
        """Return the queue, though it was declared at another node this moment; QueueNotFoundError."""
        return await self._found(partial(self.get, tenant, name))

    async def find_exchange(self, tenant: str, name: str) -> DeclaredExchange:
        """Return the exchange, though it was declared at another node this moment; ExchangeNotFoundError."""
        return await self._found(partial(self.exchange, tenant, name))

    async def _found(self, look: Callable[[], _T]) -> _T:
        try:
            return look()
        except (QueueNotFoundError, ExchangeNotFoundError):
            await self.refresh()
            return look()

    def is_gone(self, queue_id: str) -> bool:
        """True if no queue has this id, not even one that this version cannot read."""
        known = self._known
        return queue_id not in known.by_id and not any(queue_id.encode() in one for one in known.unreadable.values())

    def doubt(self) -> None:
        """Read them again, whatever their version: the store may be an older copy of itself."""
        self._version = -1

    def exchanges(self, tenant: str) -> Sequence[DeclaredExchange]:
        """Return those of a tenant, by name."""
        return [one for one in self._known.exchanges.values() if one.tenant == tenant]

    def exchange(self, tenant: str, name: str) -> DeclaredExchange:
        """The exchange of a tenant; ExchangeNotFoundError."""
        found = self._known.exchanges.get(exchange_document(tenant, name))
        if found is None:
            raise ExchangeNotFoundError(f"there is no exchange {name[:64]!a}")
        return found

    def routed(self, exchange: DeclaredExchange, key: str) -> Sequence[str]:
        """The names of the queues that have a route for what is said with this key."""
        return sorted(self._known.routing.match(exchange.topic_of(key).split("/")))

    def routes_from(self, exchange: DeclaredExchange) -> Sequence[tuple[str, str]]:
        """The routes of queues from an exchange: queue and key."""
        return [
            (queue.name, route.key)
            for queue in self._known.queues.values()
            for route in queue.options.routes
            if isinstance(route, KeyRoute) and (queue.tenant, route.exchange) == (exchange.tenant, exchange.name)
        ]

    async def refresh(self) -> None:
        """Read them if somebody has changed them."""
        if await self._declared.version() != self._version:
            await self._read()

    async def _read(self) -> None:
        """Read what is not known yet; all of it after a doubt, though that came while it was read."""
        while True:
            since = self._version
            told = await self._declared.read(since)
            if self._version == since:
                self._learn(told)
                return

    def _learn(self, told: Declarations) -> None:
        self._version = told.version
        others = self._known.learn(told)
        if others:
            self.changed(others)

    async def declare(
        self,
        tenant: str,
        name: str,
        given: QueueOptions,
        start: Position,
        now_us: int,
        check: Callable[[DeclaredQueue | None], bool],
    ) -> tuple[DeclaredQueue, bool]:
        """The queue as it stands then, and whether it is new. A database that is new to it is read behind `start`.

        `check` is given the queue that is there; it raises what keeps it from being changed, and returns whether it may
        be. QueueDiffersError, InvalidInputError, CapacityError, QueueChangedError.
        """
        validate_queue_name(name)

        def decide() -> _Decision[tuple[DeclaredQueue, bool]]:
            wanted = validate_options(self._resolved(tenant, given), tenant, name, self._databases)
            there = self._known.queues.get(document_of(tenant, name))
            if there is None and document_of(tenant, name) in self._known.unreadable:
                raise QueueDiffersError(f"queue {name!a} was declared by a later version, which this node cannot read")
            may_change = check(there)
            if there is None:
                self._check_room(tenant)
                starts = dict.fromkeys(wanted.databases, start)
                queue = DeclaredQueue(self._new_id(), tenant, name, wanted, starts, now_us)
                return _put(queue), (queue, True)
            differs = wanted.differs_from(there.options)
            if not differs:
                return None, (there, False)
            _check_change(name, differs, may_change=may_change)
            queue = replace(there, options=wanted, starts=there.starts_with(wanted, start))
            return _put(queue), (queue, False)

        return await self._change(decide)

    async def reroute(
        self,
        tenant: str,
        name: str,
        routes: Sequence[QueueRoute],
        start: Position,
        check: Callable[[DeclaredQueue], None],
        *,
        add: bool,
    ) -> DeclaredQueue:
        """The queue with these routes besides its own, or without them; nothing changes where that is so already.

        `check` is given the queue that is there, and raises what keeps it from being changed. QueueNotFoundError,
        InvalidInputError, QueueChangedError.
        """

        def decide() -> _Decision[DeclaredQueue]:
            there = self.get(tenant, name)
            check(there)
            said = self._resolved(tenant, replace(there.options, routes=tuple(routes))).routes
            known = {*self._databases, *there.options.databases}  # what it has of one that is gone stays, or is removed
            named = replace(there.options, routes=tuple(dict.fromkeys(said)))
            validate_options(named, tenant, name, self._databases if add else known)
            kept = [one for one in there.options.routes if one not in said]
            wanted = replace(there.options, routes=in_order([*kept, *said] if add else kept))
            if set(wanted.routes) == set(there.options.routes):
                return None, there
            validate_options(wanted, tenant, name, known)
            queue = replace(there, options=wanted, starts=there.starts_with(wanted, start))
            return _put(queue), queue

        return await self._change(decide)

    async def declare_exchange(self, tenant: str, name: str, kind: Kind, now_us: int) -> tuple[DeclaredExchange, bool]:
        """The exchange as it stands then, and whether it is new. What is said there is kept in the first database.

        InvalidInputError, ExchangeDiffersError, CapacityError, QueueChangedError.
        """
        exchange = DeclaredExchange(tenant, validate_exchange_name(name), kind, self._databases[0], now_us)

        def decide() -> _Decision[tuple[DeclaredExchange, bool]]:
            there = self._known.exchanges.get(exchange.document)
            if exchange.document in self._known.unreadable:
                raise ExchangeDiffersError(f"exchange {name!a} was declared by a later version")
            if there is not None:
                if there.kind != kind:
                    raise ExchangeDiffersError(
                        f"exchange {name!a} is of the kind {there.kind}, which cannot be changed"
                    )
                return None, (there, False)
            if len(self._known.exchanges) >= MOST_QUEUES:
                raise CapacityError(f"there are {MOST_QUEUES} exchanges, which is all that a cluster can have")
            if tenant and len(self.exchanges(tenant)) >= MOST_EXCHANGES_OF_TENANT:
                raise CapacityError(
                    f"tenant {tenant[:64]!a} has {MOST_EXCHANGES_OF_TENANT} exchanges, which is all that it can have"
                )
            return DocumentChange(exchange.document, encode_exchange(exchange)), (exchange, True)

        return await self._change(decide)

    async def delete_exchange(self, tenant: str, name: str) -> None:
        """Forget it. ExchangeNotFoundError, ExchangeInUseError, QueueChangedError."""

        def decide() -> _Decision[None]:
            exchange = self.exchange(tenant, name)
            routes = self.routes_from(exchange)
            if routes:
                queues = ", ".join(sorted({queue for queue, _ in routes})[:8])
                raise ExchangeInUseError(f"exchange {name!a} has routes to {queues}: take them away first")
            return DocumentChange(exchange.document, None), None

        await self._change(decide)

    def _resolved(self, tenant: str, given: QueueOptions) -> QueueOptions:
        """The same, with what the exchanges say of routes."""
        routes: list[QueueRoute] = []
        for place, one in enumerate(given.routes):
            if not isinstance(one, KeyRoute):
                routes.append(one)
                continue
            exchange = self._known.exchanges.get(exchange_document(tenant, one.exchange))
            if exchange is None:
                raise InvalidInputError(
                    f"routes.{place}.exchange", f"{one.exchange[:64]!a} is not there; declare it first"
                )
            key = one.key or "#" if exchange.kind == "fanout" else one.key
            routes.append(KeyRoute(exchange.database, exchange.name, key, exchange.kind))
        return replace(given, routes=tuple(routes))

    async def delete(self, queue: DeclaredQueue) -> bool:
        """Forget it; whether it was there. QueueChangedError."""

        def decide() -> _Decision[bool]:
            there = self._known.queues.get(queue.document)
            if there is None or there.id != queue.id:
                return None, False
            return DocumentChange(queue.document, None), True

        return await self._change(decide)

    async def move(self, queue: DeclaredQueue, now_us: int) -> bool:
        """Let all nodes look again where it is. Return whether it is there. QueueChangedError."""

        def decide() -> _Decision[bool]:
            there = self._known.by_id.get(queue.id)
            return (None, False) if there is None else (_put(replace(there, moved_us=now_us)), True)

        return await self._change(decide)

    async def _change(self, decide: Callable[[], _Decision[_T]]) -> _T:
        """Decide by what is there now, and write it; anew where somebody else was faster. QueueChangedError.

        One change of a node at a time: a hundred workers who declare their queues at once only need to wait.
        """
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await self._turn.acquire()
        except TimeoutError:
            raise QueueChangedError(_OTHERS) from None
        try:
            for _ in range(ATTEMPTS):
                await self._read()
                change, told = decide()
                if change is None or await self._apply([change]):
                    return told
        finally:
            self._turn.release()
        raise QueueChangedError(_OTHERS)

    async def _apply(self, changes: Sequence[DocumentChange]) -> bool:
        """Write these, if nobody has changed anything since it was read; then there is nothing to be read again."""
        before = self._version
        version = await self._declared.apply(changes, before)
        if version is not None and self._version == before:
            self._learn(Declarations(version, dict(changes), whole=False))
        elif version is not None:
            await self._read()
        return version is not None

    def _check_room(self, tenant: str) -> None:
        if len(self._known.queues) >= MOST_QUEUES:
            raise CapacityError(f"there are {MOST_QUEUES} queues, which is all that a cluster can have")
        if tenant and sum(one.tenant == tenant for one in self._known.queues.values()) >= MOST_OF_TENANT:
            raise CapacityError(f"tenant {tenant[:64]!a} has {MOST_OF_TENANT} queues, which is all that it can have")


def _put(queue: DeclaredQueue) -> DocumentChange:
    return DocumentChange(queue.document, encode_queue(queue))


def _check_change(name: str, differs: Sequence[str], *, may_change: bool) -> None:
    if not may_change:
        raise QueueDiffersError(
            f"queue {name!a} is declared with other {', '.join(differs)}; to change it, send If-Match with its tag"
        )
    if "order" in differs:
        raise InvalidInputError("order", "cannot be changed; delete the queue and declare it again")
