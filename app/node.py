"""Node: a member of the cluster. It joins, serves as one incarnation after another, drains and stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, TypeVar

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from app.cluster.adopter import Adopter
from app.cluster.canary import Canary
from app.cluster.cluster import Cluster
from app.cluster.directory import NodeInfo
from app.cluster.founder import Founder
from app.cluster.sessions import BrokerSession, Sessions
from app.commands.deadlines.left import CommandRecovery
from app.core.cluster.wakekey import WakeKey
from app.core.errors import HomingError, NodeDrainingError, NodeIdTakenError, UnavailableError
from app.mqtt.base import MqttClient
from app.mqtt.inbox import Inbox
from app.runtime.services import STOP, Services, Steps
from app.runtime.telemetry import speak_as
from app.store.state import StateStore

_Result = TypeVar("_Result")

PING_BUDGET: Final = 0.5
NOT_TRIED: Final = "not tried yet: the store has to answer first"
QUIET: Final = timedelta(milliseconds=200)
"""After UNSUBACK the broker still sends what it had queued; a silence of this length says that it has no more."""
SHORT_LIFE: Final = 10.0
"""An incarnation whose session was taken over within so many seconds: the next one waits longer."""
LONGEST_PAUSE: Final = 5.0


class NodeState(StrEnum):
    """The state of a node in its life."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberParts:
    """The parts that make a process a member: the lease, the session at the broker, and who takes what it brings.

    `info` is the first incarnation.
    """

    info: NodeInfo
    sessions: Sessions
    founder: Founder
    wake_key: WakeKey
    store: StateStore
    cluster: Cluster
    mqtt: MqttClient
    inbox: Inbox
    adopter: Adopter
    canary: Canary
    left: CommandRecovery


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a node, and what each part that it depends on says: `ok`, `ok, but …` or a sentence."""

    state: NodeState
    checks: dict[str, str]

    @property
    def ready(self) -> bool:
        """True if callers should be sent here."""
        return self.state is NodeState.READY and all(map(is_well, self.checks.values()))


def is_well(said: str) -> bool:
    """True if a part that says this can do its work; after `ok, but` it tells what people should look at."""
    return said == "ok" or said.startswith("ok, but ")


class Node:
    """Owns the lifetimes of all parts: the membership itself, and the services that run while there is one."""

    def __init__(self, membership: MemberParts, services: Services, stop: timedelta = STOP) -> None:
        """All steps of its end together take no longer than `stop`."""
        self._parts = membership
        self._services = services
        self._stop = stop
        self._info = membership.info
        self._short_lives = 0
        self._state = NodeState.STARTING
        self._begun = False
        self._closed = False
        self._ready = asyncio.Event()
        self._log = structlog.get_logger()
        speak_as(self._ids)

    @property
    def info(self) -> NodeInfo:
        """The node's present identity."""
        return self._info

    @property
    def state(self) -> NodeState:
        """The node's present state."""
        return self._state

    def admit(self) -> None:
        """UnavailableError while the node does not take commands.

        A draining node goes on taking them until it is closed: callers find out about its leaving with a delay.
        """
        if self._closed:
            raise NodeDrainingError("this node is about to stop")
        if self._state is NodeState.STARTING:
            raise UnavailableError("this node is starting: it waits for its store or its broker")

    async def health(self) -> Health:
        """Look at every part."""
        parts = self._parts
        deaf, unheard = "no connection to the MQTT broker", "the cluster cannot be heard, or does not hear this node"
        if not self._begun:
            deaf = unheard = NOT_TRIED
        checks = {
            "store": await self._store_health(),
            "mqtt": "ok" if parts.mqtt.connected else deaf,
            "cluster": "ok" if parts.cluster.listening else unheard,
            "canary": parts.canary.health if self._begun else NOT_TRIED,
            **self._services.checks(),
        }
        return Health(self._state, checks)

    async def start(self) -> None:
        """Begin to work. Returns when ready, or when something is away, which is then waited for in the background.

        Raises ConfigurationError and NodeIdTakenError: starting again would not help.
        """
        speak_as(self._ids)
        session: BrokerSession | None = None
        try:
            session = await self._begin()
        except NodeIdTakenError:
            raise
        except UnavailableError as error:
            self._log.warning("node_waits", reason=str(error))
        self._services.supervise("life", self._live(session))

    async def been_ready(self) -> None:
        """Return when the node has been ready for the first time."""
        await self._ready.wait()

    async def drain(self, delay: timedelta) -> None:
        """Say that this node is about to stop, go on serving until everybody knows, then take no new commands."""
        self._state = NodeState.DRAINING
        self._log.info("node_drains")
        await asyncio.gather(Steps().take("tell", self._parts.cluster.drain()), asyncio.sleep(delay.total_seconds()))
        self._closed = True

    async def stop(self) -> None:
        """Stop in the order in which nothing gets lost."""
        parts, services, steps = self._parts, self._services, Steps(self._stop)
        self._state = NodeState.DRAINING
        self._closed = True
        services.will_end()
        steps.begin()
        await steps.take("tell", parts.cluster.drain())
        keep_session = not await self._hand_over(steps)
        await services.drain(steps)
        await services.end()
        await steps.take("disconnect", parts.mqtt.stop(keep_session=keep_session))
        await services.drain(steps)  # what still waited for the broker is unsent
        await steps.take("leave", parts.cluster.leave(session_kept=keep_session or services.keep_session()))
        await services.close(steps)
        self._state = NodeState.STOPPED
        self._log.info("node_stopped")

    def _ids(self) -> dict[str, str]:
        return {"node_id": self._info.node_id, "incarnation": self._info.incarnation}

    async def _hand_over(self, steps: Steps) -> bool:
        """Leave the responses to come to the other nodes; false when our session has to be kept for whoever adopts it.

        The last node out keeps its subscription, so that what devices say meanwhile is found at the next start.
        """
        parts = self._parts
        parts.canary.rest()
        if not await self._others_live(steps.seconds()):
            self._log.info(
                "session_kept", reason="no other node serves on, so the broker keeps what devices say meanwhile"
            )
            await steps.take("settle", parts.inbox.drained())
            return False
        # No new responses; those that arrived are recorded and acknowledged while store and broker are still there.
        return (
            await steps.take("unsubscribe", parts.mqtt.unsubscribe())
            and await steps.take("quiet", parts.mqtt.quiet(QUIET))
            and await steps.take("settle", parts.inbox.drained())
        )

    async def _others_live(self, seconds: float) -> bool:
        cluster = self._parts.cluster
        if not cluster.remembers:
            return True
        try:
            async with asyncio.timeout(seconds):
                return any(node.node_id != self._info.node_id for node in await cluster.nodes())
        except (HomingError, TimeoutError):
            return False

    async def _begin(self) -> BrokerSession:
        await self._parts.store.start()
        session = await self._join(None)
        await self._parts.left.take_up()
        return session

    async def _join(self, previous: NodeInfo | None) -> BrokerSession:
        parts = self._parts
        first = previous is None
        charter = await (parts.founder.charter(self._info) if first else parts.cluster.charter())
        parts.wake_key.set(charter.key)
        session = parts.sessions.of(self._info, charter)
        self._info = session.info
        await parts.cluster.join(session.info, replaces=previous)
        return session

    async def _live(self, session: BrokerSession | None) -> None:
        """Everything between the first sign of life and the last, over as many incarnations as it takes."""
        parts = self._parts
        if session is None:
            session = await self._when_possible(self._begin)
        self._begun = True
        await parts.mqtt.start(session.subscriptions, parts.inbox.handle, session.will)
        self._services.start()
        while True:
            # An incarnation may end before there is a connection, and then there will never be one.
            async with asyncio.TaskGroup() as group:
                becoming_ready = group.create_task(self._become_ready())
                taken_over = await self._over()
                becoming_ready.cancel()
            await self._begin_again(taken_over=taken_over)

    async def _over(self) -> bool:
        """Return when this incarnation has come to its end; whether somebody has taken its session over."""
        began = asyncio.get_running_loop().time()
        ends = [asyncio.ensure_future(one) for one in (self._parts.cluster.fenced(), self._parts.mqtt.taken_over())]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            taken_over = ends[1].done()
        finally:
            for one in ends:
                one.cancel()
        lived = asyncio.get_running_loop().time() - began
        self._short_lives = self._short_lives + 1 if taken_over and lived < SHORT_LIFE else 0
        return taken_over

    async def _become_ready(self) -> None:
        await self._parts.mqtt.wait_connected()
        if self._state is NodeState.STARTING:
            self._state = NodeState.READY
            self._log.info("node_ready")
            self._ready.set()
            self._parts.canary.look()  # its round may be half a second away
        await self._parts.left.repeat()

    async def _begin_again(self, *, taken_over: bool) -> None:
        """Begin with a session of its own: somebody else has ours by now, or soon, and empties and ends it."""
        parts = self._parts
        if self._state is NodeState.READY:
            self._state = NodeState.STARTING
        previous = self._info
        self._info = parts.sessions.incarnation(previous.node_id)
        reason = "the session was taken over" if taken_over else "the lease or what the nodes share was lost"
        self._log.warning("node_fenced", ended=previous.incarnation, reason=reason)
        if self._short_lives:
            await asyncio.sleep(min(LONGEST_PAUSE, 0.1 * 2.0 ** min(self._short_lives, 10)))
        parts.canary.begin_again()
        session = await self._when_possible(lambda: self._join(previous))
        await parts.mqtt.restart_as(session.info.client_id, session.subscriptions, session.will)
        if taken_over:
            parts.adopter.left_behind(previous)

    async def _when_possible(self, work: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
        def passing(error: BaseException) -> bool:
            return isinstance(error, UnavailableError) and not isinstance(error, NodeIdTakenError)

        def say(attempt: RetryCallState) -> None:
            self._log.debug("node_still_waits", attempt=attempt.attempt_number)

        async def attempt() -> _Result:
            return await work()

        return await AsyncRetrying(
            retry=retry_if_exception(passing),
            wait=wait_random_exponential(multiplier=0.2, max=2),
            before_sleep=say,
            reraise=True,
        )(attempt)

    async def _store_health(self) -> str:
        try:
            async with asyncio.timeout(PING_BUDGET):
                await self._parts.store.ping()
        except TimeoutError:
            return "the store does not answer"
        except HomingError as error:
            return str(error)
        return "ok"
