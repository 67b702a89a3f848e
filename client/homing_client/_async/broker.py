"""The broker in a node: sessions and retained messages."""

from __future__ import annotations

from homing_client._answers import body_of, nothing_of
from homing_client._async.session import AsyncSession
from homing_client._operations import JsonObject
from homing_client._wire import Request


class AsyncBroker:
    """The broker in a node, for those who operate it. `AsyncHoming.broker`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def sessions(self) -> list[JsonObject]:
        """List all sessions, by client id."""
        return await self._session.every("/v1/broker/sessions", "sessions")

    async def session(self, client_id: str) -> JsonObject:
        """Get a session with its subscriptions and the messages on their way. Raises NotFoundError."""
        asked = Request("GET", "/v1/broker/sessions/{client_id}", path={"client_id": client_id})
        return body_of(await self._session.exchange(asked))

    async def end_session(self, client_id: str) -> None:
        """End a session with its connection, subscriptions and messages. Raises NotFoundError."""
        asked = Request("DELETE", "/v1/broker/sessions/{client_id}", path={"client_id": client_id})
        nothing_of(await self._session.exchange(asked))

    async def retained(self, *, topic: str | None = None) -> list[JsonObject]:
        """List the retained messages, of topics that match a filter if there is one, without their payloads."""
        return await self._session.every("/v1/broker/retained", "retained", topic=topic)

    async def delete_retained(self, topic: str) -> None:
        """Delete the retained message of a topic. Raises NotFoundError."""
        asked = Request("DELETE", "/v1/broker/retained", query={"topic": topic})
        nothing_of(await self._session.exchange(asked))
