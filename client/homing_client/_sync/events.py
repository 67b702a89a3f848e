# Made by scripts/unasync.py from _async/events.py. Do not edit.
"""The event log, which keeps what devices say unasked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

from homing_client._answers import body_of, entry_of, listed, log_event_of, nothing_of, tagged_of
from homing_client._errors import NotFoundError
from homing_client._models import Event, LogEvent
from homing_client._node_models import Entry, Tagged
from homing_client._operations import JsonObject, Repeats, changed, place_of
from homing_client._sync.session import Session
from homing_client._wire import Request

_CURSORS: Final = "/v1/cursors"
_CURSOR: Final = "/v1/cursors/{name}"


class Events:
    """The event log of a cluster. `Homing.events`.

    `database`: where it is left out, all of them are read as one, and what is new goes where its profile or the first
    one keeps it. `distinct`: what the broker delivered again, as a node died, is left out: events with the topic, kind
    and id of one of the last 10,000 that have an id.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def read(
        self,
        topic: str = "#",
        *,
        since: str | None = None,
        until: str | None = None,
        database: str | None = None,
        distinct: bool = False,
    ) -> Iterator[Event]:
        """Read events of topics that match a filter, oldest first. `since`, `until`: `-10m`, or an instant."""
        repeats = Repeats()
        asked = {"topic": topic, "from": since or "1970-01-01T00:00:00Z", "to": until, "database": database}
        while True:
            page = body_of(self._session.exchange(Request("GET", "/v1/events", query=asked)))
            for event in page.get("events") or ():
                if not (distinct and repeats.has(event)):
                    yield Event(event)
            if not page.get("more"):
                return
            asked |= {"from": None, "cursor": str(page["cursor"])}

    def get(self, place: str) -> Event:
        """Read one event by its place: database, shard and position with dots in between. Raises NotFoundError."""
        asked = Request("GET", "/v1/events/{database}/{shard}/{position}", path=place_of(place))
        return Event(body_of(self._session.exchange(asked)))

    def follow(
        self,
        topic: str = "#",
        *,
        since: str | None = None,
        after: str | None = None,
        database: str | None = None,
        distinct: bool = False,
    ) -> Iterator[LogEvent]:
        """Events of topics that fit a filter, as they come. It does not end, unless whoever reads it does.

        It begins now; or with those since `-10m` or an instant; or behind the `cursor` of an event that is known
        already (`after`). Where a connection breaks, or a node stops, it goes on elsewhere without a gap; where there
        is one, as events were dropped, are damaged or were forgotten by Redis, it says so. Raises NotFoundError for a
        database.
        """
        repeats = Repeats()
        query = {"topic": topic, "from": since, "database": database}
        with closing(self._session.stream(Request("GET", "/v1/events/stream", query=query), after)) as told:
            for one in told:
                event = log_event_of(one)
                if event is not None and not (distinct and repeats.has(event.data)):
                    yield event

    def reader(
        self,
        name: str,
        topic: str = "#",
        *,
        since: str | None = None,
        database: str | None = None,
        every: int = 100,
    ) -> Reader:
        """Follow events on behalf of a reader whose cursor the cluster keeps: it goes on where it had come to.

        The first time it begins now, or with `since`. The cursor is committed behind `every` events, and after a pause:
        after a crash at most so many come again, and none is left out.
        """
        return Reader(self, name, topic, since, database, every)

    def cursors(self) -> list[JsonObject]:
        """List the cursors of the caller's readers."""
        return listed(self._session.exchange(Request("GET", _CURSORS)), "cursors")

    def cursor(self, reader: str) -> Tagged:
        """Read the cursor of a reader. Raises NotFoundError."""
        return tagged_of(self._session.exchange(Request("GET", _CURSOR, path={"name": reader})))

    def commit(self, reader: str, cursor: str, *, topic: str = "#", if_match: str | None = None) -> Tagged:
        """Keep the cursor of a reader of this topic filter. Raises ConflictError if its tag is not `if_match`."""
        body = {"cursor": cursor, "topic": topic}
        asked = changed("PUT", _CURSOR, {"name": reader}, body, if_match)
        return tagged_of(self._session.exchange(replace(asked, repeatable=True)))  # the second time changes nothing

    def forget(self, reader: str) -> None:
        """Delete the cursor of a reader."""
        nothing_of(self._session.exchange(Request("DELETE", _CURSOR, path={"name": reader})))

    def publish(
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
        return [str(one) for one in body_of(self._session.exchange(asked))["positions"]]

    def topics(self, topic: str | None = None, *, database: str | None = None) -> Iterator[JsonObject]:
        """List the topics that have a last value and match a filter."""
        after: str | None = None
        while True:
            query = {"topic": topic, "database": database, "after": after}
            page = body_of(self._session.exchange(Request("GET", "/v1/topics", query=query)))
            for one in page.get("topics") or ():
                yield one
            after = page.get("cursor")
            if after is None:
                return

    def streams(self, *, database: str | None = None) -> list[JsonObject]:
        """List the structures that topics have in common."""
        asked = Request("GET", "/v1/streams", query={"database": database})
        return listed(self._session.exchange(asked), "streams")

    def databases(self) -> list[JsonObject]:
        """List the databases of events."""
        return listed(self._session.exchange(Request("GET", "/v1/databases")), "databases")

    def last(self, topic: str, *, database: str | None = None) -> Entry:
        """Read the last value of a topic. Raises NotFoundError."""
        asked = Request("GET", "/v1/state/{topic}", path={"topic": topic}, query={"database": database})
        return entry_of(self._session.exchange(asked))

    def put_last(
        self,
        topic: str,
        data: object,
        *,
        database: str | None = None,
        if_match: str | None = None,
    ) -> Entry:
        """Write the last value of a topic. Raises ConflictError if its tag is not `if_match`."""
        asked = changed("PUT", "/v1/state/{topic}", {"topic": topic}, data, if_match, {"database": database})
        return entry_of(self._session.exchange(asked))

    def of_device(self, device_id: str) -> JsonObject:
        """Read the last values of a device."""
        path = {"device_id": device_id}
        return body_of(self._session.exchange(Request("GET", "/v1/devices/{device_id}/state", path=path)))

    def transact(self, transaction: Mapping[str, Any], *, database: str | None = None) -> JsonObject:
        """Write and delete last values atomically, if the conditions in `if` hold. Raises ConflictError."""
        query = {"database": database}
        asked = Request("POST", "/v1/transactions", query=query, body=dict(transaction), repeatable=False)
        return body_of(self._session.exchange(asked))


class Reader:
    """Events behind the cursor that the cluster keeps for a reader. `Events.reader(name)`.

    One process at a time reads in a name: another one that begins takes over, and this one gets a ConflictError.
    """

    def __init__(
        self, events: Events, name: str, topic: str, since: str | None, database: str | None, every: int
    ) -> None:
        self._events = events
        self._name = name
        self._topic = topic
        self._since = since
        self._database = database
        self._every = every
        self._tag: str | None = None
        self._cursor: str | None = None
        self._uncommitted = 0

    def __iter__(self) -> Iterator[LogEvent]:
        """Events and gaps. An event counts as handled when the next one is asked for."""
        after = self._begin()
        since = self._since if after is None else None
        for one in self._events.follow(self._topic, since=since, after=after, database=self._database):
            self._cursor = one.cursor or self._cursor
            if one.kind != "bookmark":
                yield one
                self._uncommitted += 1
            if one.kind == "bookmark" or self._uncommitted >= self._every:
                self.commit()

    def commit(self) -> None:
        """Keep the cursor behind the last event that was given, as all until then are handled."""
        if self._cursor is None:
            return
        known = self._events.commit(self._name, self._cursor, topic=self._topic, if_match=self._tag)
        self._tag, self._uncommitted = known.tag, 0

    def _begin(self) -> str | None:
        try:
            known = self._events.cursor(self._name)
        except NotFoundError:
            return None
        self._tag = known.tag
        return str(known["cursor"])
