"""Watches what nodes say of themselves while a scenario runs: ready or not, which incarnation, whether canaries die."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import aiohttp
import orjson

from homing_rig.chaos.servers import NodeProcess

LOOK_SECONDS: Final = 0.1
ASK_SECONDS: Final = 2.0
OK: Final = "ok"
_READY: Final = 200


class Look(NamedTuple):
    """The words of a node at an instant of the loop's clock."""

    at: float
    ready: bool
    canary: str
    """Its check of that name; `ok` also where it has none."""
    incarnation: str
    """Empty when it did not say."""


@dataclass(slots=True)
class Watcher:
    """Asks every node ten times a second, until cancelled."""

    session: aiohttp.ClientSession
    nodes: Mapping[str, NodeProcess]
    looks: dict[str, list[Look]] = field(default_factory=dict)
    """The answers of each node in turn."""

    async def run(self) -> None:
        """Ask on and on."""
        await asyncio.gather(*(self._watch(name) for name in self.nodes))

    def between(self, name: str, first: float, last: float) -> Iterator[Look]:
        """Yield what a node said from one instant to another."""
        return (one for one in self.looks.get(name, []) if first <= one.at <= last)

    async def _watch(self, name: str) -> None:
        loop = asyncio.get_running_loop()
        looks = self.looks.setdefault(name, [])
        while True:
            status, health = await self._ask(f"{self.nodes[name].url}/readyz")
            _, cluster = await self._ask(f"{self.nodes[name].url}/v1/nodes")
            own = next((one["incarnation"] for one in cluster.get("nodes", ()) if one["self"]), "")
            canary = health.get("checks", {}).get("canary", OK)
            looks.append(Look(loop.time(), status == _READY, canary, own))
            await asyncio.sleep(LOOK_SECONDS)

    async def _ask(self, url: str) -> tuple[int, Mapping[str, Any]]:
        with suppress(aiohttp.ClientError, OSError, TimeoutError, ValueError):
            async with asyncio.timeout(ASK_SECONDS), self.session.get(url) as response:
                said: Mapping[str, Any] = orjson.loads(await response.read())
                return response.status, said
        return 0, {}
