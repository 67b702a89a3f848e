"""What devices say unasked: the event log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from homing_client._async.session import AsyncSession
from homing_client._models import Entry, Event, LogEvent
from homing_client._operations import JsonObject, Repeats, body_of, changed, entry_of, listed, log_event_of, place_of
from homing_client._wire import Request


class AsyncEvents:
    """The event log of a cluster. `AsyncHoming.events`.

    `database`: where it is left out, all of them are read as one, and what is new goes where its profile or the first
    one keeps it. `distinct`: what the broker delivered again, as a node died, is left out: events with the topic, kind
    and id of one of the last 10,000 that have an id.
    """

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def read(
        self,
        topic: str = "#",
        *,
        since: str | None = None,
        until: str | None = None,
        database: str | None = None,
        distinct: bool = False,
    ) -> AsyncIterator[Event]:
        """Read events of topics that match a filter, oldest first. `since`, `until`: `-10m`, or an instant."""
        repeats = Repeats()
        asked = {"topic": topic, "from": since or "1970-01-01T00:00:00Z", "to": until, "database": database}
        while True:
            page = body_of(await self._session.exchange(Request("GET", "/v1/events", query=asked)))
            for event in page.get("events") or ():
                if not (distinct and repeats.has(event)):
                    yield Event(event)
            if not page.get("more"):
                return
            asked |= {"from": None, "cursor": str(page["cursor"])}

    async def get(self, place: str) -> Event:
        """Read one event by its place: database, shard and position with dots in between. Raises NotFoundError."""
        asked = Request("GET", "/v1/events/{database}/{shard}/{position}", path=place_of(place))
        return Event(body_of(await self._session.exchange(asked)))

    async def follow(
        self,
        topic: str = "#",
        *,
        since: str | None = None,
        after: str | None = None,
        database: str | None = None,
        distinct: bool = False,
    ) -> AsyncIterator[LogEvent]:
        """Events of topics that fit a filter, as they come. It does not end, unless whoever reads it does.

        It begins now; or with those since `-10m` or an instant; or behind the `cursor` of an event that is known
        already (`after`). Where a connection breaks, or a node stops, it goes on elsewhere without a gap; where there
        is one, because events were dropped before they were read, it says so. Raises NotFoundError for a database.
        """
        repeats = Repeats()
        query = {"topic": topic, "from": since, "database": database}
        async with aclosing(self._session.stream(Request("GET", "/v1/events/stream", query=query), after)) as told:
            async for one in told:
                event = log_event_of(one)
                if event is not None and not (distinct and repeats.has(event.data)):
                    yield event

    async def publish(
        self,
        events: Sequence[Mapping[str, Any]],
        *,
        database: str | None = None,
        idempotency_key: str | None = None,
    ) -> list[str]:
        """Append events to the log, each with a `topic` and `data`. Returns their positions once they are durable.

        With an `idempotency_key` the call is repeated where its answer is lost, and the events are in the log once.
        Nodes of 0.2 do not know of it.
        """
        headers = {} if idempotency_key is None else {"idempotency-key": idempotency_key}
        asked = Request(
            "POST",
            "/v1/events",
            query={"database": database},
            body=list(events),
            headers=headers,
            repeatable=idempotency_key is not None,
        )
        return [str(one) for one in body_of(await self._session.exchange(asked))["positions"]]

    async def topics(self, topic: str | None = None, *, database: str | None = None) -> AsyncIterator[JsonObject]:
        """List the topics that have events and match a filter."""
        after: str | None = None
        while True:
            query = {"topic": topic, "database": database, "after": after}
            page = body_of(await self._session.exchange(Request("GET", "/v1/topics", query=query)))
            for one in page.get("topics") or ():
                yield one
            after = page.get("cursor")
            if after is None:
                return

    async def streams(self, *, database: str | None = None) -> list[JsonObject]:
        """List the structures that topics have in common."""
        asked = Request("GET", "/v1/streams", query={"database": database})
        return listed(await self._session.exchange(asked), "streams")

    async def databases(self) -> list[JsonObject]:
        """List the databases of events."""
        return listed(await self._session.exchange(Request("GET", "/v1/databases")), "databases")

    async def last(self, topic: str, *, database: str | None = None) -> Entry:
        """Read the last value of a topic. Raises NotFoundError."""
        asked = Request("GET", "/v1/state/{topic}", path={"topic": topic}, query={"database": database})
        return entry_of(await self._session.exchange(asked))

    async def put_last(
        self,
        topic: str,
        data: object,
        *,
        database: str | None = None,
        if_match: str | None = None,
    ) -> Entry:
        """Write the last value of a topic. Raises ConflictError if its tag is not `if_match`."""
        asked = changed("PUT", "/v1/state/{topic}", {"topic": topic}, data, if_match, {"database": database})
        return entry_of(await self._session.exchange(asked))

    async def of_device(self, device_id: str) -> JsonObject:
        """Read the last values of a device."""
        path = {"device_id": device_id}
        return body_of(await self._session.exchange(Request("GET", "/v1/devices/{device_id}/state", path=path)))

    async def transact(self, transaction: Mapping[str, Any], *, database: str | None = None) -> JsonObject:
        """Write and delete last values atomically, if the conditions in `if` hold. Raises ConflictError."""
        query = {"database": database}
        asked = Request("POST", "/v1/transactions", query=query, body=dict(transaction), repeatable=False)
        return body_of(await self._session.exchange(asked))
