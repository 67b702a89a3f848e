# Made by scripts/unasync.py from _async/exchanges.py. Do not edit.
"""Exchanges: messages with keys, among which queues choose."""

from __future__ import annotations

from typing import Final

from homing_client._answers import body_of, listed, nothing_of
from homing_client._operations import JsonObject, given
from homing_client._sync.session import Session
from homing_client._wire import Request

_ALL: Final = "/v1/exchanges"
_ONE: Final = "/v1/exchanges/{name}"


class Exchanges:
    """The exchanges of a cluster. `Homing.exchanges`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def all(self) -> list[JsonObject]:
        """List all exchanges."""
        return listed(self._session.exchange(Request("GET", _ALL)), "exchanges")

    def declare(self, exchange: str, kind: str = "topic") -> JsonObject:
        """Declare an exchange: direct, fanout or topic. Declaring it again changes nothing. Raises ConflictError."""
        asked = Request("PUT", _ONE, path={"name": exchange}, body={"kind": kind})
        return body_of(self._session.exchange(asked))

    def get(self, exchange: str) -> JsonObject:
        """Read an exchange and the routes from it. Raises NotFoundError."""
        return body_of(self._session.exchange(Request("GET", _ONE, path={"name": exchange})))

    def delete(self, exchange: str) -> None:
        """Delete an exchange. Raises ConflictError while queues have routes from it."""
        nothing_of(self._session.exchange(Request("DELETE", _ONE, path={"name": exchange})))

    def publish(
        self,
        exchange: str,
        key: str,
        data: object,
        *,
        message_id: str | None = None,
        device_id: str | None = None,
        not_before: str | None = None,
        even_unrouted: bool = False,
        idempotency_key: str | None = None,
    ) -> JsonObject:
        """Publish a message with a key. Returns its position, and the queues that get it.

        Queues lend it no earlier than `not_before`: an instant, or so long from now, such as 10s.

        Where no queue has a route for the key it raises InvalidInputError, unless it is kept `even_unrouted`. With an
        `idempotency_key` the call is repeated where its answer is lost, and the message is in the log once.
        """
        body = given(
            key=key,
            id=message_id,
            device_id=device_id,
            not_before=not_before,
            mandatory=False if even_unrouted else None,
        )
        asked = Request(
            "POST",
            _ONE + "/messages",
            path={"name": exchange},
            body={**body, "data": data},
            headers={} if idempotency_key is None else {"idempotency-key": idempotency_key},
            repeatable=idempotency_key is not None,
        )
        return body_of(self._session.exchange(asked))
