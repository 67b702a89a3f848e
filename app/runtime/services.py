"""The parts of a node that live as long as it does: started in order, stopped in reverse, each within its budget."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import structlog

from app.core.errors import HomingError
from app.runtime.families import Family, Labels
from app.runtime.tasks import end
from app.runtime.telemetry import Fill

STEP_SECONDS: Final = 3.0
"""The time that each step of stopping may take before the next one is done regardless."""
STOP: Final = timedelta(seconds=9)
"""The time that all steps may take, though store and broker be away: with the drain delay less than 15."""
LEAST_SECONDS: Final = 0.1
"""The time that a step gets when that is used up."""

Work = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Service:
    """The hooks of a part, for whoever owns its lifetime; a part leaves out those that it does not need."""

    name: str
    run: Work | None = None
    """Works until it is cancelled; when it ends before, the node has failed."""
    drain: Work | None = None
    """Returns when what has begun is done."""
    close: Work | None = None
    """Gives back what it holds."""
    keeps: Callable[[], bool] | None = None
    """True if it leaves a session at the broker, after `drain`, for whoever adopts that of the node's commands."""
    check: Callable[[], str] | None = None
    """Returns the state of its health: `ok` or a sentence."""
    fills: Callable[[], Mapping[str, Fill]] | None = None
    """The fill of its bounded buffers, by name; `/metrics` calls them queues."""
    gauges: Callable[[], Iterable[tuple[Family, Mapping[Labels, float]]]] | None = None
    """Returns further gauges for `/metrics`."""


class Steps:
    """The steps of a stop, each within its budget and all within `stop`."""

    def __init__(self, stop: timedelta = STOP) -> None:
        self._stop = stop.total_seconds()
        self._by = math.inf
        self._log = structlog.get_logger()

    def begin(self) -> None:
        """From now on the time of all steps is running."""
        self._by = asyncio.get_running_loop().time() + self._stop

    def seconds(self) -> float:
        """The budget of the next step."""
        return max(LEAST_SECONDS, min(STEP_SECONDS, self._by - asyncio.get_running_loop().time()))

    async def take(self, name: str, work: Coroutine[Any, Any, None]) -> bool:
        """True if a step was done within its budget."""
        try:
            async with asyncio.timeout(self.seconds()):
                await work
        except (HomingError, TimeoutError) as error:
            self._log.info("stop_step_skipped", step=name, reason=str(error) or type(error).__name__)
            return False
        return True


class Services:
    """`on_failure` is called once for each part that ended though it must run."""

    def __init__(self, services: Sequence[Service], on_failure: Callable[[BaseException], None]) -> None:
        self._services: Final = tuple(services)
        self._on_failure = on_failure
        self._tasks: list[asyncio.Task[Any]] = []
        self._ending = False
        self._log = structlog.get_logger()

    def gauges(self) -> list[tuple[Family, Mapping[Labels, float]]]:
        """All that they show in `/metrics`."""
        return [shown for one in self._services if one.gauges is not None for shown in one.gauges()]

    def fills(self) -> dict[str, Fill]:
        """The fill of every bounded queue of every part."""
        return {name: fill for one in self._services if one.fills is not None for name, fill in one.fills().items()}

    def checks(self) -> dict[str, str]:
        """The health of each part, in its own words."""
        return {one.name: one.check() for one in self._services if one.check is not None}

    def start(self) -> None:
        """Run all parts that run."""
        for one in self._services:
            if one.run is not None:
                self.supervise(one.name, one.run())

    def supervise(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Run work in the background; its end is a failure of the node."""

        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled() or self._ending:
                return
            error = task.exception() or RuntimeError(f"{name} ended")
            unexpected = None if isinstance(error, HomingError) else error  # else the reason says it all
            self._log.error("node_failed", part=name, reason=str(error), exc_info=unexpected)
            self._on_failure(error)

        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(ended)
        self._tasks.append(task)

    def will_end(self) -> None:
        """From now on a part may end."""
        self._ending = True

    def keep_session(self) -> bool:
        """True if one of them leaves a session at the broker."""
        return any(one.keeps is not None and one.keeps() for one in self._services)

    async def drain(self, steps: Steps) -> None:
        """Wait, the last part first, until what has begun is done."""
        for one in reversed(self._services):
            if one.drain is not None:
                await steps.take(f"drain {one.name}", one.drain())

    async def end(self) -> None:
        """Let no part run any more."""
        await end(self._tasks)
        self._tasks.clear()

    async def close(self, steps: Steps) -> None:
        """Close all parts, the last one first."""
        for one in reversed(self._services):
            if one.close is not None:
                await steps.take(f"close {one.name}", one.close())
