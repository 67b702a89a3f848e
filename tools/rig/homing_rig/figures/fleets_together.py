"""Fleet runs beside each other, and how soon a run stands that was paused or aborted."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import perf_counter
from typing import Annotated, Any, Final

import aiohttp
from typer import Option

from homing_rig.figures.calls import unlimited_session
from homing_rig.figures.kit import FigureError, Findings
from homing_rig.harness import Cluster, Device, Json, cluster_of, devices
from homing_rig.patience import PATIENCE
from homing_rig.services import MosquittoProcess, RedisProcess
from homing_rig.statistics import median

NODES: Final = 3
ALONE: Final = 5
"""Runs that are measured alone, one after the other."""
STOPPED: Final = 5
"""Runs that are paused, resumed and aborted."""
LONG: Final = 2_000
"""The targets of each of these."""
LOOK_SECONDS: Final = 0.05
STANDS_SECONDS: Final = 3.0


class _Book:
    """The instants at which devices got their commands."""

    def __init__(self) -> None:
        self.last = 0.0

    def answer(self, device: Device, command: Json) -> None:
        self.last = perf_counter()
        device.answer(command)


class _Runs:
    """Fleet runs at nodes in turn."""

    def __init__(self, session: aiohttp.ClientSession, cluster: Cluster) -> None:
        self._session = session
        self._urls = [f"{one.url}/v1/fleet-runs" for one in cluster.nodes]
        self._begun = 0

    async def begin(self, targets: int) -> str:
        """Begin a run of so many targets, which no other run has."""
        self._begun += 1
        body = {
            "targets": {"devices": [f"SN{self._begun}-{index}" for index in range(targets)]},
            "command": {"method": "return_home", "timeout": "60s", "hold": "5m"},
        }
        return str((await self._ask("POST", self._begun, "", body))["id"])

    async def change(self, run_id: str, what: str, body: Mapping[str, Any] | None = None) -> float:
        """Pause, resume or abort it; the instant of the answer."""
        await self._ask("POST", 0, f"/{run_id}/{what}", body or {})
        return perf_counter()

    async def lasts(self, targets: int) -> float:
        """Return how long a run takes from its begin to its end, of which all targets succeed."""
        began = perf_counter()
        run_id = await self.begin(targets)
        while (run := await self._ask("GET", self._begun, f"/{run_id}"))["ended_at"] is None:
            if perf_counter() - began > PATIENCE:
                raise FigureError(f"a run has not ended: {run}")
            await asyncio.sleep(LOOK_SECONDS)
        if run["counts"] != {"succeeded": targets}:
            raise FigureError(f"a run has not succeeded: {run['counts']}")
        return perf_counter() - began

    async def _ask(self, verb: str, node: int, place: str, body: Mapping[str, Any] | None = None) -> Json:
        url = self._urls[node % len(self._urls)] + place
        async with self._session.request(verb, url, json=body) as response:
            told: Json = await response.json(content_type=None)
            if not response.ok:
                raise FigureError(f"{verb} {url}: {told}")
            return told


async def together(
    findings: Findings,
    *,
    runs: Annotated[int, Option(min=1, max=100, help="The number of runs at once.")] = 100,
    targets: Annotated[int, Option(min=1, max=1_000, help="The number of targets of each.")] = 100,
) -> None:
    """Many fleet runs at once, beside one alone, and how soon nothing is sent after a pause and an abort."""
    book = _Book()
    with MosquittoProcess() as broker, RedisProcess() as redis, cluster_of(NODES, redis, broker) as cluster:
        async with unlimited_session() as session, devices(broker, book.answer):
            found = _Runs(session, cluster)
            alone = [await found.lasts(targets) for _ in range(ALONE)]
            at_once = await asyncio.gather(*(found.lasts(targets) for _ in range(runs)))
            late: dict[str, list[float]] = {"pause": [], "abort": []}
            for _ in range(STOPPED):
                run_id = await found.begin(LONG)
                for what, later in late.items():
                    await asyncio.sleep(1.0)
                    stopped_at = await found.change(run_id, what)
                    await asyncio.sleep(STANDS_SECONDS)
                    later.append(max(0.0, book.last - stopped_at))
                    if what == "pause":
                        await found.change(run_id, "resume")
    findings.spread(f"a run of {targets} targets, alone", alone, " s")
    findings.spread(f"each of {runs} at once", at_once, " s")
    findings.figure("the longest of them to one alone", max(at_once) / median(alone), " ×", most=3)
    for what, later in late.items():
        findings.figure(f"from the answer to a {what} to the last command that a device got", max(later), " s", most=1)
