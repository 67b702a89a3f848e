"""Lanes in which a command has its turn as soon as the broker has the one before it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

import structlog

from app.callbacks.observer import Observers
from app.commands.send.publisher import Publisher
from app.core.commands.command import Command
from app.core.errors import CapacityError, UnavailableError
from app.core.messages import Receipt
from app.core.profiles.lanes import LaneOrder
from app.mqtt.base import Puback
from app.store.holds import HoldStore


class LaneTurns:
    """Frees the places of such lanes when PUBACKs come, and tells who is next.

    Where nobody was subscribed, or the store is away, a place becomes free with the outcome.
    """

    def __init__(self, store: HoldStore, publisher: Publisher, observers: Observers) -> None:
        self._store: Final = store
        self._observers: Final = observers
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._log = structlog.get_logger()
        publisher.handed_over.add(self._handed_over)

    async def drained(self) -> None:
        """Return when all that was begun is done."""
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    def _handed_over(self, command: Command, puback: Puback) -> None:
        if command.lane is not None and command.lane.order is LaneOrder.FIFO_ACK:
            puback.add_done_callback(partial(self._after_puback, command.id))

    def _after_puback(self, command_id: str, puback: asyncio.Future[Receipt]) -> None:
        if puback.cancelled() or puback.exception() is not None or puback.result() is Receipt.UNMATCHED:
            return
        task = asyncio.get_running_loop().create_task(self._pass_on(command_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, command_id: str) -> None:
        try:
            follower = await self._store.pass_on(command_id)
        except (UnavailableError, CapacityError) as failure:
            self._log.debug("lane_not_passed_on", command_id=command_id, reason=str(failure))
            return
        if follower is not None:
            for tell_next in self._observers.next_in_lane:
                tell_next(follower)
