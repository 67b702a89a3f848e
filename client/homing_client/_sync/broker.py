# Made by scripts/unasync.py from _async/broker.py. Do not edit.
"""The broker in a node: sessions and retained messages."""

from __future__ import annotations

from homing_client._answers import body_of, nothing_of
from homing_client._operations import JsonObject
from homing_client._sync.session import Session
from homing_client._wire import Request


class Broker:
    """The broker in a node, for those who operate it. `Homing.broker`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def sessions(self) -> list[JsonObject]:
        """List all sessions, by client id."""
        return self._session.every("/v1/broker/sessions", "sessions")

    def session(self, client_id: str) -> JsonObject:
        """Get a session with its subscriptions and the messages on their way. Raises NotFoundError."""
        asked = Request("GET", "/v1/broker/sessions/{client_id}", path={"client_id": client_id})
        return body_of(self._session.exchange(asked))

    def end_session(self, client_id: str) -> None:
        """End a session with its connection, subscriptions and messages. Raises NotFoundError."""
        asked = Request("DELETE", "/v1/broker/sessions/{client_id}", path={"client_id": client_id})
        nothing_of(self._session.exchange(asked))

    def retained(self, *, topic: str | None = None) -> list[JsonObject]:
        """List the retained messages, of topics that match a filter if there is one, without their payloads."""
        return self._session.every("/v1/broker/retained", "retained", topic=topic)

    def delete_retained(self, topic: str) -> None:
        """Delete the retained message of a topic. Raises NotFoundError."""
        asked = Request("DELETE", "/v1/broker/retained", query={"topic": topic})
        nothing_of(self._session.exchange(asked))
