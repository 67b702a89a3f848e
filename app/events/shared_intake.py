"""Several nodes bring events in at once: each has a session of its own, and the broker shares what comes among them.

A session is named after that of the node's commands, so whoever adopts that one of a dead node adopts this one too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import structlog

from app.core.errors import UnavailableError
from app.core.profiles.event_reader import EventReader
from app.core.topics import share
from app.events.intake import Intake
from app.mqtt.base import MqttClient, SessionDrain, Subscription
from app.runtime.tasks import end
from app.store.roles import OnlyOne

LOOK_SECONDS: Final = 0.5
IDLE: Final = timedelta(seconds=1)
"""A session from which nothing has come for so long is empty."""
SUFFIX: Final = "-events"
"""The end of the name of the share group, which commands have without it."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NodeSession:
    """This node as the cluster knows it: the session of its commands, and what that subscribes to."""

    client_id: str
    filters: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeSharing:
    """The needs of sharing that the node fulfils. `others`: true if other nodes live."""

    member: Callable[[], NodeSession]
    still_member: Callable[[str], Awaitable[None]]
    others: Callable[[], bool]
    open_mqtt: Callable[[str, Callable[[str], Awaitable[None]]], MqttClient]
    open_drain: Callable[[str], SessionDrain]
    former: str
    """The session of an ordered intake, which may have been there before."""


def session_of(client_id: str) -> str:
    """The session that brings events in, of the node whose commands have this one."""
    return f"events-{client_id}"


def shared(topic_filters: Sequence[str], member: NodeSession) -> list[Subscription]:
    """The subscriptions of such a session."""
    group = next((one.split("/", 2)[1] for one in member.filters if one.startswith("$share/")), "homing")
    return [Subscription(share(f"{group}{SUFFIX}", one)) for one in topic_filters]


class EachMember(OnlyOne):
    """The role of bringing events in where each node has it, for as long as it is the same member of the cluster."""

    def __init__(self, sharing: IntakeSharing) -> None:
        self._sharing = sharing
        self._client_id = ""

    async def hold(self) -> int | None:
        """Return when this node is a member; without an epoch, as nobody follows anybody."""
        while True:
            member = self._sharing.member()
            if member.filters:
                self._client_id = member.client_id
                return None
            await asyncio.sleep(LOOK_SECONDS)

    async def lost(self) -> None:
        """Return when this node has begun again, as somebody else empties the session that it had."""
        while True:
            if self._sharing.member().client_id != self._client_id:
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def held(self) -> bool:
        """False: what other nodes have is no answer, as each has a session of its own."""
        return False

    async def still_held(self) -> None:
        """Return once it is known that nobody has adopted its session."""
        await self._sharing.still_member(self._client_id)


class SharedIntake:
    """Takes in this node's share. `every` are all topic filters of events, which an ordered intake subscribes to.

    `leads` is true for one of the nodes, which looks for the session of an ordered intake: two would end each other's
    connections, as it has one client id.
    """

    def __init__(
        self,
        sharing: IntakeSharing,
        reader: EventReader,
        every: Sequence[str],
        build: Callable[..., Intake],
        leads: Callable[[], bool],
    ) -> None:
        self._sharing = sharing
        self._leads = leads
        self._reader = reader
        self._every = every
        role = EachMember(sharing)

        def open_mqtt() -> MqttClient:
            return sharing.open_mqtt(session_of(sharing.member().client_id), lambda _client_id: role.still_held())

        self._intake = build(
            role=role,
            open_mqtt=open_mqtt,
            reader=reader,
            presence=None,
            subscribe=lambda filters: shared(filters, sharing.member()),
        )

    async def run(self) -> None:
        """Take in until cancelled; first what an ordered intake has left at the broker."""
        former = asyncio.create_task(self._adopt_former(), name="ordered intake before")
        try:
            await self._intake.run()
        finally:
            await end([former])

    async def listened(self) -> None:
        """Return when the broker keeps this node's share."""
        await self._intake.listened()

    async def adopt(self, member: NodeSession, idle: timedelta) -> int:
        """Take in what the session of a node that died holds, and end it."""
        topic_filters = [one.topic_filter for one in shared(self._reader.filters(), member)]
        drain = self._sharing.open_drain(session_of(member.client_id))
        return await self._intake.adopt(drain, topic_filters, idle)

    @property
    def keeps_session(self) -> bool:
        """See `Intake.keeps_session`; whoever adopts the session of this node's commands adopts this one too."""
        return self._intake.keeps_session

    async def hand_over(self) -> None:
        """Leave what is to come to the other nodes. The last node keeps its session, and whoever begins adopts it."""
        if self._sharing.others():
            await self._intake.hand_over()

    async def close(self) -> None:
        """Let go of the broker."""
        await self._intake.close()

    async def _adopt_former(self) -> None:
        while True:
            if self._leads():
                try:
                    await self._intake.adopt(self._sharing.open_drain(self._sharing.former), self._every, IDLE)
                except UnavailableError as error:
                    _log.debug("former_intake_waits", reason=str(error))
                else:
                    return
            await asyncio.sleep(IDLE.total_seconds())
