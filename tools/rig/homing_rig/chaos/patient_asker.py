"""Questions to nodes that may be recovering from a fault still."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import aiohttp

PATIENCE_SECONDS: Final = 60.0
"""The time in which a node that runs has to answer a question: more than its recovery takes."""
AGAIN_SECONDS: Final = 0.2
_AWAY: Final = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, TimeoutError)


class PatientAsker:
    """Asks a node again while it, or its store, is away, and counts how often. `patience` is for each question."""

    def __init__(self, http: aiohttp.ClientSession, patience: float = PATIENCE_SECONDS) -> None:
        self.again = 0
        """The number of questions that were asked once more."""
        self._http = http
        self._patience = patience

    async def ask(self, url: str, parameters: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the answer; the last error of aiohttp where the node is away for too long, and at once a refusal."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience
        while True:
            try:
                return await self._answer(url, parameters)
            except aiohttp.ClientResponseError as error:
                if error.status < HTTPStatus.INTERNAL_SERVER_ERROR or loop.time() >= until:
                    raise
            except _AWAY:
                if loop.time() >= until:
                    raise
            self.again += 1
            await asyncio.sleep(AGAIN_SECONDS)

    async def _answer(self, url: str, parameters: Mapping[str, str] | None) -> dict[str, Any]:
        async with self._http.get(url, params=parameters) as answer:
            answer.raise_for_status()
            said: dict[str, Any] = await answer.json()
            return said
