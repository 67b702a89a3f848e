"""Schedules: fleet runs and commands that begin at set times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from homing_client._answers import entry_of, listed, nothing_of
from homing_client._async.session import AsyncSession
from homing_client._node_models import Entry
from homing_client._operations import JsonObject, changed
from homing_client._wire import Request

_ALL: Final = "/v1/schedules"
_ONE: Final = "/v1/schedules/{name}"


class AsyncSchedules:
    """The schedules of a cluster, as far as the caller may see and change them. `AsyncHoming.schedules`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def all(self) -> list[JsonObject]:
        """List all schedules, with what comes next and the last occurrences of each."""
        return listed(await self._session.exchange(Request("GET", _ALL)), "schedules")

    async def get(self, schedule: str) -> Entry:
        """Show a schedule. Raises NotFoundError."""
        return entry_of(await self._session.exchange(Request("GET", _ONE, path={"name": schedule})))

    async def put(self, schedule: str, body: Mapping[str, Any], *, if_match: str | None = None) -> Entry:
        """Create or replace a schedule. It acts as the caller. Raises ConflictError.

        `{"cron": "0 6 * * *", "zone": "Europe/Berlin", "device": "dock-1", "command": {"method": "cover_open"}}`, or
        `run` in place of device and command.
        """
        asked = changed("PUT", _ONE, {"name": schedule}, body, if_match)
        return entry_of(await self._session.exchange(asked))

    async def delete(self, schedule: str, *, if_match: str | None = None) -> None:
        """Delete a schedule. What it has begun goes on. Raises ConflictError, NotFoundError."""
        asked = changed("DELETE", _ONE, {"name": schedule}, None, if_match)
        nothing_of(await self._session.exchange(asked))
