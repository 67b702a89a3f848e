"""The runs that this node drives: those that fall to it, and those that nobody drives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from app.cluster.shares import falls_to
from app.core.errors import CapacityError, UnavailableError
from app.fleets.driver import LEASE, DriverPorts, RunDriver
from app.runtime.tasks import end
from app.runtime.telemetry import Fill

MOST_DRIVEN: Final = 50
PATIENCE_SECONDS: Final = 3.0
"""After so long any node takes a run whose own node does not: that may be one of an earlier version."""
FAILED_SECONDS: Final = 10.0
"""A run whose driver has failed here is not taken for so long: a node of a later version may be able to drive it."""


class FleetDrivers:
    """`live` are the ids of the live nodes. `secret` tells this process from others of the same node id."""

    def __init__(
        self,
        *,
        ports: DriverPorts,
        live: Callable[[], Awaitable[Sequence[str]]],
        node_id: str,
        secret: str,
        interval: float,
    ) -> None:
        self._ports = ports
        self._store = ports.store
        self._live = live
        self._node_id = node_id
        self._holder = f"{node_id} {secret}"
        self._interval = interval
        self._monotonic = ports.clock.monotonic
        self._counters = ports.counters
        self._driven: dict[str, asyncio.Task[None]] = {}
        self._seen: dict[str, float] = {}
        self._gone: dict[str, float] = {}
        self._failed: dict[str, float] = {}
        """The runs whose driver has failed, and when."""
        self._changed = asyncio.Event()
        self._log = structlog.get_logger()

    def fills(self) -> dict[str, Fill]:
        """Return how many runs are driven here."""
        return {"fleet_runs": Fill(len(self._driven), MOST_DRIVEN)}

    def begin(self, _run_id: str) -> None:
        """Look at once, as there is a new run."""
        self._changed.set()

    def gone(self, node_id: str) -> None:
        """A node is known to be dead: what it drove is taken now."""
        self._gone[node_id] = self._monotonic()
        self._changed.set()

    async def run(self) -> None:
        """Drive what falls to this node, until cancelled."""
        while True:
            try:
                await self.look()
            except (UnavailableError, CapacityError) as failure:
                self._log.debug("fleet_runs_not_read", reason=str(failure))
            self._changed.clear()
            try:
                async with asyncio.timeout(self._interval):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def close(self) -> None:
        """Stop driving, and let other nodes take over at once."""
        driven, self._driven = self._driven, {}
        await end(driven.values())
        for run_id in driven:
            await self._store.let_go(run_id, self._holder)

    async def look(self) -> None:
        """Take the open runs that are this node's, or nobody's."""
        open_runs = await self._store.open_runs()
        now = self._monotonic()
        self._seen = {run_id: self._seen.get(run_id, now) for run_id in open_runs}
        self._gone = {node: at for node, at in self._gone.items() if now - at < LEASE.total_seconds()}
        self._failed = {run_id: at for run_id, at in self._failed.items() if now - at < FAILED_SECONDS}
        waiting = [run_id for run_id in open_runs if run_id not in self._driven and run_id not in self._failed]
        live = await self._live() if waiting else ()
        for run_id in waiting:
            mine = falls_to(self._node_id, live, run_id)
            if len(self._driven) < MOST_DRIVEN and (mine or now - self._seen[run_id] > PATIENCE_SECONDS):
                await self._take(run_id)

    async def _take(self, run_id: str) -> None:
        for gone in self._gone or ("",):
            epoch = await self._store.drive(run_id, self._holder, LEASE, gone and f"{gone} ")
            if epoch:
                break
        else:
            return
        if run_id in self._driven:
            return
        self._log.info("fleet_run_taken", run_id=run_id, epoch=epoch)
        self._counters["fleet.taken"] += 1
        driver = RunDriver(run_id, epoch, self._holder, self._ports)
        task = asyncio.get_running_loop().create_task(driver.run(), name=f"fleet run {run_id}")
        self._driven[run_id] = task
        task.add_done_callback(lambda done: self._ended(run_id, done))

    def _ended(self, run_id: str, task: asyncio.Task[None]) -> None:
        if self._driven.get(run_id) is task:
            del self._driven[run_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("fleet_driver_failed", run_id=run_id, reason=str(error), exc_info=error)
            self._counters["fleet.failed"] += 1
            self._failed[run_id] = self._monotonic()
