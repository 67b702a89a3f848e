# Made by scripts/unasync.py from _async/queues.py. Do not edit.
"""Queues over the event log: declared, consumed and settled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self

from homing_client._answers import body_of, listed, nothing_of, tagged_of
from homing_client._models import Event
from homing_client._node_models import Tagged
from homing_client._operations import MARGIN, JsonObject, changed, duration, given
from homing_client._sync.session import Session
from homing_client._wire import Request

_ONE: Final = "/v1/queues/{name}"
Settle = Callable[[str, Mapping[str, Any]], Any]
"""Settles events of a queue."""
POLL: Final = timedelta(seconds=20)
"""The time for which one call waits for events. A connection that died unnoticed is noticed after that."""


class Message:
    """An event that was lent. Settle it before `until`; else it is lent again.

    As a context manager it is done when the block ends, and tried again when the block raises an exception.
    """

    def __init__(self, session: Session, queue: str, told: JsonObject, settle: Settle | None = None) -> None:
        """`settle` says it elsewhere than in a call of its own."""
        self._session = session
        self._queue = queue
        self._said = settle
        self._settled = False
        self.loan: Final = str(told["loan"])
        self.delivery: Final = int(told["delivery"])
        self.until: Final = str(told["until"])
        self.database: Final = str(told["database"])
        self.event: Final = Event(told["event"])

    def done(self) -> bool:
        """Settle it. False if the loan was over: somebody else has it, or had it."""
        return self._settle({"done": [self.loan]})

    def retry(self, after: timedelta | str | None = None) -> bool:
        """Have it delivered again, after so long or as the queue says."""
        told = None if after is None else duration(after)
        return self._settle({"retry": [given(loan=self.loan, after=told)]})

    def dead(self, reason: str) -> bool:
        """Put it aside as a dead letter."""
        return self._settle({"dead": [{"loan": self.loan, "reason": reason}]})

    def release(self) -> bool:
        """Give it back, so that somebody else gets it at once. That counts as no delivery."""
        return self._settle({"release": [self.loan]})

    def extend(self, by: timedelta | str) -> bool:
        """Take more time, from now on: all events of the same loan have it."""
        return self._say({"extend": [{"loan": self.loan, "by": duration(by)}]})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._settled:
            return
        if error is None:
            self.done()
        elif isinstance(error, Exception):
            self.retry()
        else:  # the program ends, and not because of this event
            self.release()

    def _settle(self, said: Mapping[str, Any]) -> bool:
        self._settled = True
        return self._say(said)

    def _say(self, said: Mapping[str, Any]) -> bool:
        if self._said is not None:
            return bool((self._said(self._queue, said))["settled"])
        return bool((settled(self._session, self._queue, said))["settled"])


class Queue:
    """One queue. `Homing.queue(name)`."""

    def __init__(self, session: Session, queue: str) -> None:
        self._session = session
        self.name: Final = queue

    def take(
        self,
        limit: int = 32,
        *,
        wait: timedelta | str = POLL,
        consumer: str = "",
        auto: bool = False,
    ) -> list[Message]:
        """Take up to `limit` events, and wait for the first of them. `auto` settles them at once: at most once.

        Without a name of a `consumer`, each client has one of its own.
        """
        body = {"max": limit, "wait": duration(wait), "consumer": consumer or self._session.consumer, "auto": auto}
        patience = (POLL + POLL + POLL + MARGIN).total_seconds()  # as long as a node waits at most
        asked = Request("POST", _ONE + "/take", path={"name": self.name}, body=body, patience=patience)
        told = body_of(self._session.exchange(asked))
        return [Message(self._session, self.name, one) for one in told.get("events") or ()]

    def consume(self, *, prefetch: int = 32, consumer: str = "") -> Iterator[Message]:
        """Events one after the other, without end. What was prefetched when the reader stops is given back.

        `prefetch` is how many are lent at once: no more than are handled within the loan of the queue.
        """
        waiting: list[Message] = []
        try:
            while True:
                waiting = self.take(prefetch, consumer=consumer)
                while waiting:
                    yield waiting.pop(0)
        finally:
            if waiting:
                settled(self._session, self.name, {"release": [one.loan for one in waiting]})


class Queues:
    """The queues of a cluster, as far as the caller may see and change them. `Homing.queues`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def all(self) -> list[JsonObject]:
        """List all queues."""
        return self._session.every("/v1/queues", "queues")

    def declare(self, queue: str, declaration: Mapping[str, Any], *, if_match: str | None = None) -> Tagged:
        """Declare a queue, or change it if its tag is `if_match`. Raises ConflictError if it is declared otherwise."""
        return tagged_of(self._session.exchange(changed("PUT", _ONE, {"name": queue}, dict(declaration), if_match)))

    def bind(self, queue: str, routes: Sequence[Mapping[str, Any]], *, if_match: str | None = None) -> Tagged:
        """Add routes to a queue; those that it has are left as they are."""
        return self._reroute(queue, "bind", routes, if_match)

    def unbind(self, queue: str, routes: Sequence[Mapping[str, Any]], *, if_match: str | None = None) -> Tagged:
        """Remove routes from a queue; those that it does not have are left out."""
        return self._reroute(queue, "unbind", routes, if_match)

    def get(self, queue: str) -> Tagged:
        """Show a queue, with counts of what waits in it."""
        return tagged_of(self._session.exchange(Request("GET", _ONE, path={"name": queue})))

    def delete(self, queue: str, *, only_empty: bool = False) -> None:
        """Delete a queue. Its events stay in the log."""
        query = {"if": "empty" if only_empty else None}
        nothing_of(self._session.exchange(Request("DELETE", _ONE, path={"name": queue}, query=query, repeatable=False)))

    def settle(self, queue: str, settlement: Mapping[str, Any]) -> JsonObject:
        """Settle events that were taken: `done`, `retry`, `dead`, `release` and `extend`, as the API has them."""
        return settled(self._session, queue, settlement)

    def rewind(self, queue: str, *, to: str) -> None:
        """Deliver events again from an instant on: how long ago, such as -10m, an instant, or now."""
        self._post(queue, "rewind", {"to": to})

    def purge(self, queue: str) -> None:
        """Empty a queue. Its events stay in the log."""
        self._post(queue, "purge", None)

    def redrive(self, queue: str, *, until: str | None = None) -> None:
        """Deliver dead letters again, up to an instant."""
        self._post(queue, "redrive", given(until=until))

    def dead(self, queue: str, *, since: str | None = None) -> Iterator[JsonObject]:
        """Read dead letters, oldest first."""
        query = {"since": since, "cursor": None}
        while True:
            asked = Request("GET", _ONE + "/dead", path={"name": queue}, query=query)
            page = body_of(self._session.exchange(asked))
            for one in page.get("letters") or ():
                yield one
            if not page.get("more"):
                return
            query = {"since": None, "cursor": str(page["cursor"])}

    def consumers(self, queue: str) -> list[JsonObject]:
        """List the consumers that took within the last minute."""
        asked = Request("GET", _ONE + "/consumers", path={"name": queue})
        return listed(self._session.exchange(asked), "consumers")

    def send_away(self, queue: str, consumer: str) -> JsonObject:
        """Give the events that a consumer has to others at once. Returns how many were `released`."""
        path = {"name": queue, "consumer": consumer}
        return body_of(self._session.exchange(Request("DELETE", _ONE + "/consumers/{consumer}", path=path)))

    def _reroute(self, queue: str, what: str, routes: Sequence[Mapping[str, Any]], if_match: str | None) -> Tagged:
        body = {"routes": [dict(one) for one in routes]}
        asked = changed("POST", _ONE + f"/{what}", {"name": queue}, body, if_match)
        return tagged_of(self._session.exchange(replace(asked, repeatable=if_match is None)))

    def _post(self, queue: str, what: str, body: Mapping[str, Any] | None) -> None:
        asked = Request("POST", _ONE + f"/{what}", path={"name": queue}, body=body, repeatable=False)
        nothing_of(self._session.exchange(asked))


def settled(session: Session, queue: str, said: Mapping[str, Any]) -> JsonObject:
    """Settle in a call; it is sent again where its answer was lost: then what was settled is told as over."""
    asked = Request("POST", _ONE + "/settle", path={"name": queue}, body=dict(said))
    return body_of(session.exchange(asked))
