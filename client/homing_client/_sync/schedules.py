# Made by scripts/unasync.py from _async/schedules.py. Do not edit.
"""Schedules: fleet runs and commands that begin at set times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from homing_client._answers import entry_of, listed, nothing_of
from homing_client._node_models import Entry
from homing_client._operations import JsonObject, changed
from homing_client._sync.session import Session
from homing_client._wire import Request

_ALL: Final = "/v1/schedules"
_ONE: Final = "/v1/schedules/{name}"


class Schedules:
    """The schedules of a cluster, as far as the caller may see and change them. `Homing.schedules`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def all(self) -> list[JsonObject]:
        """List all schedules, with what comes next and the last occurrences of each."""
        return listed(self._session.exchange(Request("GET", _ALL)), "schedules")

    def get(self, schedule: str) -> Entry:
        """Show a schedule. Raises NotFoundError."""
        return entry_of(self._session.exchange(Request("GET", _ONE, path={"name": schedule})))

    def put(self, schedule: str, body: Mapping[str, Any], *, if_match: str | None = None) -> Entry:
        """Create or replace a schedule. It acts as the caller. Raises ConflictError.

        `{"cron": "0 6 * * *", "zone": "Europe/Berlin", "device": "dock-1", "command": {"method": "cover_open"}}`, or
        `run` in place of device and command.
        """
        asked = changed("PUT", _ONE, {"name": schedule}, body, if_match)
        return entry_of(self._session.exchange(asked))

    def delete(self, schedule: str, *, if_match: str | None = None) -> None:
        """Delete a schedule. What it has begun goes on. Raises ConflictError, NotFoundError."""
        asked = changed("DELETE", _ONE, {"name": schedule}, None, if_match)
        nothing_of(self._session.exchange(asked))
