"""The client that people see."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from functools import cached_property
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from homing_client import _answers as answers
from homing_client import _operations as operations
from homing_client import _system
from homing_client._async.session import AsyncSession
from homing_client._errors import BY_STATE
from homing_client._models import Command, CommandEvent, Happening
from homing_client._node_models import Cluster, DeviceRecord, Entry, Me, Readiness
from homing_client._operations import IfOffline, JsonObject
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


class AsyncHoming:
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

    async def send(  # noqa: PLR0913 - each is a member of the body or a header
        self,
        device_id: str,
        method: str,
        params: Any = None,  # noqa: ANN401 - any JSON value
        *,
        profile: str | None = None,
        timeout: timedelta | str | None = None,
        one_way: bool = False,
        if_offline: IfOffline | None = None,
        hold: timedelta | str | None = None,
        not_before: datetime | str | None = None,
        notify: Sequence[str] = (),
        wait: bool | timedelta = True,
        idempotency_key: str | None = None,
    ) -> Command:
        """Send a command, and wait for its outcome, whatever that is.

        `wait`: False does not, and a timedelta waits that long at most. `timeout` is how long the device may take; the
        node decides when it is left out. Sent again, by this client or by its user with the same `idempotency_key`,
        it is the same command. `notify` names webhooks that are told of its outcome. With `hold` it may wait so long
        for a device that is away; then True does not wait either, and the command comes back as `held`. It is not sent
        before `not_before`, an instant with its zone.

        Raises InvalidInputError, NotAllowedError, LimitError, UnavailableError, UnreachableError.
        """
        request = operations.send(
            device_id,
            method,
            params,
            key=idempotency_key or _system.new_key(),
            wait=False if hold is not None and wait is True else wait,
            profile=profile,
            timeout=timeout,
            one_way=one_way,
            if_offline=if_offline,
            hold=hold,
            not_before=not_before,
            notify=notify,
        )
        command = answers.command_sent(await self._session.exchange(request))
        if command.is_final or wait is not True or hold is not None:
            return command
        return await self.wait(command.id)

    async def dry_run(
        self,
        device_id: str,
        method: str,
        params: Any = None,  # noqa: ANN401 - any JSON value
        *,
        profile: str | None = None,
        timeout: timedelta | str | None = None,
        one_way: bool = False,
        if_offline: IfOffline | None = None,
        hold: timedelta | str | None = None,
        not_before: datetime | str | None = None,
        idempotency_key: str | None = None,
    ) -> JsonObject:
        """Say what would become of a command: whether it would be sent, would wait or be refused, and why.

        Nothing is sent, registered or counted. Raises what `send` raises where the input is wrong or not allowed.
        """
        request = operations.send(
            device_id,
            method,
            params,
            key=idempotency_key or "",
            wait=False,
            profile=profile,
            timeout=timeout,
            one_way=one_way,
            if_offline=if_offline,
            hold=hold,
            not_before=not_before,
            notify=(),
        )
        return answers.body_of(await self._session.exchange(operations.dry_run(request)))

    async def call(
        self,
        device_id: str,
        method: str,
        params: Any = None,  # noqa: ANN401 - any JSON value
        *,
        profile: str | None = None,
        timeout: timedelta | str | None = None,
        one_way: bool = False,
        if_offline: IfOffline | None = None,
        notify: Sequence[str] = (),
        idempotency_key: str | None = None,
    ) -> Command:
        """Send a command, and return it when it has succeeded.

        Raises CommandError (DeviceRefusedError, TimedOutError, CommandCancelledError, NotSentError) for every other
        outcome, and what `send` raises.
        """
        command = await self.send(
            device_id,
            method,
            params,
            profile=profile,
            timeout=timeout,
            one_way=one_way,
            if_offline=if_offline,
            notify=notify,
            idempotency_key=idempotency_key,
        )
        if command.state in BY_STATE:
            raise BY_STATE[command.state](command)
        return command

    async def get(self, command_id: str) -> Command:
        """Read the current state of a command. Raises NotFoundError."""
        return answers.command_of(await self._session.exchange(operations.get(command_id)))

    async def explain(self, command_id: str) -> JsonObject:
        """Explain what became of a command, as far as it is known: `verdict`, `timeline`, `misses`.

        Raises NotFoundError.
        """
        return await self._object(operations.explain(command_id))

    async def wait(self, command_id: str) -> Command:
        """A command with its outcome; waits until there is one. Raises NotFoundError."""
        between = 0.1
        while True:
            command = await self.get(command_id)
            if command.is_final:
                return command
            await _system.async_sleep(between)
            between = min(1.0, between * 1.5)

    async def watch(
        self, command_id: str, *, after: str | None = None, to_the_end: bool = False
    ) -> AsyncIterator[CommandEvent]:
        """Follow the events of a command, until it has its outcome; with `to_the_end`, until nothing more can come.

        Where a connection breaks, or a node stops, it goes on elsewhere without a gap. `after`: the id of the last
        event that is known already. Raises NotFoundError.
        """
        async with aclosing(
            self._session.stream(operations.events_of(command_id, to_the_end=to_the_end), after)
        ) as told:
            async for one in told:
                event = answers.event_of(one)
                if event is None:
                    continue
                yield event
                if event.kind == "outcome" and not to_the_end:
                    return

    async def watch_all(
        self,
        *,
        device: str | None = None,
        profile: str | None = None,
        method: str | None = None,
        states: Sequence[str] = (),
        kinds: Sequence[str] = (),
        after: str | None = None,
    ) -> AsyncIterator[Happening]:
        """Follow the events of all commands of the cluster that the caller may read. It does not end by itself.

        `device`, `profile`, `method`: only where they fit, `*` is any text. `states`, `kinds`: only these. `after`: the
        id of the last one that is known already. Where a connection breaks, or a node stops, it goes on elsewhere; what
        happened in the millisecond of the last one may come again, and where some were dropped a `gap` says so.
        """
        asked = operations.events_of_all(device, profile, method, states, kinds)
        async with aclosing(self._session.stream(asked, after)) as told:
            async for one in told:
                happening = answers.happening_of(one)
                if happening is not None:
                    yield happening

    async def cancel(self, command_id: str) -> Command:
        """End a command; the device is not told. Raises NotFoundError, and ConflictError when it had an outcome."""
        return answers.command_of(await self._session.exchange(operations.cancel(command_id)))

    async def resume_lane(self, device_id: str, lane: str) -> JsonObject:
        """Have a lane of a device go on that stands since a command failed.

        `resumed` is false if it did not stand, or if another command stops it by now; `next` is the command that is
        tried now. Raises ForbiddenError.
        """
        return answers.body_of(await self._session.exchange(operations.resume_lane(device_id, lane)))

    async def probe(self, command_id: str) -> JsonObject:
        """Look whether a command that has timed out was done: `result`, and `command`, with what was found `verified`.

        It may take ten seconds, where the device is asked. Raises NotFoundError, InvalidError where its profile has no
        probe for it, and ConflictError for one that has not timed out, or was answered late.
        """
        return answers.body_of(await self._session.exchange(operations.probe(command_id)))

    async def approvals(self, limit: int | None = None) -> list[JsonObject]:
        """List the commands that wait for a second person, soonest end first, each with its `fingerprint`."""
        return answers.listed(await self._session.exchange(operations.approvals(limit)), "approvals")

    async def approval(self, command_id: str) -> JsonObject:
        """One of them. Raises NotFoundError, and ConflictError where it waits for nobody, or not any more."""
        return answers.body_of(await self._session.exchange(operations.approval(command_id)))

    async def approve(self, command_id: str, fingerprint: str, *, note: str = "") -> Command:
        """Approve a command as a second person: exactly the one that has this fingerprint.

        Raises NotFoundError, ForbiddenError, PreconditionFailedError, and ConflictError when nobody is asked any more.
        """
        return await self._decide(command_id, fingerprint, "approve", note)

    async def refuse(self, command_id: str, fingerprint: str, *, note: str = "") -> Command:
        """Refuse a command as a second person. Raises what `approve` does."""
        return await self._decide(command_id, fingerprint, "refuse", note)

    async def _decide(self, command_id: str, fingerprint: str, decision: str, note: str) -> Command:
        request = operations.decide(command_id, fingerprint, decision, note)
        return answers.command_of(await self._session.exchange(request))

    async def commands(
        self,
        *,
        device: str | None = None,
        state: str | None = None,
        method: str | None = None,
        profile: str | None = None,
        since: str | None = None,
        until: str | None = None,
        page_size: int | None = None,
    ) -> AsyncIterator[Command]:
        """All commands that the caller may read, newest first. They are read a page at a time.

        `method` and `profile` are patterns, such as `cover_*`. `since` and `until` are instants between which the
        commands were created: RFC 3339, or so long ago, as `-10m`. Nodes of 0.2 know `device` and `state` alone.
        """
        filters = {"state": state, "method": method, "profile": profile, "since": since, "until": until}

        def page(cursor: str | None) -> Request:
            return operations.page({"device": device, **filters}, cursor, page_size)

        async for one in self._pages(page, "commands"):
            yield Command.of(one)

    async def commands_of(
        self,
        device_id: str,
        *,
        state: str | None = None,
        method: str | None = None,
        profile: str | None = None,
        since: str | None = None,
        until: str | None = None,
        page_size: int | None = None,
    ) -> AsyncIterator[Command]:
        """As `commands`, of one device."""
        filters = {"state": state, "method": method, "profile": profile, "since": since, "until": until}

        def page(cursor: str | None) -> Request:
            return operations.page_of_device(device_id, filters, cursor, page_size)

        async for one in self._pages(page, "commands"):
            yield Command.of(one)

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
        asked = operations.device("PUT", device_id, {k: v for k, v in body.items() if v is not None}, if_match)
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

    async def _pages(self, page: Callable[[str | None], Request], member: str) -> AsyncIterator[JsonObject]:
        cursor: str | None = None
        while True:
            body = await self._object(page(cursor))
            for one in body.get(member) or ():
                yield one
            cursor = body.get("cursor")
            if cursor is None:
                return

    async def _object(self, request: Request) -> JsonObject:
        return answers.body_of(await self._session.exchange(request))


class AsyncDevice:
    """A device, and the profile by which it speaks (where that is not left to the node)."""

    def __init__(self, homing: AsyncHoming, device_id: str, profile: str | None) -> None:
        self._homing = homing
        self.id: Final = device_id
        self.profile: Final = profile

    async def send(
        self,
        method: str,
        params: Any = None,  # noqa: ANN401 - any JSON value
        *,
        timeout: timedelta | str | None = None,
        one_way: bool = False,
        if_offline: IfOffline | None = None,
        hold: timedelta | str | None = None,
        not_before: datetime | str | None = None,
        notify: Sequence[str] = (),
        wait: bool | timedelta = True,
        idempotency_key: str | None = None,
    ) -> Command:
        """As AsyncHoming.send."""
        return await self._homing.send(
            self.id,
            method,
            params,
            profile=self.profile,
            timeout=timeout,
            one_way=one_way,
            if_offline=if_offline,
            hold=hold,
            not_before=not_before,
            notify=notify,
            wait=wait,
            idempotency_key=idempotency_key,
        )

    async def call(
        self,
        method: str,
        params: Any = None,  # noqa: ANN401 - any JSON value
        *,
        timeout: timedelta | str | None = None,
        one_way: bool = False,
        if_offline: IfOffline | None = None,
        notify: Sequence[str] = (),
        idempotency_key: str | None = None,
    ) -> Command:
        """As AsyncHoming.call."""
        return await self._homing.call(
            self.id,
            method,
            params,
            profile=self.profile,
            timeout=timeout,
            one_way=one_way,
            if_offline=if_offline,
            notify=notify,
            idempotency_key=idempotency_key,
        )

    def commands(self, *, state: str | None = None) -> AsyncIterator[Command]:
        """List the commands that were sent to the device, newest first."""
        return self._homing.commands_of(self.id, state=state)
