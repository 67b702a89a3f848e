"""Node: a member of the cluster. It starts, supervises, drains and stops everything that runs in the process."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from app.callbacks.adopter import Adopter
from app.callbacks.delivery import Delivery
from app.callbacks.dispatcher import Dispatcher
from app.callbacks.journal import Journal
from app.callbacks.registry import Registry
from app.cluster.base import Cluster, NodeInfo
from app.commands.expirer import Expirer
from app.commands.invoker import Invoker
from app.commands.sweeper import Sweeper
from app.core.errors import HomingError, NodeDrainingError, NodeIdTakenError, UnavailableError
from app.measures import Measures
from app.mqtt.base import MqttClient, Subscription
from app.observability import Counters, Fill, speak_as
from app.store.base import StateStore
from app.tasks import end

if TYPE_CHECKING:
    from app.tracing import Tracing  # whose library is an extra

STEP_BUDGET: Final = 3.0
"""How many seconds each step of stopping may take before the next one is done regardless."""
STOP_BUDGET: Final = 9.0
"""How many seconds all steps may take, though store and broker be away: with the drain delay less than 15."""
LEAST_BUDGET: Final = 0.1
"""What a step gets when that is used up."""
PING_BUDGET: Final = 0.5
NOT_TRIED: Final = "not tried yet: the store has to answer first"
QUIET: Final = timedelta(milliseconds=200)
"""After UNSUBACK the broker still sends what it had queued; a silence of this length says that it has no more."""


class NodeState(StrEnum):
    """Where a node is in its life."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Parts:
    """What a node consists of; put together in `app/main.py`. `reborn` makes the next incarnation of a node."""

    info: NodeInfo
    reborn: Callable[[NodeInfo], NodeInfo]
    store: StateStore
    mqtt: MqttClient
    cluster: Cluster
    registry: Registry
    dispatcher: Dispatcher
    delivery: Delivery
    invoker: Invoker
    expirer: Expirer
    sweeper: Sweeper
    adopter: Adopter
    journal: Journal | None
    counters: Counters
    measures: Measures
    subscriptions: Sequence[Subscription]
    tracing: Tracing | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a node can serve, and what each part it depends on says: `ok` or a sentence."""

    state: NodeState
    checks: dict[str, str]

    @property
    def ready(self) -> bool:
        """Whether callers should be sent here."""
        return self.state is NodeState.READY and all(said == "ok" for said in self.checks.values())


class Node:
    """Owns the lifetimes of all parts. `on_failure` is called once when a part that must run has ended."""

    def __init__(self, parts: Parts, on_failure: Callable[[BaseException], None]) -> None:
        self._parts = parts
        self._info = parts.info
        self._on_failure = on_failure
        self._state = NodeState.STARTING
        self._begun = False
        self._closed = False
        self._stop_by = math.inf
        self._tasks: list[asyncio.Task[Any]] = []
        self._log = structlog.get_logger()
        speak_as(self._ids)

    @property
    def info(self) -> NodeInfo:
        """Who this is at present."""
        return self._info

    @property
    def state(self) -> NodeState:
        """Where it is in its life."""
        return self._state

    @property
    def store(self) -> StateStore:
        """For reading commands."""
        return self._parts.store

    @property
    def tracing(self) -> Tracing | None:
        """For spans around requests, where there is tracing."""
        return self._parts.tracing

    @property
    def registry(self) -> Registry:
        """For the counts of what is open here."""
        return self._parts.registry

    @property
    def counters(self) -> Counters:
        """What happened so far, by stable name."""
        return self._parts.counters

    @property
    def measures(self) -> Measures:
        """How long things took."""
        return self._parts.measures

    @property
    def invoker(self) -> Invoker:
        """For sending commands; UnavailableError while the node does not take them.

        A draining node goes on taking them until it is closed: callers find out about its leaving with a delay (F70).
        """
        if self._closed:
            raise NodeDrainingError("this node is about to stop")
        if self._state is NodeState.STARTING:
            raise UnavailableError("this node is starting: it waits for its store or its broker")
        return self._parts.invoker

    def queues(self) -> dict[str, Fill]:
        """How full every bounded queue of the node is."""
        parts = self._parts
        journal = {} if parts.journal is None else parts.journal.queues()
        return parts.registry.queues() | parts.mqtt.queues() | parts.store.queues() | journal

    async def nodes(self) -> Sequence[NodeInfo]:
        """The cluster as this node sees it."""
        return await self._parts.cluster.nodes()

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
        }
        return Health(self._state, checks)

    async def start(self) -> None:
        """Begin to work. Returns when ready, or when something is away, which is then waited for in the background.

        Raises ConfigurationError and NodeIdTakenError: starting again would not help.
        """
        speak_as(self._ids)
        try:
            await self._begin()
        except NodeIdTakenError:
            raise
        except UnavailableError as error:
            self._log.warning("node_waits", reason=str(error))
            self._supervise("life", self._live(begun=False))
        else:
            self._supervise("life", self._live(begun=True))

    async def drain(self, delay: timedelta) -> None:
        """Say that this node is about to stop, go on serving until everybody knows, then take no new commands."""
        self._state = NodeState.DRAINING
        self._log.info("node_drains")
        await asyncio.gather(self._step("tell", self._parts.cluster.drain()), asyncio.sleep(delay.total_seconds()))
        self._closed = True

    async def stop(self) -> None:
        """Stop in the order in which nothing gets lost."""
        parts = self._parts
        self._state = NodeState.DRAINING
        self._closed = True
        self._stop_by = asyncio.get_running_loop().time() + STOP_BUDGET
        await self._step("tell", parts.cluster.drain())
        keep_session = not await self._hand_over()
        await self._step("follow_up", parts.invoker.drained())
        await end(self._tasks)
        await self._step("disconnect", parts.mqtt.stop(keep_session=keep_session))
        await self._step("leave", parts.cluster.leave(session_kept=keep_session))
        if parts.journal is not None:  # what the last wake-ups brought is in it
            await self._step("journal", parts.journal.close())
        await self._step("close", parts.store.close())
        if parts.tracing is not None:
            await self._step("send_traces", parts.tracing.close())
        self._state = NodeState.STOPPED
        self._log.info("node_stopped")

    def _ids(self) -> dict[str, str]:
        return {"node_id": self._info.node_id, "incarnation": self._info.incarnation}

    async def _hand_over(self) -> bool:
        """Leave the responses to come to the other nodes; false when our session has to be kept for whoever adopts it.

        The last node out keeps its subscription, so that what devices say meanwhile is found at the next start (F51).
        """
        parts = self._parts
        if not await self._others_live():
            self._log.info("session_kept", reason="this is the last node", client_id=self._info.client_id)
            await self._step("settle", parts.dispatcher.drained())
            return False
        # No new responses; those that arrived are recorded and acknowledged while store and broker are still there.
        return (
            await self._step("unsubscribe", parts.mqtt.unsubscribe())
            and await self._step("quiet", parts.mqtt.quiet(QUIET))
            and await self._step("settle", parts.dispatcher.drained())
        )

    async def _others_live(self) -> bool:
        cluster = self._parts.cluster
        if not cluster.remembers:
            return True
        try:
            async with asyncio.timeout(self._budget()):
                return any(node.node_id != self._info.node_id for node in await cluster.nodes())
        except (HomingError, TimeoutError):
            return False

    async def _begin(self) -> None:
        await self._parts.store.start()
        await self._parts.cluster.join(self._info)
        await self._take_up()

    async def _take_up(self) -> None:
        """Keep the deadlines of commands that an earlier start under this id left open; the sweep would be later."""
        parts = self._parts
        left = await parts.store.pending_of(self._info.node_id)
        now = await parts.store.now()
        for command in left:
            parts.registry.reopen(command)
            parts.expirer.keep(command.id, timedelta(microseconds=max(0, command.deadline - now)))
        if left:
            self._log.info("commands_taken_up", count=len(left))

    async def _live(self, *, begun: bool) -> None:
        """Everything between the first sign of life and the last, over as many incarnations as it takes."""
        parts = self._parts
        if not begun:
            await self._when_possible(self._begin)
        self._begun = True
        await parts.mqtt.start(parts.subscriptions, parts.dispatcher.handle)
        self._supervise("expirer", parts.expirer.run())
        self._supervise("delivery", parts.delivery.run())
        self._supervise("sweeper", parts.sweeper.run())
        self._supervise("adopter", parts.adopter.run())
        if parts.journal is not None:
            self._supervise("journal", parts.journal.run())
        while True:
            # The lease may be lost before there is a connection, and then there will never be one.
            async with asyncio.TaskGroup() as group:
                becoming_ready = group.create_task(self._become_ready())
                await parts.cluster.fenced()
                becoming_ready.cancel()
            await self._begin_again()

    async def _become_ready(self) -> None:
        await self._parts.mqtt.wait_connected()
        if self._state is NodeState.STARTING:
            self._state = NodeState.READY
            self._log.info("node_ready", client_id=self._info.client_id)

    async def _begin_again(self) -> None:
        """After the lease was lost: somebody else has our session by now, so we need a new one (F15, F33)."""
        parts = self._parts
        if self._state is NodeState.READY:
            self._state = NodeState.STARTING
        previous, self._info = self._info, parts.reborn(self._info)
        self._log.warning("node_fenced", client_id=previous.client_id, next_client_id=self._info.client_id)
        await self._when_possible(lambda: parts.cluster.join(self._info, replaces=previous))
        await parts.mqtt.restart_as(self._info.client_id)

    async def _when_possible(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        def passing(error: BaseException) -> bool:
            return isinstance(error, UnavailableError) and not isinstance(error, NodeIdTakenError)

        def say(attempt: RetryCallState) -> None:
            self._log.debug("node_still_waits", attempt=attempt.attempt_number)

        async for attempt in AsyncRetrying(
            retry=retry_if_exception(passing),
            wait=wait_random_exponential(multiplier=0.2, max=2),
            before_sleep=say,
            reraise=True,
        ):
            with attempt:
                await work()

    def _supervise(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run a part in the background; its end is a failure of the node."""

        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled() or self._closed:
                return
            error = task.exception() or RuntimeError(f"{name} ended")
            self._log.error("node_failed", part=name, reason=str(error), exc_info=error)
            self._on_failure(error)

        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(ended)
        self._tasks.append(task)

    async def _step(self, name: str, work: Coroutine[Any, Any, None]) -> bool:
        """Whether a step of stopping was done within its budget."""
        try:
            async with asyncio.timeout(self._budget()):
                await work
        except (HomingError, TimeoutError) as error:
            self._log.info("stop_step_skipped", step=name, reason=str(error) or type(error).__name__)
            return False
        return True

    def _budget(self) -> float:
        left = self._stop_by - asyncio.get_running_loop().time()
        return max(LEAST_BUDGET, min(STEP_BUDGET, left))

    async def _store_health(self) -> str:
        try:
            async with asyncio.timeout(PING_BUDGET):
                await self._parts.store.ping()
        except TimeoutError:
            return "the store does not answer"
        except HomingError as error:
            return str(error)
        return "ok"
