"""Node: a member of the cluster. It starts, supervises, drains and stops everything that runs in the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import structlog
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from app.callbacks.delivery import Delivery
from app.callbacks.dispatcher import Dispatcher
from app.callbacks.registry import Registry
from app.cluster.base import Cluster, NodeInfo
from app.commands.expirer import Expirer
from app.commands.invoker import Invoker
from app.commands.sweeper import Sweeper
from app.core.errors import HomingError, NodeDrainingError, NodeIdTakenError, UnavailableError
from app.mqtt.base import MqttClient, Subscription
from app.observability import Counters
from app.store.base import StateStore

STEP_BUDGET: Final = 5.0
"""How many seconds each step of stopping may take before the next one is done regardless."""
PING_BUDGET: Final = 0.5


class NodeState(StrEnum):
    """Where a node is in its life."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Parts:
    """What a node consists of; put together in `app/main.py`."""

    info: NodeInfo
    store: StateStore
    mqtt: MqttClient
    cluster: Cluster
    registry: Registry
    dispatcher: Dispatcher
    delivery: Delivery
    invoker: Invoker
    expirer: Expirer
    sweeper: Sweeper
    counters: Counters
    subscriptions: Sequence[Subscription]


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
        self._on_failure = on_failure
        self._state = NodeState.STARTING
        self._tasks: list[asyncio.Task[Any]] = []
        self._log = structlog.get_logger().bind(node_id=parts.info.node_id)

    @property
    def info(self) -> NodeInfo:
        """Who this is."""
        return self._parts.info

    @property
    def state(self) -> NodeState:
        """Where it is in its life."""
        return self._state

    @property
    def store(self) -> StateStore:
        """For reading commands."""
        return self._parts.store

    @property
    def registry(self) -> Registry:
        """For the counts of what is open here."""
        return self._parts.registry

    @property
    def counters(self) -> Counters:
        """What happened so far, by stable name."""
        return self._parts.counters

    @property
    def invoker(self) -> Invoker:
        """For sending commands; NodeDrainingError unless the node takes them."""
        if self._state in (NodeState.DRAINING, NodeState.STOPPED):
            raise NodeDrainingError("this node is about to stop")
        if self._state is NodeState.STARTING:
            raise UnavailableError("this node is starting: it waits for its store or its broker")
        return self._parts.invoker

    async def nodes(self) -> Sequence[NodeInfo]:
        """The cluster as this node sees it."""
        return await self._parts.cluster.nodes()

    async def health(self) -> Health:
        """Look at every part."""
        parts = self._parts
        checks = {
            "store": await self._store_health(),
            "mqtt": "ok" if parts.mqtt.connected else "no connection to the MQTT broker",
            "cluster": "ok" if parts.cluster.listening else "wake-ups from other nodes cannot be received",
        }
        return Health(self._state, checks)

    async def start(self) -> None:
        """Begin to work. Returns when ready, or when something is away, which is then waited for in the background.

        Raises ConfigurationError and NodeIdTakenError: starting again would not help.
        """
        await self._parts.mqtt.start(self._parts.subscriptions, self._parts.dispatcher.handle)
        try:
            await self._begin()
        except NodeIdTakenError:
            await self._parts.mqtt.stop()
            raise
        except UnavailableError as error:
            self._log.warning("node_waits", reason=str(error))
            self._supervise("begin", self._begin_when_possible(), ends=True)
        self._supervise("ready", self._become_ready(), ends=True)

    async def stop(self) -> None:
        """Stop in the order in which nothing gets lost."""
        parts = self._parts
        self._state = NodeState.DRAINING
        self._log.info("node_drains")
        # No new responses; those that arrived are recorded and acknowledged while store and broker are still there.
        await self._step("unsubscribe", parts.mqtt.unsubscribe())
        await self._step("settle", parts.dispatcher.drained())
        await self._step("follow_up", parts.invoker.drained())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._step("disconnect", parts.mqtt.stop())
        await self._step("leave", parts.cluster.leave())
        await self._step("close", parts.store.close())
        self._state = NodeState.STOPPED
        self._log.info("node_stopped")

    async def _begin(self) -> None:
        await self._parts.store.start()
        await self._parts.cluster.join(self._parts.info)

    async def _begin_when_possible(self) -> None:
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
                await self._begin()

    async def _become_ready(self) -> None:
        begin = next((task for task in self._tasks if task.get_name() == "begin"), None)
        if begin is not None:
            await asyncio.wait((begin,))
        parts = self._parts
        self._supervise("expirer", parts.expirer.run())
        self._supervise("delivery", parts.delivery.run())
        self._supervise("sweeper", parts.sweeper.run())
        await parts.mqtt.wait_connected()
        if self._state is NodeState.STARTING:
            self._state = NodeState.READY
            self._log.info("node_ready", client_id=parts.info.client_id)

    def _supervise(self, name: str, work: Coroutine[Any, Any, None], *, ends: bool = False) -> None:
        """Run a part in the background; unless it `ends` by design, its end is a failure of the node."""

        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled() or self._state is NodeState.DRAINING:
                return
            error = task.exception()
            if error is None and ends:
                return
            self._log.error("node_failed", part=name, reason=str(error), exc_info=error)
            self._on_failure(error or RuntimeError(f"{name} ended"))

        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(ended)
        self._tasks.append(task)

    async def _step(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            async with asyncio.timeout(STEP_BUDGET):
                await work
        except (HomingError, TimeoutError) as error:
            self._log.warning("stop_step_failed", step=name, reason=str(error) or type(error).__name__)

    async def _store_health(self) -> str:
        try:
            async with asyncio.timeout(PING_BUDGET):
                await self._parts.store.ping()
        except TimeoutError:
            return "the store does not answer"
        except HomingError as error:
            return str(error)
        return "ok"
