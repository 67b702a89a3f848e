"""Callers that wait here for an outcome, and what may end their wait before it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from enum import Enum, auto
from typing import Any, Final

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from app.api.http import current_task
from app.commands.send.invoker import Invocation
from app.core.commands.command import Command
from app.core.errors import AccessError
from app.runtime.telemetry import Counters

WATCH_AFTER: Final = 0.25
"""Seconds after which a wait is watched for its caller hanging up; most commands are answered long before."""


class DismissedError(Exception):
    """The node is about to stop: the caller learns of the outcome from another one."""


class Ending(Enum):
    """The reason why a wait is over before what was waited for."""

    HUNG_UP = auto()
    DISMISSED = auto()
    UNWANTED = auto()
    TOO_SLOW = auto()
    """The caller does not read the bytes that are written."""


class ParkedCaller:
    """A caller who waits. A wait is interrupted by cancelling its task; `why` tells that from others."""

    __slots__ = ("_closed", "_receive", "_task", "_watcher", "may", "why")

    def __init__(self, task: asyncio.Task[Any], receive: Receive, may: Callable[[], None]) -> None:
        self.why: Ending | None = None
        self.may: Final = may
        self._task = task
        self._receive = receive
        self._watcher: asyncio.Future[Message] | None = None
        self._closed = False

    def watch(self) -> None:
        """Listen for the caller hanging up; all else that may come is a body that nobody has read."""
        self._watcher = asyncio.ensure_future(self._receive())
        self._watcher.add_done_callback(self._heard)

    def interrupt(self, why: Ending) -> None:
        """End the wait; the first reason counts."""
        if self.why is None:
            self.why = why
            self._task.cancel()

    def interrupted(self) -> bool:
        """After a CancelledError: whether it was ours, and ours alone."""
        return self.why is not None and self._task.uncancel() == 0

    def close(self) -> None:
        """Listen no more. Something may have been heard in this moment: it must not cancel what the task does next."""
        self._closed = True
        if self._watcher is not None:
            self._watcher.remove_done_callback(self._heard)
            self._watcher.cancel()

    def _heard(self, watcher: asyncio.Future[Message]) -> None:
        if self._closed or watcher.cancelled() or watcher.exception() is not None:
            return
        if watcher.result()["type"] == "http.disconnect":
            self.interrupt(Ending.HUNG_UP)
        else:
            self.watch()


class ParkedCallers(set[ParkedCaller]):
    """The callers that wait for one kind of thing."""

    def dismiss(self) -> None:
        """End all waits now, or they would keep the node from stopping. What was waited for goes on."""
        for place in tuple(self):
            place.interrupt(Ending.DISMISSED)

    def recheck(self) -> None:
        """End the waits of those who may not wait any more."""
        for place in tuple(self):
            try:
                place.may()
            except AccessError:
                place.interrupt(Ending.UNWANTED)


class Parking:
    """All callers of this node that wait for an outcome."""

    def __init__(self, counters: Counters) -> None:
        self._places = ParkedCallers()
        self._counters = counters
        self.dismiss = self._places.dismiss
        self.recheck = self._places.recheck

    def __len__(self) -> int:
        return len(self._places)

    async def wait(
        self, invocation: Invocation, budget: timedelta, receive: Receive, may: Callable[[], None]
    ) -> Command:
        """The command with its outcome, or as it is known when the budget ends.

        ClientDisconnect when the caller hung up, DismissedError after `dismiss`, and after `recheck` what `may` raises.
        """
        loop = asyncio.get_running_loop()
        place = ParkedCaller(current_task(), receive, may)
        self._places.add(place)
        timer = loop.call_later(WATCH_AFTER, place.watch)
        try:
            return await invocation.wait(budget)
        except asyncio.CancelledError:
            if not place.interrupted():
                raise
            if place.why is Ending.DISMISSED:
                self._counters["caller.dismissed"] += 1
                raise DismissedError from None
            if place.why is Ending.UNWANTED:
                self._counters["caller.unwanted"] += 1
                may()
                raise DismissedError from None  # they may again
            self._counters["caller.hung_up"] += 1
            raise ClientDisconnect from None
        finally:
            timer.cancel()
            self._places.discard(place)
            place.close()
