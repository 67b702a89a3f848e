"""Operators of the broker in a node: what they do is answered when it is on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import structlog

from app.broker.keeper import SessionKeeper
from app.core.broker.broker import Broker
from app.core.broker.message import Message
from app.core.broker.operators import (
    ClientSessionContent,
    ClientSessionState,
    content_of,
    end_session,
    remove_retained,
    retained,
    state_of,
)
from app.core.broker.session import ClientSession
from app.core.errors import BrokerEntryNotFoundError

_log = structlog.get_logger(__name__)


class BrokerOperations:
    """Lists and ends what a broker has. `keeper` writes what is kept, if anything is."""

    def __init__(self, broker: Broker, keeper: SessionKeeper | None) -> None:
        self._broker: Final = broker
        self._keeper = keeper

    @property
    def client_ids(self) -> list[str]:
        """The client ids of all sessions."""
        return list(self._broker.sessions)

    def session(self, client_id: str) -> ClientSessionState:
        """The session of a client id as it is now; BrokerEntryNotFoundError."""
        return state_of(self._broker, self._found(client_id))

    def content(self, client_id: str) -> ClientSessionContent:
        """The things that the session of a client id has now; BrokerEntryNotFoundError."""
        return content_of(self._broker, self._found(client_id))

    def retained(self, topic_filter: str | None) -> Iterator[Message]:
        """Yield the retained messages of a filter, or all of them."""
        return retained(self._broker, topic_filter)

    async def end_session(self, client_id: str, by: str | None) -> None:
        """End a session and its connection; BrokerEntryNotFoundError, StoreUnavailableError."""
        if not end_session(self._broker, client_id):
            raise _no_session(client_id)
        _log.info("broker_session_ended", client=client_id, by=by)
        await self._kept()

    async def remove_retained(self, topic: str, by: str | None) -> None:
        """Forget a retained message; BrokerEntryNotFoundError, StoreUnavailableError."""
        if not remove_retained(self._broker, topic):
            raise BrokerEntryNotFoundError(f"the broker has no retained message of topic {topic[:256]!a}")
        _log.info("broker_retained_removed", topic=topic, by=by)
        await self._kept()

    def _found(self, client_id: str) -> ClientSession:
        found = self._broker.sessions.get(client_id)
        if found is None:
            raise _no_session(client_id)
        return found

    async def _kept(self) -> None:
        if self._keeper is not None:
            await self._keeper.kept()


def _no_session(client_id: str) -> BrokerEntryNotFoundError:
    return BrokerEntryNotFoundError(f"the broker has no session of client id {client_id[:256]!a}")
