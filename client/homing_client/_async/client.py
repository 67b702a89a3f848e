"""The client that people see."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from functools import cached_property
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Final, Self

from homing_client import _answers as answers
from homing_client import _operations as operations
from homing_client._async.commands import AsyncCommandCalls
from homing_client._async.device import AsyncDevice
from homing_client._async.session import AsyncSession
from homing_client._node_models import Cluster, DeviceRecord, Entry, Me, Readiness
from homing_client._operations import JsonObject
from homing_client._retry import Retry
from homing_client._version import __version__
from homing_client._wire import AsyncTransport, Request
from homing_client.contexts import addresses, resolve

if TYPE_CHECKING:
    from homing_client._async.access import AsyncAccess
    from homing_client._async.broker import AsyncBroker
    from homing_client._async.consumer import AsyncConsumer
    from homing_client._async.events import AsyncEvents
    from homing_client._async.exchanges import AsyncExchanges
    from homing_client._async.fleet import AsyncFleet
    from homing_client._async.link import AsyncLink
    from homing_client._async.publisher import AsyncMessagePublisher
    from homing_client._async.queues import AsyncQueue, AsyncQueues
    from homing_client._async.schedules import AsyncSchedules
    from homing_client._async.traffic import AsyncTraffic
    from homing_client._async.webhooks import AsyncWebhooks

PATIENCE: Final = timedelta(seconds=30)


class AsyncHoming(AsyncCommandCalls):
    """A cluster of Homing nodes, seen from outside.

    `url` says where, `key` who asks; what is left out comes from `HOMING_URL` and `HOMING_KEY`, else from the context
    (see `homing_client.contexts`), else it is http://127.0.0.1:8080. Several URLs, with commas between them, are nodes
    of one cluster: when one is away, the next is asked. `patience`: how long an ordinary answer may take. `transport`:
    what carries the requests, in place of the HTTP library.

    It is meant to be kept, and to be used by many at a time. Raises ConfigurationError.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        context: str | None = None,
        patience: timedelta = PATIENCE,
        retry: Retry = Retry(),  # noqa: B008 - it is frozen
        transport: AsyncTransport | None = None,
        agent: str = f"homing-client/{__version__}",
    ) -> None:
        found = resolve(url, key, context)
        urls = addresses(found.url)
        if transport is None:
            from homing_client._http import AsyncHttp  # noqa: PLC0415 - the library is imported when it is needed

            transport = AsyncHttp(secure=any(one.startswith("https:") for one in urls))
        self._session = AsyncSession(
            transport, urls, key=found.key, agent=agent, retry=retry, patience=patience.total_seconds()
        )

    @cached_property
    def access(self) -> AsyncAccess:
        """The operations on keys, principals, roles and tenants."""
        from homing_client._async.access import AsyncAccess  # noqa: PLC0415 - most programs never ask

        return AsyncAccess(self._session)

    @cached_property
    def broker(self) -> AsyncBroker:
        """The operations on the broker in a node."""
        from homing_client._async.broker import AsyncBroker  # noqa: PLC0415 - likewise

        return AsyncBroker(self._session)

    @cached_property
    def events(self) -> AsyncEvents:
        """The operations on the event log, which keeps what devices say unasked."""
        from homing_client._async.events import AsyncEvents  # noqa: PLC0415 - likewise

        return AsyncEvents(self._session)

    @cached_property
    def exchanges(self) -> AsyncExchanges:
        """Messages with keys, among which queues choose."""
        from homing_client._async.exchanges import AsyncExchanges  # noqa: PLC0415 - likewise

        return AsyncExchanges(self._session)

    @cached_property
    def schedules(self) -> AsyncSchedules:
        """Fleet runs and commands that begin at set times."""
        from homing_client._async.schedules import AsyncSchedules  # noqa: PLC0415 - likewise

        return AsyncSchedules(self._session)

    @cached_property
    def queues(self) -> AsyncQueues:
        """Queues over the events."""
        from homing_client._async.queues import AsyncQueues  # noqa: PLC0415 - likewise

        return AsyncQueues(self._session)

    @cached_property
    def traffic(self) -> AsyncTraffic:
        """The messages between devices and broker."""
        from homing_client._async.traffic import AsyncTraffic  # noqa: PLC0415 - likewise

        return AsyncTraffic(self._session)

    def queue(self, name: str) -> AsyncQueue:
        """One queue, to consume from."""
        from homing_client._async.queues import AsyncQueue  # noqa: PLC0415 - likewise

        return AsyncQueue(self._session, name)

    def consumer(self, *, parallel: int = 1, consumer: str = "", also: Sequence[AsyncHoming] = ()) -> AsyncConsumer:
        """A program that consumes queues by callbacks, `parallel` events of each at the same time.

        `also` are other clusters, whose queues of the same names it consumes as well.
        """
        from homing_client._async.consumer import AsyncConsumer  # noqa: PLC0415 - likewise

        return AsyncConsumer([self, *also], parallel, consumer)

    def publisher(self, *, in_flight: int = 64) -> AsyncMessagePublisher:
        """A publisher of many messages, of which up to `in_flight` are not confirmed yet; it is a context manager.

        A node reads no more than 64 ahead.
        """
        from homing_client._async.publisher import AsyncMessagePublisher  # noqa: PLC0415 - likewise

        return AsyncMessagePublisher(self.exchanges, self._session, in_flight)

    def link(self, queues: Sequence[str], workers: int, consumer: str) -> AsyncLink:
        """The way of a consumer to this cluster; `consumer` is what programs use."""
        from homing_client._async.link import AsyncLink  # noqa: PLC0415 - likewise

        return AsyncLink(self, self._session, queues, workers, consumer)

    @cached_property
    def fleet(self) -> AsyncFleet:
        """Commands for many devices, in waves."""
        from homing_client._async.fleet import AsyncFleet  # noqa: PLC0415 - likewise

        return AsyncFleet(self._session)

    @cached_property
    def webhooks(self) -> AsyncWebhooks:
        """URLs that are told of outcomes."""
        from homing_client._async.webhooks import AsyncWebhooks  # noqa: PLC0415 - likewise

        return AsyncWebhooks(self._session)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Let go of all connections."""
        await self._session.aclose()

    @property
    def url(self) -> str:
        """The node that is asked at present."""
        return self._session.url

    def device(self, device_id: str, *, profile: str | None = None) -> AsyncDevice:
        """A device, to be talked to by name."""
        return AsyncDevice(self, device_id, profile)

    async def devices(
        self,
        pattern: str | None = None,
        *,
        tenant: str | None = None,
        profile: str | None = None,
        labels: Mapping[str, str] = MappingProxyType({}),
        heard: bool = False,
    ) -> AsyncIterator[DeviceRecord]:
        """The devices on record that the caller may read, by id. `pattern`: only ids that fit, such as `dock-*`.

        With `heard`, those follow that are not on record, but that events or recent commands name.
        """

        def page(cursor: str | None) -> Request:
            return operations.devices(pattern, tenant, profile, labels, cursor, heard=heard)

        async for one in self._pages(page, "devices"):
            yield DeviceRecord.of(one)

    async def device_record(self, device_id: str) -> DeviceRecord:
        """Read the record of a device. Raises NotFoundError."""
        return answers.device_of(await self._session.exchange(operations.device("GET", device_id)))

    async def put_device(
        self,
        device_id: str,
        *,
        profile: str | None = None,
        labels: Mapping[str, str] = MappingProxyType({}),
        note: str = "",
        tenant: str | None = None,
        if_match: str | None = None,
    ) -> DeviceRecord:
        """Create or replace the record of a device. With `if_match`, do so only if its tag is still this one.

        Raises ConflictError if the tag is another one.
        """
        body = {"profile": profile, "labels": dict(labels), "note": note, "tenant": tenant}
        asked = operations.device(
            "PUT", device_id, {name: value for name, value in body.items() if value is not None}, if_match
        )
        return answers.device_of(await self._session.exchange(asked))

    async def remove_device(self, device_id: str, *, if_match: str | None = None) -> None:
        """Delete the record of a device. Raises NotFoundError, ConflictError."""
        asked = operations.device("DELETE", device_id, None, if_match)
        answers.nothing_of(await self._session.exchange(asked))

    async def nodes(self) -> Cluster:
        """List the live nodes of the cluster."""
        return answers.cluster_of(await self._session.exchange(operations.NODES))

    async def overview(self) -> JsonObject:
        """Read the cluster at a glance: which party is in trouble, the nodes, failures and open commands."""
        return await self._object(operations.OVERVIEW)

    async def watch_overview(self) -> AsyncIterator[JsonObject]:
        """Follow the cluster at a glance: the overview now, and whenever it has changed. It does not end by itself.

        Raises NotFoundError where the node is of an older version.
        """
        async with aclosing(self._session.stream(operations.OVERVIEWS, None)) as told:
            async for one in told:
                overview = answers.overview_of(one)
                if overview is not None:
                    yield overview

    async def me(self) -> Me:
        """Read who the caller is to the node."""
        return answers.me_of(await self._session.exchange(operations.ME))

    async def profiles(self) -> JsonObject:
        """List the device profiles of the node, and its default."""
        return await self._object(operations.PROFILES)

    async def methods(self, profile: str) -> JsonObject:
        """List the methods of a profile. Raises NotFoundError."""
        return await self._object(operations.methods(profile))

    async def interlocks(self) -> list[JsonObject]:
        """List the interlocks of the node's profiles."""
        return answers.listed(await self._session.exchange(operations.INTERLOCKS), "interlocks")

    async def check_interlocks(self, device_id: str, method: str, *, profile: str | None = None) -> JsonObject:
        """Say how the interlocks of a method judge a device at this moment. Nothing is sent."""
        return await self._object(operations.check_interlocks(device_id, method, profile))

    async def login(self, name: str, password: str, *, tenant: str | None = None) -> JsonObject:
        """Log in by name and password: `key` is for other clients; this one stays who it is. Raises NotAllowedError."""
        return await self._object(operations.login(name, password, tenant))

    async def logout(self) -> None:
        """End the key of this client, if a login made it. Raises ConflictError for other keys."""
        answers.nothing_of(await self._session.exchange(operations.LOGOUT))

    async def index(self) -> JsonObject:
        """Read the index of the node: its name, version, node id and links."""
        return await self._object(operations.INDEX)

    async def alive(self) -> JsonObject:
        """Check that the process of the node runs; raises when it does not."""
        return await self._object(operations.HEALTH)

    async def ready(self) -> Readiness:
        """Check whether the node can serve, and why not. It is asked once: no is an answer."""
        return answers.readiness_of(await self._session.once(operations.READY))

    async def metrics(self) -> str:
        """The metrics of the node, as Prometheus reads them."""
        return answers.text_of(await self._session.exchange(operations.METRICS))

    async def request(
        self, method: str, path: str, body: object = None, *, headers: Mapping[str, str] = MappingProxyType({})
    ) -> Entry:
        """Any operation: also one that is younger than this package. `path` begins with a slash, and may have a query.

        The value is None where the answer has no JSON. Raises ProblemError.
        """
        asked = operations.any_request(method, path, body, headers)
        return answers.anything_of(await self._session.exchange(asked))
