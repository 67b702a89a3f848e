"""Commands of a caller with a key: how nodes answered them, and how soon."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final

import aiohttp

from app.core.access.keys import Key
from homing_rig.directory import bearer
from homing_rig.figures.kit import p99

COMMAND: Final = {"method": "cover_open", "if_offline": "send", "profile": "dji"}
HEADERS: Final = {"Prefer": "respond-async"}


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a node about a command."""

    status: int
    command_id: str
    """Empty if the command was refused."""
    retry_after: float
    """Seconds; 0 if the node named none."""


@dataclass
class Calls:
    """Sends commands with one key, and keeps how they were answered."""

    session: aiohttp.ClientSession
    key: Key
    times: list[float] = field(default_factory=list)
    """Seconds."""
    statuses: Counter[int] = field(default_factory=Counter)

    async def send(self, url: str, number: int, devices: int = 100, timeout: str = "1s") -> Answer:
        """Send a command to one of so many devices through the node at this URL."""
        target, headers = f"{url}/v1/devices/dock-{number % devices}/commands", bearer(self.key) | HEADERS
        began = perf_counter()
        async with self.session.post(target, json={**COMMAND, "timeout": timeout}, headers=headers) as response:
            told: dict[str, Any] = await response.json(content_type=None)
        self.times.append(perf_counter() - began)
        self.statuses[response.status] += 1
        return Answer(response.status, str(told.get("id", "")), float(response.headers.get("Retry-After", "0")))

    @property
    def p99(self) -> float:
        """Milliseconds."""
        return p99(self.times) * 1000


def unlimited_session(seconds: float = 300.0) -> aiohttp.ClientSession:
    """A client with any number of connections, and so many seconds for each call."""
    connector = aiohttp.TCPConnector(limit=0)
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=seconds))
