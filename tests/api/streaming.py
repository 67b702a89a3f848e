"""Reads server-sent events from a node that listens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from tests.waiting import PATIENCE


@dataclass(frozen=True)
class Event:
    """One that came in; `data` is read as JSON."""

    name: str
    data: Any
    id: str | None


class Reading:
    """A stream, read event by event."""

    def __init__(self, response: httpx.Response) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.retries: list[int] = []
        self._lines = response.aiter_lines()

    async def next(self) -> Event | None:
        """The next event, comments and times left out; None at the end."""
        async with asyncio.timeout(PATIENCE):
            fields: dict[str, str] = {}
            async for line in self._lines:
                name, _, value = line.partition(": ")
                if name == "retry":
                    self.retries.append(int(value))
                elif line and name:
                    fields[name] = value
                elif "event" in fields:
                    return Event(fields["event"], json.loads(fields["data"]), fields.get("id"))
        return None

    async def all(self) -> list[Event]:
        """The rest of it."""
        events = []
        while (event := await self.next()) is not None:
            events.append(event)
        return events


@asynccontextmanager
async def stream(
    url: str, headers: Mapping[str, str] | None = None, method: str = "GET", **request: Any
) -> AsyncIterator[Reading]:
    """A stream that is open; also when it is refused."""
    async with (
        httpx.AsyncClient(timeout=PATIENCE) as client,
        client.stream(method, url, headers={"Accept": "text/event-stream", **(headers or {})}, **request) as response,
    ):
        yield Reading(response)
